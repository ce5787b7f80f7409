// Search runs in a worker, and browsers give none to pages that are opened from the file system. There, a hidden frame
// takes its place: the worker's script runs in it, and messages go back and forth.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve, reject) => {
        this.frame.onload = () => {
          const inside = this.frame.contentWindow;
          const script = inside.document.createElement("script");
          inside.postMessage = data => setTimeout(() => this.onmessage?.({ data }));
          script.onload = () => resolve(inside);
          script.onerror = reject;
          script.src = url;
          inside.document.body.append(script);
        };
      });
      this.ready.catch(() => this.onerror?.(new Event("error", { cancelable: true })));
      document.body.append(this.frame);
    }
    postMessage(data) {
      this.ready.then(inside => inside.onmessage?.({ data: structuredClone(data) }), () => {});
    }
    terminate() {
      this.frame.remove();
    }
  };
}

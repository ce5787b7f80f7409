"""The site: it builds without a warning, every page can be reached, every name is in the reference, search works."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cantons as ct
from cantons.algorithm import ALGORITHMS

ROOT = Path(__file__).resolve().parents[1]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Opens the search, types into it, and gives the links that it finds; roots in the shadow hold what the page does not.
SEARCH = """(async () => {
  const until = async find => {
    for (let turn = 0; turn < 100; turn++) {
      const found = find();
      if (found) return found;
      await new Promise(resolve => setTimeout(resolve, 100));
    }
    throw `waited in vain for ${find}`;
  };
  const inside = tag => [...document.querySelectorAll("*")].flatMap(
    node => [...node.shadowRoot?.querySelectorAll(tag) ?? []]);
  (await until(() => document.querySelector(".md-search__button"))).click();
  const input = await until(() => inside("input")[0]);
  await until(() => document.querySelector("iframe"));
  input.value = "fedrep";
  input.dispatchEvent(new Event("input", { bubbles: true }));
  return (await until(() => inside("a").length && inside("a"))).map(link => link.href);
})()"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where the site is built: strictly, so that a link or an anchor that leads nowhere is an error."""
    build = tmp_path_factory.mktemp("build")
    done = subprocess.run([sys.executable, ROOT / "docs" / "make_site.py", build], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return build / "site"


@pytest.fixture
def docs(monkeypatch):
    """`docs(name)`: a module of docs/."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return __import__


def test_it_loads_nothing_from_elsewhere_and_leaves_nothing_unfilled(site):
    pages = {page.relative_to(site).as_posix(): page.read_text() for page in site.rglob("*.html")}
    assert {f"algorithms/{name}.html" for name in ALGORITHMS} < pages.keys()
    assert "data:image/png" in pages["notebook.html"] and "worst 10%" in pages["notebook.html"]
    for name, text in pages.items():
        assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="?(?:https?:)?//', text), name
        assert not re.findall(r"<!-- (?:algorithms|options|help)", text), name


def test_every_page_can_be_reached_from_the_first(site):
    """Through links that stand in the pages, whatever scripts do."""
    found, waiting = set(), [site / "index.html"]
    while waiting:
        page = waiting.pop()
        if page not in found:
            found.add(page)
            links = re.findall(r'<a [^>]*?href="([^"#?:]+\.html)', page.read_text())
            waiting += [Path(os.path.normpath(page.parent / link)) for link in links]
    assert found == set(site.rglob("*.html")) - {site / "404.html"}


@pytest.mark.skipif(BROWSER is None, reason="no browser to search with: apt-get install chromium")
def test_search_works_from_the_file_system(site, tmp_path):
    found = evaluate(SEARCH, (site / "index.html").as_uri(), tmp_path)
    assert any(link.startswith((site / "algorithms" / "fedrep.html").as_uri()) for link in found)


def evaluate(script, address, profile):
    """What a script gives in a page, by the browser's own protocol: messages that end in a zero byte."""
    (theirs, ask), (answers, to_us) = os.pipe(), os.pipe()
    ends = os.dup(theirs), os.dup(to_us)  # neither is 3 or 4, where the browser looks for them
    connect = f'exec "$0" "$@" 3<&{ends[0]} 4>&{ends[1]}'  # in a shell: JAX forbids what Python would do after a fork
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--remote-debugging-pipe"]
    browser = subprocess.Popen(["bash", "-c", connect, BROWSER, *flags], pass_fds=ends, stderr=subprocess.DEVNULL)
    received = b""

    def call(method, session=None, **params):
        nonlocal received
        message = {"id": 1, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(ask, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in received:
                received += os.read(answers, 65536)
            answer, _, received = received.partition(b"\0")
            if "id" in json.loads(answer):
                return json.loads(answer).get("result", {})

    def value(expression):
        return call("Runtime.evaluate", session, expression=expression, awaitPromise=True, returnByValue=True)["result"]

    try:
        session = call("Target.attachToTarget", targetId=call("Target.createTarget", url="about:blank")["targetId"],
                       flatten=True)["sessionId"]
        call("Page.navigate", session, url=address)
        for _ in range(100):
            if value("location.protocol + document.readyState").get("value") == "file:complete":
                return value(script)["value"]
            time.sleep(0.1)
        raise AssertionError("the page was not opened")
    finally:
        browser.kill()
        browser.wait()
        for end in (theirs, ask, answers, to_us, *ends):
            os.close(end)


def test_every_public_name_is_on_one_page_of_the_reference_with_its_options(docs):
    reference = docs("reference")
    names = {chapter: reference.names_of(chapter) for chapter in reference.CHAPTERS}
    public = [name for found in names.values() for name in found if name.startswith("ct.")]
    assert sorted(public) == sorted(f"ct.{name}" for name in ct.__all__)
    made = reference.reference_pages()
    for chapter, found in names.items():
        text = made[f"reference/{chapter}.md"]
        assert " at 0x" not in text, "the same code makes the same page"
        for written, value in found.items():
            entry = text.partition(f"## `{written}` ")[2].partition("\n## ")[0]
            head = entry.partition("```python\n")[2].partition("```")[0]
            for option in () if inspect.isclass(value) else inspect.signature(value).parameters.values():
                flat = "Flat[" in str(option.annotation)  # a group, whose options stand for it
                assert flat or re.search(rf"\b{option.name}\b", head), f"{written} has an option {option.name}"


def test_a_page_that_the_navigation_does_not_name_is_an_error(docs):
    navigation = docs("make_site").navigation
    made = {"parts/index.md": "# Parts", "parts/one.md": "# The first\n"}
    nav = [{"Home": "index.md"}, {"Parts": ["parts/index.md"]}]
    found = navigation(nav, made, {"index.md", *made})
    assert found[1]["Parts"] == ["parts/index.md", {"The first": "parts/one.md"}]
    with pytest.raises(SystemExit, match="does not name lost.md"):
        navigation([{"Home": "index.md"}], {}, {"index.md", "lost.md"})

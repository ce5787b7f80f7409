"""Run a command of cantons, and die at its N-th file operation inside a folder, as a kill at that moment would.

    python tests/study/die_at.py 17 -- run study.toml --out results/x --resume
    python tests/study/die_at.py 17 --inside results -- compare one.toml two.toml --out results/compare

Counted is what changes files inside the folder (by default the one after --out): opening for writing, renaming,
making and removing files and folders, and fsync. The process ends with exit code 137 just before operation N: without
flushing, without `finally`, without its locks being given back. If there are fewer operations (N = 0: never die), the
command ends as usual, and the last line on standard error is "N file operations". `--list` prints each operation there.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit event -> the places of its paths, and of the folders (dir_fd) that these are relative to.
CHANGES = {"os.rename": ((0, 2), (1, 3)), "os.mkdir": ((0, 2),), "os.remove": ((0, 1),), "os.rmdir": ((0, 1),),
           "os.link": ((1, 3),), "os.symlink": ((1, 2),), "os.truncate": ((0, None),)}


class Death:
    """Counts the file operations inside a folder, and ends the process at one of them."""

    def __init__(self, at: int, inside: Path, shown: bool = False):
        self.at, self.inside, self.shown = at, os.path.realpath(inside), shown
        self.count = 0
        self._lock = threading.Lock()  # writers may work in threads

    def watch(self) -> None:
        sys.addaudithook(self._hear)
        fsync = os.fsync

        def watched(file) -> None:  # there is no audit event for it
            self._happens("fsync", os.readlink(f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}"))
            fsync(file)

        os.fsync = watched

    def _hear(self, event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITES:
                self._happens("open", path)
        elif event in CHANGES:
            self._happens(event, *(_whole(arguments[place], -1 if folder is None else arguments[folder])
                                   for place, folder in CHANGES[event]))

    def _happens(self, what: str, *paths) -> None:
        named = [os.fsdecode(path) for path in paths if isinstance(path, str | bytes | os.PathLike)]
        if not any(self._is_inside(path) for path in named):
            return
        with self._lock:
            self.count += 1
            if self.shown:
                os.write(2, f"{self.count} {what} {' '.join(named)}\n".encode())
            if self.count == self.at:
                os._exit(137)

    def _is_inside(self, path: str) -> bool:
        whole = os.path.abspath(path)
        return whole == self.inside or whole.startswith(self.inside + os.sep)


def _whole(path, folder: int):
    """A path relative to an open folder, as shutil.rmtree uses them, made absolute."""
    return path if folder < 0 else os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("at", type=int)
    parser.add_argument("--inside", type=Path)
    parser.add_argument("--list", action="store_true", dest="shown")
    own, command = sys.argv[1:], []
    if "--" in own:
        own, command = own[:own.index("--")], own[own.index("--") + 1:]
    options = parser.parse_args(own)
    inside = options.inside or (Path(command[command.index("--out") + 1]) if "--out" in command else None)
    if inside is None:
        parser.error("say which folder: --inside FOLDER, or --out FOLDER among the arguments of cantons.")
    from cantons.cli.main import cantons

    death = Death(options.at, inside, options.shown)
    death.watch()
    try:
        cantons.main(args=command, prog_name="cantons")  # leaves by SystemExit
    finally:
        print(f"{death.count} file operations", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

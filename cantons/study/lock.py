"""One writer at a time: a run folder is locked while somebody writes to it.

The lock belongs to the open file, so the system gives it back when its owner dies, however it dies; what stands in the
file only tells others who it is.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from cantons.files import CannotWrite, explain

NAME = ".lock"
UNABLE = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # a disk that has no locks


class Lock:
    """The lock of one folder, taken when it is made."""

    def __init__(self, folder: Path):
        self.path = folder / NAME
        self.unable = ""  # why there is no lock, if the disk has none
        with explain(self.path):
            while True:
                self._file: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    if self._take(folder):
                        return
                except BaseException:
                    os.close(self._file)
                    raise
                os.close(self._file)

    def _take(self, folder: Path) -> bool:
        """Lock the open file; False if its last owner removed it just now, and another one is to be opened."""
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CannotWrite(f"{folder} is being written to by {_owner(self._file)}; wait until it ends, or choose "
                              "another folder.") from error
        except OSError as error:
            if error.errno not in UNABLE:
                raise
            self.unable = f"{folder} cannot be locked ({error.strerror}); let nobody else write to it meanwhile."
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._file), os.stat(self.path)):
                about = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, (json.dumps(about) + "\n").encode(), 0)
                return True
        return False

    def release(self) -> None:
        """Give it back; once is enough."""
        if self._file is not None:
            with suppress(OSError):  # the folder may have been moved
                if os.path.samestat(os.fstat(self._file), os.stat(self.path)):
                    self.path.unlink()
            os.close(self._file)
            self._file = None


def _owner(file: int) -> str:
    """Who wrote this, in words; it may be just about to."""
    try:
        about = json.loads(os.pread(file, 1000, 0))
        return f"process {about['pid']} on {about['host']}, since {about['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"

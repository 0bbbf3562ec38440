"""How commands end, and temporary folders that do not outlive them."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import threading
from typing import Any, Iterator, List

_delays = 0
_delayed: List[int] = []


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end the process as sys.exit does, so that temporary files go and processes that
    were started end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: Any) -> None:
        if _delays:
            _delayed.append(number)
        else:
            sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def delayed() -> Iterator[None]:
    """Signals that `ending_in_order` handles end the process after the block, not in it. A temporary file
    is created and remembered in one such block: a signal in between would leave the file behind."""
    global _delays
    _delays += 1
    try:
        yield
    finally:
        _delays -= 1
    if _delayed and not _delays:
        sys.exit(128 + _delayed.pop())


def temporary_folder(prefix: str) -> "tempfile.TemporaryDirectory[str]":
    """A new folder, which is removed with the object or when the process ends."""
    with delayed():
        return tempfile.TemporaryDirectory(prefix=f"flashattn-{prefix}-")

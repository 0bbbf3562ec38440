"""Orderly exit of commands on signals, and temporary folders that are removed at exit."""

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
    """Inside the context, SIGTERM and SIGHUP end the process like sys.exit, so that temporary files are removed
    and child processes end."""
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
    """Delays the signals that `ending_in_order` handles to the end of the block. One such block creates a temporary
    file and registers it for removal, because a signal between the two steps would leave the file behind."""
    global _delays
    _delays += 1
    try:
        yield
    finally:
        _delays -= 1
    if _delayed and not _delays:
        sys.exit(128 + _delayed.pop())


def temporary_folder(prefix: str) -> "tempfile.TemporaryDirectory[str]":
    """Returns a new folder, which is removed with the object or when the process ends."""
    with delayed():
        return tempfile.TemporaryDirectory(prefix=f"flashattn-{prefix}-")

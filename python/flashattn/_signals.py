"""How commands end."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import Any, Iterator


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end the process as sys.exit does, so that temporary files go and processes that
    were started end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: Any) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

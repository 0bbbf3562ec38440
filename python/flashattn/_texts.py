"""Text that is passed to the library, and values in error messages."""

from __future__ import annotations

from typing import Any

from .errors import ArgumentError


def encode(name: str, text: str) -> bytes:
    """Returns `text` as bytes for the library, which reads up to a zero byte. Raises ArgumentError for text that
    contains a zero or half of a surrogate pair."""
    try:
        found = text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"expected {name} to be Unicode but got a lone surrogate: {text!r}") from None
    if b"\0" in found:
        raise ArgumentError(f"expected {name} without zero bytes but got {text!r}")
    return found


def show(value: Any) -> str:
    """Returns the text of a value in an error message: its repr, unless that is too long."""
    if isinstance(value, int) and value.bit_length() > 256:  # too many digits for a message
        return f"an integer of {value.bit_length()} bits"
    return repr(value)

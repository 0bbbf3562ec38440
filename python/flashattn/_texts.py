"""Texts for the library, and values in the texts of errors."""

from __future__ import annotations

from typing import Any

from .errors import ArgumentError


def encode(name: str, text: str) -> bytes:
    """A text for the library, which reads it up to a zero. Raises ArgumentError for what has one, and
    for half of a surrogate pair."""
    try:
        found = text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"expected {name} to be Unicode but got a lone surrogate: {text!r}") from None
    if b"\0" in found:
        raise ArgumentError(f"expected {name} without zeros but got {text!r}")
    return found


def show(value: Any) -> str:
    """What an error says of a value: as Python writes it, unless it is too long for that."""
    if isinstance(value, int) and value.bit_length() > 256:  # more digits than anybody reads
        return f"an integer of {value.bit_length()} bits"
    return repr(value)

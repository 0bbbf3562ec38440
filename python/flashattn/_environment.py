"""What environment variables say, by one rule for all of them: unset and empty are the same, and a value
that makes no sense is a warning and the default. flashattn/Support/Environment.h says the same for the
library."""

from __future__ import annotations

import os
import warnings
from typing import Optional

_SWITCHES = {"0": False, "off": False, "no": False, "false": False, "1": True, "on": True, "yes": True, "true": True}  # fmt: skip


def variable(name: str) -> Optional[str]:
    """The variable's value; None where it is unset or empty."""
    return os.environ.get(name) or None


def _warn(name: str, expected: str, value: str, used: object) -> None:
    warnings.warn(f"expected {name} to be {expected} but got {value!r}; {used} is used", stacklevel=3)


def switch(name: str, default: bool) -> bool:
    """0, off, no and false are off, 1, on, yes and true are on, in upper and lower case."""
    value = variable(name)
    if value is None:
        return default
    found = _SWITCHES.get(value.lower())
    if found is None:
        _warn(name, "0 or 1", value, int(default))
        return default
    return found


def number(name: str, default: int) -> int:
    """A number of at least 1."""
    value = variable(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and 1 <= int(value[:20]) < 1 << 63):
        _warn(name, "a number of at least 1", value, default)
        return default
    return int(value)

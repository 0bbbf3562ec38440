"""Environment variables. All follow the rules of the library (flashattn/Support/Environment.h): an empty
variable counts as unset, and an invalid value causes a warning and means the default."""

from __future__ import annotations

import os
import warnings
from typing import Optional

_SWITCHES = {"0": False, "off": False, "no": False, "false": False, "1": True, "on": True, "yes": True, "true": True}  # fmt: skip


def variable(name: str) -> Optional[str]:
    """Returns the variable's value; None if the variable is unset or empty."""
    return os.environ.get(name) or None


def _warn(name: str, expected: str, value: str, used: object) -> None:
    warnings.warn(f"expected {name} to be {expected} but got {value!r}; {used} is used", stacklevel=3)


def switch(name: str, default: bool) -> bool:
    """Returns whether a variable is on (1, on, yes or true) or off (0, off, no or false), in upper or lower case."""
    value = variable(name)
    if value is None:
        return default
    found = _SWITCHES.get(value.lower())
    if found is None:
        _warn(name, "0 or 1", value, int(default))
        return default
    return found


def number(name: str, default: int) -> int:
    """Returns the variable's value as a number of at least 1."""
    value = variable(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and 1 <= int(value[:20]) < 1 << 63):
        _warn(name, "a number of at least 1", value, default)
        return default
    return int(value)

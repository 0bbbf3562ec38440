"""What the flags of commands name to be written, as flashattn/Support/OutputFile.h does it for the tools."""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from typing import Optional

from . import _signals


def write_output(path: str, content: bytes) -> None:
    """A regular file appears whole or not at all, beside its place before; of a symbolic link it is the
    target that is replaced. What is no regular file, a device or a FIFO, is written to, and "-" is
    standard output. SystemExit says what cannot be written, and why."""
    try:
        _write(path, content)
    except OSError as error:
        raise SystemExit(f"error: cannot write '{path}': {error.strerror}") from None


def is_stream(path: str) -> bool:
    """Whether what is written to `path` cannot be replaced later."""
    return _descriptor_of(path) is not None or (os.path.exists(path) and not os.path.isfile(path))


def _write(path: str, content: bytes) -> None:
    descriptor = _descriptor_of(path)
    if descriptor is not None:
        sys.stdout.flush()
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        return
    if is_stream(path):
        with open(path, "wb") as file:  # of a folder, an error
            file.write(content)
        return
    target = os.path.realpath(path)
    mode = stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else 0o666 & ~_umask()
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with _signals.delayed():
        handle, name = tempfile.mkstemp(dir=os.path.dirname(target), prefix=os.path.basename(target) + ".")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(name, mode)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise


def _descriptor_of(path: str) -> Optional[int]:
    """The number of an open file of this process that the path names, behind symbolic links."""
    for _ in range(40):
        found = re.fullmatch(r"(?:/proc/self|/dev)/fd/(\d+)", path)
        if found or path == "-":
            return int(found[1]) if found else 1
        if not os.path.islink(path):
            return None
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

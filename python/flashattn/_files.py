"""Output files that flags or arguments name. flashattn/Support/OutputFile.h is the equivalent for the tools."""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from typing import Optional

from . import _signals


def write_output(path: str, content: bytes) -> None:
    """Writes `content` to `path`, as `write_file` does. Raises SystemExit, with the reason, if the file cannot be
    written."""
    try:
        write_file(path, content)
    except OSError as error:
        raise SystemExit(f"error: cannot write '{path}': {error.strerror}") from None


def is_stream(path: str) -> bool:
    """Returns whether `path` is a stream, whose content cannot be replaced later."""
    return _descriptor_of(path) is not None or (os.path.exists(path) and not os.path.isfile(path))


def write_file(path: str, content: bytes) -> None:
    """Writes `content` to `path`. A regular file is replaced atomically by a temporary file in the same folder; for
    a symbolic link, the target is replaced. A device or a FIFO is written to directly. "-" is standard output.
    Raises OSError if the file cannot be written."""
    descriptor = _descriptor_of(path)
    if descriptor is not None:
        sys.stdout.flush()
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        return
    if is_stream(path):
        with open(path, "wb") as file:  # fails for a folder
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
    """Returns the file descriptor of this process that the path names, also through symbolic links; None for
    any other path."""
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

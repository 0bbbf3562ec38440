"""The tuner's findings: one JSON file of the user, which the library reads at every compilation.

{"version": 1, "schedules": {"sm_90a/128/128/f16/full": {"schedule": "tile_m = 64, …", …}}}

The key is `Kernel.tuning_key`.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Dict, Optional

from .errors import FlashAttnError

_VERSION = 1


def enabled() -> bool:
    """FLASHATTN_TUNED=0 leaves the findings aside."""
    return os.environ.get("FLASHATTN_TUNED", "1") != "0"


def default_path() -> Path:
    """schedules.json in the user's cache folder: $XDG_CACHE_HOME/flashattn, or ~/.cache/flashattn."""
    base = os.environ.get("XDG_CACHE_HOME")
    # A relative one is to be ignored, says the XDG base directory specification.
    folder = Path(base) if base and os.path.isabs(base) else Path.home() / ".cache"
    return folder / "flashattn" / "schedules.json"


def load(path: Optional[Path] = None) -> Dict[str, Dict[str, Any]]:
    """All findings. Raises FlashAttnError for a file that is not one of them."""
    path = path or default_path()
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise FlashAttnError(f"cannot read {path}: {error.strerror}") from None
    try:
        content = json.loads(text)
        found = content["schedules"] if content["version"] == _VERSION else None
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        raise FlashAttnError(
            f"expected tuned schedules of version {_VERSION} in {path}; delete it and tune again"
        )
    return found


def store(key: str, finding: Dict[str, Any], path: Optional[Path] = None) -> Path:
    """Adds a finding. The file is replaced whole or not at all."""
    path = path or default_path()
    found = dict(load(path))
    found[key] = finding
    write_json({"version": _VERSION, "schedules": dict(sorted(found.items()))}, path)
    return path


def write_json(content: Any, path: Path) -> None:
    """Writes the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=str(path.parent), prefix=path.name + ".")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
        os.chmod(name, 0o644)
        os.replace(name, str(path))
    except BaseException:
        os.unlink(name)
        raise

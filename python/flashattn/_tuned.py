"""Tuned schedules: one JSON file per user, which the library reads at every compilation.

{"version": 4, "schedules": {"sm_90a/128/128/f16/full": {"schedule": "tile_m = 64, …", …}}}

The key is `Kernel.tuning_key`. Only the library determines the path and the content of the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Optional

from . import _environment, _library


def enabled() -> bool:
    """Returns whether tuned schedules are used. FLASHATTN_TUNED=0 disables them."""
    return _environment.switch("FLASHATTN_TUNED", True)


def default_path() -> Path:
    """Returns the path of schedules.json in the user's cache folder."""
    return Path(_library.get().tuned_path())


def load(path: Optional[Path] = None) -> Dict[str, Dict[str, Any]]:
    """Returns all tuned schedules by key. Raises FlashAttnError for a file of another format."""
    return dict(json.loads(_library.get().tuned_load(path)))


def check(path: Optional[Path] = None) -> None:
    """Creates the folder. Raises FlashAttnError if a finding could not be stored."""
    _library.get().tuned_store(path, "", None)


def store(key: str, finding: Dict[str, Any], path: Optional[Path] = None) -> Path:
    """Stores a finding and returns the path of the file, which is replaced atomically."""
    _library.get().tuned_store(path, key, json.dumps(finding))
    return path or default_path()

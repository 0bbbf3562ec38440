"""The tuner's findings: one JSON file of the user, which the library reads at every compilation.

{"version": 2, "schedules": {"sm_90a/128/128/f16/full": {"schedule": "tile_m = 64, …", …}}}

The key is `Kernel.tuning_key`. Where the file is, and what is in it, the library alone knows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Optional

from . import _environment, _library


def enabled() -> bool:
    """FLASHATTN_TUNED=0 leaves the findings aside."""
    return _environment.switch("FLASHATTN_TUNED", True)


def default_path() -> Path:
    """schedules.json in the user's cache folder."""
    return Path(_library.get().tuned_path())


def load(path: Optional[Path] = None) -> Dict[str, Dict[str, Any]]:
    """All findings. Raises FlashAttnError for a file that is not one of them."""
    return dict(json.loads(_library.get().tuned_load(path)))


def check(path: Optional[Path] = None) -> None:
    """Raises FlashAttnError where a finding could not be stored; makes the folder."""
    _library.get().tuned_store(path, "", None)


def store(key: str, finding: Dict[str, Any], path: Optional[Path] = None) -> Path:
    """Adds a finding. The file is replaced whole or not at all."""
    _library.get().tuned_store(path, key, json.dumps(finding))
    return path or default_path()

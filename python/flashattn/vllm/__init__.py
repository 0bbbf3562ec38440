"""An attention backend for vLLM, which finds it by the entry point of this package::

    vllm serve MODEL --attention-backend CUSTOM

vLLM's engine for the CPU knows only its own backend, so flashattn takes its place there::

    FLASHATTN_VLLM_BACKEND=CPU_ATTN vllm serve MODEL
"""

from __future__ import annotations

import warnings
from typing import Any, Optional

from .. import _environment
from ..errors import UnsupportedError

#: The backend of vLLM whose place flashattn takes by default. vLLM keeps it free for packages like this one.
NAME = "CUSTOM"
#: The class that vLLM imports when it is asked for this backend.
PATH = "flashattn.vllm._backend.FlashAttnBackend"


def register(name: Optional[str] = None) -> None:
    """Registers flashattn with vLLM as the backend `name`. vLLM's entry point calls it in every process. May be
    called more than once.

    Args:
      name: a member of vLLM's `AttentionBackendEnum`; by default, the value of FLASHATTN_VLLM_BACKEND, or else
        "CUSTOM". Any other member than "CUSTOM" loses its own backend.

    Raises:
      UnsupportedError: vLLM is missing or too old.
    """
    registry = _registry()
    members = registry.AttentionBackendEnum.__members__
    if name is None:
        name = _environment.variable("FLASHATTN_VLLM_BACKEND") or NAME
        if name not in members:
            warnings.warn(
                f"expected FLASHATTN_VLLM_BACKEND to be a backend of vLLM but got {name!r}; {NAME} is used",
                stacklevel=2,
            )
            name = NAME
    if name not in members:
        raise UnsupportedError(f"expected a backend of vLLM, such as {NAME}, but got {name!r}")
    member = members[name]
    if name == NAME and member.is_overridden() and member.get_path() != PATH:
        warnings.warn(
            f"expected the backend {NAME} of vLLM to be free but got {member.get_path()}, which stays in use; "
            "set FLASHATTN_VLLM_BACKEND to another backend",
            stacklevel=2,
        )
        return
    registry.register_backend(member, PATH)


def _registry() -> Any:
    """Returns vLLM's registry of backends, if this is a vLLM that `_backend` is written for."""
    try:
        import vllm
    except ImportError:
        raise UnsupportedError(
            "expected the package vllm, for which flashattn.vllm computes attention, but found none"
        ) from None
    try:
        import vllm.v1.kv_cache_layout  # noqa: F401  # keys and values side by side: 0.32 and later
        from vllm.v1.attention.backends import registry
    except ImportError:
        found = getattr(vllm, "__version__", "an unknown version")
        raise UnsupportedError(f"expected vllm 0.32 or later but got {found}") from None
    return registry

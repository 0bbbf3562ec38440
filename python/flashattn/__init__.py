"""Attention compiled by MLIR for GPUs and CPUs.

    import flashattn
    o = flashattn.attention(q, k, v, mask=flashattn.causal)

`bias`, `keep`, `softcap`, `sink_logits`, `kv_len`, `offset` and `score_mod`, a function of Python such
as `lambda score, b, h, p, k: score - 0.1 * abs(p - k)`, shape the scores; `flashattn.math` has what
such a function calls. `attention_backward` gives the gradients; of tensors of torch that require
some, torch's autograd asks for them itself.

`attention` runs on what the tensors are on: NumPy arrays on the CPU, CUDA tensors of PyTorch, CuPy
or anything with `__cuda_array_interface__` or DLPack on their GPU. `compile` gives a kernel to look
into. `python -m flashattn doctor` says what is found on this machine.
"""

from . import math
from ._attention import attention
from ._backward import attention_backward
from ._cache import CacheInfo, cache_info, set_cache_limits
from ._kernel import Kernel, compile
from .errors import (
    ArgumentError,
    CompileError,
    DeviceError,
    FlashAttnError,
    KeywordError,
    LibraryError,
    TraceError,
    UnsupportedError,
)
from .masks import Mask, affine_set, causal, sink, window
from .math import where

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "CacheInfo",
    "CompileError",
    "DeviceError",
    "FlashAttnError",
    "Kernel",
    "KeywordError",
    "LibraryError",
    "Mask",
    "TraceError",
    "UnsupportedError",
    "affine_set",
    "attention",
    "attention_backward",
    "cache_info",
    "causal",
    "compile",
    "math",
    "set_cache_limits",
    "sink",
    "where",
    "window",
]

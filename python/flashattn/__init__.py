"""Attention compiled by MLIR for GPUs and CPUs.

    import flashattn
    o = flashattn.attention(q, k, v, mask=flashattn.causal)

`attention` runs where the tensors are: NumPy arrays on the CPU, and CUDA tensors of PyTorch, CuPy or
any library with `__cuda_array_interface__` or DLPack on their GPU.

`bias`, `attn_mask`, `softcap`, `sink_logits`, `kv_len`, `offset` and `score_mod` shape the scores. A
`score_mod` is a Python function such as `lambda score, b, h, p, k: score - 0.1 * abs(p - k)`;
`flashattn.math` provides the functions that it may call.

`attention_backward` computes the gradients. PyTorch tensors that require gradients take part in
autograd instead. `compile` returns a kernel whose code can be inspected. `python -m flashattn doctor`
reports what is installed on this machine.
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

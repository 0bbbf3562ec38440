"""Attention compiled by MLIR for GPUs and CPUs.

    import flashattn
    o = flashattn.attention(q, k, v, mask=flashattn.causal)

`attention` runs on the device that holds the tensors: the CPU for NumPy arrays, and the GPU for CUDA
tensors of PyTorch, CuPy or any library with `__cuda_array_interface__` or DLPack.

The optional arguments `bias`, `attn_mask`, `softcap`, `sink_logits`, `kv_len`, `offset` and `score_mod`
modify the scores, the mask or the softmax; `cu_seqlens_q`, `cu_seqlens_k` and `q_len` are for sequences of
unequal lengths; `k_scale` and `v_scale` are the scales of keys and values of 8 bits, which `quantize` makes.
A `score_mod` is a Python function such as `lambda score, b, h, p, k: score - 0.1 * abs(p - k)`; it may
call the functions of `flashattn.math`.

`attention_backward` computes the gradients. For PyTorch tensors that require gradients, `attention`
supports autograd instead. `compile` returns a kernel whose code can be inspected.
`python -m flashattn doctor` reports the installed components and the devices of this machine.
"""

from . import _torch, math
from ._attention import attention
from ._backward import attention_backward
from ._balance import balanced_shards
from ._cache import CacheInfo, cache_info, set_cache_limits
from ._context import plan_context
from ._kernel import Kernel, compile
from ._quantize import quantize
from ._shards import Shards
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
from .masks import (
    Mask,
    affine_set,
    causal,
    causal_if,
    documents,
    flashmask,
    left_padding,
    prefix,
    ranges,
    shared_question,
    sink,
    tree,
    window,
)
from .math import where

__version__ = "0.1.0"


def _import_operators() -> None:
    from .torch import _ops  # noqa: F401


_torch.import_operators = _import_operators

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
    "Shards",
    "TraceError",
    "UnsupportedError",
    "affine_set",
    "attention",
    "attention_backward",
    "balanced_shards",
    "cache_info",
    "causal",
    "causal_if",
    "compile",
    "documents",
    "flashmask",
    "left_padding",
    "math",
    "plan_context",
    "prefix",
    "quantize",
    "ranges",
    "set_cache_limits",
    "shared_question",
    "sink",
    "tree",
    "where",
    "window",
]

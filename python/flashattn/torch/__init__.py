"""Attention in PyTorch: `flashattn.torch.sdpa` replaces `scaled_dot_product_attention`.

    import flashattn.torch
    o = flashattn.torch.sdpa(q, k, v, is_causal=True)

    with flashattn.torch.replace_sdpa():
        logits = model(tokens)

Importing this package registers the operator `torch.ops.flashattn.attention`, by which PyTorch can also
compile, export and batch `flashattn.attention`. The package is separate because the rest of flashattn does
not require PyTorch.
"""

import torch.distributed

from . import _ops  # noqa: F401
from ._append import append
from ._decode import decode
from ._flex import affine_mask, flex_attention
from ._hook import register
from ._sdpa import replace_sdpa, sdpa

if torch.distributed.is_available():
    from ._parallel import context_parallel  # noqa: F401

__all__ = ["affine_mask", "append", "decode", "flex_attention", "register", "replace_sdpa", "sdpa"]

"""Attention in PyTorch: `flashattn.torch.sdpa` in place of torch's own attention.

    import flashattn.torch
    o = flashattn.torch.sdpa(q, k, v, is_causal=True)

    with flashattn.torch.replace_sdpa():
        logits = model(tokens)

With this module imported, `flashattn.attention` can be compiled, exported and batched by torch too: it
is one operator, `torch.ops.flashattn.attention`. A package of its own, for nothing else here needs torch.
"""

from . import _ops  # noqa: F401
from ._decode import decode
from ._flex import affine_mask, flex_attention
from ._hook import register
from ._sdpa import replace_sdpa, sdpa

__all__ = ["affine_mask", "decode", "flex_attention", "register", "replace_sdpa", "sdpa"]

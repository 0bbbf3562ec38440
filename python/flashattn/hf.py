"""Attention for models of Hugging Face's transformers library::

    flashattn.hf.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="flashattn")
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Tuple

from torch import Tensor
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    generation,
    masking_utils,
    modeling_utils,
)

from . import torch as _registered  # noqa: F401  # the operators, for models that are compiled
from ._attention import attention
from .errors import ArgumentError, UnsupportedError
from .masks import causal, window

#: The value of `attn_implementation` that selects flashattn.
NAME = "flashattn"


def register() -> None:
    """Registers `attn_implementation="flashattn"` with transformers. May be called more than once."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, make_mask)
    for module in (modeling_utils, masking_utils, generation.utils):
        asked = getattr(module, _ASKED, None)
        if asked is not None and not hasattr(asked, "__wrapped__"):
            setattr(module, _ASKED, _except_here(asked))


#: The name of a function of transformers 5 and later that returns whether "flash" is part of the
#: implementation's name. If so, transformers looks for a package with functions for sequences without padding.
_ASKED = "is_flash_attention_requested"


def _except_here(asked: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(asked)
    def is_requested(config: Any = None, *args: Any, **options: Any) -> bool:
        name = options.get("requested_attention_implementation", args[0] if args else None)
        if NAME in (name, getattr(config, "_attn_implementation", None)):
            return False
        return asked(config, *args, **options)

    return is_requested


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = masking_utils.causal_mask_function,
    attention_mask: Optional[Tensor] = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    **options: Any,
) -> Optional[Tensor]:
    """The mask function that `register` registers with transformers. It returns None if `attend` can build
    the mask itself, and otherwise the Boolean mask of "sdpa", `[B, 1, q_length, kv_length]`.

    `attend` builds causal masks and sliding windows whose last query is aligned with the last key, and
    masks that show all pairs. Padding, packed sequences, chunks and caches with free space at the end
    require a Boolean mask.
    """
    has_padding = attention_mask is not None and not masking_utils.fast_all(attention_mask)
    if not has_padding:
        ends = isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length
        if allow_is_causal_skip and ends and _is_causal(mask_function):
            return None
        if (
            allow_is_bidirectional_skip
            and mask_function is masking_utils.bidirectional_mask_function
        ):
            return None
    return masking_utils.sdpa_mask(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        attention_mask=attention_mask,
        allow_is_causal_skip=False,
        **options,
    )


def _is_causal(mask_function: Callable[..., Any]) -> bool:
    """Returns whether the mask function is causal, with or without a sliding window over past keys."""
    if mask_function is masking_utils.causal_mask_function:
        return True
    # A conjunction is a closure over the tuple of its mask functions.
    cells = [cell.cell_contents for cell in getattr(mask_function, "__closure__", None) or ()]
    parts = cells[0] if len(cells) == 1 and isinstance(cells[0], tuple) else ()
    return (
        len(parts) == 2
        and getattr(parts[0], "__qualname__", "").startswith("sliding_window_overlay.")
        and parts[1] is masking_utils.causal_mask_function
    )


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Optional[Tensor],
    dropout: float = 0.0,
    scaling: Optional[float] = None,
    is_causal: Optional[bool] = None,
    sliding_window: Optional[int] = None,
    softcap: Optional[float] = None,
    s_aux: Optional[Tensor] = None,
    position_bias: Optional[Tensor] = None,
    **options: Any,
) -> Tuple[Tensor, None]:
    """The attention function that `register` registers with transformers. It takes q, k and v of shape
    `[B, H, N, D]` and returns o, `[B, N, Hq, Dv]`, and None in place of the attention weights.

    Args:
      module: the layer; its `is_causal` applies if the argument is_causal is None.
      attention_mask: the result of `make_mask`, or numbers that are added to the scores.
      sliding_window: the number of keys that a query sees, including the key at its own position; applies
        to a causal layer if attention_mask is None.
      s_aux: one logit per query head, added to the softmax denominator only.
      position_bias: numbers that are added to the scores.

    Raises:
      ArgumentError: dropout is not 0, or `flashattn.attention` refuses an argument.
      UnsupportedError: attention weights or a paged cache are requested.
    """
    if dropout:
        raise ArgumentError(
            f"expected attention_dropout 0 but got {dropout}; set it to 0 in the model's config"
        )
    if options.get("output_attentions"):
        raise UnsupportedError(
            "expected output_attentions False but got True; "
            'attn_implementation="eager" has the weights'
        )
    if options.get("cache") is not None:
        raise UnsupportedError(
            "expected no paged cache but got one; use generate() without continuous batching"
        )
    mask = attn_mask = None
    bias = position_bias
    if attention_mask is not None:
        attention_mask = attention_mask[..., : key.shape[2]]
        if attention_mask.dtype.is_floating_point:
            bias = attention_mask if bias is None else bias + attention_mask
        else:
            attn_mask = attention_mask
    elif getattr(module, "is_causal", True) if is_causal is None else is_causal:
        mask = causal if sliding_window is None else window(left=sliding_window - 1, right=0)
    o = attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        layout="bshd",
        mask=mask,
        scale=scaling,
        softcap=softcap,
        bias=bias,
        attn_mask=attn_mask,
        sink_logits=None if s_aux is None else s_aux.float(),
    )
    return o, None

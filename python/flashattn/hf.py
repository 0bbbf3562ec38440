"""Attention for models of Hugging Face's transformers library::

    flashattn.hf.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="flashattn")
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, Dict, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import (
    MODEL_MAPPING,
    AttentionInterface,
    AttentionMaskInterface,
    generation,
    masking_utils,
    modeling_utils,
)
from transformers.utils.import_utils import is_tracing

from . import torch as _registered  # noqa: F401  # the operators, for models that are compiled
from ._attention import attention
from .errors import ArgumentError, UnsupportedError
from .masks import causal, window
from .torch import append

#: The value of `attn_implementation` that selects flashattn.
NAME = "flashattn"


def register() -> None:
    """Registers `attn_implementation="flashattn"` with transformers, also for continuous batching
    (`generate_batch`). May be called more than once."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, make_mask)
    for module in (modeling_utils, masking_utils, generation.utils):
        asked = getattr(module, _ASKED, None)
        if asked is not None and not hasattr(asked, "__wrapped__"):
            setattr(module, _ASKED, _except_here(asked))
    try:
        from transformers.generation.continuous_batching import initialization
    except ImportError:  # older releases
        return
    ensure = getattr(initialization, _TABLES, None)
    if ensure is not None and not hasattr(ensure, "__wrapped__") and hasattr(initialization, _ALLOCATORS):
        setattr(initialization, _TABLES, _with_tables(ensure, initialization))


#: The name of a function of transformers 5 and later that returns whether "flash" is part of the
#: implementation's name. If so, transformers looks for a package with functions for sequences without padding.
_ASKED = "is_flash_attention_requested"


#: The function of continuous batching that sets `max_blocks_per_request` to 0 unless FlashAttention 2 or 3 runs on a
#: GPU. With another number, steps of decoding read keys in pages, if the allocators of all layers have tables.
_TABLES = "ensure_decode_fast_path_is_available"
_ALLOCATORS = "ATTN_TYPE_TO_ALLOCATOR"


def _with_tables(ensure: Callable[..., None], module: Any) -> Callable[..., None]:
    @functools.wraps(ensure)
    def ensure_tables(config: Any, *args: Any, **options: Any) -> None:
        kinds = module.group_layers_by_attn_type(config)
        has_tables = all(getattr(module, _ALLOCATORS)[kind].supports_block_table for kind in kinds)
        if getattr(config, "_attn_implementation", None) != NAME or not has_tables:
            ensure(config, *args, **options)

    return ensure_tables


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
    config: Any = None,
    **options: Any,
) -> Optional[Tensor]:
    """The mask function that `register` registers with transformers. Its results for `attend` are:

    - None, if `attend` can build the mask itself: a causal mask or a sliding window whose last query is aligned
      with the last key, or all pairs;
    - `[1, 1, 1, S+1]`, i32: the starts of packed sequences in the rows of the whole batch;
    - `[1, 1, 2, B+1]`, i32: the same for the rows of a padded batch that are not padding, and their numbers;
    - `[B, 1, 1, 1]`, i32: the numbers of keys of a batch that is padded on the right, for bidirectional masks;
    - `[B, 1, q_length, kv_length]`, Boolean: the mask of "sdpa", for all other cases.

    transformers returns a mask of four dimensions as it is, if it is given one again. Starts and numbers only go
    to models that support FlashAttention, because others may index the mask. The host reads one value per call
    from the device, unless it is tracing or capturing, where padding and packed sequences always become a
    Boolean mask.
    """
    ends = isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length
    is_plain = mask_function is masking_utils.bidirectional_mask_function
    takes_starts = not is_tracing(attention_mask) and _takes_starts(config)
    if attention_mask is None:
        inner, numbers = _packed_by(mask_function)
        if numbers is not None and takes_starts and _is_causal(inner):
            return _starts_where(numbers[:, 1:] != numbers[:, :-1])[None, None, None]
    elif not is_tracing(attention_mask):
        is_full, is_right, is_block = _padding_of(attention_mask)
        fits = takes_starts and attention_mask.shape == (batch_size, kv_length)
        if is_full:
            attention_mask = None
        elif fits and is_right and allow_is_bidirectional_skip and is_plain:
            return attention_mask.sum(-1, dtype=torch.int32)[:, None, None, None]
        elif fits and is_block and allow_is_causal_skip and ends and q_length == kv_length:
            if _is_causal(mask_function):
                return _starts_and_numbers(attention_mask)[None, None]
    if attention_mask is None:
        if allow_is_causal_skip and ends and _is_causal(mask_function):
            return None
        if allow_is_bidirectional_skip and is_plain:
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


def _takes_starts(config: Any) -> bool:
    """Returns whether the layers of a model pass any mask on to `attend`, as those do that support
    FlashAttention, whose mask function returns two dimensions."""
    try:
        model = MODEL_MAPPING[type(config)]
    except KeyError:  # a model that is not part of transformers
        return False
    return bool(getattr(model, "_supports_flash_attn", False))


def _padding_of(attention_mask: Tensor) -> Tuple[bool, bool, bool]:
    """Returns whether there is no padding, whether all of it is on the right, and whether no row has padding
    between its tokens."""
    rises = attention_mask[:, 1:] > attention_mask[:, :-1]
    blocks = rises.sum(-1) + attention_mask[:, 0]
    found = torch.stack([attention_mask.all(), ~rises.any(), (blocks <= 1).all()])
    is_full, is_right, is_block = found.tolist()
    return is_full, is_right, is_block


def _starts_and_numbers(attention_mask: Tensor) -> Tensor:
    """Returns where the tokens of each row start in the rows of the whole batch, with the end of the batch, and
    how many there are. The last number counts nothing."""
    batch, length = attention_mask.shape
    rows = torch.arange(batch, device=attention_mask.device) * length
    starts = rows + attention_mask.to(torch.uint8).argmax(-1)
    found = torch.stack([starts, attention_mask.sum(-1)])
    return F.pad(found, (0, 1), value=batch * length).to(torch.int32)


def _starts_where(jumps: Tensor) -> Tensor:
    """Returns the starts of packed sequences, of which one starts in the first column, and one in each further
    column where `jumps`, `[B, N-1]`, is true. The host waits for their number."""
    found = F.pad(jumps, (1, 0), value=True).flatten()
    return F.pad(found.nonzero().flatten(), (0, 1), value=found.numel()).to(torch.int32)


def _variables(function: Any) -> Dict[str, Any]:
    """Returns the variables that a nested function captures."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or not cells:
        return {}
    return dict(zip(code.co_freevars, (cell.cell_contents for cell in cells)))


def _parts_of(mask_function: Any) -> Tuple[Any, ...]:
    """Returns the mask functions of which a mask function is the conjunction."""
    parts = _variables(mask_function).get("mask_functions")
    return parts if isinstance(parts, tuple) else ()


def _is_made_by(maker: str, function: Any) -> bool:
    return bool(getattr(function, "__qualname__", "").startswith(maker + "."))


def _packed_by(mask_function: Any) -> Tuple[Any, Optional[Tensor]]:
    """Returns the mask function of each sequence and the number of the sequence of each token, `[B, N]`, if
    transformers has found packed sequences."""
    parts = _parts_of(mask_function)
    if (
        len(parts) == 2
        and _is_made_by("packed_sequence_mask_function", parts[0])
        and _is_made_by("remap_positions_for_packed_sequence", parts[1])
    ):
        numbers = _variables(parts[0]).get("packed_sequence_mask")
        return _variables(parts[1]).get("mask_function"), numbers
    return mask_function, None


def _is_causal(mask_function: Callable[..., Any]) -> bool:
    """Returns whether the mask function is causal, with or without a sliding window over past keys."""
    if mask_function is masking_utils.causal_mask_function:
        return True
    parts = _parts_of(mask_function)
    return (
        len(parts) == 2
        and _is_made_by("sliding_window_overlay", parts[0])
        and parts[1] is masking_utils.causal_mask_function
    )


#: The position_ids of the last call of `_starts_of`, their version, and the result.
_last: Tuple[Callable[[], Any], int, Optional[Tensor]] = (lambda: None, 0, None)


def _starts_of(position_ids: Any, batch: int, length: int) -> Optional[Tensor]:
    """Returns the starts of packed sequences, which begin where a position is the smallest of its row, or None
    if there is one sequence in each row. This is for models that do not pass their positions to `make_mask`, and
    for calls with a cache. All layers get the same tensor, so the host reads it in the first layer only."""
    global _last
    if not isinstance(position_ids, Tensor) or position_ids.dim() != 2 or length == 1:
        return None
    if position_ids.shape[1] != length or is_tracing(position_ids):
        return None
    known, version, starts = _last
    if known() is not position_ids or version != position_ids._version:
        rows = position_ids.expand(batch, length)
        starts = _starts_where(rows[:, 1:] == rows.amin(-1, keepdim=True))
        starts = starts if len(starts) > batch + 1 else None
        _last = weakref.ref(position_ids), position_ids._version, starts
    return starts


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
    position_ids: Optional[Tensor] = None,
    cu_seq_lens_q: Optional[Tensor] = None,
    cu_seq_lens_k: Any = None,
    **options: Any,
) -> Tuple[Tensor, None]:
    """The attention function that `register` registers with transformers. It takes q, k and v of shape
    `[B, H, N, D]` and returns o, `[B, N, Hq, Dv]`, and None in place of the attention weights.

    Args:
      module: the layer; its `is_causal` applies if the argument is_causal is None.
      attention_mask: the result of `make_mask`, or numbers that are added to the scores.
      sliding_window: the number of keys that a query sees, including the key at its own position; applies
        to a causal layer, unless attention_mask has a value for each pair.
      s_aux: one logit per query head, added to the softmax denominator only.
      position_bias: numbers that are added to the scores.
      position_ids: positions that start again at the first position of their row are those of packed
        sequences, if attention_mask is None and there are no further keys.
      cu_seq_lens_q, cu_seq_lens_k: the starts of packed sequences in the rows of the whole batch. They replace
        the results of `make_mask`. The starts of the keys default to those of the queries.
      cache, block_table and others: the cache of continuous batching, which takes the new keys and values, and
        what it needs. cu_seq_lens_k then holds starts for each kind of layer.

    Raises:
      ArgumentError: dropout is not 0, or `flashattn.attention` refuses an argument.
      UnsupportedError: attention weights are requested, or a paged cache comes without starts.
    """
    if dropout:
        raise ArgumentError(
            f"expected attention_dropout 0 but got {dropout}; set it to 0 in the model's config"
        )
    if options.get("output_attentions"):
        raise UnsupportedError(
            "expected output_attentions False but got True; "
            'attn_implementation="eager" returns the weights'
        )
    batch, _, length, _ = query.shape
    mask = attn_mask = None
    bias = position_bias
    sequences: Dict[str, Any] = {}
    pages = None
    if options.get("cache") is not None:
        key, value, cu_seq_lens_k, pages = _write(module, key, value, cu_seq_lens_q, cu_seq_lens_k, options)
    is_masked = attention_mask is not None and attention_mask.dtype is not torch.int32
    if attention_mask is not None and attention_mask.dtype.is_floating_point:
        attention_mask = attention_mask[..., : key.shape[2]]
        bias = attention_mask if bias is None else bias + attention_mask
    elif pages is not None:
        is_masked = False
        sequences = pages
    elif cu_seq_lens_q is not None:
        is_masked = False
        sequences = _packed_at(cu_seq_lens_q)
        if cu_seq_lens_k is not None:
            sequences["cu_seqlens_k"] = cu_seq_lens_k
    elif attention_mask is None:
        if key.shape[2] == length:
            sequences = _packed_at(_starts_of(position_ids, batch, length))
    elif is_masked:
        attn_mask = attention_mask[..., : key.shape[2]]
    elif attention_mask.shape[-1] == 1:
        sequences = {"kv_len": attention_mask[:, 0, 0, 0]}
    else:
        sequences = _packed_at(attention_mask[0, 0, 0])
        if attention_mask.shape[2] == 2:
            sequences["q_len"] = sequences["kv_len"] = attention_mask[0, 0, 1, :-1]
    if not is_masked and (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        mask = causal if sliding_window is None else window(left=sliding_window - 1, right=0)
    rows = [x.transpose(1, 2) for x in (query, key, value)]
    is_packed = "cu_seqlens_q" in sequences
    if is_packed:
        rows = [x.flatten(0, 1) for x in rows]
    elif pages is not None:  # one row for each sequence, and the pools of pages
        rows = [rows[0].transpose(0, 1), key, value]
    o = attention(
        *rows,
        layout="thd" if is_packed else "bshd",
        mask=mask,
        scale=scaling,
        softcap=softcap,
        bias=bias,
        attn_mask=attn_mask,
        sink_logits=None if s_aux is None else s_aux.float(),
        **sequences,
    )
    if pages is not None:
        o = o.transpose(0, 1)
    return (o.unflatten(0, (batch, length)) if is_packed else o), None


def _write(
    module: Any, key: Tensor, value: Tensor, starts_q: Any, starts_k: Any, options: Dict[str, Any]
) -> Tuple[Tensor, Tensor, Tensor, Optional[Dict[str, Any]]]:
    """Writes the keys and values of a step of continuous batching to its cache. Returns all keys and values of the
    sequences, packed, and their starts; or, for a step of decoding, the pools of pages with them, the starts,
    and the operands that say where they are."""
    cache = options["cache"]
    if starts_q is None or not isinstance(starts_k, dict):
        raise UnsupportedError(
            "expected cu_seq_lens_q and cu_seq_lens_k with a paged cache, as from generate_batch, but got none"
        )
    given = {**options, "cu_seq_lens_k": starts_k}
    key, value = cache.update(key, value, layer_idx=module.layer_idx, kwargs=given)
    starts = given["cu_seq_lens_k"]
    table = given.get("block_table")
    if table is None:
        return key, value, starts, None
    rows = key.shape[2]  # one for each sequence; there may be more sequences, without a row
    pages = {"kv_len": starts[: rows + 1].diff(), "page_table": table[:rows]}
    pools = given["k_cache"], given["v_cache"]
    new = (x[0].transpose(0, 1)[:, None] for x in (key, value))
    append(*pools, *new, layout="bshd", **pages)
    return *pools, starts, pages


def _packed_at(starts: Optional[Tensor]) -> Dict[str, Any]:
    return {} if starts is None else {"cu_seqlens_q": starts, "cu_seqlens_k": starts}

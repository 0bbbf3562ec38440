"""The options of a call as one value: the key of its plan, and the source of the schemas for torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple, get_type_hints

from . import _module
from ._trace import AUX, ScoreMod
from .masks import Mask

if TYPE_CHECKING:
    from typing_extensions import TypedDict

    class Keywords(TypedDict, total=False):
        """The keywords that `flashattn.attention` and `flashattn.attention_backward` have in common."""

        mask: Optional[Mask]
        scale: Optional[float]
        align: _module.Align
        layout: _module.Layout
        out: Any
        schedule: Optional[_module.Schedule]
        dtype: Any
        stream: Any
        device: Optional[str]
        bias: Any
        attn_mask: Any
        softcap: Optional[float]
        sink_logits: Any
        kv_len: Any
        q_len: Any
        cu_seqlens_q: Any
        cu_seqlens_k: Any
        offset: Any
        score_mod: Optional[ScoreMod]
        aux_tensors: Optional[Sequence[Any]]

    class ForwardKeywords(Keywords, total=False):
        """The keywords of `flashattn.attention`."""

        page_table: Any
        leftpad_k: Any
        k_scale: Any
        v_scale: Any
        max_seqlen_q: Optional[int]
        invariant: bool


class AttentionOptions(NamedTuple):
    """Everything on which the plan of a call depends, except the properties of tensors. Scale and stream
    are not options in this sense, because one plan serves all their values."""

    mask: Optional[Mask] = None
    align: _module.Align = "bottom_right"
    layout: _module.Layout = "bhsd"
    softcap: Optional[float] = None
    score_mod: Optional[str] = None  #: MLIR text
    model: Optional[str] = None  #: the GPU model that runs the call, which callers pass as `device`
    max_seqlen_q: Optional[int] = None  #: the result of `_features.limit_queries`
    invariant: bool = False
    deterministic: bool = False
    schedule: Any = None  #: the result of `hashable`
    dtype: Any = None
    operands: Tuple[str, ...] = ()  #: names of the operands, in the order of the function's arguments
    gradients: Tuple[str, ...] = ()  #: names of the outputs of the backward pass
    allocates: bool = True  #: whether the outputs are allocated, because the caller passes none
    return_lse: bool = False

    def with_lse(self) -> AttentionOptions:
        """Returns the options of a call that autograd records, which computes lse for the backward pass."""
        # `_replace` takes the host four times as long.
        return new(AttentionOptions, (*self[:-1], True))

    def backward(self, deterministic: bool, gradients: Tuple[str, ...]) -> AttentionOptions:
        """Returns the options of the backward pass of a call without operands."""
        fields = *self[: len(SHARED)], deterministic, None, None, (), gradients, True, False
        return new(AttentionOptions, fields)


#: `new(AttentionOptions, fields)` takes the host half as long as `AttentionOptions(*fields)`.
new: Callable[..., AttentionOptions] = tuple.__new__

#: The optional operands of attention, with their types in a schema of torch.
OPERANDS = {
    "bias": "Tensor?", "attn_mask": "Tensor?", "sink_logits": "Tensor?", "kv_len": "Tensor?",
    "q_len": "Tensor?", "cu_seqlens_q": "Tensor?", "cu_seqlens_k": "Tensor?", "page_table": "Tensor?",
    "leftpad_k": "Tensor?", "k_scale": "Tensor?", "v_scale": "Tensor?",
    "offsets": "Tensor?", **dict.fromkeys(AUX, "Tensor?"), "offset": "SymInt?",
}  # fmt: skip
#: The options that both operators of torch take.
SHARED = AttentionOptions._fields[: AttentionOptions._fields.index("deterministic")]


def schema_of(*names: str) -> str:
    """Returns options as arguments in a schema of torch. Masks and score modifications are MLIR text."""
    types = {bool: "bool", Optional[float]: "float?", Optional[str]: "str?", Optional[Mask]: "str?"}
    types[Optional[int]] = "int?"
    hints, defaults = get_type_hints(AttentionOptions), AttentionOptions._field_defaults
    return ", ".join(f"{types.get(hints[name], 'str')} {name}={defaults[name]!r}" for name in names)


class _Fields(tuple):
    """The items of a mapping, for the key of a plan."""


def hashable(fields: Any) -> Any:
    """Returns the fields of a schedule in a hashable form, for the key of a plan."""
    if not isinstance(fields, Mapping):
        return fields
    return _Fields((name, hashable(value)) for name, value in fields.items())


def mapping(fields: Any) -> Any:
    """Converts the result of `hashable` back to a mapping."""
    if not isinstance(fields, _Fields):
        return fields
    return {name: mapping(value) for name, value in fields}

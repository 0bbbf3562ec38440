"""`flashattn.torch.context_parallel`: its arguments, and the choice of a scheme.

`_parallel_ops` has its operators, `_context` and `_context_backward` what they compute on the rows of one rank.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from .. import _aux, _balance, _context, _features, _module, _shards, _symbols, _trace
from .._coordinates import mask_of_packed, read_starts
from .._shards import Shards
from .._sight import Problem, check_mask
from ..errors import ArgumentError, UnsupportedError
from ..masks import Mask
from ._context_plans import OPERANDS, Spec, identity, on_device, rates_of, sizes_of
from ._ops import cast_rows, check_rows
from ._parallel_checks import check_tensors, check_transforms, to_operands
from ._parallel_heads import exchange_heads
from ._parallel_ops import Key, forward_op, name_of

#: The schemes of a call. "heads" exchanges heads for rows, so that each rank computes some heads of all rows.
SCHEMES = ("auto", *_context.SCHEMES, "heads")


class _Groups(NamedTuple):
    """The process groups of a call: the ranks of a row of the mesh exchange heads, those of a column exchange keys."""

    keys: Any  #: None if no keys travel
    heads: Any  #: None if no heads travel
    ranks: int
    rank: int  #: the number of this rank among the shards


def _find_groups(mesh: Any, dim: Any, scheme: str) -> _Groups:
    """Returns the process groups of a mesh. If it has two dimensions, keys travel along the first and heads along the
    second."""
    if isinstance(mesh, dist.ProcessGroup):
        if dim is not None:
            raise ArgumentError(f"expected no dim with a process group but got {dim!r}")
        groups = [mesh]
    elif isinstance(mesh, DeviceMesh):
        if mesh.get_coordinate() is None:
            raise ArgumentError("expected this rank to be in the mesh but it is not")
        dims = dim if isinstance(dim, (tuple, list)) else [dim]
        if dim is None:
            if mesh.ndim != 1:
                raise ArgumentError(f"expected dim, a dimension of the mesh {mesh.shape}, but got None")
            dims = [0]
        if len(dims) not in (1, 2):
            raise ArgumentError(f"expected 1 or 2 dimensions of the mesh but got {len(dims)}")
        try:
            groups = [mesh.get_group(one) for one in dims]
        except (AssertionError, KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
            raise ArgumentError(f"expected dim to be a dimension of {mesh} but got {dim!r}") from error
        names = mesh.mesh_dim_names or ()
        if len({names.index(one) if isinstance(one, str) else one % mesh.ndim for one in dims}) < len(dims):
            raise ArgumentError(f"expected two different dimensions of the mesh but got {dim!r}")
    elif mesh is dist.GroupMember.NON_GROUP_MEMBER:
        raise ArgumentError("expected this rank to be in the mesh but it is not")
    else:
        raise ArgumentError(f"expected mesh to be a DeviceMesh or a process group but got {type(mesh).__name__}")
    sizes, own = [dist.get_world_size(x) for x in groups], [dist.get_rank(x) for x in groups]
    if len(groups) == 2:
        if scheme == "heads":
            raise ArgumentError("expected scheme auto, ring or gather with two dimensions but got 'heads'")
        return _Groups(groups[0], groups[1], sizes[0] * sizes[1], own[0] * sizes[1] + own[1])
    return _Groups(groups[0], None, sizes[0], own[0])


def context_parallel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mesh: Union[DeviceMesh, Any],
    dim: Union[None, int, str, Tuple[Union[int, str], Union[int, str]]] = None,
    shards: Union[str, Shards] = "contiguous",
    k_shards: Union[None, str, Shards] = None,
    length: Optional[int] = None,
    scheme: str = "auto",
    mask: Optional[Mask] = None,
    scale: Optional[float] = None,
    align: _module.Align = "bottom_right",
    layout: _module.Layout = "bhsd",
    return_lse: bool = False,
    softcap: Optional[float] = None,
    bias: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    sink_logits: Optional[Tensor] = None,
    kv_len: Optional[Tensor] = None,
    cu_seqlens: Any = None,
    offset: Optional[int] = None,
    score_mod: Optional[_trace.ScoreMod] = None,
    aux_tensors: Optional[Sequence[Any]] = None,
    **unknown: Any,
) -> Any:
    """Computes attention over a sequence whose rows are cut over the ranks of a mesh. Every rank of the mesh calls this
    function with its own rows of q, k and v, and gets its own rows of o. Autograd and torch.compile support it.

    Only the keys that the mask shows travel. The result is that of `flashattn.attention` over the whole sequence:
    masks and score_mod count positions and keys of the whole sequence, and so do the tensors of a mask, which each rank
    has whole. The host reads the tensors of a mask when their contents are new.

    Args:
      q, k, v: this rank's rows, as in `flashattn.attention`, or DTensors that are sharded along the rows by
        `Shard(2)`, or `Shard(1)` with layout "bshd". The result is a DTensor then.
      mesh: a `DeviceMesh` or a process group.
      dim: the dimension of the mesh, by name or number, over which the rows are cut. Or two dimensions: heads then
        travel along the second one, and keys along the first; the rank of a row is the one of the flattened mesh. None
        if the mesh has one dimension.
      shards: which rows each rank has: "contiguous", "zigzag" or "striped" (`flashattn.Shards`), or the Shards
        themselves.
      k_shards: the same for k and v, if it differs.
      length: the number of rows of the whole sequence. None if all ranks have as many.
      scheme: how keys get to the queries. "ring": each rank computes with the keys of one rank at a time, while
        those of the next one travel. "gather": each rank first gets all keys that it needs. "heads": rows are exchanged
        for heads, so each rank has all rows of some heads. "auto": the one that should take the least time.
      mask, scale, softcap, sink_logits, align, offset, return_lse, score_mod: as in `flashattn.attention`. Gradients
        of sink_logits and bias are those of this rank's rows, which a sum over the mesh completes, as for other
        parameters that ranks share.
      aux_tensors: as in `flashattn.attention`; at most 2 if score_mod reads positions or keys.
      layout: "bhsd", "bshd", or "thd" with cu_seqlens.
      bias, attn_mask: this rank's rows and all keys, broadcast to `[B, Hq, rows, Nk]`. Not with "heads".
      kv_len: `[B]`, i32: the number of valid keys of the whole sequence, as in `flashattn.attention`.
      cu_seqlens: `[S+1]`, integers: the starts of packed sequences among the rows, for queries and keys. Masks count
        from the first row of each sequence. The host reads them.

    Returns:
      o, `[B, Hq, rows, Dv]`, or (o, lse). For a row that sees no key, o is 0 and lse is -inf.

    Raises:
      ArgumentError: an argument is invalid, or differs between ranks.
      UnsupportedError: a mask or a combination of arguments that this function does not support.
      DeviceError: a message failed, for example because another rank died. The message names the step and the rank.
      The errors of `flashattn.attention`.
    """
    if unknown:
        _features.check_keywords("context_parallel", unknown, context_parallel.__kwdefaults__ or {})
    tensors = {"bias": bias, "attn_mask": attn_mask, "sink_logits": sink_logits, "kv_len": kv_len}
    if torch.compiler.is_dynamo_compiling():
        given = _Given(mesh, dim, shards, k_shards, length, scheme, scale, align, layout, softcap, offset)
        rest = cu_seqlens, score_mod, aux_tensors
        o, lse = _attend_traced(given, mask, q, k, v, tensors, rest)
        return (o, lse) if return_lse else o
    if scheme not in SCHEMES:
        raise ArgumentError(f"expected scheme {', '.join(SCHEMES)} but got {scheme!r}")
    _module.check_options(mask, align, layout)
    groups = _find_groups(mesh, dim, scheme)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise ArgumentError(f"expected {name!r} to be a tensor of torch but got {type(x).__name__}")
    whole, k_length = q, None
    if any(isinstance(x, DTensor) for x in (q, k, v)):
        (q, k, v), length, k_length = _to_local((q, k, v), groups, dim, layout, length)
    check_transforms(q=q, k=k, v=v, **tensors)
    if q.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(q.device.type):
        q, k, v = cast_rows(q.device.type, (q, k, v))
    packed = layout == "thd"
    check_rows(q, "qkv" if packed else "", k=k, v=v)
    if packed:
        if cu_seqlens is None:
            raise ArgumentError("expected cu_seqlens with layout thd but got None")
        q, k, v = (x.unsqueeze(0) for x in (q, k, v))
    axis = 1 if packed else _seq_axis(layout)
    of_q, of_k = _resolve(groups, shards, k_shards, q.shape[axis], k.shape[axis], length, k_length)
    call = _Call(
        groups, of_q, of_k, scheme, mask, scale, "bshd" if packed else layout, softcap, align, offset, score_mod,
        aux_tensors,
    )  # fmt: skip
    o, lse = call.run(q, k, v, tensors, cu_seqlens)
    if packed:
        o, lse = o[0], lse[0]
    if isinstance(whole, DTensor):
        o, lse = _to_global(o, lse, whole, layout)
    return (o, lse) if return_lse else o


class _Given(NamedTuple):
    """The arguments of a call that torch.compile takes as constants."""

    mesh: Any
    dim: Any
    shards: Union[str, Shards]
    k_shards: Union[None, str, Shards]
    length: Optional[int]
    scheme: str
    scale: Optional[float]
    align: str
    layout: str
    softcap: Optional[float]
    offset: Optional[int]


def _attend_traced(
    given: _Given, mask: Optional[Mask], q: Tensor, k: Tensor, v: Tensor, tensors: Dict[str, Any], rest: Tuple[Any, ...]
) -> Tuple[Tensor, Tensor]:
    """Runs a call that torch.compile traces, as the operator if it has one, and otherwise outside of the graph."""
    is_plain = given.scheme in _TRACED and given.layout in _module.KERNEL_LAYOUTS and given.align in _module.ALIGNS
    is_plain = is_plain and not isinstance(given.dim, (tuple, list)) and rest == (None, None, None)
    if not is_plain or isinstance(q, DTensor):
        return _outside(given, mask, q, k, v, tensors, rest)
    symbols = () if mask is None else mask._symbols
    names = tuple([name for name, x in tensors.items() if x is not None])
    key = _key_of(
        given.mesh, given.dim, _text_of(given.shards), _text_of(given.k_shards), *given[4:],
        None if mask is None else mask._text, () if mask is None else mask._of_rows,
        tuple([x if isinstance(x, int) else None for _, x in symbols]), names, _constants(q.shape), _constants(k.shape),
        torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip
    operands = [tensors.get(name) for name in OPERANDS]
    numbers = [torch.as_tensor(x, device=q.device) for _, x in symbols if not isinstance(x, int)]
    return forward_op(q, k, v, operands, numbers, key)


#: The schemes of calls for which graphs have the operator.
_TRACED = ("auto", *_context.SCHEMES)


def _constants(shape: Sequence[int]) -> Tuple[int, ...]:
    """Returns sizes as constants of a graph: the shards of another length need another graph."""
    return tuple([operator.index(size) for size in shape])


def _text_of(shards: Union[None, str, Shards]) -> Optional[str]:
    return shards.text if isinstance(shards, Shards) else shards


def _run_outside(
    given: _Given, mask: Optional[Mask], q: Any, k: Any, v: Any, tensors: Dict[str, Any], rest: Tuple[Any, ...]
) -> Any:
    options = {**given._asdict(), **tensors, **dict(zip(("cu_seqlens", "score_mod", "aux_tensors"), rest))}
    return context_parallel(q, k, v, mask=mask, return_lse=True, **options)


_outside = torch.compiler.disable(
    _run_outside,
    reason="expected fullgraph=False for context_parallel with heads that travel, cu_seqlens, score_mod or DTensors, "
    "which flashattn reads itself at each call",
)


@_symbols.constant
def _key_of(
    mesh: Any, dim: Any, shards: str, k_shards: Optional[str], length: Optional[int], scheme: str,
    scale: Optional[float], align: str, layout: str, softcap: Optional[float], offset: Optional[int],
    mask: Optional[str], of_rows: Tuple[str, ...], ints: Tuple[Optional[int], ...], operands: Tuple[str, ...],
    q_shape: Tuple[int, ...], k_shape: Tuple[int, ...], deterministic: bool,
) -> str:  # fmt: skip
    """Returns the key of a call that torch.compile traces."""
    groups = _find_groups(mesh, dim, scheme)
    axis = 2 if layout == "bhsd" else 1
    of_q, of_k = _resolve(groups, *(Shards.parse(x) for x in (shards, k_shards)), q_shape[axis], k_shape[axis], length)
    given = None if mask is None else Mask(mask, of_rows=of_rows)
    call = _Call(groups, of_q, of_k, scheme, given, scale, layout, softcap, align, offset, None, None)
    call._check_mask("kv_len" in operands, None)
    position, moves = call._position("kv_len" in operands)
    problem = Problem(of_q, of_k, given, position, "kv_len" in operands, moves)
    spec = call._spec(problem, scheme, groups.keys, 0)._replace(deterministic=deterministic)
    return name_of(Key(spec, ints))


def _resolve(
    groups: _Groups, shards: Any, k_shards: Any, nq: int, nk: int, length: Optional[int],
    k_length: Optional[int] = None,
) -> Tuple[Shards, Shards]:  # fmt: skip
    """Returns the shards of queries and keys, of which this rank has `nq` and `nk` rows."""
    of_q = _shards.resolve(shards, groups.ranks, nq, length)
    is_same = k_shards is None and (nk == nq if k_length is None else k_length == of_q.length)
    given = shards if k_shards is None else k_shards
    of_k = of_q if is_same else _shards.resolve(given, groups.ranks, nk, k_length, "k")
    for name, count, held in (("q", nq, of_q), ("k", nk, of_k)):
        if count != held.count(groups.rank):
            raise ArgumentError(
                f"expected {held.count(groups.rank)} rows of {name!r} on rank {groups.rank}, as in its shards, but got "
                f"{count}"
            )
    return of_q, of_k


def _to_local(
    tensors: Sequence[Any], groups: _Groups, dim: Any, layout: str, length: Optional[int]
) -> Tuple[Tuple[Tensor, ...], int, int]:
    """Returns the rows of DTensors that this rank has, and the lengths of the sequences of queries and keys."""
    axis = _seq_axis(layout)
    if not all(isinstance(x, DTensor) for x in tensors):
        raise ArgumentError("expected q, k and v to be all DTensors or none but got both")
    if groups.heads is not None:
        raise UnsupportedError("expected one dimension of the mesh with DTensors but got two; pass to_local()")
    for name, x in zip("qkv", tensors):
        mesh, names = x.device_mesh, x.device_mesh.mesh_dim_names or ()
        at = (names.index(dim) if dim in names else 0) if not isinstance(dim, int) else dim % mesh.ndim
        if dist.get_process_group_ranks(mesh.get_group(at)) != dist.get_process_group_ranks(groups.keys):
            raise ArgumentError(f"expected {name!r} on the mesh of the call but got {mesh}")
        for of, placement in enumerate(x.placements):
            if of == at and placement != Shard(axis):
                raise ArgumentError(f"expected {name!r} with placement Shard({axis}) in dim {at} but got {placement}")
            if not (placement.is_replicate() or any(placement.is_shard(d) for d in range(x.ndim - 1))):
                raise ArgumentError(f"expected {name!r} with whole rows in dim {of} of its mesh but got {placement}")
    found = tensors[0].shape[axis]
    if length is not None and length != found:
        raise ArgumentError(f"expected length {found} of the DTensors but got {length}")
    return tuple(x.to_local() for x in tensors), found, tensors[1].shape[axis]


def _to_global(o: Tensor, lse: Tensor, q: DTensor, layout: str) -> Tuple[DTensor, DTensor]:
    """Returns o and lse as DTensors, placed as q is."""
    order = {"bhsd": (0, 1, 2), "bshd": (0, 2, 1), "thd": (1, 0)}[layout]
    placements = [Shard(order.index(x.dim)) if isinstance(x, Shard) else x for x in q.placements]
    shapes = (*q.shape[:-1], o.shape[-1]), tuple(q.shape[d] for d in order)
    return tuple(
        DTensor.from_local(x, q.device_mesh, of, run_check=False, shape=torch.Size(shape), stride=_dense_strides(shape))
        for x, of, shape in zip((o, lse), (q.placements, placements), shapes)
    )  # type: ignore[return-value]


def _seq_axis(layout: str) -> int:
    """Returns the dimension of rows."""
    return {"bhsd": 2, "bshd": 1, "thd": 0}[layout]


def _dense_strides(shape: Sequence[int]) -> Tuple[int, ...]:
    return tuple(math.prod(shape[at + 1 :]) for at in range(len(shape)))


class _Call(NamedTuple):
    """The checked arguments of a call."""

    groups: _Groups
    q_shards: Shards
    k_shards: Shards
    scheme: str
    mask: Optional[Mask]
    scale: Optional[float]
    layout: str
    softcap: Optional[float]
    align: str
    offset: Optional[int]
    score_mod: Any
    aux_tensors: Any

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, tensors: Dict[str, Optional[Tensor]], cu_seqlens: Any
    ) -> Tuple[Tensor, Tensor]:
        text, aux = _aux.prepare(self.score_mod, self.aux_tensors)
        reads_positions = text is not None and any(text.count(x) > 1 for x in ("%position", "%key"))
        given = to_operands({**tensors, **aux}, q)
        _check_operands(given, self.k_shards, text, reads_positions, cu_seqlens)
        self._check_mask("kv_len" in given, cu_seqlens)
        mask, nk = self.mask, self.k_shards.length
        symbols = () if mask is None else mask._symbols
        check_tensors((q, k, v), given, symbols, self.layout, text, (self.q_shards.length, nk))
        starts = None if cu_seqlens is None else read_starts(cu_seqlens, nk)
        if starts is not None:
            mask = _mask_of_packed(mask, starts, nk)
        position, moves = self._position("kv_len" in given)
        problem = Problem(
            self.q_shards, self.k_shards, mask, position, "kv_len" in given, moves, reads_positions
        )  # fmt: skip
        if starts is None or (starts[0] <= 0 and starts[-1] >= nk):
            return self._run_scheme(q, k, v, given, problem)
        # Whatever rows of no sequence contain, nothing of it reaches others, and these rows have no sinks either.
        ends = self.groups.rank, int(starts[0]), int(starts[-1])
        hidden = [on_device(_outside_of(x, *ends), q.device) for x in (self.q_shards, self.k_shards)]
        of_q, of_k = (x.view(-1, 1) if self.layout == "bhsd" else x.view(-1, 1, 1) for x in hidden)
        q, k, v = q.masked_fill(of_q, 0.0), k.masked_fill(of_k, 0.0), v.masked_fill(of_k, 0.0)
        o, lse = self._run_scheme(q, k, v, given, problem)
        return o.masked_fill(of_q, 0.0), lse.masked_fill(hidden[0], float("-inf"))

    def _run_scheme(
        self, q: Tensor, k: Tensor, v: Tensor, given: Dict[str, Tensor], problem: Problem
    ) -> Tuple[Tensor, Tensor]:
        scheme, heads = self.scheme, self.groups.heads
        if scheme == "auto" and heads is None:
            scheme = _choose(problem, q, k, v, 2 if self.layout == "bhsd" else 1, given)
        if scheme == "heads":
            groups = self.groups._replace(keys=None, heads=self.groups.keys)
            return exchange_heads(self._replace(groups=groups), q, k, v, given, problem, "gather")
        if heads is not None:
            return exchange_heads(self, q, k, v, given, problem, scheme)
        return self.attend(q, k, v, given, problem, scheme, self.groups.keys)

    def _position(self, has_lengths: bool) -> Tuple[int, bool]:
        """Returns the position of query 0, and whether the lengths of sequences move it."""
        if self.offset is not None:
            return _features.check_scalar("offset", self.offset), False
        if self.align == "top_left":
            return 0, False
        return self.k_shards.length - self.q_shards.length, has_lengths

    def _check_mask(self, has_lengths: bool, cu_seqlens: Any) -> None:
        nq, nk = self.q_shards.length, self.k_shards.length
        if cu_seqlens is not None and nq != nk:
            raise ArgumentError(
                f"expected as many keys as queries with cu_seqlens but got {nk} keys and {nq} queries"
            )
        check_mask(self.mask, nq, nk, cu_seqlens is not None)
        is_shifted = has_lengths and self.align == "bottom_right" and self.offset is None
        for part in self.mask._of_rows if self.mask is not None and is_shifted else ():
            if part != "tree":
                raise ArgumentError(
                    f"expected align top_left in a call with kv_len and the mask {part} but got {self.align}"
                )

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, given: Dict[str, Tensor], problem: Problem, scheme: str, group: Any
    ) -> Tuple[Tensor, Tensor]:
        """Runs the operator over the ranks of `group`, among which the rows of `problem` are cut."""
        numbers = () if problem.mask is None else tuple(x for _, x in problem.mask._symbols)
        spec = self._spec(problem, scheme, group, sum(name in given for name in _trace.AUX))
        key = Key(spec, tuple(x if type(x) is int else None for x in numbers))
        tensors = [on_device(x, q.device) for x in numbers if type(x) is not int]
        operands = [given.get(name) for name in OPERANDS]
        return forward_op(q, k, v, operands, tensors, name_of(key))

    def _spec(self, problem: Problem, scheme: str, group: Any, aux_count: int) -> Spec:
        scale = None if self.scale is None else _module.check_factor("scale", self.scale)
        return Spec(
            "" if group is None else group.group_name, scheme, problem.q_shards, problem.k_shards,
            None if problem.mask is None else str(problem.mask), problem.offset, problem.moves, scale, self.layout,
            _features.check_options(self.softcap), self.score_mod, aux_count, problem.reads_positions,
            torch.are_deterministic_algorithms_enabled(),
        )  # fmt: skip


def _check_operands(
    given: Dict[str, Tensor], k_shards: Shards, score_mod: Optional[str], reads_positions: bool, cu_seqlens: Any
) -> None:
    if cu_seqlens is not None and _aux.reads_batch(score_mod):
        raise UnsupportedError("expected a score_mod that reads no batch with cu_seqlens but got one that does")
    if reads_positions:
        if cu_seqlens is not None:
            raise UnsupportedError("expected a score_mod that reads no positions with cu_seqlens but got one that does")
        if sum(name in _trace.AUX for name in given) > 2:
            raise UnsupportedError("expected at most 2 aux_tensors with a score_mod that reads positions but got more")
    if "kv_len" in given and not k_shards.is_ascending:
        raise UnsupportedError("expected shards whose rows ascend on each rank with kv_len but got others")
    if cu_seqlens is not None and "kv_len" in given:
        raise ArgumentError("expected no kv_len with cu_seqlens, which states the lengths, but got one")


@functools.lru_cache(maxsize=64)
def _outside_of(shards: Shards, rank: int, first: int, end: int) -> Any:
    """Returns whether each row of a rank is outside of a range."""
    rows = shards.rows(rank)
    found = (rows < first) | (rows >= end)
    found.flags.writeable = False
    return found


#: The masks of packed sequences, by their own mask, starts and length.
_packed: Dict[Any, Mask] = {}


def _mask_of_packed(mask: Optional[Mask], starts: Any, length: int) -> Mask:
    """Returns `mask_of_packed`, and the same mask for equal starts, so that its plan is found."""
    key = mask, starts.tobytes(), starts.dtype.str, length
    found = _packed.get(key)
    if found is None:
        if len(_packed) >= 64:
            _packed.clear()
        found = _packed[key] = mask_of_packed(mask, starts, length)
    return found


#: The schemes that `_choose` found, by the arguments on which they depend, with the mask, whose memory must not be
#: reused.
_chosen: Dict[Any, Tuple[str, Optional[Mask]]] = {}


def _choose(problem: Problem, q: Tensor, k: Tensor, v: Tensor, axis: int, given: Dict[str, Tensor]) -> str:
    """Returns "heads" if that should take the least time, and otherwise "auto", for the operator to choose. All ranks
    choose the same scheme, as their arguments have the same sizes."""
    if problem.q_shards.ranks == 1:
        return "gather"
    if {"bias", "attn_mask"} & set(given):
        return "auto"
    numbers = () if problem.mask is None else tuple(identity(x) for _, x in problem.mask._symbols)
    sizes = sizes_of(q, k, v, axis)
    text = None if problem.mask is None else str(problem.mask)
    key = (problem._replace(mask=None), text, numbers, sizes, q.device.type)
    found = _chosen.get(key)
    if found is None or None in numbers:
        times = _balance.estimate(problem, sizes, rates_of(q.device))
        scheme = "heads" if min(times, key=lambda name: times[name]) == "heads" else "auto"
        if len(_chosen) >= 256:
            _chosen.clear()
        found = _chosen[key] = scheme, problem.mask
    return found[0]

"""`flashattn.torch.context_parallel`: attention over a sequence whose rows several ranks of a mesh hold.

`flashattn._context` decides which keys travel and what each rank computes. This module sends the keys through
`torch.distributed` and merges what the launches compute. While a stage runs, the keys of the next one travel.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from .. import _context, _symbols, _trace
from .._attention import attention
from .._backward import attention_backward
from .._context import KV_LEN, Launch, Plan, Problem, Stage, Taken
from .._shards import Segment, Shards
from ..errors import DeviceError
from ..masks import Mask

#: The operands of a call that are tensors, in the order of the operator's list.
OPERANDS = ("bias", "attn_mask", "sink_logits", "kv_len", *_trace.AUX)
_MAX_PLANS = 16


class Spec(NamedTuple):
    """Everything on which a call depends except tensors, and the key of its plans."""

    group: str  #: the name of the process group; "" if no keys travel
    scheme: str
    q_shards: Shards
    k_shards: Shards
    mask: Optional[str]  #: the text of the mask
    offset: int
    moves: bool  #: whether kv_len moves positions
    scale: Optional[float]
    layout: str
    softcap: Optional[float]
    score_mod: Optional[Callable[..., Any]]
    aux_count: int
    reads_positions: bool
    deterministic: bool

    @property
    def axis(self) -> int:
        """The dimension of rows."""
        return 2 if self.layout == "bhsd" else 1


class _Step(NamedTuple):
    """A launch with its mask as tensors of the device."""

    launch: Launch
    mask: Optional[Mask]
    columns: Any  #: for operands with a column for each key: a slice, or the indices of the columns


class _Built(NamedTuple):
    plan: Plan
    stages: Tuple[Tuple[_Step, ...], ...]
    orders: Tuple[Optional[Tensor], ...]  #: `Stage.order` of each stage
    kept: Tuple[Any, ...]  #: the tensors that were read to make the plan, whose memory must not be reused
    #: Whether each query is in one launch at most, so that nothing has to be merged.
    is_single: bool


_plans: "OrderedDict[Any, _Built]" = OrderedDict()


def _identity(tensor: Any) -> Any:
    """Returns a key of a tensor's contents that in-place operations of torch change; None if there is none."""
    if not isinstance(tensor, Tensor):
        return tensor
    if tensor.is_inference():
        return None
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, tensor._version


def _find_plan(spec: Spec, numbers: Sequence[Any], device: torch.device, has_lengths: bool) -> _Built:
    identities = tuple(map(_identity, numbers))
    key = None if None in identities else (spec._replace(scale=None), identities, device, has_lengths)
    built = None if key is None else _plans.get(key)
    if built is None:
        built = _build(spec, numbers, device, has_lengths)
        if key is not None:
            _plans[key] = built
            while len(_plans) > _MAX_PLANS:
                _plans.popitem(last=False)
    else:
        _plans.move_to_end(key)
    return built


def _problem_of(spec: Spec, numbers: Sequence[Any], has_lengths: bool) -> Problem:
    mask = None
    if spec.mask is not None:
        mask = Mask(spec.mask, symbols=tuple(zip(_symbols.names_in(spec.mask), numbers)))
    return Problem(
        spec.q_shards, spec.k_shards, mask, spec.offset, has_lengths, spec.moves, spec.reads_positions
    )  # fmt: skip


def _build(spec: Spec, numbers: Sequence[Any], device: torch.device, has_lengths: bool) -> _Built:
    rank = dist.get_rank(_group_of(spec.group)) if spec.group else 0
    with torch.inference_mode(False), torch.no_grad():
        plan = _context.make_plan(_problem_of(spec, numbers, has_lengths), spec.scheme, rank)
        stages = tuple(
            tuple(_Step(launch, _mask_of(launch, device), _columns_of(launch, device)) for launch in stage.launches)
            for stage in plan.stages
        )
    rows = sorted(launch.rows for stage in plan.stages for launch in stage.launches)
    is_single = all(one[1] <= other[0] for one, other in zip(rows, rows[1:]))
    orders = tuple(None if x.order is None else torch.from_numpy(x.order).to(device) for x in plan.stages)
    return _Built(plan, stages, orders, tuple(numbers), is_single)


def _mask_of(launch: Launch, device: torch.device) -> Optional[Mask]:
    """Returns the mask of a launch. Instead of the lengths kv_len it has the word KV_LEN."""
    if launch.mask is None:
        return None
    return Mask(launch.mask, symbols=tuple((name, _take(x, device)) for name, x in launch.numbers))


def _take(number: Any, device: torch.device) -> Any:
    if type(number) is int or number is KV_LEN:
        return number
    if isinstance(number, Taken):
        tensor = torch.as_tensor(number.tensor, device=device)
        found = _select(tensor, -1, number.segments)
        return found.to(torch.int32).contiguous()
    return torch.as_tensor(number, device=device).to(torch.int32).contiguous()


def _select(tensor: Tensor, dim: int, segments: Sequence[Segment]) -> Tensor:
    """Returns the elements of a tensor along a dimension; a view if they follow one another."""
    if len(segments) == 1 and segments[0].step == 1:
        return tensor.narrow(dim, segments[0].first, segments[0].count)
    parts = [torch.from_numpy(segment.rows()) for segment in segments]
    return tensor.index_select(dim, torch.cat(parts).to(tensor.device))


def _columns_of(launch: Launch, device: torch.device) -> Any:
    if len(launch.segments) == 1:
        segment = launch.segments[0]
        return slice(segment.first, segment.last + 1, segment.step)
    return torch.cat([torch.from_numpy(segment.rows()) for segment in launch.segments]).to(device)


def _group_of(name: str) -> Any:
    if not name:
        return None  # all keys are this rank's own
    return dist.distributed_c10d._resolve_process_group(name)


class _Exchange:
    """Messages under way."""

    def __init__(self, group: Any, step: str):
        self._group, self._step = group, step
        self._ops: List[Any] = []
        self._works: List[Any] = []
        self._peers: List[int] = []

    def send(self, tensor: Tensor, peer: int) -> None:
        self._add(dist.isend, tensor, peer)

    def receive(self, tensor: Tensor, peer: int) -> None:
        self._add(dist.irecv, tensor, peer)

    def _add(self, function: Any, tensor: Tensor, peer: int) -> None:
        if tensor.numel():
            peer = dist.get_global_rank(self._group, peer)
            self._peers.append(peer)
            self._ops.append(dist.P2POp(function, _as_bytes(tensor), peer, self._group))

    def start(self) -> "_Exchange":
        if self._ops:
            with torch.profiler.record_function(f"flashattn::context_parallel {self._step}"):
                self._guard(lambda: self._works.extend(dist.batch_isend_irecv(self._ops)))
        return self

    def wait(self) -> None:
        for work in self._works:
            self._guard(work.wait)
        self._works, self._ops = [], []

    def _guard(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except RuntimeError as error:
            peers = ", ".join(map(str, sorted(set(self._peers))))
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DeviceError(
                f"expected messages to and from rank {peers} in {self._step} of context_parallel but got: {reason}"
            ) from error


def _as_bytes(tensor: Tensor) -> Tensor:
    """Returns a contiguous tensor in a type that every backend sends."""
    return tensor.view(torch.uint8) if tensor.device.type == "cpu" and tensor.element_size() < 4 else tensor


def _narrow(x: Tensor, axis: int, rows: Tuple[int, int]) -> Tensor:
    return x if rows == (0, x.shape[axis]) else x.narrow(axis, rows[0], rows[1] - rows[0])


def _gather_rows(x: Tensor, axis: int, ranges: Sequence[Tuple[int, int]]) -> Tensor:
    """Returns rows of a tensor; a view if they follow one another."""
    merged: List[Tuple[int, int]] = []
    for first, end in ranges:
        if merged and merged[-1][1] == first:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((first, end))
    if len(merged) == 1:
        return _narrow(x, axis, merged[0])
    if not merged:
        return x.narrow(axis, 0, 0)
    return torch.cat([_narrow(x, axis, rows) for rows in merged], axis)


class _Keys:
    """The keys and values of a stage, some of which travel."""

    def __init__(self, spec: Spec, group: Any, built: _Built, at: int, k: Tensor, v: Tensor, what: str):
        plan = built.plan
        self._spec, self._plan, self._stage = spec, plan, plan.stages[at]
        self._order = built.orders[at]
        self._own = k, v
        self._received: Dict[int, Tuple[Tensor, Tensor]] = {}
        exchange = _Exchange(group, f"step {at + 1} of {len(plan.stages)}{what}")
        by_target: Dict[int, List[Tuple[int, int]]] = {}
        for target, first, end in plan.sends[at]:
            by_target.setdefault(target, []).append((first, end))
        for target, ranges in by_target.items():
            for x in (k, v):
                exchange.send(_gather_rows(x, spec.axis, ranges).contiguous(), target)
        for source, count in rows_by_source(self._stage, plan.rank).items():
            found = tuple(_empty_rows(x, spec.axis, count) for x in (k, v))
            self._received[source] = found  # type: ignore[assignment]
            for x in found:
                exchange.receive(x, source)
        self._exchange = exchange.start()

    def get(self) -> Tuple[Tensor, Tensor]:
        """Waits for the messages, and returns the keys and values in the order of the stage."""
        self._exchange.wait()
        k, v = self._join()
        if self._order is not None:
            k, v = (x.index_select(self._spec.axis, self._order) for x in (k, v))
        return k, v

    def _join(self) -> Tuple[Tensor, Tensor]:
        """Returns the keys and values of the pieces."""
        axis, pieces = self._spec.axis, self._stage.pieces
        sources = {piece.source for piece in pieces}
        if sources == {self._plan.rank}:
            k, v = (_gather_rows(x, axis, [(p.start, p.end) for p in pieces]) for x in self._own)
            return k, v
        if len(sources) == 1:
            return self._received[sources.pop()]
        taken = dict.fromkeys(sources, 0)
        parts: List[List[Tensor]] = [[], []]
        for piece in pieces:
            count = piece.end - piece.start
            first = piece.start if piece.source == self._plan.rank else taken[piece.source]
            for x, part in zip(self._received.get(piece.source, self._own), parts):
                part.append(x.narrow(axis, first, count))
            taken[piece.source] += count
        k, v = (torch.cat(part, axis) if part else x.narrow(axis, 0, 0) for part, x in zip(parts, self._own))
        return k, v


def rows_by_source(stage: Stage, rank: int) -> Dict[int, int]:
    """Returns the number of keys of a stage that each other rank sends."""
    found: Dict[int, int] = {}
    for piece in stage.pieces:
        if piece.source != rank:
            found[piece.source] = found.get(piece.source, 0) + piece.end - piece.start
    return found


def _empty_rows(like: Tensor, axis: int, count: int) -> Tensor:
    shape = list(like.shape)
    shape[axis] = count
    return like.new_empty(shape)


class _Rows:
    """Which of a rank's queries have a result, as ranges in ascending order."""

    def __init__(self) -> None:
        self._ranges: List[Tuple[int, int]] = []

    def missing(self, rows: Tuple[int, int]) -> List[Tuple[int, int]]:
        """Returns the parts of a range without a result."""
        found, first = [], rows[0]
        for start, end in self._ranges:
            if end <= first or start >= rows[1]:
                continue
            if start > first:
                found.append((first, start))
            first = end
        return found + ([(first, rows[1])] if first < rows[1] else [])

    def add(self, rows: Tuple[int, int]) -> None:
        self._ranges = sorted([*self._ranges, *self.missing(rows)])


def _options_of(spec: Spec, step: _Step, operands: Dict[str, Tensor], rows: Tuple[int, int]) -> Dict[str, Any]:
    """Returns the keywords of a launch."""
    launch, given = step.launch, {}
    lengths = operands.get("kv_len")
    mask = step.mask
    if mask is not None and any(x is KV_LEN for _, x in mask._symbols):
        mask = Mask(str(mask), symbols=tuple((name, lengths if x is KV_LEN else x) for name, x in mask._symbols))
    offset: Any = launch.offset
    if lengths is not None:
        if spec.moves:
            offset = (lengths + (launch.offset - spec.k_shards.length)).to(torch.int32)
        given["kv_len"] = _local_lengths(lengths, launch.segments)
    for name in ("bias", "attn_mask"):
        if name in operands:
            given[name] = _pairs_of(operands[name], step, rows)
    if spec.score_mod is not None:
        function, aux = _localize(spec, launch, operands)
        given["score_mod"], given["aux_tensors"] = function, aux
    return {
        "mask": mask, "scale": spec.scale, "layout": spec.layout, "softcap": spec.softcap, "offset": offset, **given
    }  # fmt: skip


def _local_lengths(lengths: Tensor, segments: Sequence[Segment]) -> Tensor:
    """Returns how many of a launch's keys, which are in ascending order, are before the lengths."""
    found = None
    for segment in segments:
        count = (lengths - segment.first + (segment.step - 1)).div(segment.step, rounding_mode="floor")
        count = count.clamp(0, segment.count)
        found = count if found is None else found + count
    assert found is not None
    return found.to(torch.int32)


def _pairs_of(x: Tensor, step: _Step, rows: Tuple[int, int]) -> Tensor:
    """Returns the part of an operand with an element for each pair that a launch reads."""
    if x.ndim > 1 and x.shape[-2] != 1:
        x = _narrow(x, x.ndim - 2, rows)
    if x.shape[-1] == 1:
        return x
    if isinstance(step.columns, slice):
        x = x[..., step.columns]
        return x if step.columns.step == 1 else x.contiguous()
    return x.index_select(-1, step.columns)


@functools.lru_cache(maxsize=256)
def _on_line(function: Callable[..., Any], q_step: int, k_step: int, count: int) -> Callable[..., Any]:
    """Returns a score_mod that counts the rows of a launch. Its last two auxiliary tensors are the position of the
    first query and the first key."""

    def score_mod(score: Any, b: Any, h: Any, p: Any, k: Any, *aux: Any) -> Any:
        p_first, k_first = aux[count:]
        return function(score, b, h, p * q_step + p_first[()], k * k_step + k_first[()], *aux[:count])

    return score_mod


def _localize(spec: Spec, launch: Launch, operands: Dict[str, Tensor]) -> Tuple[Any, Any]:
    aux = tuple(operands[name] for name in _trace.AUX[: spec.aux_count])
    if not spec.reads_positions:
        return spec.score_mod, aux or None
    (q_first, q_step), (k_first, k_step) = launch.q_line, launch.k_line
    assert spec.score_mod is not None
    device = operands["q"].device
    # The kernel's p begins at the offset of the launch.
    first = spec.offset + q_first - q_step * launch.offset
    constants = (_number(first, device), _number(k_first, device))
    return _on_line(spec.score_mod, q_step, k_step, len(aux)), (*aux, *constants)


@functools.lru_cache(maxsize=1024)
def _number(value: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(value, dtype=torch.int32, device=device)


def _as_rows(lse: Tensor, layout: str) -> Tensor:
    """Returns numbers `[B, H, N]` in a shape that broadcasts to o."""
    return lse.unsqueeze(-1) if layout == "bhsd" else lse.transpose(1, 2).unsqueeze(-1)


def _merge(o: Tensor, lse: Tensor, new_o: Tensor, new_lse: Tensor, layout: str) -> None:
    """Adds the attention over other keys to that in `o` and `lse`."""
    share = torch.sigmoid(new_lse - lse)
    # Neither sees a key: both are 0.
    share.masked_fill_(new_lse == float("-inf"), 0.0)
    o.lerp_(new_o, _as_rows(share, layout))
    torch.logaddexp(lse, new_lse, out=lse) if lse.is_contiguous() else lse.copy_(torch.logaddexp(lse, new_lse))


def forward(
    spec: Spec, q: Tensor, k: Tensor, v: Tensor, operands: Dict[str, Tensor], numbers: Sequence[Any]
) -> Tuple[Tensor, Tensor]:
    """Computes this rank's rows of o and lse."""
    operands = {"q": q, **operands}
    built = _find_plan(spec, numbers, q.device, "kv_len" in operands)
    group, axis, plan = _group_of(spec.group), spec.axis, built.plan
    heads = q.shape[1 if axis == 2 else 2]
    lse = torch.empty((q.shape[0], heads, q.shape[axis]), dtype=torch.float32, device=q.device)
    is_exact = built.is_single and "sink_logits" not in operands
    o = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype if is_exact else torch.float32, device=q.device)
    covered = _Rows()
    following: Optional[_Keys] = _Keys(spec, group, built, 0, k, v, "")
    for at, steps in enumerate(built.stages):
        assert following is not None
        keys, values = following.get()
        following = None
        if at + 1 < len(built.stages):
            following = _Keys(spec, group, built, at + 1, k, v, "")
        for step in steps:
            _attend(spec, step, q, keys, values, operands, o, lse, covered)
    for rows in covered.missing((0, q.shape[axis])):
        _narrow(o, axis, rows).zero_()
        _narrow(lse, 2, rows).fill_(float("-inf"))
    if "sink_logits" in operands:
        total = torch.logaddexp(lse, operands["sink_logits"].to(torch.float32).view(1, -1, 1))
        o.mul_(_as_rows(torch.exp(lse - total).nan_to_num_(0.0), spec.layout))
        lse = total
    return o.to(q.dtype), lse


def _attend(
    spec: Spec, step: _Step, q: Tensor, k: Tensor, v: Tensor, operands: Dict[str, Tensor], o: Tensor, lse: Tensor,
    covered: _Rows,
) -> None:  # fmt: skip
    axis, (rows, of_keys) = spec.axis, step.launch[:2]
    options = _options_of(spec, step, operands, rows)
    inputs = _narrow(q, axis, rows), *(_narrow(x, axis, of_keys) for x in (k, v))
    own_o, own_lse = _narrow(o, axis, rows), _narrow(lse, 2, rows)
    missing = covered.missing(rows)
    covered.add(rows)
    is_new = missing == [rows]
    if is_new and own_lse.is_contiguous():
        attention(*inputs, return_lse=True, out=(own_o, own_lse), **options)
        return
    new_lse = torch.empty(own_lse.shape, dtype=lse.dtype, device=lse.device)
    if is_new:
        attention(*inputs, return_lse=True, out=(own_o, new_lse), **options)
        own_lse.copy_(new_lse)
        return
    for part in missing:
        _narrow(o, axis, part).zero_()
        _narrow(lse, 2, part).fill_(float("-inf"))
    new_o = torch.empty(own_o.shape, dtype=o.dtype, device=o.device)
    attention(*inputs, return_lse=True, out=(new_o, new_lse), **options)
    _merge(own_o, own_lse, new_o, new_lse, spec.layout)


class _Sums:
    """Gradients of a rank's own rows, which several launches and other ranks add to."""

    def __init__(self, like: Tensor):
        self._like, self.sum = like, torch.zeros(like.shape, dtype=torch.float32, device=like.device)

    def add(self, axis: int, rows: Tuple[int, int], part: Tensor) -> None:
        _narrow(self.sum, axis, rows).add_(part)

    def total(self) -> Tensor:
        return self.sum.to(self._like.dtype)


def backward(
    spec: Spec, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, d_o: Tensor, d_lse: Optional[Tensor],
    operands: Dict[str, Tensor], numbers: Sequence[Any], needs_bias: bool,
) -> Tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:  # fmt: skip
    """Returns the gradients of this rank's q, k, v and bias."""
    operands = {"q": q, **operands}
    built = _find_plan(spec, numbers, q.device, "kv_len" in operands)
    group, axis, plan = _group_of(spec.group), spec.axis, built.plan
    dq, dk, dv = map(_Sums, (q, k, v))
    d_bias = torch.zeros_like(operands["bias"], dtype=torch.float32) if needs_bias else None
    saved = o, lse, d_o, d_lse
    returning: Optional[_Returned] = None
    following: Optional[_Keys] = _Keys(spec, group, built, 0, k, v, ", backward")
    late: List[Tuple[Tensor, ...]] = []
    parts = _split_heads(spec, built, operands, q, k)
    for at, steps in enumerate(built.stages):
        assert following is not None
        keys, values = following.get()
        following = None
        if at + 1 < len(built.stages):
            following = _Keys(spec, group, built, at + 1, k, v, ", backward")
        # The own keys' launches come in two parts: the second one runs while the last gradients travel.
        now, later = parts if at == 0 else ((slice(None), slice(None)), None)
        found = _differentiate(spec, steps, q, keys, values, saved, operands, dq, d_bias, now)
        if later is not None:
            late = [(keys, values)]
        order = built.orders[at]
        if order is not None:
            found = tuple(torch.empty_like(x).index_copy_(axis, order, x) for x in found)  # type: ignore[assignment]
        if returning is not None:
            returning.add(dk, dv)
        returning = _Returned(spec, group, plan, at, found, dk, dv, now)
    if parts[1] is not None:
        keys, values = late[0]
        found = _differentiate(spec, built.stages[0], q, keys, values, saved, operands, dq, d_bias, parts[1])
        _add_own(spec, plan, 0, found, dk, dv, parts[1])
    if returning is not None:
        returning.add(dk, dv)
    bias = operands["bias"] if needs_bias else None
    return dq.total(), dk.total(), dv.total(), None if d_bias is None else d_bias.to(bias.dtype)  # type: ignore


#: The query heads and the key heads of a part of a stage.
_Heads = Tuple[slice, slice]


def _split_heads(
    spec: Spec, built: _Built, operands: Dict[str, Tensor], q: Tensor, k: Tensor
) -> Tuple[_Heads, Optional[_Heads]]:
    """Returns the two parts of the first stage, or one if it cannot be cut: nothing travels, or an operand counts
    heads."""
    whole = slice(None), slice(None)
    dim = 1 if spec.axis == 2 else 2
    heads, group = k.shape[dim], q.shape[dim] // max(1, k.shape[dim])
    travels = any(piece.source != built.plan.rank for stage in built.plan.stages[1:] for piece in stage.pieces)
    travels = travels or any(built.plan.sends[1:])
    counts_heads = spec.score_mod is not None or {"bias", "attn_mask"} & set(operands) or any(
        isinstance(x, Tensor) and x.ndim > 2
        for steps in built.stages for step in steps if step.mask is not None for _, x in step.mask._symbols
    )  # fmt: skip
    if heads < 2 or not travels or counts_heads:
        return whole, None
    half = heads // 2
    return (slice(0, half * group), slice(0, half)), (slice(half * group, None), slice(half, None))


def _differentiate(
    spec: Spec, steps: Sequence[_Step], q: Tensor, k: Tensor, v: Tensor, saved: Tuple[Any, ...],
    operands: Dict[str, Tensor], dq: _Sums, d_bias: Optional[Tensor], heads: _Heads,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    """Returns the gradients of the keys and values of a stage. Adds those of the queries and of the bias."""
    axis, dim = spec.axis, 1 if spec.axis == 2 else 2
    of_q, of_k = heads

    def cut(x: Tensor, which: slice, of: int) -> Tensor:
        return x if which == slice(None) else x[:, which] if of == 1 else x[:, :, which]

    q, k, v = cut(q, of_q, dim), cut(k, of_k, dim), cut(v, of_k, dim)
    o, lse, d_o, d_lse = saved
    o, d_o, lse = cut(o, of_q, dim), cut(d_o, of_q, dim), cut(lse, of_q, 1)
    d_lse = None if d_lse is None else cut(d_lse, of_q, 1)
    of_dq = cut(dq.sum, of_q, dim)
    total: Optional[Tuple[Tensor, Tensor]] = None
    for step in steps:
        rows, of_keys = step.launch[:2]
        options = _options_of(spec, step, operands, rows)
        if d_lse is not None:
            options["d_lse"] = _narrow(d_lse, 2, rows).contiguous()
        if d_bias is not None:
            options["return_d_bias"] = True
        of_rows = [_narrow(x, axis, rows) for x in (q, o, d_o)]
        found = attention_backward(
            of_rows[0], *(_narrow(x, axis, of_keys) for x in (k, v)), of_rows[1],
            _narrow(lse, 2, rows).contiguous(), of_rows[2], deterministic=spec.deterministic, **options,
        )  # fmt: skip
        _narrow(of_dq, axis, rows).add_(found[0])
        if d_bias is not None:
            _add_pairs(d_bias, step, rows, found[3])
        if total is None and of_keys == (0, k.shape[axis]):
            total = found[1], found[2]
            continue
        if total is None or total[0].dtype != torch.float32:
            sums = tuple(torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (k, v))
            if total is not None:
                for one, other in zip(sums, total):
                    one.copy_(other)
            total = sums  # type: ignore[assignment]
        assert total is not None
        for sum_, part in zip(total, found[1:3]):
            _narrow(sum_, axis, of_keys).add_(part)
    return (torch.zeros_like(k), torch.zeros_like(v)) if total is None else total


def _add_pairs(d_bias: Tensor, step: _Step, rows: Tuple[int, int], part: Tensor) -> None:
    own = d_bias
    if own.ndim > 1 and own.shape[-2] != 1:
        own = _narrow(own, own.ndim - 2, rows)
    if own.shape[-1] == 1:
        own.add_(part)
    elif isinstance(step.columns, slice):
        own[..., step.columns].add_(part)
    else:
        own.index_add_(-1, step.columns, part.to(own.dtype))


def _add_own(
    spec: Spec, plan: Plan, at: int, found: Tuple[Tensor, Tensor], dk: _Sums, dv: _Sums, heads: _Heads
) -> None:
    """Adds the gradients of a stage's own keys."""
    dim, first = 1 if spec.axis == 2 else 2, 0
    for piece in plan.stages[at].pieces:
        count = piece.end - piece.start
        if piece.source == plan.rank:
            for sums, part in zip((dk, dv), found):
                own = sums.sum[:, heads[1]] if dim == 1 else sums.sum[:, :, heads[1]]
                _narrow(own, spec.axis, (piece.start, piece.end)).add_(part.narrow(spec.axis, first, count))
        first += count


class _Returned:
    """Gradients of keys on their way to the ranks that hold the keys."""

    def __init__(
        self, spec: Spec, group: Any, plan: Plan, at: int, found: Tuple[Tensor, Tensor], dk: _Sums, dv: _Sums,
        heads: _Heads,
    ):  # fmt: skip
        self._axis, self._received = spec.axis, []  # type: Tuple[int, List[Tuple[List[Tuple[int, int]], Tensor, Tensor]]]
        _add_own(spec, plan, at, found, dk, dv, heads)
        stage = plan.stages[at]
        exchange = _Exchange(group, f"step {at + 1} of {len(plan.stages)}, gradients of keys")
        starts, first = {}, 0  # type: Dict[int, List[Tuple[int, int]]], int
        for piece in stage.pieces:
            count = piece.end - piece.start
            starts.setdefault(piece.source, []).append((first, first + count))
            first += count
        for source, ranges in starts.items():
            if source != plan.rank:
                for x, like in zip(found, (dk, dv)):
                    part = _gather_rows(x, spec.axis, ranges).to(like._like.dtype)
                    exchange.send(part.contiguous(), source)
        targets: Dict[int, List[Tuple[int, int]]] = {}
        for target, start, end in plan.sends[at]:
            targets.setdefault(target, []).append((start, end))
        for target, ranges in targets.items():
            count = sum(end - start for start, end in ranges)
            both = [_empty_rows(like._like, spec.axis, count) for like in (dk, dv)]
            for x in both:
                exchange.receive(x, target)
            self._received.append((ranges, *both))
        self._exchange = exchange.start()

    def add(self, dk: _Sums, dv: _Sums) -> None:
        """Waits for the messages, and adds what other ranks computed."""
        self._exchange.wait()
        for ranges, *both in self._received:
            first = 0
            for start, end in ranges:
                for sums, part in zip((dk, dv), both):
                    sums.add(self._axis, (start, end), part.narrow(self._axis, first, end - start))
                first += end - start
        self._received = []


def sink_gradient(
    spec: Spec, o: Tensor, lse: Tensor, d_o: Tensor, d_lse: Optional[Tensor], sink_logits: Tensor
) -> Tensor:
    """Returns the gradient of the sink logits from this rank's rows."""
    delta = (o.float() * d_o.float()).sum(-1)
    if spec.layout != "bhsd":
        delta = delta.transpose(1, 2)
    share = torch.exp(sink_logits.float().view(1, -1, 1) - lse).nan_to_num_(0.0)
    change = -delta if d_lse is None else d_lse - delta
    return (share * change).sum((0, 2)).to(sink_logits.dtype)

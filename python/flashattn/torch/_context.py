"""`flashattn.torch.context_parallel`: attention over a sequence whose rows several ranks of a mesh hold.

`flashattn._context` decides which keys travel and what each rank computes. This module sends the keys through
`torch.distributed` and merges what the launches compute. While a stage runs, the keys of the next one travel.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections import OrderedDict
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy
import torch
import torch.distributed as dist
from torch import Tensor

from .. import _aux, _context, _symbols, _trace
from .._attention import attention
from .._backward import attention_backward
from .._context import KV_LEN, Launch, Plan, Problem, Stage, Taken
from .._reference import _to_numpy
from .._shards import Segment, Shards
from ..masks import Mask
from ._messages import Exchange, Range, SlotExchange, check_same, find_slots, gather_rows, narrow

#: The operands of a call that are tensors, in the order of the operator's list.
OPERANDS = ("bias", "attn_mask", "sink_logits", "kv_len", *_trace.AUX)
_MAX_PLANS = 16
_MAX_COPIES = 64


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
    scheme: str
    orders: Tuple[Optional[Tensor], ...]  #: `Stage.order` of each stage
    kept: Tuple[Any, ...]  #: the tensors that were read to make the plan, whose memory must not be reused
    forward: Tuple[Tuple[_Step, ...], ...]  #: `stages` of the forward pass, with launches cut at the ends of `merged`
    merged: Tuple[Range, ...]  #: the rows whose results are merged from several launches


_plans: "OrderedDict[Any, _Built]" = OrderedDict()


def identity(x: Any) -> Any:
    """Returns a key of the contents of a mask's tensor; None if there is none. For a tensor on a GPU, which the host
    reads only to make a plan, the key changes with each in-place operation of torch."""
    if type(x) is int:
        return x
    if isinstance(x, numpy.ndarray) and x.base is None and not x.flags.writeable:
        return id(x)  # cannot change; whoever keeps the key keeps the array
    if isinstance(x, Tensor) and x.device.type != "cpu":
        if x.is_inference():
            return None
        return x.data_ptr(), tuple(x.shape), x.stride(), x.dtype, x.device, x._version
    array = numpy.ascontiguousarray(x.detach().numpy() if isinstance(x, Tensor) else x)
    return array.shape, array.dtype.str, hashlib.blake2b(array).digest()


#: Copies of arrays on devices, with the arrays.
_copies: "OrderedDict[Any, Tuple[Any, Tensor]]" = OrderedDict()


def on_device(x: Any, device: torch.device) -> Tensor:
    """Returns a mask's tensor, or its copy on a device, which is made once."""
    if isinstance(x, Tensor) and x.device == device:
        return x
    if isinstance(x, Tensor) and x.device.type != "cpu":
        return x.to(device)
    key = identity(x), device
    found = _copies.get(key)
    if found is None:
        with torch.inference_mode(False):
            found = _copies[key] = x, torch.tensor(numpy.asarray(x), device=device)
        while len(_copies) > _MAX_COPIES:
            _copies.popitem(last=False)
    else:
        _copies.move_to_end(key)
    return found[1]


def _find_plan(
    spec: Spec, numbers: Sequence[Any], q: Tensor, k: Tensor, v: Tensor, operands: Dict[str, Tensor]
) -> _Built:
    device, has_lengths, sizes = q.device, "kv_len" in operands, sizes_of(q, k, v, spec.axis)
    identities = tuple(map(identity, numbers))
    of_sizes = sizes if spec.scheme == "auto" else None
    key = None if None in identities else (spec._replace(scale=None), identities, device, has_lengths, of_sizes)
    built = None if key is None else _plans.get(key)
    if built is None:
        if spec.group:
            check_arguments(_group_of(spec.group), spec, numbers, (q, k, v), operands)
        built = _build(spec, numbers, device, has_lengths, sizes)
        if key is not None:
            _plans[key] = built
            while len(_plans) > _MAX_PLANS:
                _plans.popitem(last=False)
    else:
        _plans.move_to_end(key)
    return built


#: For each group, by name, the group and digests of what its ranks have compared.
_compared: Dict[str, Tuple[Any, Set[bytes]]] = {}


def check_arguments(
    group: Any, spec: Spec, numbers: Sequence[Any], rows: Tuple[Tensor, Tensor, Tensor], operands: Dict[str, Tensor]
) -> None:
    """Raises ArgumentError on every rank of a group if the arguments of a call differ between them. `rows` are q, k and
    v.

    The ranks compare arguments when they make a plan for contents that are new to the group, so a call with a plan
    costs nothing. Ranks with equal arguments do so in the same call, whichever plans each of them has dropped since:
    what is new depends only on contents of the group's earlier calls, and only on those by which plans are found."""
    if dist.get_world_size(group) == 1:
        return
    sizes = sizes_of(*rows, spec.axis)
    arrays = [numpy.ascontiguousarray(_to_numpy(x), numpy.int64) for x in numbers]
    contents = [(x.shape, hashlib.blake2b(x).hexdigest()) for x in arrays]
    known_by = (
        spec._replace(group="", scale=None, score_mod=None), spec.score_mod is None, contents, "kv_len" in operands,
        sizes if spec.scheme == "auto" else None,
    )  # fmt: skip
    digest = hashlib.blake2b(repr(known_by).encode(), digest_size=16).digest()
    found = _compared.get(group.group_name)
    if found is None or found[0] is not group:
        found = _compared[group.group_name] = group, set()
    if digest in found[1]:
        return
    device = rows[0].device
    if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
        fields = _fields_of(spec, operands)
        fields.update({"q, k or v": (rows[0].dtype, sizes), "mask": (spec.mask, contents)})
        with torch.inference_mode(False), torch.no_grad():
            check_same(group, {name: str(x) for name, x in fields.items()}, device)
    found[1].add(digest)


def _fields_of(spec: Spec, operands: Dict[str, Tensor]) -> Dict[str, Any]:
    """Returns what all ranks must agree on, by the names of arguments."""
    aux = tuple(operands[name] for name in _trace.AUX[: spec.aux_count])
    return {
        "layout": spec.layout, "scheme": spec.scheme, "rows, shards or length": spec.q_shards.text,
        "k_shards": spec.k_shards.text if spec.k_shards != spec.q_shards else "", "scale": spec.scale,
        "offset or align": (spec.offset, spec.moves), "softcap": spec.softcap,
        "score_mod": _aux.prepare(spec.score_mod, aux or None)[0],
        "optional tensors": sorted(name for name in OPERANDS if name in operands),
    }  # fmt: skip


def _problem_of(spec: Spec, numbers: Sequence[Any], has_lengths: bool) -> Problem:
    mask = None
    if spec.mask is not None:
        mask = Mask(spec.mask, symbols=tuple(zip(_symbols.names_in(spec.mask), numbers)))
    return Problem(
        spec.q_shards, spec.k_shards, mask, spec.offset, has_lengths, spec.moves, spec.reads_positions
    )  # fmt: skip


def rates_of(device: torch.device) -> _context.Rates:
    return _context.RATES.get(device.type, _context.RATES["cuda"])


def sizes_of(q: Tensor, k: Tensor, v: Tensor, axis: int) -> _context.Sizes:
    heads = 3 - axis
    return _context.Sizes(q.shape[0], q.shape[heads], k.shape[heads], q.shape[-1], v.shape[-1], q.element_size())


def _build(
    spec: Spec, numbers: Sequence[Any], device: torch.device, has_lengths: bool, sizes: _context.Sizes
) -> _Built:
    rank = dist.get_rank(_group_of(spec.group)) if spec.group else 0
    with torch.inference_mode(False), torch.no_grad():
        problem = _problem_of(spec, numbers, has_lengths)
        scheme = spec.scheme
        if scheme == "auto":
            times = _context.estimate(problem, sizes, rates_of(device))
            scheme = min(_context.SCHEMES, key=lambda name: times[name])
        plan = _context.make_plan(problem, scheme, rank)
        stages = tuple(_make_steps(stage.launches, device) for stage in plan.stages)
        rows = spec.q_shards.count(rank)
        merged = tuple(_context.merged_rows(plan, rows))
        forward = stages
        if merged and merged != ((0, rows),):
            cut = ([part for x in stage.launches for part in _context.cut_launch(x, merged)] for stage in plan.stages)
            forward = tuple(_make_steps(launches, device) for launches in cut)
    orders = tuple(None if x.order is None else torch.from_numpy(x.order).to(device) for x in plan.stages)
    return _Built(plan, stages, scheme, orders, tuple(numbers), forward, merged)


def _make_steps(launches: Sequence[Launch], device: torch.device) -> Tuple[_Step, ...]:
    return tuple(_Step(launch, _mask_of(launch, device), _columns_of(launch, device)) for launch in launches)


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
    else:
        found = torch.as_tensor(number, device=device)
    # A plan is found by the contents of tensors on the CPU, whose memory may have other contents then.
    return found.to(torch.int32, copy=device.type == "cpu").contiguous()


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


class _Keys:
    """The keys and values of a stage, some of which travel."""

    def __init__(self, spec: Spec, wires: "_Wires", built: _Built, at: int, k: Tensor, v: Tensor, what: str):
        plan = built.plan
        self._spec, self._plan, self._stage = spec, plan, plan.stages[at]
        self._order = built.orders[at]
        self._own = k, v
        self._exchange = wires.exchange("keys", at, f"step {at + 1} of {len(plan.stages)}{what}")
        for target, ranges in _sent_rows(plan, at).items():
            self._exchange.send((k, v), ranges, target)
        self._received = {
            source: self._exchange.receive((k, v), count, source)
            for source, count in rows_by_source(self._stage, plan.rank).items()
        }
        self._exchange.start()

    def get(self) -> Tuple[Tensor, Tensor]:
        """Waits for the messages, and returns the keys and values in the order of the stage."""
        self._exchange.wait()
        k, v = self._join()
        if self._order is not None:
            k, v = (x.index_select(self._spec.axis, self._order) for x in (k, v))
        return k, v

    def release(self) -> None:
        """Says that all launches which read the keys are enqueued."""
        self._exchange.release()

    def _join(self) -> Tuple[Tensor, Tensor]:
        """Returns the keys and values of the pieces."""
        axis, pieces = self._spec.axis, self._stage.pieces
        sources = {piece.source for piece in pieces}
        if sources == {self._plan.rank}:
            k, v = (gather_rows(x, axis, [(p.start, p.end) for p in pieces]) for x in self._own)
            return k, v
        if len(sources) == 1:
            k, v = self._received[sources.pop()]
            return k, v
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


def _sent_rows(plan: Plan, at: int) -> Dict[int, List[Range]]:
    """Returns the rows of this rank's keys that each other rank receives in a stage."""
    found: Dict[int, List[Range]] = {}
    for target, first, end in plan.sends[at]:
        found.setdefault(target, []).append((first, end))
    return found


class _Wires:
    """How the messages of a call travel."""

    def __init__(self, spec: Spec, built: _Built, k: Tensor, v: Tensor):
        self._group, self._axis = _group_of(spec.group), spec.axis
        self._likes = k, v
        self._uses_slots = built.scheme == "ring" and self._group is not None and len(built.plan.stages) > 1
        counts = map(spec.k_shards.count, range(spec.k_shards.ranks))
        rows = [math.prod(x.shape[:spec.axis] + x.shape[spec.axis + 1 :]) * x.element_size() for x in (k, v)]
        self._size = max(counts) * sum(rows) + 512
        self._last: Dict[str, SlotExchange] = {}

    def exchange(self, purpose: str, at: int, step: str) -> Exchange:
        """Returns the messages of a stage, of keys or of their gradients."""
        slots = None
        # The first stage of a ring has the own keys. It takes no slot, so that the others take them in turns.
        if self._uses_slots and at:
            slots = find_slots(self._group, purpose, self._likes[0].device, self._size)
        if slots is None:
            return Exchange(self._group, self._axis, step)
        found = self._last[purpose] = SlotExchange(slots, self._group, self._axis, step)
        return found

    def finish(self) -> None:
        """Makes the current stream wait until all rows have been sent."""
        for exchange in self._last.values():
            exchange.finish()


def rows_by_source(stage: Stage, rank: int) -> Dict[int, int]:
    """Returns the number of keys of a stage that each other rank sends."""
    found: Dict[int, int] = {}
    for piece in stage.pieces:
        if piece.source != rank:
            found[piece.source] = found.get(piece.source, 0) + piece.end - piece.start
    return found


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
        x = narrow(x, x.ndim - 2, rows)
    if x.ndim == 0 or x.shape[-1] == 1:
        return x
    if isinstance(step.columns, slice):
        x = x[..., step.columns]
        return x if step.columns.step == 1 else x.contiguous()
    return x.index_select(-1, step.columns)


@functools.lru_cache(maxsize=256)
def _on_line(
    function: Callable[..., Any], q_step: int, k_step: int, count: int, is_moved: bool
) -> Callable[..., Any]:
    """Returns a score_mod that counts the rows of a launch. Its last two auxiliary tensors are the position of the
    first query, or of that of each sequence if lengths have moved them, and the first key."""

    def score_mod(score: Any, b: Any, h: Any, p: Any, k: Any, *aux: Any) -> Any:
        p_first, k_first = aux[count:]
        first = p_first[b if is_moved else ()]
        return function(score, b, h, p * q_step + first, k * k_step + k_first[()], *aux[:count])

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
    p_first, is_moved = _number(first, device), spec.moves and q_step != 1
    if is_moved:
        # The step multiplies the offset of each sequence too.
        p_first = ((operands["kv_len"] - spec.k_shards.length) * (1 - q_step) + first).to(torch.int32)
    return _on_line(spec.score_mod, q_step, k_step, len(aux), is_moved), (*aux, p_first, _number(k_first, device))


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
    built = _find_plan(spec, numbers, q, k, v, operands)
    axis = spec.axis
    result = _Output(spec, q, v, built.merged if "sink_logits" not in operands else ((0, q.shape[axis]),))
    wires = _Wires(spec, built, k, v)
    current = _Keys(spec, wires, built, 0, k, v, "")
    for at, steps in enumerate(built.forward):
        # Messages start before the launches that they travel beside.
        following = None if at + 1 == len(built.stages) else _Keys(spec, wires, built, at + 1, k, v, "")
        keys, values = current.get()
        for step in steps:
            result.attend(spec, step, q, keys, values, operands)
        current.release()
        if following is not None:
            current = following
    wires.finish()
    return result.get(operands.get("sink_logits"))


class _Output:
    """This rank's rows of o and lse. Rows that several launches compute are merged in f32."""

    def __init__(self, spec: Spec, q: Tensor, v: Tensor, merged: Sequence[Range]):
        self._axis, self._layout, self._dtype = spec.axis, spec.layout, q.dtype
        rows, heads = q.shape[spec.axis], q.shape[3 - spec.axis]
        shape = list((*q.shape[:-1], v.shape[-1]))
        self._merged = []
        for first, end in merged:
            shape[spec.axis] = end - first
            self._merged.append(((first, end), torch.empty(shape, dtype=torch.float32, device=q.device)))
        shape[spec.axis] = rows
        is_whole = len(merged) == 1 and merged[0] == (0, rows)
        self._o = None if is_whole else torch.empty(shape, dtype=q.dtype, device=q.device)
        self._lse = torch.empty((q.shape[0], heads, rows), dtype=torch.float32, device=q.device)
        self._covered = _Rows()

    def _at(self, rows: Range) -> Tensor:
        """Returns the rows of o, which are all merged or none."""
        for (first, end), x in self._merged:
            if first <= rows[0] and rows[1] <= end:
                return narrow(x, self._axis, (rows[0] - first, rows[1] - first))
        assert self._o is not None
        return narrow(self._o, self._axis, rows)

    def _clear(self, rows: Range) -> None:
        edges = {*rows, *(edge for of, _ in self._merged for edge in of if rows[0] < edge < rows[1])}
        for part in zip(sorted(edges), sorted(edges)[1:]):
            self._at(part).zero_()
        narrow(self._lse, 2, rows).fill_(float("-inf"))

    def attend(
        self, spec: Spec, step: _Step, q: Tensor, k: Tensor, v: Tensor, operands: Dict[str, Tensor]
    ) -> None:
        axis, (rows, of_keys) = self._axis, step.launch[:2]
        options = _options_of(spec, step, operands, rows)
        inputs = narrow(q, axis, rows), *(narrow(x, axis, of_keys) for x in (k, v))
        own_o, own_lse = self._at(rows), narrow(self._lse, 2, rows)
        missing = self._covered.missing(rows)
        self._covered.add(rows)
        is_new = missing == [rows]
        for part in [] if is_new else missing:
            self._clear(part)
        o = own_o if is_new else torch.empty(own_o.shape, dtype=own_o.dtype, device=own_o.device)
        is_direct = is_new and own_lse.is_contiguous()
        lse = own_lse if is_direct else torch.empty(own_lse.shape, dtype=own_lse.dtype, device=own_lse.device)
        attention(*inputs, return_lse=True, out=(o, lse), **options)
        if not is_new:
            _merge(own_o, own_lse, o, lse, self._layout)
        elif not is_direct:
            own_lse.copy_(lse)

    def get(self, sink_logits: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
        for rows in self._covered.missing((0, self._lse.shape[2])):
            self._clear(rows)
        lse = self._lse
        if sink_logits is not None:
            lse = torch.logaddexp(lse, sink_logits.to(torch.float32).view(1, -1, 1))
            self._merged[0][1].mul_(_as_rows(torch.exp(self._lse - lse).nan_to_num_(0.0), self._layout))
        if self._o is None:
            return self._merged[0][1].to(self._dtype), lse
        for rows, x in self._merged:
            narrow(self._o, self._axis, rows).copy_(x)
        return self._o, lse


class _Sums:
    """Gradients of a rank's own rows, to which several launches and other ranks add. Two parts are added in the type of
    the rows, as the sum is rounded once anyway, and more in f32."""

    def __init__(self, like: Tensor, parts: int, is_assigned: bool):
        self.like = like
        dtype = like.dtype if parts <= 2 else torch.float32
        make = torch.empty if is_assigned else torch.zeros
        self.sum = make(like.shape, dtype=dtype, device=like.device)

    def total(self) -> Tensor:
        return self.sum.to(self.like.dtype)


#: The query heads and the key heads of a part of a stage.
_Heads = Tuple[slice, slice]
_ALL = slice(None), slice(None)


def _cut(x: Tensor, heads: slice, dim: int) -> Tensor:
    return x if heads == slice(None) else x[:, heads] if dim == 1 else x[:, :, heads]


class _Pass:
    """A backward pass: its inputs, and the gradients as far as they are computed."""

    def __init__(
        self, spec: Spec, built: _Built, inputs: Tuple[Tensor, ...], d_lse: Optional[Tensor],
        operands: Dict[str, Tensor], needs_bias: bool,
    ):  # fmt: skip
        self.spec, self.built, self.operands = spec, built, operands
        self.q, self.k, self.v, self.o, self.lse, self.d_o = inputs
        self.d_lse = d_lse
        self.d_bias = torch.zeros_like(operands["bias"], dtype=torch.float32) if needs_bias else None
        # The own keys' launch assigns gradients if it has all rows. Others add to them.
        axis, first = spec.axis, built.stages[0]
        own = first[0].launch if len(first) == 1 and built.scheme == "ring" else None
        self.has_all_rows = own is not None and own.rows == (0, self.q.shape[axis])
        self.has_all_keys = own is not None and own.keys == (0, self.k.shape[axis])
        of_q = sum(bool(steps) for steps in built.stages)
        of_k = len(first) + sum(bool(sent) for sent in built.plan.sends)
        self.dq = _Sums(self.q, of_q, self.has_all_rows)
        self.dk, self.dv = (_Sums(x, of_k, self.has_all_keys) for x in (self.k, self.v))

    def split_heads(self) -> Tuple[_Heads, Optional[_Heads]]:
        """Returns the two parts of the first stage, or one if it cannot be cut: nothing travels, or an operand counts
        heads."""
        plan, dim = self.built.plan, 3 - self.spec.axis
        heads, group = self.k.shape[dim], self.q.shape[dim] // max(1, self.k.shape[dim])
        travels = any(piece.source != plan.rank for stage in plan.stages[1:] for piece in stage.pieces)
        travels = travels or any(plan.sends[1:])
        counts_heads = self.spec.score_mod is not None or {"bias", "attn_mask"} & set(self.operands) or any(
            isinstance(x, Tensor) and x.ndim > 2
            for steps in self.built.stages for step in steps if step.mask is not None for _, x in step.mask._symbols
        )  # fmt: skip
        if heads < 2 or not travels or counts_heads:
            return _ALL, None
        half = heads // 2
        return (slice(0, half * group), slice(0, half)), (slice(half * group, None), slice(half, None))

    def defer(self, heads: _Heads) -> None:
        """Prepares gradients of heads whose own keys come last, to which other stages add before."""
        dim, stages = 3 - self.spec.axis, self.built.stages
        if self.has_all_rows and any(stages[1:]):
            _cut(self.dq.sum, heads[0], dim).zero_()
        if self.has_all_keys and len(stages) > 2:
            for sums in (self.dk, self.dv):
                _cut(sums.sum, heads[1], dim).zero_()

    def run_own(self, k: Tensor, v: Tensor, heads: _Heads, is_late: bool = False) -> None:
        """Runs the first stage of a ring, whose keys are this rank's own, for some heads. `is_late`: `defer` was called
        for these heads, and other stages have run since."""
        if is_late:
            self.has_all_rows = self.has_all_rows and not any(self.built.stages[1:])
            self.has_all_keys = self.has_all_keys and len(self.built.stages) <= 2
        if self.has_all_keys:
            self._run(0, k, v, heads, [_cut(x.sum, heads[1], 3 - self.spec.axis) for x in (self.dk, self.dv)])
        else:
            self._add_own(0, self._run(0, k, v, heads, None), heads)

    def run(self, at: int, k: Tensor, v: Tensor) -> Sequence[Tensor]:
        """Returns the gradients of the keys of a stage, in the order of its pieces."""
        found = self._run(at, k, v, _ALL, None)
        order = self.built.orders[at]
        if order is not None:
            found = [torch.empty_like(x).index_copy_(self.spec.axis, order, x) for x in found]
        self._add_own(at, found, _ALL)
        return found

    def _add_own(self, at: int, found: Sequence[Tensor], heads: _Heads) -> None:
        """Adds the gradients of a stage's keys that are this rank's own."""
        plan, axis, first = self.built.plan, self.spec.axis, 0
        for piece in plan.stages[at].pieces:
            count = piece.end - piece.start
            if piece.source == plan.rank:
                for sums, part in zip((self.dk, self.dv), found):
                    own = _cut(sums.sum, heads[1], 3 - axis)
                    narrow(own, axis, (piece.start, piece.end)).add_(part.narrow(axis, first, count))
            first += count

    def _run(
        self, at: int, k: Tensor, v: Tensor, heads: _Heads, targets: Optional[Sequence[Tensor]]
    ) -> Sequence[Tensor]:
        """Runs the launches of a stage for some heads. Adds gradients of queries and bias, and assigns those of keys
        and values to `targets`, or returns them."""
        axis, dim, steps = self.spec.axis, 3 - self.spec.axis, self.built.stages[at]
        k, v = _cut(k, heads[1], dim), _cut(v, heads[1], dim)
        q, o, d_o = (_cut(x, heads[0], dim) for x in (self.q, self.o, self.d_o))
        of_rows = [_cut(x, heads[0], 1) for x in (self.lse, self.d_lse) if x is not None]
        dq = _cut(self.dq.sum, heads[0], dim)
        sums: Optional[Sequence[Tensor]] = targets
        if len(steps) != 1 or steps[0].launch.keys != (0, k.shape[axis]):
            sums = [torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (k, v)]
        for step in steps:
            rows, of_keys = step.launch[:2]
            options = _options_of(self.spec, step, self.operands, rows)
            lse, *d_lse = (narrow(x, 2, rows).contiguous() for x in of_rows)
            inputs = [narrow(q, axis, rows), *(narrow(x, axis, of_keys) for x in (k, v)), narrow(o, axis, rows), lse]
            is_new, is_only = at == 0 and self.has_all_rows, len(steps) == 1
            parts = [None, None] if sums is None else [narrow(x, axis, of_keys) for x in sums]
            goals = [narrow(dq, axis, rows) if is_new else None, *(parts if is_only else (None, None))]
            outs = [
                goal if goal is not None and goal.dtype == x.dtype else x.new_empty(x.shape)
                for goal, x in zip(goals, inputs)
            ]
            if self.d_bias is not None:
                options["return_d_bias"] = True
                outs.append(torch.empty_like(options["bias"], memory_format=torch.contiguous_format))
            attention_backward(
                *inputs, narrow(d_o, axis, rows), d_lse=d_lse[0] if d_lse else None, out=tuple(outs),
                deterministic=self.spec.deterministic, **options,
            )  # fmt: skip
            if not is_new:
                narrow(dq, axis, rows).add_(outs[0])
            elif outs[0] is not goals[0]:
                narrow(dq, axis, rows).copy_(outs[0])
            if self.d_bias is not None:
                _add_pairs(self.d_bias, step, rows, outs[3])
            if sums is None:
                return outs[1:3]
            for part, out in zip(parts, outs[1:3]):
                if part is not None and out is not part:
                    part.copy_(out) if is_only else part.add_(out)
        return sums if sums is not None else [torch.zeros_like(x) for x in (k, v)]


def backward(
    spec: Spec, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, d_o: Tensor, d_lse: Optional[Tensor],
    operands: Dict[str, Tensor], numbers: Sequence[Any], needs_bias: bool,
) -> Tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:  # fmt: skip
    """Returns the gradients of this rank's q, k, v and bias."""
    operands = {"q": q, **operands}
    built = _find_plan(spec, numbers, q, k, v, operands)
    wires = _Wires(spec, built, k, v)
    work = _Pass(spec, built, (q, k, v, o, lse, d_o), d_lse, operands, needs_bias)
    # The own keys' launches come in two parts: the second one runs while the last gradients travel.
    now, later = work.split_heads() if built.scheme == "ring" else (_ALL, None)
    if later is not None:
        work.defer(later)
    current = _Keys(spec, wires, built, 0, k, v, ", backward")
    returning: Optional[_Returned] = None
    own_keys: Tuple[Tensor, Tensor] = (k, v)
    for at in range(len(built.stages)):
        following = None
        if at + 1 < len(built.stages):
            following = _Keys(spec, wires, built, at + 1, k, v, ", backward")
        keys, values = current.get()
        if at == 0 and built.scheme == "ring":
            own_keys = keys, values
            work.run_own(keys, values, now)
            found: Sequence[Tensor] = ()
        else:
            found = work.run(at, keys, values)
        current.release()
        if returning is not None:
            returning.add(work)
        returning = _Returned(wires, work, at, found)
        if following is not None:
            current = following
    if later is not None:
        work.run_own(*own_keys, later, is_late=True)
    if returning is not None:
        returning.add(work)
    wires.finish()
    d_bias = None if work.d_bias is None else work.d_bias.to(operands["bias"].dtype)
    return work.dq.total(), work.dk.total(), work.dv.total(), d_bias


def _add_pairs(d_bias: Tensor, step: _Step, rows: Range, part: Tensor) -> None:
    own = d_bias
    if own.ndim > 1 and own.shape[-2] != 1:
        own = narrow(own, own.ndim - 2, rows)
    if own.ndim == 0 or own.shape[-1] == 1:
        own.add_(part)
    elif isinstance(step.columns, slice):
        own[..., step.columns].add_(part)
    else:
        own.index_add_(-1, step.columns, part.to(own.dtype))


class _Returned:
    """Gradients of keys on their way to the ranks that hold the keys."""

    def __init__(self, wires: _Wires, work: _Pass, at: int, found: Sequence[Tensor]):
        plan, spec = work.built.plan, work.spec
        stage, likes = plan.stages[at], (work.k, work.v)
        self._exchange = wires.exchange("gradients", at, f"step {at + 1} of {len(plan.stages)}, gradients of keys")
        ranges: Dict[int, List[Range]] = {}
        first = 0
        for piece in stage.pieces:
            count = piece.end - piece.start
            if piece.source != plan.rank:
                ranges.setdefault(piece.source, []).append((first, first + count))
            first += count
        if ranges:
            parts = [x.to(like.dtype) for x, like in zip(found, likes)]
            for source, of_source in ranges.items():
                self._exchange.send(parts, of_source, source)
        self._received = [
            (own, self._exchange.receive(likes, sum(end - start for start, end in own), target))
            for target, own in _sent_rows(plan, at).items()
        ]
        self._axis = spec.axis
        self._exchange.start()

    def add(self, work: _Pass) -> None:
        """Waits for the messages, and adds what other ranks computed."""
        self._exchange.wait()
        for ranges, both in self._received:
            first = 0
            for start, end in ranges:
                for sums, part in zip((work.dk, work.dv), both):
                    narrow(sums.sum, self._axis, (start, end)).add_(part.narrow(self._axis, first, end - start))
                first += end - start
        self._exchange.release()


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

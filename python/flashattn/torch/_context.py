"""The forward pass of `context_parallel` on the rows of one rank.

`flashattn._context` decides which keys travel and what each rank computes. This module sends the keys and merges what
the launches compute. While a stage runs, the keys of the next one travel.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import _trace
from .._attention import attention
from .._context import KV_LEN, Launch, Plan, Stage
from .._shards import Segment
from ..masks import Mask
from ._context_plans import Built, Spec, Step, find_plan, group_of
from ._messages import Exchange, Range, SlotExchange, find_slots, gather_rows, narrow


class Keys:
    """The keys and values of a stage, some of which travel."""

    def __init__(self, spec: Spec, wires: "Wires", built: Built, at: int, k: Tensor, v: Tensor, what: str):
        plan = built.plan
        self._spec, self._plan, self._stage = spec, plan, plan.stages[at]
        self._order = built.orders[at]
        self._own = k, v
        self._exchange = wires.exchange("keys", at, f"step {at + 1} of {len(plan.stages)}{what}")
        for target, ranges in sent_rows(plan, at).items():
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


def sent_rows(plan: Plan, at: int) -> Dict[int, List[Range]]:
    """Returns the rows of this rank's keys that each other rank receives in a stage."""
    found: Dict[int, List[Range]] = {}
    for target, first, end in plan.sends[at]:
        found.setdefault(target, []).append((first, end))
    return found


class Wires:
    """How the messages of a call travel."""

    def __init__(self, spec: Spec, built: Built, k: Tensor, v: Tensor):
        self._group, self._axis = group_of(spec.group), spec.axis
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


def options_of(spec: Spec, step: Step, operands: Dict[str, Tensor], rows: Tuple[int, int]) -> Dict[str, Any]:
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


def _pairs_of(x: Tensor, step: Step, rows: Tuple[int, int]) -> Tensor:
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
    built = find_plan(spec, numbers, q, k, v, operands)
    axis = spec.axis
    result = _Output(spec, q, v, built.merged if "sink_logits" not in operands else ((0, q.shape[axis]),))
    wires = Wires(spec, built, k, v)
    current = Keys(spec, wires, built, 0, k, v, "")
    for at, steps in enumerate(built.forward):
        # Messages start before the launches that they travel beside.
        following = None if at + 1 == len(built.stages) else Keys(spec, wires, built, at + 1, k, v, "")
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
        self, spec: Spec, step: Step, q: Tensor, k: Tensor, v: Tensor, operands: Dict[str, Tensor]
    ) -> None:
        axis, (rows, of_keys) = self._axis, step.launch[:2]
        options = options_of(spec, step, operands, rows)
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

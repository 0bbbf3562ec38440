"""What bounds show of a mask over a sequence: which queries may see which keys, and which see all of them."""

from __future__ import annotations

import math
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from . import _coordinates, _sets, _symbols
from ._reference import _to_numpy
from ._shards import Segment, Shards
from ._survey import Column, _Bounds, _truth_of
from .errors import ArgumentError, UnsupportedError
from .masks import Mask

EMPTY, PARTIAL, FULL = range(3)


class Problem(NamedTuple):
    """Everything on which a plan depends, except the rank."""

    q_shards: Shards
    k_shards: Shards
    mask: Optional[Mask]
    offset: int  #: the position of query 0
    #: Whether kv_len moves positions: each sequence then has its own offset, from `offset` - Nk to `offset`.
    has_lengths: bool = False
    moves: bool = False
    #: Whether a score_mod reads positions, which are then a line in each launch.
    reads_positions: bool = False


class Sight:
    """What bounds show of a mask over the whole sequence."""

    def __init__(self, problem: Problem):
        self.problem, mask = problem, problem.mask
        nk = problem.k_shards.length
        self._lengths = (problem.q_shards.length, _Bounds(0, nk) if problem.has_lengths else nk)
        self._offset: Any = _Bounds(problem.offset - nk, problem.offset) if problem.moves else problem.offset
        self.parts = () if mask is None else _coordinates.parts_of(mask)
        self._numbers = [] if mask is None else [(name, _bounds_of(name, x)) for name, x in mask._symbols]

    def decide(
        self, text: Optional[str], queries: Tuple[Any, Any], keys: Tuple[Any, Any], offset: Any = None
    ) -> Tuple[Any, Any]:
        """Returns for each box whether all its pairs are visible for sure, and whether some may be visible. Boxes have
        first and last rows. `text` is that of the mask or of a part of it."""
        shape = numpy.broadcast_shapes(*(numpy.shape(x) for x in (*queries, *keys)))
        always, maybe = True, True
        if text is not None:
            rows = [numpy.broadcast_to(numpy.asarray(x, numpy.int64), shape) for x in (*queries, *keys)]
            p, k = _Bounds(*rows[:2]), _Bounds(*rows[2:])
            numbers = [
                x.take(k if name.startswith("per_key") else p) if isinstance(x, Column) else x
                for name, x in self._numbers
            ]
            position = p + (self._offset if offset is None else offset)
            always, maybe = _truth_of(_sets.parse(text)((position, k, *self._lengths, *numbers)))
        return tuple(numpy.broadcast_to(x, shape) for x in (always, maybe))  # type: ignore[return-value]

    def classify(self, queries: Segment, keys: Segment) -> int:
        mask = self.problem.mask
        text = None if mask is None else str(mask)
        always, maybe = self.decide(text, (queries.first, queries.last), (keys.first, keys.last))
        if self.problem.has_lengths and always:
            return PARTIAL  # keys from kv_len on are hidden
        return FULL if always else PARTIAL if maybe else EMPTY


def _bounds_of(name: str, tensor: Any) -> Any:
    """Returns the numbers of a mask's operand: an int, the bounds of all sequences, or those of each row."""
    if type(tensor) is int:
        return tensor
    values = _to_numpy(tensor).astype(numpy.int64)
    if name.startswith("per_sequence"):
        return _Bounds(values.min(initial=0), values.max(initial=0)) if values.size else 0
    count = math.prod(values.shape[:-1])
    values = values.reshape(count, values.shape[-1]) if count else numpy.zeros((1, values.shape[-1]), numpy.int64)
    return Column(values.min(axis=0), values.max(axis=0))


def find_first(maybe: Callable[[Any, Any, Any], Any], counts: Any) -> Any:
    """Returns for each sequence of `counts` elements the index of the first one for which `maybe` holds; the count if
    there is none. `maybe(which, start, end)` says for ranges of the sequences `which` whether it may hold in them."""
    counts = numpy.asarray(counts, numpy.int64)
    at, found = numpy.zeros_like(counts), counts.copy()
    size = 1 << numpy.ceil(numpy.log2(numpy.maximum(counts, 1))).astype(numpy.int64)
    which = numpy.flatnonzero(counts > 0)
    while which.size:
        start = at[which]
        hit = maybe(which, start, numpy.minimum(start + size[which], counts[which]))
        single = size[which] == 1
        done = which[hit & single]
        found[done] = at[done]
        size[which[hit & ~single]] >>= 1
        passed = which[~hit]
        at[passed] += size[passed]
        size[passed] = at[passed] & -at[passed]  # the largest aligned range from there
        which = which[~(hit & single)]
        which = which[at[which] < counts[which]]
    return found


class Interval(NamedTuple):
    first: int
    end: int


def find_intervals(
    sight: Sight, fixed: Sequence[Segment], moving: Sequence[Segment], moving_is_keys: bool
) -> List[List[Interval]]:
    """Returns for each pair of segments the rows of the second one that may see, or be seen by, a row of the first one:
    an interval for each part of a union of masks. Rows are indices in the segment."""
    counts = numpy.array([segment.count for segment in moving], numpy.int64)
    if not sight.parts:
        return [[Interval(0, int(count))] for count in counts]
    first = numpy.array([segment.first for segment in moving])
    step = numpy.array([segment.step for segment in moving])
    still = tuple(numpy.array([getattr(segment, end) for segment in fixed]) for end in ("first", "last"))
    found: List[List[Interval]] = [[] for _ in moving]
    for text in sight.parts:

        def maybe(which: Any, start: Any, end: Any, text: str = text) -> Any:
            rows = first[which] + step[which] * start, first[which] + step[which] * (end - 1)
            other = still[0][which], still[1][which]
            return sight.decide(text, *((other, rows) if moving_is_keys else (rows, other)))[1]

        def mirrored(which: Any, start: Any, end: Any) -> Any:
            return maybe(which, counts[which] - end, counts[which] - start)

        starts, ends = find_first(maybe, counts), counts - find_first(mirrored, counts)
        for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist())):
            if start < end:
                found[at].append(Interval(start, end))
    return found


def union(intervals: Iterable[Interval]) -> List[Interval]:
    """Returns intervals without overlaps, in ascending order."""
    merged: List[Interval] = []
    for interval in sorted(intervals):
        if merged and interval.first <= merged[-1].end:
            merged[-1] = Interval(merged[-1].first, max(merged[-1].end, interval.end))
        else:
            merged.append(interval)
    return merged


def check_mask(mask: Any, nq: int, nk: int, is_packed: bool) -> None:
    """Checks a mask over whole sequences, and the lengths of its tensors. Raises ArgumentError and, for numbers of
    packed sequences, UnsupportedError."""
    if mask is None:
        return
    if not isinstance(mask, Mask):
        raise ArgumentError(f"expected mask to be a flashattn mask or None but got {type(mask).__name__}")
    _symbols.check_square(mask._of_rows, nq, nk)
    for part in mask._of_rows if is_packed else ():
        raise ArgumentError(f"expected no cu_seqlens with the mask {part} but got one")
    for name, x in mask._symbols:
        clause = _symbols.clause_of(name)
        wanted = {"per_query": nq, "per_key": nk}.get(clause)
        if wanted is not None and x.shape[-1] != wanted:
            raise ArgumentError(f"expected {name!r} with a number for each of {wanted} rows but got {x.shape[-1]}")
        if clause == "per_sequence" and is_packed and math.prod(getattr(x, "shape", ())) != 1:
            raise UnsupportedError(
                f"expected one number for all sequences in {name!r} with cu_seqlens but got {math.prod(x.shape)}; use "
                "per_query="
            )

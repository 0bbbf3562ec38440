"""`Shards`: which rows of a sequence each rank of a mesh holds."""

from __future__ import annotations

import functools
import json
import operator
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from ._texts import show
from .errors import ArgumentError

_MAX_LENGTH = 1 << 31


class Segment(NamedTuple):
    """The rows first, first + step, ... of a sequence."""

    first: int
    count: int
    step: int = 1

    @property
    def last(self) -> int:
        return self.first + self.step * (self.count - 1)

    def part(self, start: int, end: int) -> "Segment":
        """Returns the rows with the indices from `start` to before `end`."""
        return Segment(self.first + self.step * start, end - start, self.step)

    def rows(self) -> Any:
        return numpy.arange(self.count, dtype=numpy.int64) * self.step + self.first


def coalesce(segments: Iterable[Segment]) -> Tuple[Segment, ...]:
    """Returns the segments without empty ones, in which neighbors that continue each other are one."""
    found: List[Segment] = []
    for segment in segments:
        if not segment.count:
            continue
        last = found[-1] if found else None
        if last:
            step = segment.first - last.last
            of_last = step if last.count == 1 else last.step
            of_own = step if segment.count == 1 else segment.step
            if step == of_last == of_own > 0:
                found[-1] = Segment(last.first, last.count + segment.count, step)
                continue
        found.append(segment if segment.count > 1 else segment._replace(step=1))
    return tuple(found)


class Shards:
    """Which rows of a sequence each rank holds, and in which order. Shards are immutable, and compare by value.

    Args:
      length: the number of rows of the sequence.
      segments: for each rank, the rows that it holds in order, as triples (first row, number of rows, step). Each row
        is in exactly one of them.

    Raises:
      ArgumentError: a row is missing, or is held twice.
    """

    __slots__ = ("length", "segments", "text", "_hash")
    length: int
    segments: Tuple[Tuple[Segment, ...], ...]
    text: str  #: what `parse` reads

    def __init__(self, length: int, segments: Sequence[Sequence[Any]]):
        length = check_length(length)
        if not isinstance(segments, (tuple, list)):
            raise ArgumentError(f"expected a list of segments for each rank but got {type(segments).__name__}")
        held = []
        for of_rank in segments:
            if not isinstance(of_rank, (tuple, list)):
                raise ArgumentError(f"expected a list of segments for each rank but got {of_rank!r}")
            for given in of_rank:
                if not isinstance(given, (tuple, list)) or len(given) not in (2, 3) or None in map(_to_int, given):
                    raise ArgumentError(f"expected a segment (first, count, step) of integers but got {given!r}")
            held.append(coalesce(Segment(*map(int, given)) for given in of_rank))
        if not held:
            raise ArgumentError("expected segments of at least 1 rank but got none")
        object.__setattr__(self, "length", length)
        object.__setattr__(self, "segments", tuple(held))
        text = json.dumps([length, [[tuple(x) for x in of_rank] for of_rank in held]])
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "_hash", hash(text))
        self._check()

    def _check(self) -> None:
        for of_rank in self.segments:
            for segment in of_rank:
                if segment.count < 0 or segment.step < 1 or segment.first < 0 or segment.last >= self.length:
                    raise ArgumentError(f"expected segments in {self.length} rows but got {tuple(segment)}")
        segments = sorted(segment for of_rank in self.segments for segment in of_rank)
        if all(segment.step == 1 for segment in segments):
            starts = [*(segment.first for segment in segments), self.length]
            ends = [0, *(segment.last + 1 for segment in segments)]
            wrong = [(min(start, end), start > end) for start, end in zip(starts, ends) if start != end]
        else:
            held = numpy.zeros(self.length, numpy.int32)
            for segment in segments:
                held[segment.first : segment.last + 1 : segment.step] += 1
            wrong = [(row, held[row] == 0) for row in numpy.flatnonzero(held != 1)[:1]]
        for row, is_missing in wrong:
            which = "none" if is_missing else "several"
            raise ArgumentError(f"expected each row in one segment but got row {row} in {which}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"shards cannot be changed: tried to set {name!r}")

    __delattr__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Tuple[Any, ...]:
        return (Shards, (self.length, tuple(tuple(map(tuple, x)) for x in self.segments)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shards):
            return NotImplemented
        return self.text == other.text

    def __hash__(self) -> int:
        return self._hash  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Shards({self.text[1:-1]})"

    @staticmethod
    def parse(text: Any) -> Any:
        """Returns the shards with a text, which is not that of a kind of shards."""
        return Shards(*json.loads(text)) if isinstance(text, str) and text.startswith("[") else text

    @classmethod
    def contiguous(cls, length: int, ranks: int) -> "Shards":
        """Returns shards of `ceil(length / ranks)` rows in order, as `torch.chunk` and DTensor cut a tensor: the last
        ones may be shorter or empty."""
        return cls(length, [[x] for x in _cut(check_length(length), _check_ranks(ranks))])

    @classmethod
    def zigzag(cls, length: int, ranks: int) -> "Shards":
        """Returns shards of two chunks: rank r holds the chunks r and 2 * ranks - 1 - r of 2 * ranks. Under a causal
        mask, each rank then sees as many pairs."""
        chunks = _cut(check_length(length), 2 * _check_ranks(ranks))
        return cls(length, [(chunks[rank], chunks[2 * ranks - 1 - rank]) for rank in range(ranks)])

    @classmethod
    def striped(cls, length: int, ranks: int) -> "Shards":
        """Returns shards of every ranks-th row: rank r holds the rows r, r + ranks, r + 2 * ranks, ..."""
        length, ranks = check_length(length), _check_ranks(ranks)
        counts = [max(0, -(-(length - rank) // ranks)) for rank in range(ranks)]
        return cls(length, [[Segment(rank, count, ranks)] if count else [] for rank, count in enumerate(counts)])

    @property
    def ranks(self) -> int:
        return len(self.segments)

    @property
    def is_ascending(self) -> bool:
        """Whether the rows of each rank are in the order of the sequence."""
        return all(one.last < other.first for held in self.segments for one, other in zip(held, held[1:]))

    def count(self, rank: int) -> int:
        """Returns the number of rows that a rank holds."""
        return sum(segment.count for segment in self._of(rank))

    def rows(self, rank: int) -> Any:
        """Returns the rows that a rank holds in order, as an array of int64: `x[:, :, shards.rows(rank)]` is its shard
        of a tensor `[B, H, N, D]`, and these are the positions for a rotary embedding."""
        return _concatenate([segment.rows() for segment in self._of(rank)])

    def _of(self, rank: Any) -> Tuple[Segment, ...]:
        return self.segments[_between("rank", rank, 0, self.ranks - 1)]

    @property
    def order(self) -> Any:
        """The rows of all ranks in order: `whole[:, :, shards.order] = torch.cat(of_ranks, 2)` undoes the cut."""
        return _concatenate([self.rows(rank) for rank in range(self.ranks)])

    def grouped(self, size: int) -> "Shards":
        """Returns the shards of groups of `size` ranks. Each group holds the rows of its ranks in ascending order."""
        groups = range(0, self.ranks, size)
        return Shards(self.length, [self.merged(range(first, first + size)) for first in groups])

    def merged(self, ranks: Iterable[int]) -> Tuple[Segment, ...]:
        """Returns the rows of several ranks in ascending order."""
        held = [segment for rank in ranks for segment in self.segments[rank]]
        if all(segment.step == 1 for segment in held):
            return coalesce(sorted(held))
        return segments_of(numpy.sort(_concatenate([segment.rows() for segment in held])))


def segments_of(rows: Any) -> Tuple[Segment, ...]:
    """Returns ascending rows as few segments."""
    found, at = [], 0
    steps = numpy.diff(rows)
    # A run of equal steps ends where the next step differs.
    changes = numpy.append(numpy.flatnonzero(steps[1:] != steps[:-1]) + 1, len(steps)).tolist()
    for change in changes:
        if at >= len(rows):
            break
        if change < at:
            continue
        step = int(steps[at]) if at < len(steps) else 1
        end = change + 1
        found.append(Segment(int(rows[at]), end - at, step))
        at = end
    return coalesce(found)


def _concatenate(parts: List[Any]) -> Any:
    return numpy.concatenate(parts) if parts else numpy.zeros(0, numpy.int64)


def _to_int(value: Any) -> Optional[int]:
    """Returns an integer as an int; None for anything else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # an array of several elements
        return None


def _between(name: str, value: Any, least: int, most: int) -> int:
    found = _to_int(value)
    if found is None or not least <= found <= most:
        raise ArgumentError(f"expected a {name} from {least} to {most} but got {show(value)}")
    return found


def check_length(length: Any) -> int:
    return _between("length", length, 0, _MAX_LENGTH - 1)


def _check_ranks(ranks: Any) -> int:
    return _between("number of ranks", ranks, 1, 1 << 16)


def _cut(length: int, parts: int) -> List[Segment]:
    """Cuts rows into chunks of the same size, of which the last ones may be shorter or empty."""
    size = -(-length // parts)
    starts = [min(length, size * part) for part in range(parts + 1)]
    return [Segment(first, end - first) for first, end in zip(starts, starts[1:])]


KINDS = {"contiguous": Shards.contiguous, "zigzag": Shards.zigzag, "striped": Shards.striped}


def resolve(shards: Any, ranks: int, local: int, length: Optional[int], name: str = "q") -> Shards:
    """Returns the shards of a call: `shards` are themselves, or the name of a kind. `local` is the number of rows of
    this rank. Without a length, all ranks have as many rows. Raises ArgumentError."""
    if isinstance(shards, Shards):
        if length is not None and length != shards.length:
            raise ArgumentError(f"expected length {shards.length} of the shards but got {show(length)}")
        if shards.ranks != ranks:
            raise ArgumentError(f"expected shards of {ranks} ranks, as in the mesh, but got {shards.ranks}")
        return shards
    if not isinstance(shards, str) or shards not in KINDS:
        raise ArgumentError(f"expected shards {', '.join(KINDS)} or flashattn.Shards but got {shards!r}")
    if length is None and shards == "zigzag" and local % 2:
        raise ArgumentError(
            f"expected an even number of rows of {name!r} on each rank, or a length, with zigzag but got {local}"
        )
    return _make(shards, local * ranks if length is None else check_length(length), ranks)


@functools.lru_cache(maxsize=256)
def _make(kind: str, length: int, ranks: int) -> Shards:
    return KINDS[kind](length, ranks)



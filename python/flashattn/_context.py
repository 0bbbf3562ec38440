"""Context parallelism: which keys each rank needs, and which attention each rank computes.

A rank holds some rows of the queries and of the keys and values (`_shards`). A *plan* of a rank is a list of stages. A
stage has *pieces*, runs of keys that one rank holds, and *launches*, each an attention between some of the rank's
queries and some of the stage's keys. The pieces follow from the mask: bounds of its terms show which keys a run of
queries can see (`_sight`), and no other key travels. A launch has the mask in the coordinates of its own rows
(`_coordinates`).

Nothing here depends on a library of tensors or of messages. All ranks compute the same plan, so no rank has to ask
another one for it.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy

from . import _coordinates, _symbols
from ._coordinates import mask_of_packed, read_starts
from ._shards import Segment, Shards, coalesce, segments_of
from ._sight import EMPTY, FULL, PARTIAL, Interval, Problem, Sight, check_mask, find_intervals, union
from .errors import ArgumentError
from .masks import Mask

#: Segments of queries that have a launch each. More are one launch with a number for each query, which is less often
#: full but has as many thread blocks as a whole call.
_MAX_LAUNCHES = 2


class Taken(NamedTuple):
    """The elements of a mask's tensor, along its last dimension, for some rows of the sequence."""

    tensor: Any
    segments: Tuple[Segment, ...]


#: A number of each sequence, query or key: an int, an array of NumPy, or elements of a tensor of the mask.
Numbers = Union[int, Any, Taken]


class Piece(NamedTuple):
    """Keys that a rank holds: rows `start` to before `end` of its shard, which are `segment` of the sequence."""

    source: int
    start: int
    end: int
    segment: Segment


class Launch(NamedTuple):
    """An attention between queries and keys of a stage."""

    rows: Tuple[int, int]  #: first and end of the rank's queries
    keys: Tuple[int, int]  #: first and end of the stage's keys
    mask: Optional[str]  #: the text of the mask in the launch's coordinates
    numbers: Tuple[Tuple[str, Numbers], ...]  #: the operands of the mask
    offset: int  #: the position of the first query
    q_line: Tuple[int, int]  #: the position of the first query in the sequence, and the distance of the next one
    k_line: Tuple[int, int]  #: the same for keys
    segments: Tuple[Segment, ...]  #: the rows of the keys in the sequence


class Stage(NamedTuple):
    pieces: Tuple[Piece, ...]
    launches: Tuple[Launch, ...]
    #: The stage's keys are those of the pieces in this order, as indices; None if they are in the pieces' order.
    order: Optional[Any] = None

    @property
    def keys(self) -> int:
        return sum(piece.end - piece.start for piece in self.pieces)


class Plan(NamedTuple):
    """What one rank computes, sends and receives."""

    rank: int
    stages: Tuple[Stage, ...]
    #: For each stage, the rows of this rank's keys that other ranks receive: (destination, first, end).
    sends: Tuple[Tuple[Tuple[int, int, int], ...], ...]

    def received_rows(self) -> int:
        """Returns the number of keys that travel to this rank."""
        return sum(p.end - p.start for stage in self.stages for p in stage.pieces if p.source != self.rank)

    def foreign_rows(self) -> int:
        """Returns the most keys of other ranks that this rank holds at a time: those of a stage, and those that travel
        meanwhile."""
        counts = [sum(p.end - p.start for p in stage.pieces if p.source != self.rank) for stage in self.stages]
        return max((sum(counts[at : at + 2]) for at in range(len(counts))), default=0)


def needed(sight: Sight, destination: int, source: int) -> Tuple[Piece, ...]:
    """Returns the keys of the rank `source` that queries of the rank `destination` may see."""
    queries = sight.problem.q_shards.segments[destination]
    keys = sight.problem.k_shards.segments[source]
    pairs = [(i, j) for j in range(len(keys)) for i in range(len(queries))]
    found = find_intervals(sight, [queries[i] for i, _ in pairs], [keys[j] for _, j in pairs], True)
    pieces, start = [], 0
    for j, segment in enumerate(keys):
        own = [interval for (_, of), intervals in zip(pairs, found) if of == j for interval in intervals]
        for first, end in union(own):
            pieces.append(Piece(source, start + first, start + end, segment.part(first, end)))
        start += segment.count
    return tuple(pieces)


class _Cell(NamedTuple):
    """A segment of queries and a piece: whether they see each other, and which queries see the piece."""

    kind: int
    rows: Interval


def _make_cells(sight: Sight, queries: Sequence[Segment], pieces: Sequence[Segment]) -> List[List[_Cell]]:
    pairs = [(i, j) for i in range(len(queries)) for j in range(len(pieces))]
    found = find_intervals(sight, [pieces[j] for _, j in pairs], [queries[i] for i, _ in pairs], False)
    cells: List[List[_Cell]] = [[] for _ in queries]
    for (i, j), intervals in zip(pairs, found):
        if not intervals:
            cells[i].append(_Cell(EMPTY, Interval(0, 0)))
            continue
        rows = Interval(min(x.first for x in intervals), max(x.end for x in intervals))
        cells[i].append(_Cell(sight.classify(queries[i].part(*rows), pieces[j]), rows))
    return cells


class _Side(NamedTuple):
    """The queries, or the keys, of a launch: rows of the shard, and where they are in the sequence."""

    first: int
    end: int
    segments: Tuple[Segment, ...]

    @property
    def is_run(self) -> bool:
        """Whether the rows follow one another in the sequence."""
        return len(self.segments) == 1 and self.segments[0].step == 1

    @property
    def line(self) -> Tuple[int, int]:
        return (self.segments[0].first, self.segments[0].step) if len(self.segments) == 1 else (0, 1)

    def rows(self) -> Any:
        return numpy.concatenate([segment.rows() for segment in self.segments])


def _make_launch(sight: Sight, queries: _Side, keys: _Side, is_full: bool) -> Launch:
    """Returns the attention between rows, whose mask is rewritten in their coordinates."""
    problem, mask = sight.problem, sight.problem.mask
    lines = queries.line, keys.line, keys.segments
    rows, of_keys = (queries.first, queries.end), (keys.first, keys.end)
    if mask is None or is_full:
        return Launch(rows, of_keys, None, (), 0, *lines)
    start = problem.offset + queries.segments[0].first
    if queries.is_run and keys.is_run and _coordinates.is_invariant(mask):
        return Launch(rows, of_keys, str(mask), (), start - keys.segments[0].first, *lines)
    if not queries.is_run and not problem.moves and len(queries.segments) == 1:
        q_kind = "line"
    else:
        q_kind = "run" if queries.is_run else "any"
    k_kind = "any" if len(keys.segments) > 1 else "run" if keys.is_run else "line"
    if k_kind == "run" and keys.segments[0].first == 0:
        k_kind = "same"
    needs_lengths = _coordinates.reads_lengths(mask)
    added = {
        "per_sequence": (q_kind == "line") + (k_kind in ("run", "line")),
        "per_query": int(q_kind == "any"),
        "per_key": int(k_kind == "any"),
    }
    if needs_lengths and problem.has_lengths:
        added["per_sequence"] += 1
    names, new = _coordinates.with_names([name for name, _ in mask._symbols], added)
    numbers: Dict[str, Numbers] = {}
    words: Dict[str, str] = {}

    def number_of(clause: str, value: Numbers) -> str:
        name = new[clause].pop(0)
        numbers[name] = value
        return _coordinates.word_of(name)

    offset = 0
    if q_kind == "run":
        offset = start
    elif q_kind == "line":
        words["p"] = f"{queries.segments[0].step} * p + {number_of('per_sequence', start)}"
    else:
        # p counts the rows of the launch, and has the offset of each sequence.
        own = queries.rows() + problem.offset - numpy.arange(queries.end - queries.first)
        words["p"] = f"p + {number_of('per_query', own)}"
    if k_kind in ("run", "line"):
        first, step = keys.segments[0].first, keys.segments[0].step
        k = "k" if step == 1 else f"{step} * k"
        words["k"] = f"{k} + {number_of('per_sequence', first)}"
    elif k_kind == "any":
        words["k"] = number_of("per_key", keys.rows())
    if needs_lengths:
        words["nq"] = str(problem.q_shards.length)
        words["nk"] = str(problem.k_shards.length)
        if problem.has_lengths:
            words["nk"] = number_of("per_sequence", KV_LEN)
    for name, tensor in mask._symbols:
        clause = _symbols.clause_of(name)
        side = {"per_query": queries, "per_key": keys}.get(clause)
        numbers[name] = tensor if side is None else Taken(tensor, side.segments)
    text = _coordinates.rewrite(mask, words, names) if words else str(mask)
    return Launch(rows, of_keys, text, tuple((name, numbers[name]) for name in names), offset, *lines)


#: Stands for the caller's kv_len among the numbers of a launch.
KV_LEN = "kv_len"


def _make_launches(sight: Sight, queries: Sequence[Segment], of_pieces: Sequence[Segment]) -> Tuple[Launch, ...]:
    """Returns the launches of a stage. They cover every visible pair of the queries and the keys once."""
    cells = _make_cells(sight, queries, of_pieces)
    starts = numpy.cumsum([0, *(segment.count for segment in queries)]).tolist()
    ends = numpy.cumsum([0, *(segment.count for segment in of_pieces)]).tolist()
    active = [i for i, row in enumerate(cells) if any(cell.kind for cell in row)]
    if not active:
        return ()

    def side_of(i: int) -> _Side:
        seen = [cell.rows for cell in cells[i] if cell.kind]
        first, end = min(x.first for x in seen), max(x.end for x in seen)
        return _Side(starts[i] + first, starts[i] + end, (queries[i].part(first, end),))

    def keys_of(of: Iterable[int]) -> _Side:
        seen = [j for j in range(len(of_pieces)) if any(cells[i][j].kind for i in of)]
        return _Side(ends[seen[0]], ends[seen[-1] + 1], coalesce(of_pieces[seen[0] : seen[-1] + 1]))

    def is_full(of: Iterable[int]) -> bool:
        """Whether the launch of these segments has no hidden pair."""
        seen = [j for j in range(len(of_pieces)) if any(cells[i][j].kind for i in of)]
        rows = {i: [cell.rows for cell in cells[i] if cell.kind] for i in of}
        return all(
            cells[i][j].kind == FULL and len(set(rows[i])) == 1
            for i in of for j in range(seen[0], seen[-1] + 1)
        )  # fmt: skip

    if sight.problem.reads_positions:
        return tuple(_make_lines(sight, side_of, active, cells, of_pieces, ends))
    sides = [side_of(i) for i in active]
    is_chain = all(one.end == other.first for one, other in zip(sides, sides[1:]))
    whole = _Side(sides[0].first, sides[-1].end, coalesce(x for side in sides for x in side.segments))
    if len(active) == 1 or (is_chain and is_full(active)):
        return (_make_launch(sight, whole, keys_of(active), is_full(active)),)
    same = _find_local_offset(sight, queries, of_pieces, cells, starts, ends, active, sides)
    if same is not None:
        keys = keys_of(active)
        mask = str(sight.problem.mask)
        rows = sides[0].first, sides[-1].end
        offset = same + rows[0] - keys.first
        return (Launch(rows, (keys.first, keys.end), mask, (), offset, (0, 1), (0, 1), keys.segments),)
    if len(active) > _MAX_LAUNCHES:
        # From the first row that sees a key to the last one, with all rows between them.
        first, last = active[0], active[-1]
        one = queries[first].part(sides[0].first - starts[first], queries[first].count)
        other = queries[last].part(0, sides[-1].end - starts[last])
        side = _Side(sides[0].first, sides[-1].end, coalesce([one, *queries[first + 1 : last], other]))
        return (_make_launch(sight, side, keys_of(active), False),)
    return tuple(
        _make_launch(sight, side, keys_of([i]), is_full([i])) for i, side in zip(active, sides)
    )


def _make_lines(
    sight: Sight, side_of: Callable[[int], _Side], active: Sequence[int], cells: Sequence[Sequence[_Cell]],
    pieces: Sequence[Segment], ends: Sequence[int],
) -> Iterable[Launch]:  # fmt: skip
    """Yields a launch for each segment of queries and each run of keys that follow one another with the same step."""
    for i in active:
        j = 0
        while j < len(pieces):
            first = j
            while j < len(pieces) and cells[i][j].kind and len(coalesce(pieces[first : j + 1])) == 1:
                j += 1
            if j == first:
                j += 1
                continue
            keys = _Side(ends[first], ends[j], coalesce(pieces[first:j]))
            is_full = all(cell.kind == FULL and cell.rows == cells[i][first].rows for cell in cells[i][first:j])
            queries = side_of(i)
            is_full = is_full and queries.end - queries.first == cells[i][first].rows.end - cells[i][first].rows.first
            yield _make_launch(sight, queries, keys, is_full)


def _find_local_offset(
    sight: Sight, queries: Sequence[Segment], pieces: Sequence[Segment], cells: Sequence[Sequence[_Cell]],
    starts: Sequence[int], ends: Sequence[int], active: Sequence[int], sides: Sequence[_Side],
) -> Optional[int]:  # fmt: skip
    """Returns the distance d such that the mask shows the same pairs over the shard's rows x and the stage's keys y, at
    positions x + d and y, as over the sequence; None if there is none. For example, the causal mask over two chunks
    of the sequence is the causal mask over their rows."""
    problem, mask = sight.problem, sight.problem.mask
    if mask is None or problem.moves or not _coordinates.is_invariant(mask):
        return None
    if any(segment.step != 1 for segment in (*queries, *pieces)):
        return None
    inside = range(active[0], active[-1] + 1)
    offsets = {
        problem.offset + queries[i].first - starts[i] - (pieces[j].first - ends[j])
        for i in inside for j in range(len(pieces)) if cells[i][j].kind == PARTIAL
    }  # fmt: skip
    if len(offsets) != 1:
        return None
    offset = offsets.pop()
    for i in inside:
        # Only the launch's rows count.
        first, end = max(starts[i], sides[0].first), min(starts[i + 1], sides[-1].end)
        if first >= end:
            continue
        own = queries[i].part(first - starts[i], end - starts[i])
        for j, piece in enumerate(pieces):
            kind = sight.classify(own, piece)
            if kind == PARTIAL:
                if problem.offset + queries[i].first - starts[i] - (piece.first - ends[j]) != offset:
                    return None
                continue
            always, maybe = sight.decide(str(mask), (first, end - 1), (ends[j], ends[j + 1] - 1), offset)
            if (kind == FULL and not always) or (kind == EMPTY and maybe):
                return None
    return offset


def _sort(pieces: Sequence[Piece]) -> Tuple[List[Segment], Optional[Any]]:
    """Returns the keys of pieces in the order of the sequence, and their order; None if they are in order."""
    segments = [piece.segment for piece in pieces]
    if all(one.last < other.first for one, other in zip(segments, segments[1:])):
        return segments, None
    rows = numpy.concatenate([segment.rows() for segment in segments])
    order = numpy.argsort(rows, kind="stable")
    return list(segments_of(rows[order])), order


#: How keys travel: a stage for each other rank, or one stage with all keys.
SCHEMES = ("ring", "gather")


def make_plan(problem: Problem, scheme: str, rank: int) -> Plan:
    """Returns the plan of a rank. "ring" has a stage for each distance d: the rank receives keys of the rank `rank - d`
    and sends its own to the rank `rank + d`. Only the needed rows travel, and they travel straight to where they are
    needed. "gather" has one stage with the keys of all ranks, in the order of the sequence."""
    sight, ranks = Sight(problem), problem.q_shards.ranks
    queries = problem.q_shards.segments[rank]
    if scheme == "ring":
        order = [[(rank - distance) % ranks] for distance in range(ranks)]
        targets = [[(rank + distance) % ranks] for distance in range(ranks)]
    elif scheme == "gather":
        order, targets = [list(range(ranks))], [[(rank + distance) % ranks for distance in range(1, ranks)]]
    else:
        raise ArgumentError(f"expected scheme {', '.join(SCHEMES)} but got {scheme!r}")
    stages, sends = [], []
    for sources, destinations in zip(order, targets):
        pieces = [piece for source in sources for piece in needed(sight, rank, source)]
        keys, permutation = [piece.segment for piece in pieces], None
        if scheme == "gather":
            pieces.sort(key=lambda piece: piece.segment)
            keys, permutation = _sort(pieces)
        stages.append(Stage(tuple(pieces), _make_launches(sight, queries, keys), permutation))
        sends.append(tuple(
            (target, piece.start, piece.end)
            for target in destinations if target != rank for piece in needed(sight, target, rank)
        ))  # fmt: skip
    return Plan(rank, tuple(stages), tuple(sends))


def plan_context(
    shards: Shards, rank: int, mask: Optional[Mask] = None, *, k_shards: Optional[Shards] = None,
    scheme: str = "ring", offset: Optional[int] = None, cu_seqlens: Any = None,
) -> Plan:  # fmt: skip
    """Returns what a rank computes, sends and receives in a call of `flashattn.torch.context_parallel`. It shows which
    rows travel, and how much memory they take, before anything runs.

    Args:
      shards: which rows of the queries each rank has; `k_shards` those of the keys, by default the same.
      rank: the rank whose plan is returned.
      mask, offset, cu_seqlens: as in `flashattn.torch.context_parallel`. The host reads the tensors of the mask.
      scheme: "ring" or "gather".

    Raises:
      ArgumentError: an argument is invalid.
      UnsupportedError: the mask cannot be cut.
    """
    k_shards = shards if k_shards is None else k_shards
    if k_shards.ranks != shards.ranks:
        raise ArgumentError(f"expected k_shards of {shards.ranks} ranks, as shards, but got {k_shards.ranks}")
    if not 0 <= rank < shards.ranks:
        raise ArgumentError(f"expected rank from 0 to {shards.ranks - 1} but got {rank}")
    check_mask(mask, shards.length, k_shards.length, cu_seqlens is not None)
    if cu_seqlens is not None:
        mask = mask_of_packed(mask, read_starts(cu_seqlens, shards.length), shards.length)
    position = k_shards.length - shards.length if offset is None else offset
    return make_plan(Problem(shards, k_shards, mask, position), scheme, rank)


#: The share of the rows, at most, for which other rows are computed apart, without a merge, and the multiple of rows at
#: which launches are cut.
_MOST_MERGED, _CUT_ROWS = 0.4, 128


def merged_rows(plan: Plan, rows: int) -> List[Tuple[int, int]]:
    """Returns the ranges of the rank's queries whose results are merged from several launches: all of its `rows` if
    most are, since launches are cut at the ends of the ranges."""
    launches = [launch for stage in plan.stages for launch in stage.launches]
    edges = [(launch.rows[end], (1, -1)[end]) for launch in launches for end in (0, 1)]
    found: List[Interval] = []
    depth, first = 0, 0
    for at, change in sorted(edges):
        if depth > 1 and at > first:
            found.append(Interval(first // _CUT_ROWS * _CUT_ROWS, min(rows, -(-at // _CUT_ROWS) * _CUT_ROWS)))
        depth, first = depth + change, at
    merged = union(found)
    if sum(end - start for start, end in merged) > _MOST_MERGED * rows:
        return [(0, rows)]
    return [tuple(interval) for interval in merged]  # type: ignore[misc]


def cut_launch(launch: Launch, ranges: Sequence[Tuple[int, int]]) -> List[Launch]:
    """Returns the parts of a launch whose rows are inside or outside of the ranges."""
    first, end = launch.rows
    edges = sorted({first, end, *(edge for both in ranges for edge in both if first < edge < end)})
    return [_rows_of(launch, start, stop) for start, stop in zip(edges, edges[1:])]


def _rows_of(launch: Launch, start: int, end: int) -> Launch:
    """Returns the part of a launch with the rows from `start` to before `end` of the shard."""
    if (start, end) == launch.rows:
        return launch
    first, last = start - launch.rows[0], end - launch.rows[0]

    def numbers_of(name: str, x: Numbers) -> Numbers:
        if not name.startswith("per_query"):
            return x
        if not isinstance(x, Taken):
            return x[first:last]
        parts, at = [], 0
        for segment in x.segments:
            inside = max(first - at, 0), min(last - at, segment.count)
            if inside[0] < inside[1]:
                parts.append(segment.part(*inside))
            at += segment.count
        return Taken(x.tensor, tuple(parts))

    position, step = launch.q_line
    return launch._replace(
        rows=(start, end), offset=launch.offset + first, q_line=(position + step * first, step),
        numbers=tuple((name, numbers_of(name, x)) for name, x in launch.numbers),
    )  # fmt: skip

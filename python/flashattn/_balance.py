"""How much of a call each rank computes: shards that ranks compute in the same time, and the time of each scheme."""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Optional

import numpy

from ._coordinates import mask_of_packed, read_starts
from ._shards import Segment, Shards
from ._sight import Problem, Sight, check_mask
from .masks import Mask

#: Rows and columns, at most, of the grid by which work is estimated.
_GRID = 256
#: The share of a grid's cell that is visible on average if the cell is partial.
_PARTIAL_SHARE = 0.5


class Grid(NamedTuple):
    """An estimate of the visible pairs of each cell of a grid over the queries and keys."""

    pairs: Any  #: [rows, columns]
    rows: Any  #: the first rows of the grid's rows, and the number of queries
    columns: Any  #: the same of its columns


def make_grid(problem: Problem) -> Grid:
    sizes = problem.q_shards.length, problem.k_shards.length
    rows, columns = (numpy.unique(numpy.linspace(0, n, min(n, _GRID) + 1).astype(numpy.int64)) for n in sizes)
    areas = numpy.diff(rows)[:, None] * numpy.diff(columns)[None, :].astype(float)
    if problem.mask is not None and areas.size:
        ends = (rows[:-1, None], rows[1:, None] - 1), (columns[None, :-1], columns[None, 1:] - 1)
        always, maybe = Sight(problem).decide(str(problem.mask), *ends)
        areas *= numpy.where(always, 1.0, numpy.where(maybe, _PARTIAL_SHARE, 0.0))
    return Grid(areas, rows, columns)


def _shares_of(shards: Shards, edges: Any) -> Any:
    """Returns the share of the rows between two edges that each rank holds, [ranks, len(edges) - 1]."""
    held = numpy.zeros((shards.ranks, len(edges)))
    for rank, segments in enumerate(shards.segments):
        for first, count, step in segments:
            held[rank] += numpy.clip((edges - first + step - 1) // step, 0, count)
    return numpy.diff(held) / numpy.maximum(numpy.diff(edges), 1)


def loads_of(shards: Shards, grid: Grid) -> Any:
    """Returns the pairs that each rank computes."""
    return _shares_of(shards, grid.rows) @ grid.pairs.sum(axis=1)


#: Chunks of each rank that `balanced_shards` tries, and the load of the slowest rank over the mean that suffices.
_CHUNKS = (2, 4, 8, 16)
_LIMIT = 1.04


def balanced_shards(length: int, ranks: int, mask: Optional[Mask], cu_seqlens: Any = None) -> Shards:
    """Returns shards whose ranks see about as many pairs of a mask, and hold as many rows up to a chunk. If several
    shards differ little in their slowest rank, those with the fewest chunks are returned. Queries and keys are cut in
    the same way.

    Args:
      length, ranks: the numbers of rows and of ranks.
      mask: a mask of this package, whose tensors the host reads, or None.
      cu_seqlens: the starts of packed sequences, as in `flashattn.torch.context_parallel`.

    Raises:
      ArgumentError: an argument is invalid.
    """
    best = Shards.contiguous(length, ranks)
    length, ranks = best.length, best.ranks
    check_mask(mask, length, length, cu_seqlens is not None)
    if cu_seqlens is not None:
        mask = mask_of_packed(mask, read_starts(cu_seqlens, length), length)
    grid = make_grid(Problem(best, best, mask, 0))
    least = _imbalance(best, grid)
    for per_rank in _CHUNKS:
        if least <= _LIMIT or per_rank * ranks > length:
            break
        for shards in (Shards.zigzag(length, ranks),) * (per_rank == 2) + (_deal(length, ranks, per_rank, grid),):
            found = _imbalance(shards, grid)
            if found < least - 0.01:
                best, least = shards, found
    return best


def _imbalance(shards: Shards, grid: Grid) -> float:
    """Returns the load of the slowest rank over the mean."""
    loads = loads_of(shards, grid)
    mean = float(loads.mean())
    return float(loads.max()) / mean if mean else 1.0


def _deal(length: int, ranks: int, per_rank: int, grid: Grid) -> Shards:
    """Returns shards of `per_rank` chunks each: the heaviest chunk that is left goes to the rank with the least load
    among those that still lack a chunk."""
    size = -(-length // (ranks * per_rank))
    chunks = [Segment(first, min(size, length - first)) for first in range(0, length, size)]
    loads = loads_of(Shards(length, [[chunk] for chunk in chunks]), grid)
    held: List[List[int]] = [[] for _ in range(ranks)]
    sums = [0.0] * ranks
    for at in numpy.argsort(-loads, kind="stable").tolist():
        rank = min((r for r in range(ranks) if len(held[r]) < per_rank), key=lambda r: (sums[r], r))
        held[rank].append(at)
        sums[rank] += float(loads[at])
    return Shards(length, [[chunks[at] for at in sorted(chosen)] for chosen in held])


class Rates(NamedTuple):
    """How fast a rank computes and sends."""

    flops: float  #: operations of the products in a second
    bytes: float  #: bytes that a rank sends in a second, while it receives as many
    memory: float  #: bytes that a rank reads and writes in a second
    latency: float  #: seconds of a message without bytes
    exchange: float  #: bytes that a rank sends in a second when heads are exchanged for rows, packing included


#: GPUs of one host with NVLink, and processes on one CPU (docs/rationale/context-parallelism.md).
RATES = {"cuda": Rates(6e14, 3.0e11, 2.5e12, 3e-5, 3e10), "cpu": Rates(2e10, 1e9, 5e9, 2e-4, 5e8)}


class Sizes(NamedTuple):
    """The sizes of a call on which its time depends."""

    batch: int
    heads: int
    kv_heads: int
    d: int
    dv: int
    bytes: int  #: of an element


def estimate(problem: Problem, sizes: Sizes, rates: Rates) -> Dict[str, float]:
    """Returns the seconds that each scheme should take, forward. "heads" is left out if heads cannot be cut."""
    grid, ranks = make_grid(problem), problem.q_shards.ranks
    of_q, of_k = _shares_of(problem.q_shards, grid.rows), _shares_of(problem.k_shards, grid.columns)
    flops = 2.0 * sizes.batch * sizes.heads * (sizes.d + sizes.dv)
    work = of_q @ grid.pairs @ of_k.T * flops / rates.flops  # [destination, source]
    # A rank needs the columns that one of its rows sees.
    seen = (of_q > 0).astype(float) @ (grid.pairs > 0)
    row_bytes = sizes.batch * sizes.kv_heads * (sizes.d + sizes.dv) * sizes.bytes
    sent = ((seen > 0) * numpy.diff(grid.columns)) @ of_k.T * row_bytes / rates.bytes
    numpy.fill_diagonal(sent, 0.0)
    of_rank = numpy.arange(ranks)
    # A stage that others precede reads and writes the rows of o that see its keys once more, in f32.
    rows = numpy.diff(grid.rows)
    seen_rows = numpy.stack([(of_q * rows) @ (grid.pairs @ held > 0) for held in of_k], axis=1)
    merging = seen_rows * 12.0 * sizes.batch * sizes.heads * sizes.dv / rates.memory
    ring = 0.0
    for distance in range(ranks):
        sources, following = (of_rank - distance) % ranks, (of_rank - distance - 1) % ranks
        own = work[of_rank, sources] + (merging[of_rank, sources] if distance else 0.0)
        message = sent[of_rank, following] if distance + 1 < ranks else numpy.zeros(ranks)
        ring += float(numpy.maximum(own, message + rates.latency * (message > 0)).max())
    times = {"ring": ring, "gather": float((sent.sum(axis=1) + work.sum(axis=1)).max()) + rates.latency}
    kv_heads = math.lcm(sizes.kv_heads, ranks)
    if kv_heads and sizes.heads % kv_heads == 0:
        q_bytes = float(rows.sum()) / ranks * sizes.batch * sizes.heads * (sizes.d + sizes.dv) * sizes.bytes
        k_bytes = float(problem.k_shards.length) / ranks * row_bytes * kv_heads / sizes.kv_heads
        travelled = (q_bytes + k_bytes) * (ranks - 1) / ranks / rates.exchange
        times["heads"] = travelled + 2 * rates.latency + float(work.sum()) / ranks
    return times

"""What pictures of masks show: the kinds of the tiles of the plane of queries and keys, and the visible pairs.

A tile is full (every pair is visible), partial (some are) or skipped (none is). Bounds of the mask's terms decide most
tiles as a whole; the pairs of the others are counted. Where too many pairs are left, as for `k mod 64 == 0` and 100000
keys, samples take their place, which are the same in each run.
"""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Tuple

import numpy

from . import _reference

SKIPPED, PARTIAL, FULL = range(3)
LEVELS = 4  # of marks

MAX_SIZE = (1 << 31) - 1  # of lengths and positions, as for the compiler
_MAX_OPEN = 1 << 16  # boxes that are cut at a time
_MAX_PAIRS = 1 << 25  # pairs that are evaluated to count
_MAX_SAMPLES = 1 << 22  # pairs that are evaluated if these are too many
_CHUNK = 1 << 20  # pairs that are evaluated at a time
_LEAF = 256  # pairs of a box that is not cut further
_CUTS = 4  # a box is cut into 4 x 4


class Plane(NamedTuple):
    """A mask over `nq` queries and `nk` keys. Query 0 is at position `offset`."""

    mask: object
    nq: int
    nk: int
    offset: int
    tile: Tuple[int, int]  #: queries and keys
    #: The numbers that the mask reads, by the name of the symbol: an int, or a `Column`.
    numbers: Tuple[Tuple[str, Any], ...] = ()
    source: str = ""  #: what the numbers are of, if others exist


def seen(plane: Plane, queries: Any, keys: Any) -> Any:
    """Returns whether each pair of `queries` and `keys` is visible: indices, as integer arrays that broadcast or as
    bounds (`_Bounds`), for which the result is `_Truth`. Nothing else evaluates the mask."""
    values = {}
    for name, numbers in plane.numbers:
        if isinstance(numbers, Column):
            numbers = numbers.take(queries if name.startswith("query") else keys)
        values[name] = numbers
    return _reference.visible(plane.mask, queries + plane.offset, keys, plane.nq, plane.nk, values)


class _Bounds:
    """The least and the largest value of an integer expression over each of many boxes. Where an expression holds a
    variable twice, the bounds may be too wide."""

    __slots__ = ("low", "high")
    __array_ufunc__ = None  # arrays leave their operators to this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, low: Any, high: Any):
        self.low, self.high = low, high

    def __add__(self, other: Any) -> "_Bounds":
        low, high = _bounds_of(other)
        return _Bounds(self.low + low, self.high + high)

    __radd__ = __add__

    def __neg__(self) -> "_Bounds":
        return _Bounds(-self.high, -self.low)

    def __sub__(self, other: Any) -> "_Bounds":
        low, high = _bounds_of(other)
        return _Bounds(self.low - high, self.high - low)

    def __rsub__(self, other: Any) -> "_Bounds":
        low, high = _bounds_of(other)
        return _Bounds(low - self.high, high - self.low)

    def __mul__(self, other: Any) -> "_Bounds":
        products = [lhs * rhs for lhs in (self.low, self.high) for rhs in _bounds_of(other)]
        return _Bounds(numpy.minimum.reduce(products), numpy.maximum.reduce(products))

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> "_Bounds":
        return _Bounds(self.low // divisor, self.high // divisor)

    def __mod__(self, divisor: int) -> "_Bounds":
        is_one_period = self.low // divisor == self.high // divisor
        low, high = self.low % divisor, self.high % divisor
        return _Bounds(numpy.where(is_one_period, low, 0), numpy.where(is_one_period, high, divisor - 1))

    def __ge__(self, other: Any) -> "_Truth":
        difference = self - other
        return _Truth(difference.low >= 0, difference.high >= 0)

    def __le__(self, other: Any) -> "_Truth":
        difference = self - other
        return _Truth(difference.high <= 0, difference.low <= 0)

    def __eq__(self, other: object) -> "_Truth":  # type: ignore[override]
        difference = self - other
        low, high = difference.low, difference.high
        return _Truth((low == 0) & (high == 0), (low <= 0) & (high >= 0))


def _bounds_of(value: Any) -> Tuple[Any, Any]:
    return (value.low, value.high) if isinstance(value, _Bounds) else (value, value)


class Column:
    """One number for each query or key, or the least and the largest of several."""

    __slots__ = ("_values", "_largest", "_tables")

    def __init__(self, values: Any, largest: Any = None):
        self._values = numpy.asarray(values, numpy.int64)
        self._largest = self._values if largest is None else numpy.asarray(largest, numpy.int64)
        self._tables: List[Tuple[Any, Any]] = []

    def take(self, index: Any) -> Any:
        """Returns the numbers at indices, or the least and the largest number of each range of indices."""
        if not isinstance(index, _Bounds):
            return self._values[index]
        level = numpy.frexp(index.high - index.low + 1)[1] - 1  # a range is the union of two of 2^level elements
        last = index.high + 1 - (1 << level.astype(numpy.int64))
        found = _Bounds(numpy.empty_like(index.low), numpy.empty_like(index.low))
        for at in numpy.unique(level).tolist():
            (least, largest), own = self._table(at), level == at
            ends = index.low[own], last[own]
            found.low[own] = numpy.minimum(*(least[end] for end in ends))
            found.high[own] = numpy.maximum(*(largest[end] for end in ends))
        return found

    def _table(self, level: int) -> Tuple[Any, Any]:
        """Returns the least and the largest of the 2^level numbers from each index on."""
        if not self._tables:
            self._tables.append((self._values, self._largest))
        while len(self._tables) <= level:
            step, (least, largest) = 1 << (len(self._tables) - 1), self._tables[-1]
            self._tables.append(
                (numpy.minimum(least[:-step], least[step:]), numpy.maximum(largest[:-step], largest[step:]))
            )
        return self._tables[level]


class _Truth:
    """Whether a condition holds for every pair of each of many boxes, and whether it may hold for some."""

    __slots__ = ("always", "maybe")
    __array_ufunc__ = None

    def __init__(self, always: Any, maybe: Any):
        self.always, self.maybe = always, maybe

    def __and__(self, other: Any) -> "_Truth":
        always, maybe = _truth_of(other)
        return _Truth(self.always & always, self.maybe & maybe)

    def __or__(self, other: Any) -> "_Truth":
        always, maybe = _truth_of(other)
        return _Truth(self.always | always, self.maybe | maybe)

    __rand__, __ror__ = __and__, __or__


def _truth_of(value: Any) -> Tuple[Any, Any]:
    return (value.always, value.maybe) if isinstance(value, _Truth) else (value, value)


class _Boxes(NamedTuple):
    """Rectangles of pairs, as arrays of a number each: queries from `top` to before `bottom`, keys from `left` to
    before `right`."""

    top: Any
    bottom: Any
    left: Any
    right: Any

    def take(self, index: Any) -> "_Boxes":
        return _Boxes(*(edge[index] for edge in self))

    def areas(self) -> Any:
        return (self.bottom - self.top) * (self.right - self.left)


def _make_boxes(rows: Tuple[Any, Any], columns: Tuple[Any, Any]) -> Tuple[_Boxes, Any]:
    """Returns the boxes of each pair of a row and a column, from first and end indices of the shapes [..., R, 1] and
    [..., 1, C], and their indices in [..., R, C]. Empty boxes are left out."""
    edges = numpy.broadcast_arrays(*rows, *columns)
    boxes = _Boxes(*(edge.reshape(-1) for edge in edges))
    kept = numpy.flatnonzero((boxes.top < boxes.bottom) & (boxes.left < boxes.right))
    return boxes.take(kept), kept


def _cut(boxes: _Boxes, unit: Tuple[int, int] = (1, 1)) -> Tuple[_Boxes, Any]:
    """Cuts each box into at most 4 x 4 boxes whose sides are multiples of `unit`, but for what is left at the ends.
    Returns them and the index of the box that each comes from."""

    def cut(first: Any, end: Any, size: int) -> Tuple[Any, Any]:
        count = -((first - end) // size)
        step = -(-count // _CUTS) * size
        starts = numpy.minimum(first[:, None] + numpy.arange(_CUTS) * step[:, None], end[:, None])
        return starts, numpy.minimum(starts + step[:, None], end[:, None])

    tops, bottoms = cut(boxes.top, boxes.bottom, unit[0])
    lefts, rights = cut(boxes.left, boxes.right, unit[1])
    parts, index = _make_boxes(
        (tops[:, :, None], bottoms[:, :, None]), (lefts[:, None, :], rights[:, None, :])
    )
    return parts, index // _CUTS**2


def _decide(plane: Plane, boxes: _Boxes) -> Tuple[Any, Any]:
    """Returns for each box whether all its pairs are visible for sure, and whether they are all hidden for sure."""
    truth = seen(plane, _Bounds(boxes.top, boxes.bottom - 1), _Bounds(boxes.left, boxes.right - 1))
    return truth.always, ~truth.maybe


def _scatter(values: Any) -> Any:
    """Returns a hash of each integer, by which samples are chosen: the finalizer of splitmix64."""
    bits = numpy.asarray(values, numpy.int64).astype(numpy.uint64) + numpy.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return ((bits ^ (bits >> numpy.uint64(31))) >> numpy.uint64(2)).astype(numpy.int64)


def _divide(first: Any, end: Any, points: int) -> Tuple[Any, Any, Any]:
    """Divides each range into at most `points` parts: single indices, if it has no more. Returns their first indices
    and their lengths, padded to the same number for all ranges, and which of them are no padding."""
    length = (end - first)[:, None]
    count = numpy.minimum(length, points)
    index = numpy.arange(min(points, int(length.max())))
    parts = numpy.minimum(index, count - 1)
    start = parts * length // count
    return first[:, None] + start, (parts + 1) * length // count - start, index < count


def _evaluate(plane: Plane, boxes: _Boxes, points: int) -> Tuple[Any, Any]:
    """Returns how many pairs of each box are visible, and how many are evaluated: one, chosen at random, in each of at
    most `points` x `points` parts, and so all pairs of a box with at most that many queries and keys."""
    found: List[Any] = [numpy.zeros(0, numpy.int64)]
    counts: List[Any] = [numpy.zeros(0, numpy.int64)]
    sides = [min(points, int((end - first).max(initial=1))) for first, end in (boxes[:2], boxes[2:])]
    step = max(1, _CHUNK // (sides[0] * sides[1]))
    for at in range(0, len(boxes.top), step):
        part = boxes.take(slice(at, at + step))
        queries, heights, is_row = (side[:, :, None] for side in _divide(part.top, part.bottom, points))
        keys, widths, is_column = (side[:, None, :] for side in _divide(part.left, part.right, points))
        is_pair = is_row & is_column
        if heights.max() > 1 or widths.max() > 1:
            noise = _scatter(at * sides[0] * sides[1] + numpy.arange(is_pair.size)).reshape(is_pair.shape)
            queries, keys = queries + (noise & MAX_SIZE) % heights, keys + (noise >> 31) % widths
        found.append((seen(plane, queries, keys) & is_pair).sum(axis=(1, 2)))
        counts.append(is_pair.sum(axis=(1, 2)))
    return numpy.concatenate(found), numpy.concatenate(counts)


def _open(plane: Plane, boxes: _Boxes) -> Tuple[Any, Any]:
    """Returns the number of visible pairs of each box that bounds decide, and the indices of the other boxes."""
    shown, hidden = _decide(plane, boxes)
    return numpy.where(shown, boxes.areas(), 0), numpy.flatnonzero(~(shown | hidden))


def _count(plane: Plane, boxes: _Boxes) -> Any:
    """Returns the number of visible pairs of each box."""
    counts, rest = _open(plane, boxes)
    if not len(rest):
        return counts
    boxes = boxes.take(rest)
    if boxes.areas().max() <= _LEAF:
        counts[rest] = _evaluate(plane, boxes, _LEAF)[0]
    else:
        parts, origin = _cut(boxes)
        numpy.add.at(counts, rest[origin], _count(plane, parts))
    return counts


def _estimate_cost(plane: Plane, boxes: _Boxes) -> int:
    """Returns a bound on the number of pairs that `_count` evaluates for boxes that bounds do not decide."""
    while _MAX_PAIRS < boxes.areas().sum() and len(boxes.top) <= _MAX_OPEN and boxes.areas().max() > _LEAF:
        boxes, _ = _cut(boxes)
        boxes = boxes.take(_open(plane, boxes)[1])
    return int(boxes.areas().sum())


def _count_or_sample(plane: Plane, boxes: _Boxes) -> Tuple[Any, Any, int]:
    """Returns how many pairs of each box are visible, how many these are of, and the number of samples of a box: 0 if
    all pairs count."""
    if _estimate_cost(plane, boxes) <= _MAX_PAIRS:
        return _count(plane, boxes), boxes.areas(), 0
    points = max(8, math.isqrt(_MAX_SAMPLES // len(boxes.top)))
    return (*_evaluate(plane, boxes, points), points**2)


def _sample(group: Any, limit: int) -> Tuple[Any, Any]:
    """Returns the indices of a sample of about `limit` elements, some of each group, and the factor that each stands
    for."""
    order = numpy.lexsort((_scatter(numpy.arange(len(group))), group))
    _, first, sizes = numpy.unique(group[order], return_index=True, return_counts=True)
    rank = numpy.arange(len(group)) - numpy.repeat(first, sizes)
    most = max(1, limit // len(sizes))
    factor = numpy.repeat(sizes / numpy.minimum(sizes, most), sizes)
    kept = rank < most
    return order[kept], factor[kept]


class Survey:
    """The kinds of the tiles of a plane, and how many pairs are visible. The plane is divided into squares of one or
    more tiles each."""

    def __init__(self, plane: Plane, most: Tuple[int, int]):
        """Looks at the mask. `most` is the largest number of rows and of columns of squares."""
        self.plane = plane
        sizes, tiles = (plane.nq, plane.nk), [-(-plane.nq // plane.tile[0]), -(-plane.nk // plane.tile[1])]
        #: Rows and columns of tiles in a square.
        self.tiles_of_square = (-(-tiles[0] // most[0]), -(-tiles[1] // most[1]))
        #: Queries and keys of a square.
        self.square_size = [count * side for count, side in zip(self.tiles_of_square, plane.tile)]
        starts = [numpy.arange(0, size, step, dtype=numpy.int64) for size, step in zip(sizes, self.square_size)]
        #: The first and the end indices of the rows of squares, and of the columns.
        self.rows, self.columns = (
            (first, numpy.append(first[1:], size)) for first, size in zip(starts, sizes)
        )
        #: Whether all pairs count. Otherwise, the shares are estimates.
        self.is_exact = True
        self.visible_pairs = 0  # if all pairs count
        self._tiles = numpy.zeros((len(starts[0]) * len(starts[1]), 3))  # of each square and kind
        self._pairs = numpy.zeros(2)  # visible ones, and all
        self._look()

    @property
    def kinds(self) -> Any:
        """The kind of each square: that of its tiles if they are alike, otherwise partial."""
        has = self._tiles > 0
        kinds = numpy.where(has[:, FULL], FULL, SKIPPED)
        kinds[has[:, PARTIAL] | (has[:, FULL] & has[:, SKIPPED])] = PARTIAL
        return kinds.reshape(len(self.rows[0]), len(self.columns[0]))

    @property
    def tiles(self) -> List[float]:
        """The number of tiles of each kind."""
        return [float(count) for count in self._tiles.sum(axis=0)]

    @property
    def visible_share(self) -> float:
        return float(self._pairs[0] / self._pairs[1])

    def _look(self) -> None:
        """Cuts squares, and what is cut from them, until bounds decide each part or it is a single tile."""
        (tops, bottoms), (lefts, rights) = self.rows, self.columns
        boxes, _ = _make_boxes((tops[:, None], bottoms[:, None]), (lefts[None, :], rights[None, :]))
        square, weight = numpy.arange(len(boxes.top)), numpy.ones(len(boxes.top))
        while len(boxes.top):
            rest = self._tally_decided(boxes, square, weight)
            boxes, square, weight = boxes.take(rest), square[rest], weight[rest]
            is_tile = self._tiles_in(boxes) == 1
            self._tally_tiles(boxes.take(is_tile), square[is_tile], weight[is_tile])
            boxes, square, weight = boxes.take(~is_tile), square[~is_tile], weight[~is_tile]
            boxes, square, weight = self._thin(boxes, square, weight, _MAX_OPEN)
            boxes, origin = _cut(boxes, self.plane.tile)
            square, weight = square[origin], weight[origin]

    def _tiles_in(self, boxes: _Boxes) -> Any:
        rows, columns = self.plane.tile
        return -((boxes.top - boxes.bottom) // rows) * -((boxes.left - boxes.right) // columns)

    def _tally_decided(self, boxes: _Boxes, square: Any, weight: Any) -> Any:
        """Counts the boxes that bounds decide. Returns the indices of the others."""
        visible, rest = _open(self.plane, boxes)
        is_done = numpy.ones(len(square), bool)
        is_done[rest] = False
        done = boxes.take(is_done)
        self._tally(done, square[is_done], weight[is_done], visible[is_done], done.areas())
        return rest

    def _tally_tiles(self, boxes: _Boxes, square: Any, weight: Any) -> None:
        """Counts tiles that bounds do not decide by their pairs."""
        boxes, square, weight = self._thin(boxes, square, weight, _MAX_OPEN)
        cost = _estimate_cost(self.plane, boxes)
        if cost > _MAX_PAIRS:
            boxes, square, weight = self._thin(boxes, square, weight, len(square) * _MAX_PAIRS // cost)
        visible, looked, samples = _count_or_sample(self.plane, boxes)
        self.is_exact &= not samples
        self._tally(boxes, square, weight, visible, looked)

    def _tally(self, boxes: _Boxes, square: Any, weight: Any, visible: Any, looked: Any) -> None:
        """Counts boxes of tiles of one kind, in which `visible` of the `looked` pairs are visible."""
        kinds = numpy.where(visible == 0, SKIPPED, numpy.where(visible == looked, FULL, PARTIAL))
        numpy.add.at(self._tiles, (square, kinds), self._tiles_in(boxes) * weight)
        pairs = boxes.areas() * weight
        self._pairs += ((pairs * (visible / looked)).sum(), pairs.sum())
        self.visible_pairs += int(visible.sum())

    def _thin(self, boxes: _Boxes, square: Any, weight: Any, limit: int) -> Tuple[_Boxes, Any, Any]:
        """Returns the boxes, or a sample with some of each square if there are more than `limit`."""
        if len(square) <= limit:
            return boxes, square, weight
        self.is_exact = False
        kept, factor = _sample(square, limit)
        return boxes.take(kept), square[kept], weight[kept] * factor


class Marks(NamedTuple):
    """How many pairs are visible in each part of the partial squares."""

    levels: Any  #: per row and column of parts: 0 if no pair is visible, up to LEVELS if all are; 0 in other squares
    tops: Any  #: the first query of each row of parts, and the end of the last
    lefts: Any  #: the first key of each column of parts, and the end of the last
    part: Tuple[int, int]  #: queries and keys of a part
    samples: int  #: pairs that are evaluated for each part that bounds do not decide: 0 if all are


def find_marks(survey: Survey, most: Tuple[int, int]) -> Marks:
    """Returns the marks of a plane. `most` is about the largest number of rows and of columns of parts."""
    plane, kinds = survey.plane, survey.kinds
    heights, tops, bottoms = _divide_squares(survey.rows, survey.square_size[0], most[0])
    widths, lefts, rights = _divide_squares(survey.columns, survey.square_size[1], most[1])
    rows, columns = numpy.nonzero(kinds == PARTIAL)
    boxes, index = _make_boxes(
        (tops[rows][:, :, None], bottoms[rows][:, :, None]),
        (lefts[columns][:, None, :], rights[columns][:, None, :]),
    )
    visible, rest = _open(plane, boxes)
    shares = visible / boxes.areas()
    visible, looked, samples = _count_or_sample(plane, boxes.take(rest))
    shares[rest] = visible / looked
    shape = (tops.shape[1], lefts.shape[1])
    chosen = numpy.zeros((len(rows), *shape), numpy.int64)
    chosen.reshape(-1)[index] = numpy.ceil(shares * LEVELS)
    levels = numpy.zeros((*kinds.shape, *shape), numpy.int64)
    levels[rows, columns] = chosen
    grid = levels.transpose(0, 2, 1, 3).reshape(tops.size, lefts.size)
    return Marks(grid, numpy.append(tops, plane.nq), numpy.append(lefts, plane.nk), (heights, widths), samples)


def _divide_squares(edges: Tuple[Any, Any], size: int, most: int) -> Tuple[int, Any, Any]:
    """Returns the size of a part, and the first and end indices of the parts in each row, or column, of squares of
    `size`."""
    first, end = edges
    part = -(-size // max(1, most // len(first)))
    starts = numpy.minimum(first[:, None] + numpy.arange(-(-size // part)) * part, end[:, None])
    return part, starts, numpy.minimum(starts + part, end[:, None])

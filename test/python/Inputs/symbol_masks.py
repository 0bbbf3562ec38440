"""Masks that read tensors, each with the pairs that it shows, found pair by pair without the package's sets."""

from typing import Any, Callable, NamedTuple

import numpy
from flashattn import affine_set, causal, masks

BATCH, HEADS, KV_HEADS = 2, 4, 2
N = 100  #: two tiles of keys


class Case(NamedTuple):
    """`make` takes a function that converts an array to one of the caller's library, and returns the mask. `shows` is
    called with (b, h, p, k) of a pair; the position of query i is i."""

    make: Callable[[Any], Any]
    shows: Callable[[int, int, int, int], bool]
    nq: int = N
    nk: int = N

    def seen(self):
        """Returns the visible pairs, `[B, Hq, Nq, Nk]`."""
        shape = BATCH, HEADS, self.nq, self.nk
        return numpy.fromfunction(numpy.vectorize(self.shows, otypes=[bool]), shape, dtype=int)


def integers(generator, low, high, *shape, dtype=numpy.int32):
    return generator.integers(low, high, shape).astype(dtype)


def set_cases(generator):
    """Sets of each kind of symbol, in each shape."""
    cases = {}
    lengths = integers(generator, 0, 90, BATCH)
    for name, kind in (("", numpy.int32), (" of 64 bits", numpy.int64), (" of 16 bits", numpy.int16)):
        n = lengths.astype(kind)
        cases[f"per sequence{name}"] = Case(
            lambda to, n=n: affine_set("(p, k)[nq, nk, n] : (n - 1 - k >= 0)", per_sequence=[to(n)]),
            lambda b, h, p, k: k < lengths[b],
        )
    for name, n in (("one", lengths[1:]), ("a scalar", lengths[1]), ("an array of rank 0", lengths[1].reshape(()))):
        cases[f"per sequence, {name}"] = Case(
            lambda to, n=n: affine_set("(p, k)[nq, nk, n] : (n - 1 - k >= 0)", per_sequence=[n if n.shape == () and (
                not isinstance(n, numpy.ndarray)) else to(n)]) | causal,
            lambda b, h, p, k: k < lengths[1] or k <= p,
        )
    for shape in ((N,), (1, N), (BATCH, N), (BATCH, 1, N), (1, HEADS, N), (BATCH, HEADS, N)):
        starts = integers(generator, 0, N, *shape)
        wide = numpy.broadcast_to(starts[:, None] if len(shape) == 2 else starts, (BATCH, HEADS, N))
        cases[f"per query {list(shape)}"] = Case(
            lambda to, starts=starts: affine_set(
                "(p, k)[nq, nk, start] : (k - start >= 0, p - k >= 0)", per_query=[to(starts)]
            ),
            lambda b, h, p, k, wide=wide: wide[b, h, p] <= k <= p,
        )
    for shape in ((N,), (BATCH, N), (BATCH, 1, N), (1, KV_HEADS, N), (BATCH, KV_HEADS, N)):
        ends = integers(generator, 0, N, *shape)
        wide = numpy.broadcast_to(ends[:, None] if len(shape) == 2 else ends, (BATCH, KV_HEADS, N))
        cases[f"per key {list(shape)}"] = Case(
            lambda to, ends=ends: affine_set("(p, k)[nq, nk, end] : (end - 1 - p >= 0)", per_key=[to(ends)]),
            lambda b, h, p, k, wide=wide: p < wide[b, h // 2, k],
        )
    kinds = integers(generator, 0, 3, BATCH, N)
    cases["queries and keys"] = Case(
        lambda to: affine_set("(p, k)[nq, nk, u, w] : (u - w == 0)", per_query=[to(kinds)], per_key=[to(kinds)]),
        lambda b, h, p, k: kinds[b, p] == kinds[b, k],
    )
    more = integers(generator, 0, 40, BATCH)
    starts, ends = integers(generator, 0, N, N), integers(generator, 0, 120, BATCH, 1, N)

    def make(to):
        n, m, start, end = map(to, (lengths, more, starts, ends))
        one = affine_set("(p, k)[nq, nk, n] : (n - 1 - k >= 0)", per_sequence=[n])
        two = affine_set("(p, k)[nq, nk, m, s] : (k - s >= 0, p - m >= 0)", per_sequence=[m], per_query=[start])
        three = affine_set(
            "(q, j)[a, c, n, s, e] : (j - s + n >= 0, e - 1 - q >= 0)", per_sequence=[n], per_query=[start],
            per_key=[end],
        )  # fmt: skip
        return (one | two | three) & causal

    def shows(b, h, p, k):
        one, two = k < lengths[b], k >= starts[p] and p >= more[b]
        return (one or two or (k - starts[p] + lengths[b] >= 0 and p < ends[b, 0, k])) and k <= p

    cases["a union of all kinds"] = Case(make, shows)
    cases["more keys"] = Case(
        lambda to: affine_set("(p, k)[nq, nk, n] : (n + p - k >= 0)", per_sequence=[to(lengths)]),
        lambda b, h, p, k: k <= p + lengths[b], 30, 150,
    )  # fmt: skip
    return cases


def make_runs(generator, *shape, longest=15):
    """Ids of runs, some of which are the same as those of an earlier run."""
    ids = numpy.zeros(shape, numpy.int32)
    for row in ids.reshape(-1, shape[-1]):
        at = 0
        while at < len(row):
            length = int(generator.integers(1, longest))
            row[at : at + length] = (row[at - 1] + 1 if at else 0) % 3
            at += length
    return ids


def number_runs(ids):
    """The number of the run of each element of rows of ids."""
    numbers = []
    for row in ids.reshape(-1, ids.shape[-1]).tolist():
        numbers.append([0])
        for one, other in zip(row, row[1:]):
            numbers[-1].append(numbers[-1][-1] + (one != other))
    return numpy.array(numbers)


def make_forest(generator, n):
    """Parents of a random forest in depth-first order."""
    parents = [-1]
    for node in range(1, n):
        above = [-1]
        at = node - 1
        while at >= 0:
            above.append(at)
            at = parents[at]
        parents.append(int(generator.choice(above[1:] + above[:1] if generator.random() < 0.2 else above[1:4])))
    return numpy.array(parents, numpy.int32)


def is_above(parents, node, other):
    """Whether `other` is `node` or above it."""
    while node > other:
        node = parents[node]
    return node == other


def of_run(runs, b, p, k):
    row = of_batch(runs, b)
    return row[p] == row[k]


def of_batch(array, b):
    return array[b if array.shape[0] > 1 else 0]


def named_cases(generator):
    """The masks of flashattn.masks that read tensors."""
    cases = {}
    n, m = integers(generator, 0, 90, BATCH), integers(generator, 0, 20, BATCH)
    cases["prefix"] = Case(lambda to: masks.prefix(to(n)) | causal, lambda b, h, p, k: k < n[b] or k <= p)
    cases["prefix of a count"] = Case(lambda to: masks.prefix(9) | causal, lambda b, h, p, k: k < 9 or k <= p)
    cases["left padding"] = Case(lambda to: masks.left_padding(to(n)) & causal, lambda b, h, p, k: n[b] <= k <= p)
    cases["window of two tensors"] = Case(
        lambda to: masks.window(left=to(n), right=to(m)), lambda b, h, p, k: p - n[b] <= k <= p + m[b]
    )
    cases["window of a tensor and a count"] = Case(
        lambda to: masks.window(left=to(n), right=2), lambda b, h, p, k: p - n[b] <= k <= p + 2
    )
    cases["window to the right"] = Case(lambda to: masks.window(right=to(m)), lambda b, h, p, k: k <= p + m[b])
    for kind in (bool, numpy.int32):
        flag = numpy.array([1, 0]).astype(kind)
        cases[f"causal if {kind.__name__}"] = Case(
            lambda to, flag=flag: masks.causal_if(to(flag)), lambda b, h, p, k: b == 1 or k <= p
        )
    for shape in ((N,), (BATCH, N)):
        ids = make_runs(generator, *shape)
        rows = number_runs(ids)
        for is_causal in (False, True):
            cases[f"documents {list(shape)}, causal={is_causal}"] = Case(
                lambda to, ids=ids, c=is_causal: masks.documents(to(ids), causal=c),
                lambda b, h, p, k, rows=rows, c=is_causal: of_run(rows, b, p, k) and (k <= p or not c),
            )
        cases[f"shared question {list(shape)}"] = Case(
            lambda to, ids=ids: masks.shared_question(to(m), to(ids)),
            lambda b, h, p, k, rows=rows: k <= p and (k < m[b] or of_run(rows, b, p, k)),
        )
    starts = numpy.array([[0, 7, 7, 70, N], [0, 1, 20, 65, 120]], numpy.int64)
    for given in (starts, starts[0], starts[1, 1:3]):
        cases[f"starts {given.tolist()}"] = Case(
            lambda to, given=given: masks.documents(starts=to(given), length=N),
            lambda b, h, p, k, rows=given.reshape(-1, given.shape[-1]): (
                sum(of_batch(rows, b) <= p) == sum(of_batch(rows, b) <= k)
                or not any(min(p, k) < start <= max(p, k) for start in of_batch(rows, b))
            ),
        )
    for rows in (1, BATCH):
        parents = numpy.stack([make_forest(generator, N) for _ in range(rows)])
        given = parents[0] if rows == 1 else parents
        cases[f"tree {list(given.shape)}"] = Case(
            lambda to, given=given: masks.tree(to(given)),
            lambda b, h, p, k, parents=parents: k <= p and is_above(of_batch(parents, b), p, k),
        )
    for heads in (1, KV_HEADS):
        for columns, is_causal in ((1, True), (2, True), (2, False), (4, False)):
            rows = integers(generator, 0, N + 1, BATCH, heads, N, columns)
            if columns != 2 or is_causal:  # ends after starts, as in valid input
                rows = numpy.sort(rows.reshape(BATCH, heads, N, -1, min(columns, 2)), -1).reshape(rows.shape)
            cases[f"flashmask of {columns} columns, {heads} heads, causal={is_causal}"] = Case(
                lambda to, rows=rows, c=is_causal: masks.flashmask(to(rows), causal=c),
                lambda b, h, p, k, rows=rows, c=is_causal: not is_hidden(
                    rows[b, h // 2 if rows.shape[1] > 1 else 0, k].tolist(), p, k, c
                ),
            )
    q_ranges = numpy.array([[30, 80], [0, 10], [10, 10], [10, 25], [80, 95]], numpy.int64)
    k_ranges = numpy.array([[5, 70], [0, 10], [0, N], [20, N], [3, 90]], numpy.int64)
    types = ["causal", "full", 0, "inv_causal", 3]
    numbers = [1, 0, 0, 2, 3]

    def in_slice(b, h, p, k):
        for (q_begin, q_end), (k_begin, k_end), kind in zip(q_ranges, k_ranges, numbers):
            if q_begin <= p < q_end and k_begin <= k < k_end:
                is_below, is_above = k <= p + k_end - q_end, k >= p + k_begin - q_begin
                return (is_below or kind in (0, 2)) and (is_above or kind in (0, 1))
        return False

    cases["ranges"] = Case(lambda to: masks.ranges(to(q_ranges), to(k_ranges), types, queries=N), in_slice)
    cases["ranges of a tensor of types"] = Case(
        lambda to: masks.ranges(to(q_ranges), to(k_ranges), to(numpy.array(numbers)), queries=N), in_slice
    )
    cases["ranges without types"] = Case(
        lambda to: masks.ranges(to(q_ranges[:2]), to(k_ranges[:2]), queries=N),
        lambda b, h, p, k: (30 <= p < 80 and 5 <= k < 70) or (p < 10 and k < 10),
    )
    return cases


def is_hidden(rows, p, k, is_causal):
    """FlashMask's definition, of a pair and the row indices of its key."""
    if is_causal:
        return p < k or rows[0] <= p < (rows[1] if len(rows) == 2 else 1 << 30)
    if len(rows) == 2:
        return p >= rows[0] or p < rows[1]
    return rows[0] <= p < rows[1] or rows[2] <= p < rows[3]

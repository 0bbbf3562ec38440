"""Masks that read tensors, each with the pairs that it shows, found pair by pair without the package's sets."""

from typing import Any, Callable, NamedTuple

import numpy
from flashattn import affine_set, causal

BATCH, HEADS, KV_HEADS = 2, 4, 2


class Case(NamedTuple):
    """`make` takes a function that converts an array to one of the caller's library, and returns the mask. `shows` is
    called with (b, h, p, k) of a pair; the position of query i is i."""

    make: Callable[[Any], Any]
    shows: Callable[[int, int, int, int], bool]
    nq: int = 61
    nk: int = 61

    def seen(self):
        """Returns the visible pairs, `[B, Hq, Nq, Nk]`."""
        shape = BATCH, HEADS, self.nq, self.nk
        return numpy.fromfunction(numpy.vectorize(self.shows, otypes=[bool]), shape, dtype=int)


def integers(generator, low, high, *shape, dtype=numpy.int32):
    return generator.integers(low, high, shape).astype(dtype)


def set_cases(generator):
    """Sets of each kind of symbol, in each shape."""
    cases = {}
    lengths = integers(generator, 0, 50, BATCH)
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
    for shape in ((61,), (1, 61), (BATCH, 61), (BATCH, 1, 61), (1, HEADS, 61), (BATCH, HEADS, 61)):
        starts = integers(generator, 0, 61, *shape)
        wide = numpy.broadcast_to(starts[:, None] if len(shape) == 2 else starts, (BATCH, HEADS, 61))
        cases[f"per query {list(shape)}"] = Case(
            lambda to, starts=starts: affine_set(
                "(p, k)[nq, nk, start] : (k - start >= 0, p - k >= 0)", per_query=[to(starts)]
            ),
            lambda b, h, p, k, wide=wide: wide[b, h, p] <= k <= p,
        )
    for shape in ((61,), (BATCH, 61), (BATCH, 1, 61), (1, KV_HEADS, 61), (BATCH, KV_HEADS, 61)):
        ends = integers(generator, 0, 61, *shape)
        wide = numpy.broadcast_to(ends[:, None] if len(shape) == 2 else ends, (BATCH, KV_HEADS, 61))
        cases[f"per key {list(shape)}"] = Case(
            lambda to, ends=ends: affine_set("(p, k)[nq, nk, end] : (end - 1 - p >= 0)", per_key=[to(ends)]),
            lambda b, h, p, k, wide=wide: p < wide[b, h // 2, k],
        )
    kinds = integers(generator, 0, 3, BATCH, 61)
    cases["queries and keys"] = Case(
        lambda to: affine_set("(p, k)[nq, nk, u, w] : (u - w == 0)", per_query=[to(kinds)], per_key=[to(kinds)]),
        lambda b, h, p, k: kinds[b, p] == kinds[b, k],
    )
    more = integers(generator, 0, 40, BATCH)
    starts, ends = integers(generator, 0, 61, 61), integers(generator, 0, 70, BATCH, 1, 61)

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

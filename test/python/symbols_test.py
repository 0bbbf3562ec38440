# Masks that read tensors (rules Y1 and Y2) with NumPy, forward and backward, against float64.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import itertools
import os
import pickle
import sys
import unittest

import flashattn
import numpy
from flashattn import (
    ArgumentError, Mask, _reference, affine_set, attention, attention_backward, causal, masks, prefix, sink,
)  # fmt: skip

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "Inputs"))
from symbol_masks import (  # noqa: E402
    BATCH, HEADS, KV_HEADS, N, integers, is_above, make_forest, named_cases, set_cases,
)  # fmt: skip

NAMES = ("o", "lse", "dq", "dk", "dv")


def exact(q, k, v, do, seen):
    """o, lse and the gradients in float64."""
    q, k, v, do = (x.astype(numpy.float64) for x in (q, k, v, do))
    group, scale = q.shape[1] // k.shape[1], q.shape[3] ** -0.5
    o, lse = numpy.zeros((*q.shape[:3], v.shape[3])), numpy.zeros(q.shape[:3])
    dq, dk, dv = map(numpy.zeros_like, (q, k, v))
    for b, h in itertools.product(*map(range, q.shape[:2])):
        own = q[b, h], k[b, h // group], v[b, h // group]
        o[b, h], lse[b, h] = _reference.attention_head(*own, seen[b, h], scale)
        delta = (do[b, h] * o[b, h]).sum(axis=1)
        part = _reference.head_gradients(*own, do[b, h], lse[b, h], delta, seen[b, h], scale)
        dq[b, h] = part.dq
        dk[b, h // group] += part.dk
        dv[b, h // group] += part.dv
    return o, lse, dq, dk, dv


class SymbolsTest(unittest.TestCase):
    def setUp(self):
        self.generator = numpy.random.default_rng(11)

    def draw(self, nq, nk):
        shapes = (HEADS, nq), (KV_HEADS, nk), (KV_HEADS, nk), (HEADS, nq)
        return [self.generator.standard_normal((BATCH, *shape, 16), numpy.float32) for shape in shapes]

    def near(self, found, wanted):
        for name, one, other in zip(NAMES, found, wanted):
            numpy.testing.assert_array_equal(numpy.isinf(one), numpy.isinf(other), name)
            one, other = (numpy.nan_to_num(x, posinf=0, neginf=0) for x in (one, other))
            error = numpy.linalg.norm(one - other)
            self.assertLessEqual(error, 1e-5 * numpy.linalg.norm(other) + 1e-12, name)

    def run_all(self, q, k, v, do, **options):
        o, lse = attention(q, k, v, return_lse=True, **options)
        return o, lse, *attention_backward(q, k, v, o, lse, do, **options)

    def check(self, case):
        tensors, seen = self.draw(case.nq, case.nk), case.seen()
        mask = case.make(lambda x: x)
        found = self.run_all(*tensors, mask=mask, align="top_left")
        self.near(found, exact(*tensors, seen))
        positions, keys = numpy.arange(case.nq)[:, None], numpy.arange(case.nk)[None]
        for b, h in itertools.product(range(BATCH), range(HEADS)):
            values = _reference.values_of(mask, b, h, h // 2)
            shown = _reference.visible(mask, positions, keys, case.nq, case.nk, values)
            numpy.testing.assert_array_equal(numpy.broadcast_to(shown, seen[b, h].shape), seen[b, h])

    def test_sets(self):
        for name, case in set_cases(self.generator).items():
            with self.subTest(name):
                self.check(case)

    def test_named(self):
        for name, case in named_cases(self.generator).items():
            with self.subTest(name):
                self.check(case)

    def test_elements_are_read_at_each_call(self):
        n = numpy.array([5, 30], numpy.int32)
        mask = affine_set("(p, k)[nq, nk, n] : (n - 1 - k >= 0)", per_sequence=[n])
        tensors = self.draw(40, 40)
        for lengths in ((5, 30), (40, 0), (1, 2)):
            n[:] = lengths
            before = flashattn.cache_info().compiled
            found = self.run_all(*tensors, mask=mask)
            seen = numpy.arange(40) < n[:, None, None, None]
            self.near(found, exact(*tensors, numpy.broadcast_to(seen, (BATCH, HEADS, 40, 40))))
        # All values, and masks of other tensors, have the same kernels.
        other = affine_set("(q, j)[nq, nk, m] : (m - 1 - j >= 0)", per_sequence=[[3, 4]])
        self.run_all(*tensors, mask=other)
        self.assertEqual(flashattn.cache_info().compiled, before)

    def test_made_masks_keep_their_numbers(self):
        """Later writes to what such a mask was made of have no effect."""
        ids, rows = numpy.sort(integers(self.generator, 0, 4, N)), integers(self.generator, 0, N, 1, 1, N, 2)
        parents, slices = make_forest(self.generator, N), numpy.array([[0, 30], [40, N]], numpy.int32)
        for make, given in (
            (masks.documents, ids), (lambda x: masks.documents(starts=x, length=N), ids),
            (lambda x: masks.shared_question(7, x), ids), (masks.tree, parents), (masks.flashmask, rows),
            (lambda x: masks.flashmask(x, causal=True), rows[..., :1]),
            (lambda x: masks.flashmask(x, causal=True), rows[..., :1].copy()),
            (lambda x: masks.ranges(x, x, queries=N), slices),
        ):  # fmt: skip
            given = given[...]
            mask, wanted = make(given), make(given.copy())
            before = [numpy.array(x) for _, x in wanted._symbols]
            given[...] = 0
            for (_, found), one in zip(mask._symbols, before):
                numpy.testing.assert_array_equal(found, one)

    def test_a_tree_behind_a_cache(self):
        """With fewer queries than keys, the queries are the last nodes."""
        tensors = self.draw(6, N)
        parents = make_forest(self.generator, N)
        seen = [[k <= p and is_above(parents, p, k) for k in range(N)] for p in range(N - 6, N)]
        found = self.run_all(*tensors, mask=masks.tree(parents))
        self.near(found, exact(*tensors, numpy.broadcast_to(seen, (BATCH, HEADS, 6, N))))

    def test_are_values(self):
        n, m = numpy.array([1, 2], numpy.int32), numpy.array([1, 2], numpy.int32)
        make = lambda n, word="n": affine_set(  # noqa: E731
            f"(p, k)[nq, nk, {word}] : ({word} - 1 - k >= 0)", per_sequence=[n]
        )
        self.assertEqual(make(n), make(n, "word"))
        self.assertEqual(hash(make(n)), hash(make(n, "word")))
        self.assertNotEqual(make(n), make(m))
        self.assertNotEqual(make(n), Mask(str(make(n))))
        self.assertEqual(make(3), make(numpy.int64(3)))
        self.assertNotEqual(make(3), make(4))
        text = '#flashattn.set<"(p, k)[nq, nk, sequence0] : (sequence0 - 1 - k >= 0)">'
        self.assertEqual(str(make(m)), text)
        self.assertEqual(str(make(n) | make(n)), f"#flashattn.any_of<[{text}, {text}]>")
        self.assertEqual(str(make(n) & causal), f"#flashattn.all_of<[{text}, #flashattn.causal]>")
        both = make(n) | (make(m) & causal | make(n))
        self.assertIn("[nq, nk, sequence0, sequence1] : (sequence1 - 1", str(both))
        self.assertNotIn("sequence2", str(both))
        self.assertEqual(str(make(n) | make(n) | causal), str(make(n) | (make(n) | causal)))
        again = pickle.loads(pickle.dumps(both))
        self.assertEqual(str(again), str(both))
        tensors = self.draw(9, 9)[:3]
        numpy.testing.assert_array_equal(attention(*tensors, mask=again), attention(*tensors, mask=both))

    def test_layouts_and_sequences(self):
        q, k, v, _ = self.draw(40, 40)
        ids = numpy.sort(self.generator.integers(0, 5, (BATCH, 40))).astype(numpy.int32)
        make = lambda ids: causal & affine_set(  # noqa: E731
            "(p, k)[nq, nk, u, w] : (u - w == 0)", per_query=[ids], per_key=[ids]
        )
        wanted = attention(q, k, v, mask=make(ids))
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
        found = attention(*map(numpy.ascontiguousarray, (q, k, v)), mask=make(ids), layout="bshd")
        numpy.testing.assert_allclose(found.swapaxes(1, 2), wanted, rtol=1e-4, atol=1e-5)
        # Packed: a sequence for each batch element.
        q, k, v = (x.reshape(80, -1, 16) for x in (q, k, v))
        starts = numpy.array([0, 40, 80], numpy.int32)
        wanted = wanted.swapaxes(1, 2).reshape(80, HEADS, 16)
        for packed in (ids.reshape(80), ids.reshape(1, 80), ids.reshape(1, 1, 80)):
            mask = make(packed)
            found = attention(q, k, v, mask=mask, layout="thd", cu_seqlens_q=starts, cu_seqlens_k=starts)
            numpy.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
            rows = (x[None] for x in (q, k, v))
            found = attention(*rows, mask=mask, layout="bshd", cu_seqlens_q=starts, cu_seqlens_k=starts)
            numpy.testing.assert_allclose(found[0], wanted, rtol=1e-4, atol=1e-5)
        of_heads = numpy.broadcast_to(ids.reshape(80), (KV_HEADS, 80)).copy()
        mask = affine_set(
            "(p, k)[nq, nk, u, w] : (u - w == 0)", per_query=[of_heads.repeat(2, 0)], per_key=[of_heads]
        )
        found = attention(q, k, v, mask=mask & causal, layout="thd", cu_seqlens_q=starts, cu_seqlens_k=starts)
        numpy.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)

    def test_few_queries(self):
        """Kernels for up to 4 queries, in which query heads that share a key/value head share a tile."""
        for nq, nk in ((1, 150), (3, 150), (4, 4)):
            q, k, v, do = self.draw(nq, nk)
            n, starts = numpy.array([70, 3], numpy.int32), self.generator.integers(0, nk, (BATCH, HEADS, nq))
            ends = self.generator.integers(0, nk + 20, (BATCH, 1, nk))
            own = self.generator.integers(0, nk + 20, (BATCH, KV_HEADS, nk))
            of_heads = numpy.repeat(own, HEADS // KV_HEADS, axis=1)
            positions, keys = numpy.arange(nq)[:, None] + nk - nq, numpy.arange(nk)
            for mask, seen in (
                (prefix(n), keys < n[:, None, None, None]),
                (affine_set("(p, k)[nq, nk, s] : (k - s >= 0)", per_query=[starts]), keys >= starts[..., None]),
                (affine_set("(p, k)[nq, nk, s] : (k - s >= 0)", per_query=[starts[0, 0]]),
                 keys >= starts[0, 0, :, None]),
                (affine_set("(p, k)[nq, nk, e] : (e - 1 - p >= 0)", per_key=[ends]) & causal,
                 (positions < ends[:, :, None]) & (keys <= positions)),
                (affine_set("(p, k)[nq, nk, e] : (e - 1 - p >= 0)", per_key=[own]), positions < of_heads[:, :, None]),
            ):  # fmt: skip
                with self.subTest(mask, nq=nq):
                    found = attention(q, k, v, mask=mask, return_lse=True)
                    wanted = exact(q, k, v, do, numpy.broadcast_to(seen, (BATCH, HEADS, nq, nk)))
                    self.near(found, wanted[:2])

    def test_pages(self):
        q, k, v, _ = self.draw(3, 40)
        n, kinds = numpy.array([33, 40], numpy.int32), self.generator.integers(0, 2, (BATCH, 40)).astype(numpy.int32)
        mask = affine_set("(p, k)[nq, nk, w] : (w - 1 == 0)", per_key=[kinds]) & causal
        wanted = attention(q, k, v, mask=mask, kv_len=n)
        pools = [x.reshape(BATCH, KV_HEADS, 5, 8, 16).swapaxes(1, 2).reshape(10, KV_HEADS, 8, 16) for x in (k, v)]
        table = numpy.arange(10, dtype=numpy.int32).reshape(BATCH, 5)
        found = attention(q, *map(numpy.ascontiguousarray, pools), mask=mask, kv_len=n, page_table=table)
        numpy.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)

    def test_compiled_kernels(self):
        q, k, v, _ = self.draw(40, 40)
        make = lambda n, s: affine_set(  # noqa: E731
            "(p, k)[nq, nk, n, s] : (n - 1 - k >= 0, k - s >= 0)", per_sequence=[n], per_query=[s]
        ) | sink(3)
        shape = numpy.empty(2, numpy.int32), numpy.empty((2, 40), numpy.int32)
        kernel = flashattn.compile(head_dim=16, dtype="f32", mask=make(*shape), chip="cpu")
        self.assertIn("%per_sequence0: memref<?xi32", kernel.mlir)
        self.assertIn("%per_query0: memref<?x1x?xi32", kernel.mlir)
        kernel = pickle.loads(pickle.dumps(kernel))
        out = numpy.empty_like(q)
        for n, longer in (([4, 30], 0), ([40, 12], 5)):
            mask = make(n, numpy.arange(80, dtype=numpy.int32).reshape(2, 40) // 3 + longer)
            kernel.launch(q, k, v, out, mask=mask)
            numpy.testing.assert_array_equal(out, attention(q, k, v, mask=mask))
        for message, given in (
            ("expected the mask #flashattn.any_of.*, whose tensors a launch reads, but got None", None),
            ("expected the mask #flashattn.any_of.*, as compiled, but got #flashattn.causal", causal),
            ("argument 5 .'per_query0'.", make([4, 30], numpy.zeros((1, 40), numpy.int32))),
        ):
            with self.assertRaisesRegex(ArgumentError, message):
                kernel.launch(q, k, v, out, mask=given)


if __name__ == "__main__":
    unittest.main()

# Keys in pages of a pool, in slots of caches and behind padding: NumPy on the CPU and on models, against float64.
# Pages that no query sees hold NaN, and their entries are no pages.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import functools
import itertools
import operator
import unittest

import flashattn
import numpy
from flashattn import (
    ArgumentError,
    CompileError,
    FlashAttnError,
    KeywordError,
    UnsupportedError,
    _reference,
    affine_set,
    attention,
    attention_backward,
    causal,
    compile,
    sink,
    window,
)
from numbers_test import make, to_float

ROLLING = window(left=5, right=0) | sink(3) & causal
GROUP = 2


def i32(values):
    return numpy.array(values, numpy.int32)


class Paged:
    """Sequences of random keys in pages of a pool, which is a view of one tensor with keys and values. The pages
    are permuted, and the first page of all sequences is one page if they `share` it."""

    def __init__(
        self, size, columns, lengths, count, mask=None, element="f32", layout="bhsd", leftpad=None,
        share=False, widths=(16, 16), seed=1, align="bottom_right",
    ):  # fmt: skip
        generator = numpy.random.default_rng(seed)
        batch, heads, self.layout, self.element = len(lengths), 2, layout, element
        self.mask, self.lengths, self.align = mask, lengths, align
        self.leftpad = leftpad or [0] * batch
        self.q, self.q32 = make(generator, element, (batch, heads * GROUP, count, widths[0]))
        pages = batch * columns + 2
        self.table = i32(generator.permutation(pages)[: batch * columns].reshape(batch, columns))
        if share:
            self.table[:, 0] = self.table[0, 0]
        made = [make(generator, element, (pages, heads, size, width)) for width in widths]
        self.k32, self.v32 = (self.gather(values) for _, values in made)
        seen = numpy.zeros((batch, columns), bool)
        for b in range(batch):
            keys = numpy.flatnonzero(self.seen(b).any(axis=0))
            seen[b, (keys + self.leftpad[b]) // size] = True
        used = numpy.zeros(pages, bool)
        used[self.table[seen]] = True
        self.table[~seen] = generator.choice(i32([-1, pages, 1 << 30, -(1 << 31)]), (~seen).sum())
        nan = numpy.array(numpy.nan, numpy.float32)
        for array, _ in made:
            array[~used] = 0x7FC0 if element == "bf16" else nan
        self.k, self.v = (x for x, _ in made)
        if widths[0] == widths[1]:  # a page of keys, then one of values
            self.both = numpy.stack([self.k, self.v], 1)
            self.k, self.v = self.both[:, 0], self.both[:, 1]
        if layout == "bshd":
            self.q, self.k, self.v = (numpy.ascontiguousarray(x.swapaxes(1, 2)) for x in (self.q, self.k, self.v))

    def gather(self, pool):
        """The rows of each sequence, `[B, Hkv, P * S, D]`."""
        return numpy.stack([numpy.concatenate(list(pool[pages]), axis=1) for pages in self.table])

    def seen(self, b):
        count, keys = self.q32.shape[2], self.lengths[b]
        first = keys - count if self.align == "bottom_right" else 0
        positions = numpy.arange(count)[:, None] + first
        return _reference.visible(self.mask, positions, numpy.arange(keys)[None], count, keys)

    def options(self):
        given = {"page_table": self.table, "kv_len": i32(self.lengths), "mask": self.mask, "layout": self.layout}
        if any(self.leftpad):
            given["leftpad_k"] = i32(self.leftpad)
        if self.element == "bf16":
            given["dtype"] = "bf16"
        return {**given, "align": self.align, "return_lse": True}

    def check(self, test, found, **features):
        o, lse = found
        o = to_float(o, self.element)
        o = o.swapaxes(1, 2) if self.layout == "bshd" else o
        scale = self.q32.shape[3] ** -0.5
        for b, h in itertools.product(range(o.shape[0]), range(o.shape[1])):
            rows = slice(self.leftpad[b], self.leftpad[b] + self.lengths[b])
            head = self.q32[b, h], self.k32[b, h // GROUP, rows], self.v32[b, h // GROUP, rows]
            seen = self.seen(b)
            error, bound = _reference.check_head(o[b, h], *head, seen, scale, self.element, **features)
            test.assertLessEqual(error, bound)
            double = (x.astype(numpy.float64) for x in head)
            _, exact = _reference.attention_head(*double, seen, scale, **features)
            numpy.testing.assert_allclose(lse[b, h], exact, rtol=1e-4, atol=1e-4)


class PagedTest(unittest.TestCase):
    def test_numbers(self):
        sizes = ((1, 7), (8, 4), (16, 3), (20, 3), (64, 2), (40, 1))
        for (size, columns), mask, count in itertools.product(sizes, (None, causal, ROLLING), (1, 6)):
            rows = size * columns
            for layout, leftpad in (("bhsd", None), ("bshd", [0, rows // 2, rows - 1])):
                with self.subTest(size=size, mask=str(mask), count=count, layout=layout):
                    lengths = [rows, rows // 3, 1] if leftpad is None else [rows - pad for pad in leftpad]
                    case = Paged(size, columns, lengths, count, mask, layout=layout, leftpad=leftpad)
                    case.check(self, attention(case.q, case.k, case.v, **case.options()))

    def test_types_and_widths(self):
        for element, widths in (("f16", (16, 24)), ("bf16", (24, 16)), ("f16", (32, 32))):
            with self.subTest(element=element, widths=widths):
                case = Paged(8, 5, [40, 17, 0], 3, causal, element, widths=widths)
                case.check(self, attention(case.q, case.k, case.v, **case.options()))

    def test_shared_pages_and_features(self):
        case = Paged(16, 3, [48, 20, 33], 2, causal, share=True)
        sinks = numpy.array([0.5, -1, 2, 0], numpy.float32)
        found = attention(case.q, case.k, case.v, softcap=2.0, **case.options())
        case.check(self, found, softcap=2.0)
        o, lse = attention(case.q, case.k, case.v, sink_logits=sinks, **case.options())
        for h in range(4):
            one = Paged(16, 3, [48, 20, 33], 2, causal, share=True)
            one.q32, one.k32, one.v32 = case.q32[:, h : h + 1], case.k32[:, h // 2 :], case.v32[:, h // 2 :]
            one.check(self, (o[:, h : h + 1], lse[:, h : h + 1]), sink=float(sinks[h]))

    def test_positions(self):
        case = Paged(8, 4, [32, 9, 20], 4, causal, align="top_left")
        case.check(self, attention(case.q, case.k, case.v, **case.options()))
        options = {**case.options(), "align": "bottom_right"}
        for offset in (0, i32([0, 0, 0])):
            case.check(self, attention(case.q, case.k, case.v, offset=offset, **options))

    def test_packed_queries(self):
        """Each sequence has the bits that it has in a batch of its own."""
        case = Paged(8, 4, [32, 9, 20, 5], 6, causal, layout="bshd")
        starts, counts = i32([0, 2, 2, 8, 9]), (2, 0, 6, 1)
        packed = numpy.concatenate([case.q[b, -n:] for b, n in enumerate(counts) if n])
        options = {**case.options(), "layout": "thd", "schedule": "tile_m = 16, tile_n = 32"}
        options["page_table"] = case.table.copy()
        options["page_table"][1] = 99  # of a sequence without queries
        o, lse = attention(packed, case.k, case.v, cu_seqlens_q=starts, **options)
        alone = {**case.options(), "schedule": "tile_m = 16, tile_n = 32"}
        for b, n in enumerate(counts):
            if not n:
                continue
            alone.update(page_table=case.table[b : b + 1], kv_len=i32(case.lengths[b : b + 1]))
            wanted = attention(numpy.ascontiguousarray(case.q[b : b + 1, -n:]), case.k, case.v, **alone)
            rows = slice(starts[b], starts[b + 1])
            self.assertTrue(numpy.array_equal(o[rows], wanted[0][0]))
            self.assertTrue(numpy.array_equal(lse[:, rows], wanted[1][0]))

    def test_mixed_batches(self):
        """Sequences of one, few and many packed queries have kernels of their own on a GPU (rule S7)."""
        lengths = (80, 9, 43, 64, 0, 33)
        for device, element, mask, dim in (
            (None, "f32", causal, 16), ("model:sm_80", "f16", ROLLING, 32), ("model:sm_90a", "bf16", causal, 64),
            ("model:sm_90a", "f16", ROLLING, 64), ("model:sm_90a", "f16", None, 64),
        ):  # fmt: skip
            case = Paged(16, 5, list(lengths), 40, mask, element, layout="bshd", widths=(dim, dim))
            for counts, most in (
                ((1, 0, 5, 40, 2, 17), None), ((1, 1, 1, 1, 1, 1), None), ((1, 0, 1, 1, 1, 0), 1), ((3, 0, 1, 4, 0, 2), 3)
            ):  # fmt: skip
                with self.subTest(device=device, element=element, mask=str(mask), counts=counts, most=most):
                    self.check_mixed(case, counts, most, device)

    def check_mixed(self, case, counts, most, device):
        gap = 2  # rows of no sequence, before and behind
        starts = i32(numpy.cumsum([gap, *counts]))
        rows = [case.q[b, case.q.shape[1] - n :] for b, n in enumerate(counts)]
        around = numpy.full_like(case.q[0, :gap], 0x7FC0 if case.element == "bf16" else numpy.nan)
        packed = numpy.concatenate([around, *rows, around])
        options = {**case.options(), "layout": "thd", "device": device, "max_seqlen_q": most}
        sinks = numpy.array([0.5, -1, 2, 0], numpy.float32)
        outs = numpy.full_like(packed, 7), numpy.full((4, len(packed)), 7, numpy.float32)
        found = attention(packed, case.k, case.v, cu_seqlens_q=starts, sink_logits=sinks, out=outs, **options)
        o, lse = to_float(found[0], case.element), found[1]
        for none in (slice(gap), slice(starts[-1], None)):
            self.assertTrue((found[0][none] == 7 if most else o[none] == 0).all())
            self.assertTrue((lse[:, none] == (7 if most else -numpy.inf)).all())
        for b, n in enumerate(counts):
            own = slice(starts[b], starts[b + 1])
            one = Paged.__new__(Paged)
            one.__dict__.update(case.__dict__, q32=case.q32[b : b + 1, :, 40 - n :], lengths=[case.lengths[b]])
            one.k32, one.v32, one.element = case.k32[b : b + 1], case.v32[b : b + 1], "f32"
            for h in range(4 if n else 0):
                head = one.q32[0, h], one.k32[0, h // GROUP, : one.lengths[0]], one.v32[0, h // GROUP, : one.lengths[0]]
                seen, scale, sink = one.seen(0), one.q32.shape[3] ** -0.5, float(sinks[h])
                error, bound = _reference.check_head(o[own, h], *head, seen, scale, case.element, sink=sink)
                self.assertLessEqual(error, bound)
                _, exact = _reference.attention_head(
                    *(x.astype(numpy.float64) for x in head), seen, scale, sink=sink
                )
                numpy.testing.assert_allclose(lse[h, own], exact, rtol=1e-4, atol=1e-4)

    def test_invariant(self):
        """A sequence has the same bits in every batch (rule S8), also if its keys are split."""
        counts, lengths, columns = (1, 3, 1, 40, 5), (2100, 1900, 30, 100, 1500), 132
        for device, element, mask in (
            (None, "f32", causal), ("model:sm_80", "f16", None), ("model:sm_90a", "f16", causal),
            ("model:sm_90a", "bf16", window(left=1200, right=0)),
        ):  # fmt: skip
            case = Paged(16, columns, list(lengths), 40, mask, element, layout="bshd", widths=(64, 64))
            options = {**case.options(), "layout": "thd", "device": device, "invariant": True}

            def run(order, more=0, case=case, options=options):
                rows = [case.q[b, 40 - counts[b] :] for b in order]
                starts = i32(numpy.cumsum([0] + [counts[b] for b in order]))
                table = numpy.full((len(order), columns + more), -1, numpy.int32)
                table[:, :columns] = case.table[list(order)]
                options.update(page_table=table, kv_len=i32([lengths[b] for b in order]))
                o, lse = attention(numpy.concatenate(rows), case.k, case.v, cu_seqlens_q=starts, **options)
                own = [slice(*starts[i : i + 2]) for i in range(len(order))]
                return {b: (o[at], lse[:, at]) for b, at in zip(order, own)}

            whole = run(range(5))
            for order, more in (((4, 3, 2, 1, 0), 0), ((0,), 0), ((1,), 70), ((2, 0), 3), ((4,), 0)):
                with self.subTest(device=device, element=element, order=order, more=more):
                    for b, found in run(order, more).items():
                        self.assertTrue(all(map(numpy.array_equal, found, whole[b])))

    def test_invariant_without_packing(self):
        """The size of the batch, of a cache and of a table, and the mask, do not matter (rule S8)."""
        generator = numpy.random.default_rng(2)
        q = generator.standard_normal((5, 4, 1, 16), numpy.float32)
        cache = generator.standard_normal((5, 2, 4000, 16), numpy.float32)
        lengths, sinks = i32([2100, 3000, 5, 0, 1024]), numpy.array([0.5, -1, 2, 0], numpy.float32)
        shown = affine_set("(p, k)[nq, nk] : (k - 512*p >= 0, 512*p + 511 - k >= 0)")
        options = {"mask": causal, "sink_logits": sinks, "return_lse": True, "invariant": True}
        whole = attention(q, cache, cache, kv_len=lengths, **options)
        for b in range(5):
            one = attention(q[b : b + 1], *(cache[b : b + 1, :, :3100],) * 2, kv_len=lengths[b : b + 1], **options)
            self.assertTrue(all(numpy.array_equal(x[0], y[b]) for x, y in zip(one, whole)))
        pages = cache.transpose(0, 2, 1, 3).reshape(5, 1, 4000, 2, 16).transpose(0, 1, 3, 2, 4)[:, 0]
        wide = [attention(q, pages, pages, page_table=i32([[b, *[-1] * more] for b in range(5)]), kv_len=lengths,
                          **options) for more in (0, 3)]  # fmt: skip
        self.assertTrue(all(map(numpy.array_equal, *wide)))
        few = generator.standard_normal((1, 4, 4, 16), numpy.float32)
        sloped = {"mask": shown, "align": "top_left"}
        wanted = attention(few, *(cache[:1, :, :2048],) * 2, **sloped)
        found = attention(few, *(cache[:1, :, :2048],) * 2, invariant=True, **sloped)
        numpy.testing.assert_allclose(found, wanted, atol=1e-5)
        block = "(p, k)[nq, nk] : (k - {} >= 0, {} - k >= 0)"
        blocks = functools.reduce(operator.or_, (affine_set(block.format(c, c + 3)) for c in range(0, 3900, 130)))
        wanted = attention(few, *(cache[:1],) * 2, mask=blocks)
        numpy.testing.assert_allclose(attention(few, *(cache[:1],) * 2, mask=blocks, invariant=True), wanted, atol=1e-5)
        # The longest sequence of a batch does not matter either.
        starts, rows = i32([0, 1, 41]), generator.standard_normal((41, 4, 16), numpy.float32)
        dense = cache.swapaxes(1, 2)[:2]
        packed = {"layout": "thd", "kv_len": lengths[:2], **options}
        both = attention(rows, dense, dense, cu_seqlens_q=starts, max_seqlen_q=40, **packed)[0]
        packed["kv_len"] = lengths[:1]
        alone = attention(rows[:1], dense[:1], dense[:1], cu_seqlens_q=starts[:2], max_seqlen_q=1, **packed)[0]
        self.assertTrue(numpy.array_equal(both[:1], alone))

    def test_numbers_of_queries(self):
        case = Paged(8, 4, [32, 9, 20], 5, causal)
        o, lse = attention(case.q, case.k, case.v, q_len=i32([5, 2, 0]), **case.options())
        self.assertFalse(o[1, :, 2:].any() or o[2].any())
        self.assertTrue((lse[2] == -numpy.inf).all())
        kept = {**case.options(), "page_table": case.table[:1], "kv_len": i32([32])}
        numpy.testing.assert_allclose(o[:1], attention(case.q[:1], case.k, case.v, **kept)[0], atol=1e-5)
        options = case.options()
        options["page_table"] = case.table.copy()
        options["page_table"][2] = 99
        again = attention(case.q, case.k, case.v, q_len=i32([5, 2, 0]), **options)[0]
        self.assertTrue(numpy.array_equal(again, o))

    def test_slots(self):
        """A table of one column holds indices, of which one may occur twice, and one kernel serves all sizes."""
        generator = numpy.random.default_rng(3)
        before = flashattn.cache_info().compiled
        for capacity, layout in ((40, "bhsd"), (24, "bhsd"), (33, "bhsd")):
            k, v = (generator.standard_normal((9, 2, capacity, 16), numpy.float32) for _ in "kv")
            q = generator.standard_normal((3, 4, 2, 16), numpy.float32)
            index, lengths = i32([7, 0, 7]), i32([capacity, 3, 20])
            wanted = attention(q, k[index], v[index], kv_len=lengths, mask=causal, layout=layout)
            compiled = flashattn.cache_info().compiled
            found = attention(q, k, v, page_table=index[:, None], kv_len=lengths, mask=causal, layout=layout)
            self.assertTrue(numpy.allclose(found, wanted, atol=1e-6))
            if capacity != 40:
                self.assertEqual(flashattn.cache_info().compiled, compiled)
        self.assertLessEqual(flashattn.cache_info().compiled - before, 2)

    def test_padding_without_pages(self):
        generator = numpy.random.default_rng(3)
        q, k, v = (generator.standard_normal((3, h, n, 16), numpy.float32) for h, n in ((4, 3), (2, 30), (2, 30)))
        padding = [0, 7, 29]
        for b, pad in enumerate(padding):
            k[b, :, :pad] = v[b, :, :pad] = numpy.nan
        for lengths in (None, [30, 9, 1]):
            given = {} if lengths is None else {"kv_len": i32(lengths)}
            o = attention(q, k, v, leftpad_k=i32(padding), mask=causal, **given)
            for b, pad in enumerate(padding):
                rows = slice(pad, None if lengths is None else pad + lengths[b])
                one = slice(b, b + 1)
                wanted = attention(q[one], k[one, :, rows].copy(), v[one, :, rows].copy(), mask=causal)
                numpy.testing.assert_allclose(o[one], wanted, atol=1e-6)

    def test_empty(self):
        """No pages of a sequence, no pages at all, no sequences, and lengths that are clamped."""
        q, k = numpy.ones((2, 4, 3, 16), numpy.float32), numpy.ones((5, 2, 8, 16), numpy.float32)
        none = i32([0, 0])
        for table, pool in ((numpy.zeros((2, 0)), k), (numpy.zeros((2, 3)), k[:0]), (numpy.full((2, 3), 99), k)):
            o, lse = attention(q, pool, pool, page_table=i32(table), kv_len=none, return_lse=True)
            self.assertFalse(o.any())
            self.assertTrue((lse == -numpy.inf).all())
        o = attention(q, k, k, page_table=numpy.zeros((2, 0), numpy.int32), kv_len=i32([5, 9]))
        self.assertFalse(o.any())
        o = attention(q[:0], k, k, page_table=numpy.zeros((0, 3), numpy.int32), kv_len=i32([]))
        self.assertEqual(o.shape, (0, 4, 3, 16))
        table = i32([[0, 1, 2], [2, 3, 4]])
        o, most = (attention(q, k, k, page_table=table, kv_len=i32(n)) for n in ([99, -5], [24, 0]))
        self.assertTrue(numpy.array_equal(o, most))

    def test_models(self):
        for device, size, columns, count, leftpad in (
            ("model:sm_90a", 64, 3, 40, None), ("model:sm_90a", 16, 5, 1, None), ("model:sm_90a", 20, 4, 40, [0, 30]),
            ("model:sm_90a", 1, 9, 2, None), ("model:sm_90a", 70, 1, 40, [3, 5]), ("model:sm_80", 64, 3, 40, [1, 70]),
            ("model:sm_80", 16, 5, 1, None), ("model:sm_80", 20, 4, 3, None), ("model:sm_80", 1, 9, 40, None),
        ):  # fmt: skip
            rows = size * columns
            lengths = [rows, rows // 2] if leftpad is None else [rows - pad for pad in leftpad]
            for mask in (causal, ROLLING):
                with self.subTest(device=device, size=size, count=count, mask=str(mask)):
                    case = Paged(size, columns, lengths, count, mask, "f16", "bshd", leftpad, widths=(64, 64))
                    case.check(self, attention(case.q, case.k, case.v, device=device, **case.options()))
        case = Paged(16, 5, [80, 7], 3, causal, "bf16", widths=(64, 64))
        case.check(self, attention(case.q, case.k, case.v, device="model:sm_90a", **case.options()))
        case.table[1, 0] = 99
        message = "^expected pages from 0 to 11 in 'page_table' but got 99 for page 0 of sequence 1$"
        with self.assertRaisesRegex(ArgumentError, message):
            attention(case.q, case.k, case.v, device="model:sm_90a", **case.options())

    def test_entries(self):
        """Entries of pages that are seen are checked at each call, also with a plan of an earlier call."""
        case = Paged(8, 4, [32, 9, 20], 6, causal)
        options = case.options()
        attention(case.q, case.k, case.v, **options)
        for entry in (-1, 14, 99):
            options["page_table"] = case.table.copy()
            options["page_table"][2, 1] = entry
            with self.assertRaises(ArgumentError) as caught:
                attention(case.q, case.k, case.v, **options)
            self.assertEqual(
                str(caught.exception),
                f"expected pages from 0 to 13 in 'page_table' but got {entry} for page 1 of sequence 2",
            )
        message = "^expected at least 1 page of 'k' for the keys of sequence 0 but got 0$"
        with self.assertRaisesRegex(ArgumentError, message):
            attention(case.q, case.k[:0], case.v[:0], **options)
        # The window of the last query begins in page 2.
        options = {**case.options(), "mask": window(left=9, right=0)}
        one = numpy.ascontiguousarray(case.q[:, :, -1:])
        options["page_table"] = case.table.copy()
        options["page_table"][0, :2] = 99
        attention(one, case.k, case.v, **options)
        options["page_table"][0, 2] = 99
        with self.assertRaisesRegex(ArgumentError, "but got 99 for page 2 of sequence 0$"):
            attention(one, case.k, case.v, **options)
        # With the sink tokens also page 0. A set is ignored: its pages must be valid.
        known = causal & flashattn.affine_set("(p, k)[nq, nk] : (k - p + 50 >= 0)")
        for mask, page in ((window(left=9, right=0) | sink(3) & causal, 0), (known, None), (known | sink(9), 1)):
            options["mask"], options["page_table"] = mask, case.table.copy()
            if page is not None:
                options["page_table"][0, page] = -3
                with self.assertRaisesRegex(ArgumentError, f"but got -3 for page {page} of sequence 0$"):
                    attention(one, case.k, case.v, **options)
                # As torch passes masks: as their texts.
                options["mask"] = flashattn.Mask(str(mask))
                with self.assertRaisesRegex(ArgumentError, f"but got -3 for page {page} of sequence 0$"):
                    attention(one, case.k, case.v, **options)
            else:
                attention(one, case.k, case.v, **options)
        # Queries at 0 and 1 see page 0 alone.
        early = {**case.options(), "align": "top_left", "page_table": case.table.copy()}
        early["page_table"][:, 1:] = 99
        attention(numpy.ascontiguousarray(case.q[:, :, :2]), case.k, case.v, **early)
        # The padding moves the keys to pages 2 and 3.
        moved = {**case.options(), "leftpad_k": i32([17, 17, 17]), "kv_len": i32([8, 8, 8]), "mask": None}
        moved["page_table"] = i32([[99, 99, 0, 1]] * 3)
        attention(case.q, case.k, case.v, **moved)
        moved["page_table"][1, 3] = 99
        with self.assertRaisesRegex(ArgumentError, "but got 99 for page 3 of sequence 1$"):
            attention(case.q, case.k, case.v, **moved)

    def test_tables(self):
        """A table may be a list, of i64, and a part of a larger table, which is not copied."""
        case = Paged(8, 4, [32, 32, 32], 2)
        options = case.options()
        wanted = attention(case.q, case.k, case.v, **options)[0]
        larger = numpy.full((3, 9), 99, numpy.int32)
        larger[:, :4] = case.table
        for table in (case.table.tolist(), case.table.astype(numpy.int64), larger[:, :4]):
            options["page_table"] = table
            self.assertTrue(numpy.array_equal(attention(case.q, case.k, case.v, **options)[0], wanted))

    def test_kernels(self):
        case = Paged(8, 4, [32, 9, 20], 6, causal)
        operands = {"page_table": True, "kv_len": True}
        kernel = compile(head_dim=16, dtype="f32", mask=causal, chip="cpu", rows="strided", page_size=8, **operands)
        out = numpy.empty_like(case.q)
        given = {"page_table": case.table, "kv_len": i32(case.lengths)}
        kernel.launch(case.q, case.k, case.v, out, **given)
        numpy.testing.assert_allclose(out, attention(case.q, case.k, case.v, **case.options())[0], atol=1e-5)
        with self.assertRaisesRegex(ArgumentError, "^expected the page size to be 8, as compiled, but got 16"):
            wide = numpy.zeros((4, 2, 16, 16), numpy.float32)
            kernel.launch(case.q, wide, wide, out, **given)
        slots = compile(head_dim=16, dtype="f32", chip="cpu", rows="strided", **operands)
        with self.assertRaisesRegex(ArgumentError, "^expected P to be 1, as compiled, but got 4"):
            slots.launch(case.q, case.k, case.v, out, **given)
        for bad in ({"page_size": 8}, {"page_size": 0, **operands}, {"page_size": True, **operands},
                    {"page_size": 1 << 31, **operands}, {"page_table": True}):  # fmt: skip
            with self.subTest(**bad), self.assertRaisesRegex(ArgumentError, "^expected .* but got "):
                compile(head_dim=16, dtype="f32", chip="cpu", **bad)

    def test_errors(self):
        case = Paged(8, 4, [32, 9, 20], 6, causal, layout="bshd")
        q, k, v, table = case.q, case.k, case.v, case.table
        starts = i32([0, 6, 12, 18])
        given = {"page_table": table, "kv_len": i32(case.lengths), "layout": "bshd"}
        thd = {**given, "layout": "thd"}
        flat = q.reshape(18, 4, 16)
        for message, call in (
            ("expected kv_len with page_table but got None",
             lambda: attention(q, k, v, page_table=table, layout="bshd")),
            ("expected 'page_table' with element type i32 but got f32",
             lambda: attention(q, k, v, **{**given, "page_table": table.astype(numpy.float32)})),
            ("expected 'page_table' with element type i32 but got i1",
             lambda: attention(q, k, v, **{**given, "page_table": table > 0})),
            ("expected 'page_table' of rank 2 but got rank 1",
             lambda: attention(q, k, v, **{**given, "page_table": table[0]})),
            ("expected batch size of 'page_table' to be 3 as in 'q' but got 2",
             lambda: attention(q, k, v, **{**given, "page_table": table[:2]})),
            ("expected batch size of 'kv_len' to be 3 as in 'q' but got 2",
             lambda: attention(q, k, v, **{**given, "kv_len": i32([1, 2])})),
            ("expected 'page_table' from -2147483648 to 2147483647 but got",
             lambda: attention(q, k, v, **{**given, "page_table": table.astype(numpy.int64) + (1 << 40)})),
            ("expected unit stride in the last dimension of 'page_table' but got 2",
             lambda: attention(q, k, v, **{**given, "page_table": numpy.repeat(table, 2, 1)[:, ::2]})),
            ("expected number of pages of 'v' to be 14 as in 'k' but got 13",
             lambda: attention(q, k, v[1:], **given)),
            ("expected page size of 'v' to be 8 as in 'k' but got 7",
             lambda: attention(q, k, v[:, :7], **given)),
            ("expected a page size of at least 1 but got 0",
             lambda: attention(q, k[:, :0], v[:, :0], **given)),
            ("expected head dimension of 'k' to be 16 as in 'q' but got 8",
             lambda: attention(q, k[..., :8], v, **given)),
            ("expected the query head count to be a multiple of the key/value head count, 2, but got 3",
             lambda: attention(q[:, :, :3], k, v, **given)),
            ("expected 'k' of rank 4 but got rank 3", lambda: attention(q, k[0], v, **given)),
            ("expected 'k' with element type f32 as in 'q', f8E4M3FN, f8E5M2 or i8 but got f16",
             lambda: attention(q, k.astype(numpy.float16), v, **given)),
            ("expected no page_table with cu_seqlens_k, which packs the keys, but got one",
             lambda: attention(flat, flat, flat, cu_seqlens_q=starts, cu_seqlens_k=starts, **thd)),
            ("expected no leftpad_k with cu_seqlens_k, which packs the keys, but got one",
             lambda: attention(flat, flat, flat, cu_seqlens_q=starts, cu_seqlens_k=starts, leftpad_k=i32([0] * 3),
                               layout="thd")),
            ("expected no bias with page_table but got one",
             lambda: attention(q, k, v, bias=numpy.zeros((6, 32), numpy.float32), **given)),
            ("expected no attn_mask with page_table but got one",
             lambda: attention(q, k, v, attn_mask=numpy.ones((6, 32), bool), **given)),
            ("expected no bias with leftpad_k but got one",
             lambda: attention(q, q, q, leftpad_k=i32([0] * 3), bias=numpy.zeros((6, 6), numpy.float32))),
            ("expected batch size of 'leftpad_k' to be 3 as in 'q' but got 1",
             lambda: attention(q, k, v, leftpad_k=i32([0]), **given)),
            ("expected 'leftpad_k' with element type i32 but got f32",
             lambda: attention(q, k, v, leftpad_k=numpy.zeros(3, numpy.float32), **given)),
            ("expected cu_seqlens_q with layout thd but got None", lambda: attention(flat, k, v, **thd)),
            ("expected batch size of 'page_table' to be 2 as in",
             lambda: attention(flat, k, v, cu_seqlens_q=i32([0, 6, 18]), **{**thd, "kv_len": i32([1, 1])})),
            ("expected 'page_table' to be an array of numpy",
             lambda: attention(q, k, v, **{**given, "page_table": "pages"})),
            ("expected 'page_table' to be an array but got lists of different lengths",
             lambda: attention(q, k, v, **{**given, "page_table": [[1], [1, 2], [3]]})),
            ("expected starts from 0 to 18 in 'cu_seqlens_q' but got 19",
             lambda: attention(flat, k, v, cu_seqlens_q=i32([0, 6, 12, 19]), **thd)),
            ("expected cu_seqlens_q with max_seqlen_q but got None",
             lambda: attention(q, k, v, max_seqlen_q=1, **given)),
            ("expected an integer of at least 0 as max_seqlen_q but got 'x'",
             lambda: attention(q, q, q, max_seqlen_q="x")),
            ("expected an integer of at least 0 as max_seqlen_q but got -1",
             lambda: attention(flat, k, v, cu_seqlens_q=starts, max_seqlen_q=-1, **thd)),
            ("expected an integer of at least 0 as max_seqlen_q but got True",
             lambda: attention(flat, k, v, cu_seqlens_q=starts, max_seqlen_q=True, **thd)),
            ("expected sequences of at most 4 rows in 'cu_seqlens_q', as in max_seqlen_q, but got 6",
             lambda: attention(flat, k, v, cu_seqlens_q=starts, max_seqlen_q=3, **thd)),
        ):  # fmt: skip
            with self.subTest(message=message):
                with self.assertRaises(FlashAttnError) as caught:
                    call()
                self.assertIn(message, str(caught.exception))
                self.assertRegex(str(caught.exception), "^expected .* but got ")
                self.assertNotIsInstance(caught.exception, (CompileError, UnsupportedError))
        lse = numpy.zeros((3, 4, 6), numpy.float32)
        for name in ("page_table", "leftpad_k"):
            with self.assertRaisesRegex(KeywordError, f"unexpected keyword argument '{name}'; expected none: only "):
                attention_backward(q, k, v, q, lse, q, layout="bshd", **{name: table})
        with self.assertRaisesRegex(KeywordError, "'block_table'; expected page_table="):
            attention(q, k, v, block_table=table)


if __name__ == "__main__":
    unittest.main()

# Packed sequences and lengths of queries on the CPU: each sequence has the bits that it has alone, in every
# layout, and rows of no sequence reach no other row, whatever they hold.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import itertools
import unittest

import flashattn
import numpy
from flashattn import (
    ArgumentError,
    FlashAttnError,
    KeywordError,
    UnsupportedError,
    attention,
    attention_backward,
    causal,
    compile,
    sink,
    window,
)
from flashattn import math as fm
from numbers_test import make, to_float

D, DV, HQ, HKV = 16, 24, 4, 2
#: Lengths of queries and keys: some of no row, some beyond a tile.
QUERIES, KEYS = (5, 0, 37, 1, 12, 0), (7, 4, 50, 0, 70, 0)
#: The packed calls and those of one sequence use one schedule, also where a sequence is short.
SCHEDULE = {"tile_m": 16, "tile_n": 32}


def i32(values):
    return numpy.array(values, numpy.int32)


def starts_of(lengths, first=0):
    return i32(numpy.cumsum([first, *lengths]))


def bits_of(x):
    return numpy.ascontiguousarray(x).view({2: numpy.uint16, 4: numpy.uint32}[x.itemsize])


class Sequences:
    """Sequences of random numbers. On each side, they are `packed` between rows of no sequence, or lie in one
    batch element each. All rows of no sequence hold NaN."""

    def __init__(self, element="f32", packed="qk", q_len=None, kv_len=None, seed=1):
        self.element, self.packed = element, packed
        self.generator = numpy.random.default_rng(seed)
        self.lengths = {"q": QUERIES, "k": KEYS}
        self.used = {
            side: [min(n, max(0, m)) for n, m in zip(lengths, given or lengths)]
            for (side, lengths), given in zip(self.lengths.items(), (q_len, kv_len))
        }
        if "q" not in packed:
            self.used["q"] = [min(n, max(QUERIES)) for n in q_len or [max(QUERIES)] * len(QUERIES)]
        if "k" not in packed:
            self.used["k"] = [min(n, max(KEYS)) for n in kv_len or [max(KEYS)] * len(KEYS)]
        self.starts = {"q": starts_of(QUERIES, 3), "k": starts_of(KEYS, 2)}
        self.operands = {}
        for side in packed:
            self.operands[f"cu_seqlens_{side}"] = self.starts[side]
        for name, given in (("q_len", q_len), ("kv_len", kv_len)):
            if given is not None:
                self.operands[name] = i32(given)
        self.q, self.k, self.v = (self.rows("q", HQ, D), self.rows("k", HKV, D), self.rows("k", HKV, DV))

    def rows(self, side, heads, width, element=None):
        """Returns an array `[T, H, width]`, or `[B, N, H, width]` for a side that is not packed."""
        length = max(self.lengths[side])
        shape = (
            (self.starts[side][-1] + 4, heads, width)
            if side in self.packed else (len(QUERIES), length, heads, width)
        )  # fmt: skip
        made, _ = make(self.generator, element or self.element, shape)
        poisoned = numpy.full_like(made, 0x7FFF if made.dtype == numpy.uint16 else numpy.nan)
        for b in range(len(QUERIES)):
            poisoned[self.at(side, b)] = made[self.at(side, b)]
        return poisoned

    def at(self, side, b):
        """Returns the index of the rows of sequence `b`."""
        if side not in self.packed:
            return b, slice(self.used[side][b])
        return slice(self.starts[side][b], self.starts[side][b] + self.used[side][b])

    def outside(self, side, shape):
        """Returns which rows of an array of this shape belong to no sequence."""
        found = numpy.ones(shape[: 1 if side in self.packed else 2], bool)
        for b in range(len(QUERIES)):
            found[self.at(side, b)] = False
        return found


class SequencesTest(unittest.TestCase):
    def equal(self, found, wanted):
        self.assertEqual(found.shape, wanted.shape)
        self.assertTrue(numpy.array_equal(*map(bits_of, (found, wanted))))

    def check(self, s, layout="thd", **options):
        """Checks one packed call, and its gradients, against calls of each sequence alone."""
        dtype = "bf16" if s.element == "bf16" else None
        call = {**options, "dtype": dtype}

        def lay(x):
            """From `[T, H, W]` or `[B, N, H, W]` to the layout."""
            if layout == "thd":
                return x
            x = x[None] if x.ndim == 3 else x
            return x if layout == "bshd" else x.swapaxes(1, 2)

        def back(x, side):
            """A view from the layout."""
            if layout == "thd":
                return x
            x = x if layout == "bshd" else x.swapaxes(1, 2)
            return x[0] if side in s.packed else x

        def rows_of(lse):
            """A view `[T, H]` or `[B, N, H]`."""
            lse = lse.swapaxes(-2, -1)
            return lse[0] if layout != "thd" and "q" in s.packed else lse

        inputs = tuple(map(lay, (s.q, s.k, s.v)))
        o, lse = attention(
            *inputs, layout=layout, return_lse=True, schedule=SCHEDULE, **s.operands, **call
        )
        self.assertEqual(o.shape, (*inputs[0].shape[:-1], DV))
        hidden = s.outside("q", back(o, "q").shape)
        self.assertTrue((back(o, "q")[hidden] == 0).all())
        self.assertTrue((rows_of(lse)[hidden] == -numpy.inf).all())
        alone = []
        for b in range(len(QUERIES)):
            at, keys = s.at("q", b), s.at("k", b)
            given = s.q[at][None], s.k[keys][None], s.v[keys][None]
            results = attention(*given, layout="bshd", return_lse=True, schedule=SCHEDULE, **call)
            self.equal(back(o, "q")[at], results[0][0])
            self.equal(rows_of(lse)[at].T, results[1][0])
            alone.append((*given, *results))

        d_o, d_lse = s.rows("q", HQ, DV), s.rows("q", HQ, 1, "f32")[..., 0]
        d_lse = numpy.ascontiguousarray(d_lse.swapaxes(-2, -1))
        if layout != "thd" and "q" in s.packed:
            d_lse = d_lse[None]
        back(o, "q")[hidden] = 0x7FFF if dtype else numpy.nan
        rows_of(lse)[hidden] = numpy.nan
        call.update(deterministic=True, return_d_sink_logits="sink_logits" in options)
        found = attention_backward(
            *inputs, o, lse, lay(d_o), d_lse=d_lse, layout=layout, **s.operands, **call
        )
        for gradient, like, side in zip(found, inputs, "qkk"):
            self.assertEqual(gradient.shape, like.shape)
            gradient = back(gradient, side)
            self.assertTrue((gradient[s.outside(side, gradient.shape)] == 0).all())
        d_sinks = []
        for b, given in enumerate(alone):
            at = s.at("q", b)
            sums = numpy.ascontiguousarray(rows_of(d_lse)[at].T)
            wanted = attention_backward(
                *given, d_o[at][None], d_lse=sums[None], layout="bshd", **call
            )
            for gradient, expected, side in zip(found, wanted[:3], "qkk"):
                self.equal(back(gradient, side)[s.at(side, b)], expected[0])
            d_sinks += wanted[3:]
        if d_sinks:
            numpy.testing.assert_allclose(found[3], sum(d_sinks), rtol=1e-4, atol=1e-5)

    def options(self):
        yield "plain", {}
        yield "causal", {"mask": causal}
        yield "window", {"mask": window(left=7, right=2)}
        yield "window and sinks", {"mask": window(left=5, right=0) | sink(2)}
        yield "top left", {"mask": causal, "align": "top_left"}
        yield "offset", {"mask": causal, "offset": 3}
        yield "softcap", {"softcap": 2.0, "mask": causal}
        yield "score_mod", {"score_mod": lambda s, b, h, p, k: s + fm.exp2(-(h + 1.0)) * (k - p)}
        yield "sink logits", {"sink_logits": numpy.linspace(-1, 1, HQ).astype(numpy.float32)}
        yield "scale", {"scale": 0.7}

    def test_packed_equals_alone(self):
        for name, options in self.options():
            with self.subTest(name):
                self.check(Sequences(), **options)

    def test_types_and_layouts(self):
        for element, layout in itertools.product(("f16", "bf16", "f32"), ("thd", "bshd", "bhsd")):
            with self.subTest(element=element, layout=layout):
                self.check(Sequences(element), layout, mask=causal)

    def test_lengths_in_use(self):
        """Tests lengths of packed rows, and of rows that are batched on one side or on both."""
        q_len, kv_len = [3, 9, 20, -4, 12, 1], [7, 1, 0, 5, 33, 99]
        cases = (
            ("qk", q_len, None), ("qk", None, kv_len), ("qk", q_len, kv_len), ("q", None, kv_len),
            ("q", q_len, None), ("k", q_len, None), ("", q_len, kv_len), ("", q_len, None),
        )  # fmt: skip
        for packed, of_queries, of_keys in cases:
            with self.subTest(packed=packed, q_len=of_queries, kv_len=of_keys):
                of_queries = of_queries and [max(0, n) for n in of_queries]
                s = Sequences(packed=packed, q_len=of_queries, kv_len=of_keys)
                self.check(s, "thd" if "q" in packed else "bshd", mask=causal)

    def test_negative_lengths(self):
        s = Sequences()
        lengths = i32([-3] * len(QUERIES))
        o, lse = attention(
            s.q, s.k, s.v, layout="thd", return_lse=True, **{**s.operands, "q_len": lengths}
        )
        self.assertTrue((o == 0).all() and (lse == -numpy.inf).all())
        s = Sequences(kv_len=[0] * len(QUERIES))
        o = attention(s.q, s.k, s.v, layout="thd", **{**s.operands, "kv_len": lengths})
        self.assertTrue((o == 0).all())

    def test_score_mods_count_sequences(self):
        """b is the sequence, and p and k count from its first row."""
        s = Sequences()
        o = attention(
            s.q, s.k, s.v, layout="thd", schedule=SCHEDULE, **s.operands,
            score_mod=lambda x, b, h, p, k: x + 0.5 * b * (k - p),
        )  # fmt: skip
        for b in range(len(QUERIES)):
            at, keys = s.at("q", b), s.at("k", b)
            alone = attention(
                s.q[at][None], s.k[keys][None], s.v[keys][None], layout="bshd", schedule=SCHEDULE,
                score_mod=lambda x, _, h, p, k, b=b: x + 0.5 * b * (k - p),
            )  # fmt: skip
            numpy.testing.assert_allclose(o[at], alone[0], rtol=1e-5, atol=1e-5)

    def test_views(self):
        """Rows of one packed tensor of q, k and v are read, and slices of another are written, in place."""
        s = Sequences()
        total = s.q.shape[0]
        qkv = s.generator.standard_normal((total, HQ + 2 * HKV, D)).astype(numpy.float32)
        outs = numpy.full((total, HQ + 2 * HKV, D), 7, numpy.float32)
        q, k, v = numpy.split(qkv, (HQ, HQ + HKV), axis=1)
        starts = {"cu_seqlens_q": s.starts["q"], "cu_seqlens_k": s.starts["q"]}
        wanted, wanted_lse = attention(
            *map(numpy.ascontiguousarray, (q, k, v)), layout="thd", mask=causal, return_lse=True, **starts
        )
        lse = numpy.empty((HQ, total), numpy.float32)
        for _ in range(2):
            made = attention(
                q, k, v, layout="thd", mask=causal, return_lse=True, out=(outs[:, :HQ], lse), **starts
            )
            self.assertIs(made[1], lse)
            self.equal(outs[:, :HQ], wanted)
            self.equal(lse, wanted_lse)
            self.assertTrue((outs[:, HQ:] == 7).all())
        d_o = s.generator.standard_normal(wanted.shape).astype(numpy.float32)
        grads = numpy.full_like(qkv, 7)
        out = tuple(numpy.split(grads, (HQ, HQ + HKV), axis=1))
        call = dict(layout="thd", mask=causal, deterministic=True, **starts)
        for _ in range(2):
            attention_backward(q, k, v, wanted, lse, d_o, out=out, **call)
        for found, gradient in zip(out, attention_backward(q, k, v, wanted, lse, d_o, **call)):
            self.equal(found, gradient)
        turned = attention(  # [1, H, T, D] of the same memory
            *(x.swapaxes(0, 1)[None] for x in (q, k, v)), mask=causal, **starts
        )
        self.equal(turned[0].swapaxes(0, 1), wanted)

    def test_one_plan_serves_all_starts(self):
        s = Sequences()
        call = dict(layout="thd", mask=causal, schedule=SCHEDULE)
        attention(s.q, s.k, s.v, **s.operands, **call)
        for lengths in ((50, 5, 0, 0, 0, 0), (1, 2, 3, 4, 5, 6)):
            starts = {"cu_seqlens_q": starts_of(lengths), "cu_seqlens_k": starts_of(lengths)}
            q, k, v = (numpy.nan_to_num(x) for x in (s.q, s.k, s.v))
            before = flashattn.cache_info()
            o = attention(q, k, v, **starts, **call)
            self.assertEqual(flashattn.cache_info().compiled, before.compiled)
            for first, last in zip(starts["cu_seqlens_q"], starts["cu_seqlens_q"][1:]):
                rows = slice(first, last)
                alone = attention(
                    q[None, rows], k[None, rows], v[None, rows], **{**call, "layout": "bshd"}
                )
                self.equal(o[rows], alone[0])

    def test_given_as_lists(self):
        s = Sequences()
        expected = attention(s.q, s.k, s.v, layout="thd", **s.operands)
        for convert in (list, lambda x: x.astype(numpy.int64), lambda x: x.astype(numpy.uint16)):
            given = {name: convert(x) for name, x in s.operands.items()}
            self.equal(attention(s.q, s.k, s.v, layout="thd", **given), expected)

    def test_no_rows(self):
        s = Sequences()
        o, lse = attention(
            s.q[:0], s.k, s.v, layout="thd", return_lse=True, cu_seqlens_q=[0, 0], cu_seqlens_k=[2, 9]
        )
        self.assertEqual((o.shape, lse.shape), ((0, HQ, DV), (HQ, 0)))
        o = attention(s.q, s.k[:0], s.v[:0], layout="thd", cu_seqlens_q=[3, 9], cu_seqlens_k=[0, 0])
        self.assertTrue((o == 0).all())

    def test_compile(self):
        s = Sequences()
        kernel = compile(
            head_dim=D, value_dim=DV, dtype="f32", chip="cpu", layout="bshd", mask=causal, return_lse=True,
            cu_seqlens_q=True, cu_seqlens_k=True,
        )  # fmt: skip
        o = numpy.empty((1, s.q.shape[0], HQ, DV), numpy.float32)
        lse = numpy.empty((1, HQ, s.q.shape[0]), numpy.float32)
        for _ in range(2):
            kernel.launch(s.q[None], s.k[None], s.v[None], o, lse, **s.operands)
        found = attention(s.q, s.k, s.v, layout="thd", mask=causal, return_lse=True, **s.operands)
        self.equal(o[0], found[0])
        self.equal(lse[0], found[1])

    def test_rows_of_others_change_no_bit(self):
        """S6: a warp changes the exponents of all of its rows if those of one grow, which must be a row of the same
        sequence."""
        random = numpy.random.default_rng(3)
        cu = numpy.array([0, 70, 90, 200, 300], numpy.int32)
        for dim, model in itertools.product((64, 128), ("model:sm_90a", "model:sm_80", None)):
            q, k, v = (random.standard_normal((1, 2, 300, dim)).astype(numpy.float16) for _ in "qkv")
            q[:, :, 70:90] *= 30
            q[:, :, 200:] *= 25
            k[:, :, 70:90] *= 3
            call = {"mask": causal, "return_lse": True, "device": model}
            o, lse = flashattn.attention(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, **call)
            for begin, end in zip(cu, cu[1:]):
                own = [numpy.ascontiguousarray(x[:, :, begin:end]) for x in (q, k, v)]
                starts = numpy.array([0, end - begin], numpy.int32)
                alone = flashattn.attention(*own, cu_seqlens_q=starts, cu_seqlens_k=starts, **call)
                for found, wanted in zip((o[:, :, begin:end], lse[:, :, begin:end]), alone):
                    numpy.testing.assert_array_equal(found, wanted, f"{dim} {model} {begin}")

    def test_models(self):
        """The kernels of GPUs, on their models."""
        s = Sequences("f16")
        expected = attention(s.q, s.k, s.v, layout="thd", mask=causal, **s.operands)
        for chip in ("sm_80", "sm_90a"):
            found = attention(
                s.q, s.k, s.v, layout="thd", mask=causal, device=f"model:{chip}", **s.operands
            )
            numpy.testing.assert_allclose(
                to_float(found, "f16"), to_float(expected, "f16"), atol=2e-3, err_msg=chip
            )


def zeros(*shape, dtype=numpy.float32):
    return numpy.zeros(shape, dtype)


Q, K = zeros(12, 4, 16), zeros(20, 2, 16)
SELF = {"cu_seqlens_q": [0, 5, 12], "cu_seqlens_k": [0, 9, 20]}


def packed(q=Q, k=K, v=K, layout="thd", **changes):
    return lambda: attention(q, k, v, layout=layout, **{**SELF, **changes})


class OnCUDA:
    def __init__(self, size):
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "<i4", "data": (4096, False), "version": 3,
        }  # fmt: skip


CASES = [
    (packed(cu_seqlens_q=None), ArgumentError, "expected cu_seqlens_q with layout thd but got None"),
    (packed(q=Q[None]), ArgumentError, "expected 'q' of rank 3 but got rank 4"),
    (packed(k=K[None], v=K[None]), ArgumentError, "expected 'k' of rank 3 but got rank 4"),
    (packed(cu_seqlens_k=None), ArgumentError, "expected 'k' of rank 4 but got rank 3"),
    (
        packed(q=zeros(2, 12, 4, 16), k=K[None], v=K[None], layout="bshd"),
        ArgumentError,
        "expected batch size of 'q' to be 1, as its sequences are packed, but got 2",
    ),
    (
        packed(q=zeros(2, 12, 4, 16), k=zeros(2, 20, 2, 16), v=zeros(2, 20, 2, 16), layout="bshd", cu_seqlens_q=None),
        ArgumentError,
        "expected batch size of 'k' to be 1, as its sequences are packed, but got 2",
    ),
    (packed(cu_seqlens_q=[0]), ArgumentError, "expected at least 2 starts in 'cu_seqlens_q' but got 1"),
    (packed(cu_seqlens_k=[]), ArgumentError, "expected 'cu_seqlens_k' with element type i32 but got float64"),
    (packed(cu_seqlens_k=zeros(0, dtype=numpy.int32)), ArgumentError, "expected at least 2 starts in 'cu_seqlens_k' but got 0"),
    (
        packed(cu_seqlens_k=[0, 20]),
        ArgumentError,
        "expected 3 starts in 'cu_seqlens_k', as in 'cu_seqlens_q', but got 2",
    ),
    (
        packed(k=zeros(3, 20, 2, 16), v=zeros(3, 20, 2, 16), cu_seqlens_k=None),
        ArgumentError,
        "expected 4 starts in 'cu_seqlens_q', for batch size 3 of 'k', but got 3",
    ),
    (packed(kv_len=[1, 2, 3]), ArgumentError, "expected 4 starts in 'cu_seqlens_q', for batch size 3 of 'kv_len', but got 3"),
    (packed(cu_seqlens_q=[0, 5, 13]), ArgumentError, "expected starts from 0 to 12 in 'cu_seqlens_q' but got 13"),
    (packed(cu_seqlens_q=[-1, 5, 12]), ArgumentError, "expected starts from 0 to 12 in 'cu_seqlens_q' but got -1"),
    (packed(cu_seqlens_k=[0, 9, 8]), ArgumentError, "expected starts that do not decrease in 'cu_seqlens_k' but got 8 after 9"),
    (packed(cu_seqlens_q=[0, 5, 1 << 31]), ArgumentError, "expected 'cu_seqlens_q' from -2147483648 to 2147483647 but got 0 to 2147483648"),
    (packed(cu_seqlens_q=[[0, 5, 12]]), ArgumentError, "expected 'cu_seqlens_q' of rank 1 but got rank 2"),
    (packed(cu_seqlens_q=[0.0, 5.0, 12.0]), ArgumentError, "expected 'cu_seqlens_q' with element type i32 but got float64; convert it"),
    (packed(cu_seqlens_q=12), ArgumentError, "expected 'cu_seqlens_q' to be an array of numpy"),
    (packed(cu_seqlens_k=OnCUDA(3)), ArgumentError, "expected 'cu_seqlens_k' on the CPU as 'q' but got cuda:0"),
    (
        packed(cu_seqlens_q=zeros(6, dtype=numpy.int32)[::2]),
        ArgumentError,
        "expected unit stride in the last dimension of 'cu_seqlens_q' but got 2",
    ),
    (packed(q_len=[5, 7, 0]), ArgumentError, "expected 4 starts in 'cu_seqlens_q', for batch size 3 of 'q_len', but got 3"),
    (packed(bias=zeros(12, 20)), ArgumentError, "expected no bias with cu_seqlens_q but got one; mask= and score_mod="),
    (packed(attn_mask=zeros(12, 20, dtype=bool)), ArgumentError, "expected no attn_mask with cu_seqlens_q but got one"),
    (
        lambda: attention(Q[None], Q[None], Q[None], layout="bshd", q_len=[4], bias=zeros(12, 12)),
        ArgumentError,
        "expected no bias with q_len but got one",
    ),
    (
        lambda: attention(Q[None], Q[None], Q[None], layout="bshd", q_len=[4, 5]),
        ArgumentError,
        "expected batch size of 'q_len' to be 1 as in 'q' but got 2",
    ),
    (packed(out=zeros(1, 12, 4, 16)), ArgumentError, "expected shape [12, 4, 16] of 'o' but got [1, 12, 4, 16]"),
    (
        packed(out=(zeros(12, 4, 16), zeros(12, 4)), return_lse=True),
        ArgumentError,
        "expected shape [4, 12] of 'lse' but got [12, 4]",
    ),
    (
        lambda: attention_backward(Q, K, K, Q, zeros(12, 4), Q, layout="thd", **SELF),
        ArgumentError,
        "expected head count of 'lse' to be 4 as in 'q' but got 12",
    ),
    (
        lambda: attention_backward(Q, K, K, Q, zeros(1, 4, 12), Q, layout="thd", **SELF),
        ArgumentError,
        "expected 'lse' of rank 2 but got rank 3",
    ),
    (
        lambda: compile(head_dim=16, chip="cpu", layout="thd", cu_seqlens_q=True),
        ArgumentError,
        "expected layout bhsd or bshd but got 'thd'",
    ),
    (
        lambda: compile(head_dim=16, chip="cpu", queries=1, cu_seqlens_q=True, cu_seqlens_k=True),
        ArgumentError,
        "expected no queries with cu_seqlens_k but got 1",
    ),
    (
        lambda: compile(head_dim=16, chip="cpu", q_len=True, bias=("f32", (None,) * 4)),
        ArgumentError,
        "expected no bias with q_len but got one",
    ),
    (packed(cu_seqlens=[0, 12]), KeywordError, "unexpected keyword argument 'cu_seqlens'; expected cu_seqlens_"),
    (packed(seqused_q=[5, 7]), KeywordError, "unexpected keyword argument 'seqused_q'; expected q_len="),
    (packed(q=Q.astype(float)), UnsupportedError, "f32, f8E4M3FN or f8E5M2 but got float64"),
]


class SequenceErrorsTest(unittest.TestCase):
    def test_messages(self):
        for number, (call, kind, message) in enumerate(CASES):
            with self.subTest(number=number, message=message):
                with self.assertRaises(kind) as caught:
                    call()
                self.assertIn(message, str(caught.exception))
                self.assertIsInstance(caught.exception, FlashAttnError)

    def test_each_call_is_checked(self):
        """Also calls with tensors of the same types, sizes and strides as those of an earlier call."""
        good = {name: numpy.array(starts, numpy.int32) for name, starts in SELF.items()}
        wrong = (
            ("cu_seqlens_q", [0, 5, 13], "expected starts from 0 to 12 in 'cu_seqlens_q' but got 13"),
            ("cu_seqlens_q", [0, 5, 4], "expected starts that do not decrease in 'cu_seqlens_q' but got 4 after 5"),
            ("cu_seqlens_k", [-1, 9, 20], "expected starts from 0 to 20 in 'cu_seqlens_k' but got -1"),
            ("cu_seqlens_k", [0, 21, 20], "expected starts from 0 to 20 in 'cu_seqlens_k' but got 21"),
        )
        o, lse = attention(Q, K, K, return_lse=True, layout="thd", **good)
        kernel = compile(
            head_dim=16, dtype="f32", chip="cpu", layout="bshd", cu_seqlens_q=True, cu_seqlens_k=True
        )
        half = [x.astype(numpy.float16) for x in (Q, K, K)]
        swapped = [x.swapaxes(0, 1)[None] for x in (Q, K, K)]
        calls = {
            "forward": lambda starts: attention(Q, K, K, layout="thd", **starts),
            "bhsd": lambda starts: attention(*swapped, **starts),
            "out": lambda starts: attention(Q, K, K, layout="thd", out=o, **starts),
            "backward": lambda starts: attention_backward(Q, K, K, o, lse, o, layout="thd", **starts),
            "gradient of lse": lambda starts: attention_backward(
                Q, K, K, o, lse, o, d_lse=lse, layout="thd", **starts
            ),
            "kernel": lambda starts: kernel.launch(Q[None], K[None], K[None], o[None], **starts),
            "model": lambda starts: attention(*half, layout="thd", device="model:sm_80", **starts),
        }
        for call, run in calls.items():
            run(good)
            for name, starts, message in wrong:
                with self.subTest(call=call, message=message):
                    with self.assertRaises(ArgumentError) as caught:
                        run({**good, name: numpy.array(starts, numpy.int32)})
                    self.assertIn(message, str(caught.exception))
            run(good)


if __name__ == "__main__":
    unittest.main()

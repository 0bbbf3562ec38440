# Keys and values of 8 bits with scales: random calls, with NumPy and PyTorch, against float64 of the scaled values;
# every code of each type; and scales of 0, infinity and NaN. FLASHATTN_TEST_COUNT, _SEED and _DEVICE choose other ones.
# REQUIRES: python-package, torch, jax
# RUN: %flashattn_python %s

import os
import random
import unittest

import ml_dtypes
import numpy
import torch
from flashattn import ArgumentError, _reference, attention, causal, compile, sink, window

COUNT = int(os.environ.get("FLASHATTN_TEST_COUNT", "40"))
SEED = int(os.environ.get("FLASHATTN_TEST_SEED", "54"))
#: "cuda" runs the cases of PyTorch on a GPU.
DEVICE = os.environ.get("FLASHATTN_TEST_DEVICE", "cpu")
NARROW = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "i8": numpy.int8}
FLOATS = {"f16": numpy.float16, "bf16": ml_dtypes.bfloat16, "f32": numpy.float32}
#: Bounds of errors, in units of the greatest value.
BOUNDS = {"f16": 4e-3, "bf16": 3e-2, "f32": 4e-5}


def as_torch(array):
    """A tensor of the same type, strides and memory on the device."""
    name = array.dtype.name
    bits = {"float8_e4m3fn": numpy.uint8, "float8_e5m2": numpy.uint8, "bfloat16": numpy.uint16}.get(name)
    tensor = torch.from_numpy(array.view(bits) if bits else array)
    tensor = tensor.view(getattr(torch, name)) if bits else tensor
    if DEVICE == "cpu":
        return tensor
    # Expanded and strided tensors stay so.
    size = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
    flat = tensor.as_strided((size,), (1,)).to(DEVICE)
    return flat.as_strided(tensor.shape, tensor.stride())


class Case:
    """One random call, and what it stands for: the keys and values of each sequence."""

    def __init__(self, rng, is_cuda):
        self.rng, self.numbers = rng, numpy.random.default_rng(rng.randrange(1 << 30))
        self.q_type = rng.choice(["f16", "bf16"] if is_cuda else ["f32", "f32", "f16", "bf16"])
        self.kv_heads, self.group = rng.choice([1, 2, 3]), rng.choice([1, 1, 2, 4])
        self.heads = self.kv_heads * self.group
        self.d, self.dv = rng.choice([(16, 16), (32, 32), (64, 64), (64, 32), (32, 64), (48, 16), (128, 128)])
        self.layout = rng.choice(["bhsd", "bshd"])
        self.place = rng.choice(["dense", "dense", "leftpad", "packed", "queries", "pages", "pages", "slots"])
        self.batch = rng.choice([1, 2, 3])
        self.options = {"mask": rng.choice([None, causal, causal, window(5, 0), sink(2) & causal, window(3, 4)])}
        self.options.update(scale=rng.choice([None, 0.3]), softcap=rng.choice([None, None, None, 3.0]))
        queries = rng.choice([1, 1, 2, 4, 5, 16, 17, 40])
        self.queries, self.lengths = [queries] * self.batch, [rng.choice([1, 3, 16, 17, 33, 70])] * self.batch
        has_lengths = self.place not in ("dense", "packed") or rng.random() < 0.4
        if has_lengths or self.place == "packed":
            self.lengths = [rng.randrange(rng.choice([0, 1]), 71) for _ in range(self.batch)]
        self.is_packed = self.place in ("packed", "queries") or (self.place == "pages" and rng.random() < 0.5)
        if self.is_packed:
            self.queries = [rng.choice([0, 1, 1, 3, queries]) for _ in range(self.batch)]
            self.layout = rng.choice([self.layout, "thd"])
        self.capacity = max([*self.lengths, 1]) + (rng.choice([0, 0, 5]) if has_lengths else 0)
        self.place_rows()
        if has_lengths and self.place != "packed":
            self.options["kv_len"] = numpy.array(self.lengths, numpy.int32)
        self.q = self.make_queries()
        self.k, k_scale, self.keys = self.make_rows(self.d)
        self.v, v_scale, self.values = self.make_rows(self.dv)
        scales = {"k_scale": k_scale, "v_scale": v_scale}
        self.options.update({name: x for name, x in scales.items() if x is not None})

    def place_rows(self):
        """Chooses the places of rows: `rows[b]` are pairs of the first index and the row."""
        rng, batch = self.rng, self.batch
        sizes = (batch, self.capacity)
        rows = [[(b, j) for j in range(n)] for b, n in enumerate(self.lengths)]
        if self.place == "leftpad":
            padding = [rng.randrange(4) for _ in range(batch)]
            rows = [[(b, j + padding[b]) for _, j in own] for b, own in enumerate(rows)]
            sizes = (batch, self.capacity + max(padding))
            self.options["leftpad_k"] = numpy.array(padding, numpy.int32)
        elif self.place == "packed":
            starts = numpy.cumsum([0, *self.lengths])
            rows = [[(0, starts[b] + j) for _, j in own] for b, own in enumerate(rows)]
            sizes = (1, starts[-1] + rng.choice([0, 2]))
            self.options["cu_seqlens_k"] = starts.astype(numpy.int32)
        elif self.place in ("pages", "slots"):
            size = self.capacity if self.place == "slots" else rng.choice([1, 4, 8, 16])
            columns = -(-self.capacity // size)
            pages = batch * columns + 2
            table = self.numbers.permutation(pages)[: batch * columns].reshape(batch, columns)
            rows = [[(table[b, j // size], j % size) for _, j in own] for b, own in enumerate(rows)]
            sizes = (pages, size)
            self.options["page_table"] = table.astype(numpy.int32)
        self.sizes, self.rows = sizes, rows
        if self.is_packed:
            self.options["cu_seqlens_q"] = numpy.cumsum([0, *self.queries]).astype(numpy.int32)
        self.options["layout"] = self.layout

    def arrange(self, x):
        """An array `[B, N, H, …]` in the layout, of dense or other strides."""
        if self.rng.random() < 0.3:
            wide = numpy.zeros((x.shape[0], x.shape[1] + 1, x.shape[2] + 1, x.shape[3]), x.dtype)
            wide[:, : x.shape[1], : x.shape[2]] = x
            x = wide[:, : x.shape[1], : x.shape[2]]
        elif self.layout == "bhsd":
            x = numpy.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)
        return x.swapaxes(1, 2) if self.layout == "bhsd" else x

    def make_queries(self):
        shape = (1, sum(self.queries)) if self.is_packed else (self.batch, self.queries[0])
        x = self.numbers.standard_normal((*shape, self.heads, self.d)).astype(FLOATS[self.q_type])
        x = self.arrange(x)
        return x[0] if self.layout == "thd" else x

    def make_rows(self, width):
        """Returns stored rows, scales, and the values of each sequence, `[n, H, width]`."""
        rng, heads = self.rng, self.kv_heads
        kind = rng.choice([*NARROW, *NARROW, self.q_type])
        dtype = NARROW.get(kind) or FLOATS[kind]
        stored = numpy.full((*self.sizes, heads, width), numpy.nan if kind not in NARROW else 0, dtype)
        if kind in NARROW:
            stored.view(numpy.uint8)[...] = 0x7F  # a NaN, but of int8
        for own in self.rows:
            for at in own:
                if kind == "i8":
                    stored[at] = self.numbers.integers(-127, 128, (heads, width))
                else:
                    stored[at] = (2 * self.numbers.standard_normal((heads, width))).astype(dtype)
        scale, factors = (None, lambda b, at: 1.0) if kind not in NARROW else self.make_scale(kind, width)
        values = [
            numpy.array([stored[at].astype(numpy.float64) * factors(b, at) for at in own]).reshape(-1, heads, width)
            for b, own in enumerate(self.rows)
        ]
        stored = self.arrange(stored)
        if self.layout == "thd" and self.place == "packed":
            stored = stored[0]
        return stored, scale, values

    def make_scale(self, kind, width):
        """Returns a scale as a call takes it, and a function from the sequence and place of a row to its factors."""
        rng, unit = self.rng, 1 / 64 if kind == "i8" else 0.5

        def draw(*shape):
            return ((0.5 + self.numbers.random(shape)) * unit).astype(numpy.float32)

        form = rng.choice(["none", "number", "pairs", "sequences", "rows", "rows"])
        if form == "none" and kind != "i8":
            return None, lambda b, at: 1.0
        if form in ("none", "number"):
            number = float(draw())
            given = rng.choice([number, numpy.float32(number), numpy.array(number, numpy.float32)])
            return given, lambda b, at: numpy.float64(numpy.float32(number))
        blocks = rng.choice([1, *(n for n in (2, 3, 4, 8) if width % (16 * n) == 0)])
        heads = rng.choice([1, self.kv_heads, self.kv_heads])
        if form == "pairs":
            scale = draw(rng.choice([1, self.batch]), heads)
            return scale, lambda b, at: scale[b % len(scale)].astype(numpy.float64)[:, None]

        def spread(factors):
            return numpy.repeat(factors.astype(numpy.float64), width // blocks, -1)

        if form == "sequences":
            scale = draw(rng.choice([1, self.batch]), 1, heads, blocks)
            if rng.random() < 0.2:
                scale = numpy.lib.stride_tricks.as_strided(scale, scale.shape, (*scale.strides[:-1], 0))  # expanded
            return self.arrange_scale(scale), lambda b, at: spread(scale[b % len(scale), 0])
        whole = draw(*self.sizes, heads, blocks)
        if self.sizes[1] == 1 and self.sizes[0] in (1, self.batch):  # a scale for all rows of a sequence
            return self.arrange_scale(whole), lambda b, at: spread(whole[b % len(whole), 0])
        scale = numpy.full_like(whole, numpy.nan)
        for at in (at for own in self.rows for at in own):
            scale[at] = whole[at]
        return self.arrange_scale(scale), lambda b, at: spread(whole[at])

    def arrange_scale(self, scale):
        if self.layout == "bhsd":
            return scale.swapaxes(1, 2)
        return scale[0] if self.layout == "thd" and self.place == "packed" and len(scale) == 1 else scale

    def wanted(self):
        """o, `[rows, H, Dv]`, and lse, `[H, rows]`, of all sequences, in float64."""
        q = self.q if self.layout != "bhsd" else self.q.swapaxes(1, 2)
        q = q.reshape(-1, self.heads, self.d).astype(numpy.float64)
        scale, mask = self.options["scale"] or self.d**-0.5, self.options["mask"]
        o, lse = numpy.zeros((len(q), self.heads, self.dv)), numpy.full((self.heads, len(q)), -numpy.inf)
        first = 0
        for b, count in enumerate(self.queries):
            keys = self.lengths[b]
            positions = numpy.arange(count)[:, None] + keys - count
            seen = _reference.visible(mask, positions, numpy.arange(keys)[None], count, keys)
            for h in range(self.heads):
                own = slice(first, first + count)
                o[own, h], lse[h, own] = _reference.attention_head(
                    q[own, h], self.keys[b][:, h // self.group], self.values[b][:, h // self.group], seen, scale,
                    softcap=self.options["softcap"],
                )  # fmt: skip
            first += count
        return o, lse

    def check(self, library):
        given = {name: as_torch(x) if library is torch and isinstance(x, numpy.ndarray) else x
                 for name, x in self.options.items()}  # fmt: skip
        if library is torch:
            given = {name: float(x) if isinstance(x, numpy.generic) else x for name, x in given.items()}
        rows = [as_torch(x) if library is torch else x for x in (self.q, self.k, self.v)]
        o, lse = attention(*rows, return_lse=True, **given)
        if library is torch:
            o, lse = o.float().cpu().numpy(), lse.cpu().numpy()
        if self.layout == "bhsd":
            o = o.swapaxes(1, 2)
        o = o.reshape(-1, self.heads, self.dv).astype(numpy.float64)
        lse = lse if lse.ndim == 2 else lse.swapaxes(0, 1)
        lse = lse.reshape(self.heads, -1)
        exact, exact_lse = self.wanted()
        most = max([1.0, *(numpy.abs(x).max(initial=0) for x in self.values)])
        # A GPU rounds scaled values to the type of q.
        bound = BOUNDS[self.q_type] * most
        numpy.testing.assert_allclose(o, exact, atol=bound, rtol=bound)
        numpy.testing.assert_allclose(lse, exact_lse, atol=bound, rtol=bound)

    def __str__(self):
        shown = {name: getattr(x, "shape", x) for name, x in self.options.items()}
        types = [x.dtype.name for x in (self.q, self.k, self.v)]
        return f"{self.place} {types} {self.q.shape} {self.k.shape} {self.v.shape} {shown}"


class FP8Test(unittest.TestCase):
    def run_cases(self, seed, count, library):
        for number in range(count):
            rng = random.Random(f"{SEED} {seed} {number}")
            case = Case(rng, library is torch and DEVICE != "cpu")
            with self.subTest(number=number, case=str(case)):
                case.check(library)

    def test_numpy(self):
        if DEVICE == "cpu":
            self.run_cases("numpy", COUNT * 2 // 3, numpy)

    def test_torch(self):
        self.run_cases("torch", COUNT // 3 if DEVICE == "cpu" else COUNT, torch)

    def test_every_code(self):
        """With one key, o is the value of that key."""
        codes = numpy.arange(256, dtype=numpy.uint8).reshape(1, 1, 1, 256)
        for q_type in ("f32", "f16", "bf16"):
            q = numpy.ones((1, 1, 1, 16), FLOATS[q_type])
            k = numpy.zeros((1, 1, 1, 16), NARROW["e4m3"])
            for kind, dtype in NARROW.items():
                for scale in (None, 0.5, 3.0, numpy.linspace(0.5, 2, 16, dtype=numpy.float32).reshape(1, 1, 1, 16)):
                    with self.subTest(q_type=q_type, kind=kind, scale=scale):
                        found = attention(q, k, codes.view(dtype), v_scale=scale, mask=None)
                        factor = 1.0 if scale is None else scale
                        if isinstance(scale, numpy.ndarray):
                            factor = numpy.repeat(scale, 16, -1)
                        with numpy.errstate(over="ignore", invalid="ignore"):
                            wanted = (codes.view(dtype).astype(numpy.float32) * factor).astype(FLOATS[q_type])
                        numpy.testing.assert_array_equal(found.astype(numpy.float32), wanted.astype(numpy.float32))

    def test_scales_are_any_numbers(self):
        numbers = numpy.random.default_rng(3)
        q, k, v = (numbers.standard_normal((1, 1, n, 16)).astype(numpy.float32) for n in (3, 6, 6))
        k, v = k.astype(NARROW["e4m3"]), numpy.abs(v).astype(NARROW["e5m2"])
        mean = numpy.broadcast_to(v.astype(numpy.float32).mean(2, keepdims=True), (1, 1, 3, 16))
        numpy.testing.assert_allclose(attention(q, k, v, k_scale=0.0), mean, rtol=1e-6)
        self.assertEqual(numpy.abs(attention(q, k, v, v_scale=0)).max(), 0)
        self.assertTrue(numpy.isnan(attention(q, k, v, v_scale=float("nan"))).all())
        self.assertTrue(numpy.isnan(attention(q, k, v, k_scale=float("nan"))).all())
        rows = numpy.ones((1, 1, 6, 1), numpy.float32)
        rows[0, 0, 4:] = numpy.nan
        wanted = attention(q, k[:, :, :4], v[:, :, :4])
        numpy.testing.assert_allclose(
            attention(q, k, v, k_scale=rows, v_scale=rows, kv_len=[4], align="top_left"), wanted, rtol=1e-6
        )
        rows[0, 0, 3:] = numpy.inf
        found = attention(q, k, v, v_scale=rows, kv_len=[4])
        self.assertFalse(numpy.isfinite(found).any())
        negative = attention(q, k, v, v_scale=-2.0)
        numpy.testing.assert_allclose(negative, -2 * attention(q, k, v), rtol=1e-6)

    def test_kernels_are_compiled_ahead(self):
        numbers = numpy.random.default_rng(4)
        q = numbers.standard_normal((2, 5, 4, 32)).astype(numpy.float16)
        k, v = (numbers.standard_normal((2, 9, 2, n)).astype(numpy.float32) for n in (32, 64))
        k, v = k.astype(NARROW["e5m2"]), (20 * v).astype(numpy.int8)
        scales = numbers.random((2, 9, 2, 2)).astype(numpy.float32), numbers.random((2, 2)).astype(numpy.float32)
        kernel = compile(
            head_dim=32, value_dim=64, dtype="f16", k_dtype=NARROW["e5m2"], v_dtype="int8", layout="bshd",
            k_scale=(None, None, None, 2), v_scale=(None, 1, None, 1), chip="cpu", rows="strided",
        )  # fmt: skip
        wanted = attention(q, k, v, k_scale=scales[0], v_scale=scales[1], layout="bshd")
        out = numpy.empty_like(wanted)
        for _ in range(2):
            kernel.launch(q, k, v, out, k_scale=scales[0], v_scale=scales[1])
            numpy.testing.assert_array_equal(out, wanted)
        # Sizes of 1 where the kernel broadcasts nothing.
        small = q[:1, :, :2], k[:1, :1, :1], v[:1, :1, :1]
        scales = scales[0][:1, :1, :1], scales[1][:1, :1]
        wanted = attention(*small, k_scale=scales[0], v_scale=scales[1], layout="bshd")
        out = numpy.empty_like(wanted)
        kernel.launch(*small, out, k_scale=scales[0], v_scale=scales[1])
        numpy.testing.assert_array_equal(out, wanted)
        with self.assertRaisesRegex(ArgumentError, "expected batch size of .*'v_scale'.* to be 2 .*but got 1"):
            out = numpy.empty((2, 5, 4, 64), q.dtype)
            kernel.launch(q, k, v, out, k_scale=numpy.ones((2, 9, 2, 2)), v_scale=scales[1])
        self.assertIn("f8E5M2", kernel.mlir)
        self.assertIn("xi8", kernel.mlir)

    def test_kernels_for_queries_of_f8(self):
        numbers = numpy.random.default_rng(5)
        q, k, v = (
            numbers.standard_normal((2, h, n, 32)).astype(NARROW["e4m3"]) for h, n in ((4, 5), (2, 9), (2, 9))
        )
        scale = numbers.random((2, 2)).astype(numpy.float32)
        for out_dtype in ("f16", "f32"):
            kernel = compile(
                head_dim=32, dtype="float8_e4m3fn", out_dtype=out_dtype, k_scale=(None, None, 1, 1), chip="cpu"
            )
            out = numpy.empty(q.shape, out_dtype.replace("f", "float"))
            kernel.launch(q, k, v, out, k_scale=scale)
            wanted = attention(q, k, v, k_scale=scale, out=numpy.empty_like(out))
            numpy.testing.assert_array_equal(out, wanted)
        self.assertIn("xbf16", compile(head_dim=64, dtype="float8_e4m3fn", chip="sm_90a").mlir)
        half = compile(head_dim=32, out_dtype="f32", chip="cpu")
        rows = [x.astype(numpy.float16) for x in (q, k, v)]
        half.launch(*rows, out)
        numpy.testing.assert_array_equal(out, attention(*rows, out=numpy.empty_like(out)))


if __name__ == "__main__":
    unittest.main()

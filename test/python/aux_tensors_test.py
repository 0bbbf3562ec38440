# aux_tensors, which a score_mod reads by batch and head (rule A10): values and gradients on the CPU and on models of both
# kinds of GPU, against float64; that no other memory is read; what is traced; and what is refused.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import itertools
import unittest

import flashattn
import numpy
from flashattn import ArgumentError, CompileError, FlashAttnError, TraceError, UnsupportedError
from flashattn import _aux, _module, _reference, _trace, causal, window

DEVICES = (None, "model:sm_80", "model:sm_90a")


def slopes_of_heads(score, b, h, p, k, slopes):
    return score + slopes[h] * (k - p)


def by_both(score, b, h, p, k, factors, slopes, shift):
    return score * factors[b] + slopes[b, h] * (k - p) + shift[()]


class AuxTensors(unittest.TestCase):
    def setUp(self):
        self.random = numpy.random.default_rng(7)

    def noise(self, *shape, kind=numpy.float32):
        return self.random.standard_normal(shape).astype(kind)

    def between_nan(self, *shape, kind=numpy.float32):
        """An array between NaNs in memory, which no kernel reads."""
        count = int(numpy.prod(shape))
        memory = numpy.full(count + 64, numpy.nan, kind)
        found = memory[32 : 32 + count].reshape(shape)
        found[...] = self.random.uniform(-0.5, 0.5, shape)
        return found

    def check_gradients(self, found, exact, naive, element):
        for name, x, y, z in zip(("dq", "dk", "dv"), found, exact, naive):
            reason = _reference.explain_gradient(x, y, z, element)
            self.assertFalse(reason, f"{name}: {reason}")

    def check(
        self, modify_of, score_mod, aux, q, k, v, mask, device, lengths=None, is_forward=False, **options
    ):  # fmt: skip
        """Checks o and, unless `is_forward`, the gradients of `[B, H, N, D]`. `modify_of(b, h, p, j)` is the
        score_mod of a head at arrays of positions and keys, a function of scores."""
        element = {"float16": "f16", "float32": "f32"}[str(q.dtype)]
        given = dict(mask=mask, score_mod=score_mod, aux_tensors=aux, device=device, **options)
        o, lse = flashattn.attention(q, k, v, return_lse=True, **given)
        do = self.noise(*o.shape, kind=q.dtype)
        # One row is a small sample of errors.
        slack = 2 if is_forward else 1
        found = None if is_forward else flashattn.attention_backward(q, k, v, o, lse, do, **given)
        group = q.shape[1] // k.shape[1]
        sums = [[numpy.zeros(x.shape, kind) for x in (q, k, v)] for kind in (numpy.float64, numpy.float32)]
        for b, h in itertools.product(range(q.shape[0]), range(q.shape[1])):
            count = k.shape[2] if lengths is None else lengths[b]
            shift = count - q.shape[2]
            p, j = numpy.arange(q.shape[2])[:, None] + shift, numpy.arange(count)[None]
            seen = numpy.broadcast_to(_reference.visible(mask, p, j, q.shape[2], count), (len(p), count))
            modify = modify_of(b, h, p, j)
            g = h // group
            rows = q[b, h], k[b, g, :count], v[b, g, :count]
            scale = q.shape[3] ** -0.5
            error, bound = _reference.check_head(
                o[b, h], *(x.astype(numpy.float32) for x in rows), seen, scale, element, modify=modify
            )
            self.assertLessEqual(error, slack * bound, (b, h))
            for total, round_to in zip(sums, (None, _reference.rounder(element))):
                kind = total[0].dtype
                x, y, z, d = (a.astype(kind) for a in (*rows, do[b, h]))
                out, logs = _reference.attention_head(x, y, z, seen, scale, modify=modify)
                if round_to:
                    out, logs = (a.astype(kind) for a in (o[b, h], lse[b, h]))
                delta = (d * out).sum(axis=1)
                part = _reference.head_gradients(x, y, z, d, logs, delta, seen, scale, round_to, modify=modify)
                total[0][b, h] += part.dq
                total[1][b, g, :count] += part.dk
                total[2][b, g, :count] += part.dv
        if found:
            self.check_gradients(found, *sums, element)

    def test_values_and_gradients(self):
        for device, (nq, nk, d), kind in (
            *((device, (70, 70, 64), numpy.float16) for device in DEVICES),
            (None, (33, 90, 128), numpy.float32),
            ("model:sm_80", (33, 90, 128), numpy.float16),
            ("model:sm_90a", (140, 200, 128), numpy.float16),
        ):
            with self.subTest(device=device, nq=nq, nk=nk, d=d, kind=kind.__name__):
                q, k, v = (self.noise(2, h, n, d, kind=kind) for h, n in ((4, nq), (2, nk), (2, nk)))
                slopes = self.between_nan(4)
                self.check(
                    lambda b, h, p, j: lambda s: s + slopes[h] * (j - p), slopes_of_heads, (slopes,),
                    q, k, v, causal, device,
                )  # fmt: skip

    def test_several_tensors(self):
        q, k, v = (self.noise(3, h, 40, 32, kind=numpy.float16) for h in (2, 1, 1))
        factors, slopes, shift = self.between_nan(3), self.between_nan(3, 2), numpy.float32(0.3)
        for device in DEVICES:
            with self.subTest(device=device):
                self.check(
                    lambda b, h, p, j: lambda s: s * factors[b] + slopes[b, h] * (j - p) + shift,
                    by_both, (factors, slopes, numpy.array(shift)),
                    q, k, v, window(left=9, right=3), device,
                )  # fmt: skip

    def test_lengths(self):
        q, k, v = (self.noise(2, 2, n, 32) for n in (20, 60, 60))
        slopes, lengths = self.between_nan(2), numpy.array([41, 60], numpy.int32)
        for x in k, v:
            x[0, :, 41:] = numpy.nan
        for device in DEVICES:
            with self.subTest(device=device):
                self.check(
                    lambda b, h, p, j: lambda s: s + slopes[h] * (j - p), slopes_of_heads, (slopes,),
                    q, k, v, causal, device, lengths=lengths, kv_len=lengths,
                )  # fmt: skip

    def test_few_queries(self):
        """Decoding, in which blocks of a GPU share the keys."""
        slopes = self.between_nan(2, 4)
        for device, nq in itertools.product(DEVICES, (1, 3)):
            with self.subTest(device=device, nq=nq):
                q, k, v = (self.noise(2, h, n, 64, kind=numpy.float16) for h, n in ((4, nq), (2, 500), (2, 500)))
                self.check(
                    lambda b, h, p, j: lambda s: s + slopes[b, h] * (j - p),
                    lambda s, b, h, p, k, slopes: s + slopes[b, h] * (k - p), (slopes,),
                    q, k, v, None, device, is_forward=True,
                )  # fmt: skip

    def test_packed_sequences(self):
        """Each sequence reads its own elements, and rows of no sequence read none."""
        starts = numpy.array([3, 40, 40, 107], numpy.int32)
        q, k, v, do = (self.noise(120, h, 64, kind=numpy.float16) for h in (4, 2, 2, 4))
        slopes = self.between_nan(3, 4)
        score_mod = lambda s, b, h, p, k, slopes: s + slopes[b, h] * (k - p)  # noqa: E731
        for device in DEVICES:
            with self.subTest(device=device):
                options = dict(mask=causal, score_mod=score_mod, device=device)
                packed = dict(layout="thd", cu_seqlens_q=starts, cu_seqlens_k=starts, aux_tensors=(slopes,), **options)
                o, lse = flashattn.attention(q, k, v, return_lse=True, **packed)
                found = flashattn.attention_backward(q, k, v, o, lse, do, **packed)
                self.assertFalse(o[:3].any() or o[107:].any())
                for b, (first, end) in enumerate(zip(starts, starts[1:])):
                    if first == end:
                        continue
                    rows = [x[None, first:end] for x in (q, k, v)]
                    own = dict(layout="bshd", aux_tensors=(slopes[b : b + 1],), **options)
                    alone, logs = flashattn.attention(*rows, return_lse=True, **own)
                    numpy.testing.assert_allclose(o[None, first:end], alone, atol=2e-3)
                    others = flashattn.attention_backward(*rows, alone, logs, do[None, first:end], **own)
                    for x, y in zip(found, others):
                        numpy.testing.assert_allclose(x[None, first:end], y, atol=4e-3, rtol=4e-3)

    def test_element_types(self):
        q, k, v = (self.noise(1, 2, 40, 64, kind=numpy.float16) for _ in range(3))
        wanted = flashattn.attention(q, k, v, score_mod=lambda s, b, h, p, k: s * (h + 1))
        factor = lambda s, b, h, p, k, f: s * f[h]  # noqa: E731
        double = lambda s, b, h, p, k, on: flashattn.math.where(on[h], 2 * s, s)  # noqa: E731
        for device in DEVICES:
            for values in ([1.0, 2.0], *(numpy.array([1, 2], kind) for kind in ("f8", "f4", "f2", "i4"))):
                found = flashattn.attention(q, k, v, score_mod=factor, aux_tensors=(values,), device=device)
                numpy.testing.assert_allclose(found, wanted, atol=2e-3)
            on = numpy.array([False, True])
            found = flashattn.attention(q, k, v, score_mod=double, aux_tensors=(on,), device=device)
            numpy.testing.assert_allclose(found, wanted, atol=2e-3)

    def test_one_kernel(self):
        """The elements are no constants of the kernel, and neither are batch size and head count."""
        before = flashattn.cache_info().compiled
        for batch, heads in ((1, 2), (3, 4)):
            q, k, v = (self.noise(batch, heads, 9, 16) for _ in range(3))
            slopes = self.noise(heads)
            found = flashattn.attention(q, k, v, score_mod=slopes_of_heads, aux_tensors=(slopes,))
            j = numpy.arange(9)
            scores = numpy.einsum("bhnd,bhmd->bhnm", q, k) / 4
            scores = scores + slopes[:, None, None] * (j[None] - j[:, None])
            weights = numpy.exp(scores - scores.max(-1, keepdims=True))
            wanted = weights / weights.sum(-1, keepdims=True) @ v
            numpy.testing.assert_allclose(found, wanted, atol=1e-5)
        self.assertLessEqual(flashattn.cache_info().compiled, before + 1)

    def test_traces(self):
        text = _trace.trace(by_both, (("f32", 1), ("bf16", 2), ("i32", 0)))
        self.assertIn("memref.load %aux0[%batch] : memref<?xf32>", text)
        self.assertIn("memref.load %aux1[%batch, %head] : memref<?x?xbf16>", text)
        self.assertIn("memref.load %aux2[] : memref<i32>", text)
        loads = _aux.loads_of(text)
        self.assertEqual({name: load.dims for name, load in loads.items()}, {"aux0": "B", "aux1": "BH", "aux2": ""})
        # What is not read is no argument of the kernel.
        text = _trace.trace(lambda s, b, h, p, k, x, y: s + y[h], (("f32", 1), ("f32", 1)))
        self.assertEqual(list(_aux.loads_of(text)), ["aux1"])
        self.assertFalse(_aux.reads_batch(text))

    def test_compiled(self):
        kernel = flashattn.compile(
            head_dim=16, dtype="f32", chip="cpu", score_mod=slopes_of_heads, aux_tensors=(("f32", 1),)
        )
        q, k, v = (self.noise(2, 2, 9, 16) for _ in range(3))
        slopes, out = self.noise(2), numpy.empty_like(q)
        kernel.launch(q, k, v, out, aux_tensors=(slopes,))
        wanted = flashattn.attention(q, k, v, score_mod=slopes_of_heads, aux_tensors=(slopes,))
        numpy.testing.assert_array_equal(out, wanted)
        self.assertEqual(kernel.get_workspace_bytes(q, k, v, out, aux_tensors=(slopes,)), 0)
        with self.assertRaisesRegex(ArgumentError, "^expected aux0, with which the kernel was compiled, but got None"):
            kernel.launch(q, k, v, out)
        with self.assertRaisesRegex(ArgumentError, "^expected 'aux0' with element type f32 but got f16"):
            kernel.launch(q, k, v, out, aux_tensors=(slopes.astype(numpy.float16),))
        with self.assertRaisesRegex(ArgumentError, r"^expected 'aux0' to be a pair \(dtype, rank\) but got 'f32'"):
            flashattn.compile(head_dim=16, score_mod=slopes_of_heads, aux_tensors=("f32",))

    def test_refused(self):
        q, k, v = (self.noise(2, 4, 9, 16) for _ in range(3))
        slopes = self.noise(4)

        def refuse(kind, message, score_mod=slopes_of_heads, aux_tensors=(slopes,)):
            for function, given in (
                (flashattn.attention, (q, k, v)),
                (flashattn.attention_backward, (q, k, v, q, q[..., 0].copy(), q)),
            ):
                with self.assertRaisesRegex(kind, message):
                    function(*given, score_mod=score_mod, aux_tensors=aux_tensors)

        refuse(ArgumentError, "^expected score_mod with aux_tensors but got None$", None)
        refuse(ArgumentError, "^expected aux_tensors to be a tuple of arrays but got ndarray$", aux_tensors=slopes)
        refuse(ArgumentError, "^expected at most 4 aux_tensors but got 5$", aux_tensors=(slopes,) * 5)
        refuse(ArgumentError, "^expected head count of 'aux0' to be 4 as in 'q' but got 3$", aux_tensors=(slopes[:3],))
        refuse(ArgumentError, "^expected unit stride in the last dimension of 'aux0'", aux_tensors=(self.noise(8)[::2],))
        refuse(
            UnsupportedError, "^expected 'aux0' with element type f16, bf16, f32, i32 or bool but got int64$",
            aux_tensors=(numpy.arange(4),),
        )  # fmt: skip
        refuse(
            ArgumentError, "^expected 'aux0' of rank 2 at most but got rank 3$", aux_tensors=(self.noise(2, 4, 1),)
        )
        refuse(
            ArgumentError, "^expected batch size of 'aux0' to be 2 as in 'q' but got 4$",
            lambda s, b, h, p, k, x: s + x[b],
        )  # fmt: skip
        refuse(
            TraceError, r"^expected score_mod to take \(score, b, h, p, k, aux0, aux1\) but got slopes_of_heads",
            aux_tensors=(slopes, slopes),
        )  # fmt: skip
        for score_mod, message in (
            (lambda s, b, h, p, k, x: s + x[k], "^expected b or h as index of dimension 0 of 'aux0' in score_mod"),
            (lambda s, b, h, p, k, x: s + x[h + 1], "^expected b or h as index of dimension 0 of 'aux0'"),
            (lambda s, b, h, p, k, x: s + x[0], "^expected b or h as index of dimension 0 of 'aux0' in score_mod but got 0;"),
            (lambda s, b, h, p, k, x: s + x[b, h], "^expected 1 indices of 'aux0' in score_mod but got 2$"),
            (lambda s, b, h, p, k, x: s + x[h] + x[b], "^expected one of b and h as index of dimension 0 of 'aux0'"),
            (lambda s, b, h, p, k, x: s + sum(x), "but got a loop over an auxiliary tensor"),
            (lambda s, b, h, p, k, x: s + x.mean(), "but got the attribute 'mean' of an auxiliary tensor"),
            (lambda s, b, h, p, k, x: s + x, "but got a value of TracedTensor$"),
            (lambda s, b, h, p, k, x: s + slopes[h], "pass a table for b and h in aux_tensors"),
        ):
            refuse(TraceError, message, score_mod)

    def test_problems_of_files(self):
        """The text of a problem may come from a file: it can load from aux tensors only by batch and head."""
        text = _trace.trace(slopes_of_heads, (("f32", 1),))
        operand = _module.Operand("aux0", "f32", "H")
        problem = _module.Problem("f32", 16, 16, score_mod=text, operands=(operand,))
        self.assertIn("%aux0: memref<?xf32>", _module.make_module(problem))
        for wrong, kind, message in (
            (text.replace("%aux0[%head]", "%q[%head]"), ArgumentError, "expected the text of a score_mod"),
            (text.replace("[%head]", "[%key]"), CompileError, "one that depends on the key"),
            (
                text.replace("[%head]", "[%n]").replace("k: index):\n", "k: index):\n", 1).replace(
                    "%key: index):\n", "%key: index):\n        %n = arith.constant 100000 : index\n"
                ),
                CompileError,
                "expected the batch and the head as indices in score_mod",
            ),
        ):  # fmt: skip
            with self.subTest(message=message), self.assertRaisesRegex(kind, message):
                flashattn.Kernel(problem._replace(score_mod=wrong), "cpu", _module._library.DEVICE_CPU)


if __name__ == "__main__":
    unittest.main()

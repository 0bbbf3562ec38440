# offset as an array, one position for each batch element or packed sequence (rule A3): values and gradients on the CPU and
# on models of both kinds of GPU, against calls for each batch element with an offset of one number.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import unittest

import flashattn
import numpy
from flashattn import ArgumentError, _module, causal, window

DEVICES = (None, "model:sm_80", "model:sm_90a")


class OwnOffsets(unittest.TestCase):
    def setUp(self):
        self.random = numpy.random.default_rng(3)

    def noise(self, *shape, kind=numpy.float32):
        return self.random.standard_normal(shape).astype(kind)

    def check(self, q, k, v, offsets, **options):
        """Compares with a call for each batch element. The orders of additions may differ."""
        o, lse = flashattn.attention(q, k, v, offset=offsets, return_lse=True, **options)
        do = self.noise(*o.shape, kind=q.dtype)
        found = flashattn.attention_backward(q, k, v, o, lse, do, offset=offsets, **options)
        bound = 1e-5 if q.dtype == numpy.float32 else 5e-3
        for b, offset in enumerate(offsets):
            rows = [x[b : b + 1] for x in (q, k, v)]
            alone, logs = flashattn.attention(*rows, offset=int(offset), return_lse=True, **options)
            numpy.testing.assert_allclose(o[b : b + 1], alone, atol=bound)
            numpy.testing.assert_allclose(lse[b : b + 1], logs, atol=1e-4)
            others = flashattn.attention_backward(
                *rows, alone, logs, do[b : b + 1], offset=int(offset), **options
            )
            for x, y in zip(found, others):
                numpy.testing.assert_allclose(x[b : b + 1], y, atol=bound, rtol=bound)

    def test_batches(self):
        for device in DEVICES:
            for mask, kind in ((causal, numpy.float16), (window(left=20, right=0), numpy.float32)):
                with self.subTest(device=device, mask=str(mask)):
                    q, k, v = (self.noise(3, h, n, 64, kind=kind) for h, n in ((4, 70), (2, 150), (2, 150)))
                    self.check(q, k, v, numpy.array([0, 100, -30], numpy.int32), mask=mask, device=device)

    def test_score_mod(self):
        score_mod = lambda s, b, h, p, k: s - 0.01 * p * k  # noqa: E731
        q, k, v = (self.noise(2, 2, 40, 32) for _ in range(3))
        for device in DEVICES:
            with self.subTest(device=device):
                self.check(q, k, v, numpy.array([3, -8], numpy.int32), score_mod=score_mod, device=device)

    def test_one_query(self):
        """A mask of one query is not dropped, as it is at the end of the keys."""
        for device in DEVICES:
            with self.subTest(device=device):
                q, k, v = (self.noise(2, 2, n, 64, kind=numpy.float16) for n in (1, 300, 300))
                self.check(q, k, v, numpy.array([17, 299], numpy.int32), mask=causal, device=device)

    def test_packed_sequences(self):
        starts, offsets = numpy.array([2, 30, 30, 90], numpy.int32), numpy.array([9, 0, -5], numpy.int32)
        q, k, v = (self.noise(95, 2, 64, kind=numpy.float16) for _ in range(3))
        for device in DEVICES:
            with self.subTest(device=device):
                o = flashattn.attention(
                    q, k, v, layout="thd", cu_seqlens_q=starts, cu_seqlens_k=starts, mask=causal, offset=offsets,
                    device=device,
                )  # fmt: skip
                for first, end, offset in zip(starts, starts[1:], offsets):
                    alone = flashattn.attention(
                        *(x[None, first:end] for x in (q, k, v)), layout="bshd", mask=causal, offset=int(offset),
                        device=device,
                    )  # fmt: skip
                    numpy.testing.assert_allclose(o[None, first:end], alone, atol=2e-3)

    def test_forms(self):
        q, k, v = (self.noise(2, 2, 9, 16) for _ in range(3))
        wanted = flashattn.attention(q, k, v, mask=causal, offset=numpy.array([1, 2], numpy.int32))
        for offset in ([1, 2], (1, 2), numpy.array([1, 2])):
            numpy.testing.assert_array_equal(flashattn.attention(q, k, v, mask=causal, offset=offset), wanted)
        one = flashattn.attention(q, k, v, mask=causal, offset=numpy.array(1))
        numpy.testing.assert_array_equal(one[:1], wanted[:1])
        kernel = flashattn.compile(head_dim=16, dtype="f32", chip="cpu", mask=causal, offsets=True)
        out = numpy.empty_like(q)
        kernel.launch(q, k, v, out, offset=numpy.array([1, 2], numpy.int32))
        numpy.testing.assert_allclose(out, wanted, atol=1e-6)
        with self.assertRaisesRegex(ArgumentError, "^expected offsets, with which the kernel was compiled, but got None"):
            kernel.launch(q, k, v, out)

    def test_refused(self):
        q, k, v = (self.noise(2, 2, 9, 16) for _ in range(3))
        for offset, message in (
            (numpy.zeros(3, numpy.int32), "^expected batch size of 'offsets' to be 2 as in 'q' but got 3$"),
            (numpy.zeros((2, 2), numpy.int32), "^expected 'offsets' of rank 1 but got rank 2$"),
            (numpy.zeros(2), "^expected 'offsets' with element type i32 but got"),
            (numpy.array([0, 1 << 40]), "^expected 'offsets' from -2147483648 to 2147483647 but got"),
        ):
            with self.assertRaisesRegex(ArgumentError, message):
                flashattn.attention(q, k, v, mask=causal, offset=offset)

    def test_mask_stays(self):
        operand = _module.Operand("offsets", "i32", "B")
        problem = _module.Problem("f32", 16, 16, mask=causal, queries=1, operands=(operand,))
        self.assertEqual(_module.canonicalize(problem, is_cpu=False).mask, causal)


if __name__ == "__main__":
    unittest.main()

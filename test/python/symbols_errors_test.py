# What masks that read tensors refuse, and with which message: when they are made, and when they are called.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import unittest

import flashattn
import numpy
from flashattn import ArgumentError, KeywordError, affine_set, attention, causal, masks

N = 20
ONE = "(p, k)[nq, nk, n] : (n - 1 - k >= 0)"


def zeros(*shape, dtype=numpy.int32):
    return numpy.zeros(shape, dtype)


class OnDevice:
    """An array that does not convert to one of NumPy, as those of CuPy."""

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


class SymbolErrorsTest(unittest.TestCase):
    def check(self, cases):
        for message, call in cases:
            with self.subTest(message):
                with self.assertRaisesRegex(ArgumentError, f"^{message}$"):
                    call()

    def test_sets(self):
        self.check((
            ("expected 1 tensor for the symbol n but got none; pass per_sequence=, per_query= or per_key=",
             lambda: affine_set(ONE)),
            ("expected 1 tensor for the symbol n but got 2", lambda: affine_set(ONE, [zeros(2)], [zeros(N)])),
            ("expected 2 tensors for the symbols n, m but got 1",
             lambda: affine_set("(p, k)[nq, nk, n, m] : (n - m >= 0)", per_key=[zeros(N)])),
            ("expected no tensors for a set without symbols after nq and nk but got 1",
             lambda: affine_set("(p, k)[nq, nk] : (p - k >= 0)", [zeros(2)])),
            ("expected different names of dimensions and symbols but got 'k' in .*",
             lambda: affine_set("(p, k)[nq, nk, k] : (k >= 0)", [zeros(2)])),
            ("expected the dimensions \\(p, k\\) and the symbols \\[nq, nk, ...\\] but got '\\(p\\)\\[nq, nk, n\\].*",
             lambda: affine_set("(p)[nq, nk, n] : (n >= 0)", [zeros(2)])),
            ("expected an integer set such as \\(p, k\\)\\[nq, nk, n\\] : .* with tensors but got 'k < n'",
             lambda: affine_set("k < n", [zeros(2)])),
            ("expected an integer set such as .*: use of undeclared identifier",
             lambda: affine_set("(p, k)[nq, nk, n] : (m >= 0)", [zeros(2)])),
            ("expected a pure affine constraint .* but got 'd1 \\* s2'",
             lambda: affine_set("(p, k)[nq, nk, n] : (n * k >= 0)", [zeros(2)])),
            ("expected at most 8 tensors of per_query in a mask but got 9",
             lambda: affine_set(ONE, per_query=[zeros(N)] * 9)),
            ("expected per_sequence to be a list of tensors but got ndarray", lambda: affine_set(ONE, zeros(2))),
            ("expected per_query\\[0\\] to be a tensor of integers but got one of float64",
             lambda: affine_set(ONE, per_query=[numpy.zeros(N)])),
            ("expected per_query\\[0\\] to be a tensor of integers but got 3", lambda: affine_set(ONE, per_query=[3])),
            ("expected per_sequence\\[0\\] to be a tensor of integers but got str", lambda: affine_set(ONE, ["n"])),
            ("expected per_sequence\\[0\\] to be a tensor but got lists of different lengths",
             lambda: affine_set(ONE, [[[1], [2, 3]]])),
            ("expected per_sequence\\[0\\] of rank 0 or 1 but got rank 2", lambda: affine_set(ONE, [zeros(2, 1)])),
            ("expected per_key\\[0\\] of rank 1 to 3 but got rank 4",
             lambda: affine_set(ONE, per_key=[zeros(1, 1, 1, N)])),
            ("expected per_key\\[0\\] of rank 1 to 3 but got rank 0", lambda: affine_set(ONE, per_key=[zeros()])),
            ("expected per_sequence\\[0\\] between -2147483648 and 2147483648 but got 2147483648",
             lambda: affine_set(ONE, [1 << 31])),
            ("expected per_sequence\\[0\\] between -2147483648 and 2147483648 but got 0 to 4294967296",
             lambda: affine_set(ONE, [numpy.array([0, 1 << 32])])),
        ))  # fmt: skip

    def test_unions(self):
        some = [masks.prefix(zeros(2)) for _ in range(9)]
        whole = some[0]
        for one in some[1:8]:
            whole = whole | one
        self.assertIn("sequence7", str(whole | some[0]))
        self.check((("expected at most 8 tensors of per_sequence in a mask but got 9", lambda: whole | some[8]),))

    def test_named(self):
        rows = zeros(2, 1, N, 3)
        self.check((
            ("expected n to be a tensor of integers but got one of f32",
             lambda: masks.prefix(zeros(2, dtype=numpy.float32))),
            ("expected n of rank 0 or 1 but got rank 2", lambda: masks.left_padding(zeros(2, N))),
            ("expected flag to be a tensor of integers but got one of float64", lambda: masks.causal_if([0.5])),
            ("expected left to be a tensor of integers but got one of float64", lambda: masks.window(left=[0.5])),
            ("expected right between 0 and 2147483648 but got -1", lambda: masks.window(left=zeros(2), right=-1)),
            ("expected ids or starts of documents but got none", lambda: masks.documents()),
            ("expected ids or starts of documents but got both", lambda: masks.documents(zeros(N), starts=zeros(2))),
            ("expected a length with starts of documents but got None", lambda: masks.documents(starts=zeros(2))),
            ("expected starts in ascending order but got \\[0, 5, 3\\]",
             lambda: masks.documents(starts=[0, 5, 3], length=N)),
            ("expected no length with ids of documents but got 3", lambda: masks.documents(zeros(N), length=3)),
            ("expected ids of rank 1 or 2 but got rank 3", lambda: masks.documents(zeros(2, 1, N))),
            ("expected ids to be an array of numpy, torch or jax but got object", lambda: masks.documents(object())),
            ("expected ids to be an array of numpy, torch or jax but got .*OnDevice",
             lambda: masks.documents(OnDevice())),
            ("expected parents of rank 1 or 2 but got rank 0", lambda: masks.tree(3)),
            ("expected the parent of node 1 before the node but got 1", lambda: masks.tree([-1, 1])),
            ("expected parents in depth-first order but got node 2 apart from the nodes below its parent 0",
             lambda: masks.tree([-1, -1, 0])),
            ("expected startend_row_indices of rank 4 but got rank 3", lambda: masks.flashmask(zeros(2, N, 2))),
            ("expected 1 or 2 columns of startend_row_indices with causal but got 3",
             lambda: masks.flashmask(rows, causal=True)),
            ("expected 2 or 4 columns of startend_row_indices without causal but got 1",
             lambda: masks.flashmask(rows[..., :1])),
            ("expected q_ranges of rank 2 but got rank 1", lambda: masks.ranges([0, 3], [0, 3], queries=N)),
            ("expected k_ranges of shape \\[1, 2\\] but got \\[2, 2\\]",
             lambda: masks.ranges([[0, 3]], [[0, 3], [4, 5]], queries=N)),
            ("expected 1 types, as there are ranges, but got \\[2\\]",
             lambda: masks.ranges([[0, 3]], [[0, 3]], [0, 1], queries=N)),
            ("expected types full, causal, inv_causal, bi_causal or 0 to 3 but got 'half'",
             lambda: masks.ranges([[0, 3]], [[0, 3]], ["half"], queries=N)),
            ("expected types from 0 to 3 but got 0 to 4",
             lambda: masks.ranges([[0, 3], [3, 5]], [[0, 3]] * 2, numpy.array([0, 4]), queries=N)),
            ("expected ranges of queries that do not overlap but got \\[2, 5\\) and \\[0, 3\\)",
             lambda: masks.ranges([[2, 5], [0, 3]], [[0, 3], [0, 3]], queries=N)),
        ))  # fmt: skip

    def test_rows(self):
        """Masks in which query i is at position i, or whose sequences cannot be packed."""
        q, k = numpy.zeros((2, 4, N, 16), numpy.float32), numpy.zeros((2, 2, 2 * N, 16), numpy.float32)
        ids, documents = zeros(N), masks.documents(zeros(N), causal=True)
        starts, packed = zeros(2) + [0, N], numpy.zeros((N, 2, 16), numpy.float32)
        keys = k[:, :, :N]
        rows = packed, packed, packed
        lse = numpy.zeros((2, 4, N), numpy.float32)
        kernel = flashattn.compile(head_dim=16, dtype="f32", mask=documents, chip="cpu")
        short = "expected as many keys as queries with the mask documents but got 40 keys and 20 queries"
        self.check((
            (short, lambda: attention(q, k, k, mask=documents)),
            (short, lambda: attention(q, k, k, mask=causal & (flashattn.sink(3) | documents))),
            (short, lambda: attention(*(x.swapaxes(1, 2) for x in (q, k, k)), mask=documents, layout="bshd")),
            (short, lambda: flashattn.attention_backward(q, k, k, q, lse, q, mask=documents)),
            (short, lambda: kernel.launch(q, k, k, q.copy(), mask=documents)),
            (short, lambda: documents.draw(N, 2 * N)),
            (short.replace("documents", "shared_question"),
             lambda: attention(q, k, k, mask=masks.shared_question([3, 4], ids))),
            ("expected no cu_seqlens_q with the mask documents but got one; use affine_set\(.*u - w == 0.*\)",
             lambda: attention(*rows, mask=documents, layout="thd", cu_seqlens_q=starts, cu_seqlens_k=starts)),
            ("expected no cu_seqlens_q with the mask tree but got one",
             lambda: attention(*rows, mask=masks.tree([-1] * N), layout="thd", cu_seqlens_q=starts,
                               cu_seqlens_k=starts)),
            ("expected align top_left, or q_len, in a call with kv_len and the mask documents but got bottom_right",
             lambda: attention(q, keys, keys, mask=documents, kv_len=[3, 4])),
        ))  # fmt: skip
        o = attention(q, keys, keys, mask=documents, kv_len=[3, 4], align="top_left")
        numpy.testing.assert_array_equal(attention(q, keys, keys, mask=documents, kv_len=[3, 4], q_len=[3, 4]), o)

    def test_calls(self):
        q, k = numpy.zeros((2, 4, N, 16), numpy.float32), numpy.zeros((2, 2, N, 16), numpy.float32)

        def call(**options):
            clause, tensor = next(iter(options.items()))
            return lambda: attention(q, k, k, mask=affine_set(ONE, **{clause: [tensor]}))

        starts = zeros(3) + [0, N, 2 * N]
        packed = numpy.zeros((2 * N, 4, 16), numpy.float32), *[numpy.zeros((2 * N, 2, 16), numpy.float32)] * 2
        self.check((
            ("expected batch size of 'per_sequence0' to be 1 or 2 but got 3", call(per_sequence=zeros(3))),
            ("expected batch size of 'per_query0' to be 1 or 2 but got 3", call(per_query=zeros(3, N))),
            ("expected query length of 'per_query0' to be 20 but got 1", call(per_query=zeros(1))),
            ("expected query length of 'per_query0' to be 20 but got 21", call(per_query=zeros(2, 1, N + 1))),
            ("expected head count of 'per_query0' to be 1 or 4 but got 2", call(per_query=zeros(2, 2, N))),
            ("expected head count of 'per_key0' to be 1 or 2 but got 4", call(per_key=zeros(1, 4, N))),
            ("expected key length of 'per_key0' to be 20 but got 19", call(per_key=zeros(N - 1))),
            ("expected unit stride in the last dimension of 'per_key0' but got 2; copy it, .*",
             call(per_key=zeros(2 * N)[::2])),
            ("expected unit stride in the last dimension of 'per_sequence0' but got 2; copy it, .*",
             call(per_sequence=zeros(4)[::2])),
            ("expected query length of 'per_query0' to be 40 but got 20",
             lambda: attention(*packed, mask=affine_set(ONE, per_query=[zeros(4, N)]), layout="thd",
                               cu_seqlens_q=starts, cu_seqlens_k=starts)),
            ("expected head count of 'per_query0' to be 1 or 4 but got 2",
             lambda: attention(*packed, mask=affine_set(ONE, per_query=[zeros(2, 2 * N)]), layout="thd",
                               cu_seqlens_q=starts, cu_seqlens_k=starts)),
            ("expected key length of 'per_key0' to be 20 but got 16",
             lambda: attention(q, numpy.zeros((9, 2, 4, 16), numpy.float32), numpy.zeros((9, 2, 4, 16), numpy.float32),
                               mask=affine_set(ONE, per_key=[zeros(16)]), kv_len=[3, 4], page_table=zeros(2, 5))),
            ("expected mask to be a flashattn mask or None but got ndarray; attn_mask= takes a Boolean array",
             lambda: attention(q, k, k, mask=zeros(2))),
        ))  # fmt: skip
        with self.assertRaisesRegex(flashattn.CompileError, "expected a mask of at most 0 symbols after nq and nk"):
            attention(q, k, k, mask=flashattn.Mask(str(masks.prefix(zeros(2)))))
        for name in ("per_sequence", "per_query0"):
            with self.assertRaisesRegex(KeywordError, "; expected mask=flashattn.affine_set"):
                attention(q, k, k, **{name: zeros(2)}, mask=causal)


if __name__ == "__main__":
    unittest.main()

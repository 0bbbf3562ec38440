# What context_parallel, Shards and balanced_shards say about bad inputs: those of one rank, arguments that differ
# between two ranks, and a rank that dies while the other waits for its keys.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import os
import tempfile
import time
import unittest
from datetime import timedelta

import flashattn
import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from flashattn import (
    ArgumentError, DeviceError, KeywordError, Mask, Shards, TraceError, UnsupportedError, affine_set, balanced_shards,
    causal, documents, prefix, tree,
)  # fmt: skip
from flashattn.torch import context_parallel
from torch.autograd import forward_ad
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

N = 6
U = "(p, k)[nq, nk, u] : (u - k >= 0)"


def ids(*shape):
    return torch.zeros(shape, dtype=torch.int32)


def rows(*shape, **options):
    return torch.ones(shape, **options)


def by_position(score, b, h, p, k, *aux):
    return score + 0.5 * (p - k) + sum(x[h] for x in aux)


class Errors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        store = dist.FileStore(os.path.join(folder.name, "store"), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        cls.addClassCleanup(dist.destroy_process_group)
        cls.mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("cp",))
        cls.square = init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))

    def setUp(self):
        self.q, self.k, self.v = (rows(1, 2, N, 8) for _ in range(3))

    def call(self, *tensors, mesh=None, **options):
        return context_parallel(*(tensors or (self.q, self.k, self.v)), mesh=mesh or self.mesh, **options)

    def check(self, message, *tensors, kind=ArgumentError, **options):
        with self.assertRaises(kind) as caught:
            self.call(*tensors, **options)
        self.assertIn(message, str(caught.exception), options)
        self.assertIsInstance(caught.exception, flashattn.FlashAttnError)

    def test_keywords(self):
        self.check("'causal'; expected mask=flashattn.causal", kind=KeywordError, causal=True)
        self.check("'softmax_scale'; expected scale=", kind=KeywordError, softmax_scale=1.0)
        self.check("'cu_seqlens_q'; expected cu_seqlens=", kind=KeywordError, cu_seqlens_q=[0, N])
        self.check("'shard'; expected shards=", kind=KeywordError, shard="zigzag")

    def test_mesh(self):
        self.check("expected mesh to be a DeviceMesh or a process group but got str", mesh="cp")
        self.check("expected dim to be a dimension of DeviceMesh", dim="x")
        self.check("but got 1.5", dim=1.5)
        self.check("expected dim, a dimension of the mesh (1, 1), but got None", mesh=self.square)
        self.check("expected 1 or 2 dimensions of the mesh but got 3", mesh=self.square, dim=("a", "b", "a"))
        self.check("expected two different dimensions of the mesh but got ('a', 0)", mesh=self.square, dim=("a", 0))
        self.check("expected no dim with a process group but got 0", mesh=dist.group.WORLD, dim=0)
        self.check("two dimensions but got 'heads'", mesh=self.square, dim=("a", "b"), scheme="heads")
        self.check("expected scheme auto, ring, gather, heads but got 'rings'", scheme="rings")

    def test_shards(self):
        self.check("expected shards of 1 ranks, as in the mesh, but got 2", shards=Shards.contiguous(N, 2))
        self.check("expected shards contiguous, zigzag, striped or flashattn.Shards but got 'zig'", shards="zig")
        self.check("flashattn.Shards but got []", k_shards=[])
        self.check("expected 8 rows of 'q' on rank 0, as in its shards, but got 6", shards=Shards.contiguous(8, 1))
        self.check("expected length 6 of the shards but got 7", shards=Shards.contiguous(N, 1), length=7)
        self.check("expected 7 rows of 'q' on rank 0", length=7)
        self.check("expected a length from 0 to 2147483647 but got 6.0", length=6.0)
        odd = rows(1, 2, 5, 8)
        self.check("expected an even number of rows of 'k' on each rank", self.q, odd, odd, shards="zigzag")

    def test_rows(self):
        self.check("expected key length of 'v' to be 6 as in 'k' but got 5", self.q, self.k, rows(1, 2, 5, 8))
        self.check("expected 'k' with element type f32 as in 'q' but got f16", self.q, self.k.half(), self.v)
        self.check("expected 'k' on cpu as 'q' but got meta", self.q, self.k.to("meta"), self.v)
        self.check("expected 'q' to be a tensor of torch but got ndarray", self.q.numpy(), self.k, self.v)
        self.check("expected 'q' of rank 4 but got rank 3", self.q[0], self.k, self.v)
        self.check("multiple of the key/value head count, 2, but got 3", rows(1, 3, N, 8), self.k, self.v)
        self.check("expected batch size of 'k' to be 1 as in 'q' but got 2", self.q, *[rows(2, 2, N, 8)] * 2)
        self.check("expected 'q' with element type f16, bf16 or f32", *[self.q.double()] * 3, kind=UnsupportedError)
        packed = rows(N, 2, 8)
        self.check("expected cu_seqlens with layout thd but got None", packed, packed, packed, layout="thd")
        self.check("expected 'k' of rank 3 but got rank 4", packed, self.k, self.v, layout="thd", cu_seqlens=[0, N])
        no_heads = [rows(1, 0, N, 8)] * 3
        self.check("but got 0 query heads", *no_heads, kind=UnsupportedError, scheme="heads")

    def test_empty(self):
        for scheme in ("ring", "gather", "heads", "auto"):
            for shape in ((0, 2, N, 8), (1, 2, 0, 8)):
                for options in ({}, {"mask": causal}, {"cu_seqlens": [0, 0]}):
                    o, lse = self.call(*[rows(*shape)] * 3, scheme=scheme, return_lse=True, **options)
                    self.assertEqual((o.shape, lse.shape), (shape, shape[:3]))
        self.assertEqual(self.call(*[rows(1, 0, N, 8)] * 3, mask=causal).shape, (1, 0, N, 8))

    def test_options(self):
        self.check("expected scale to be a number or None but got 'x'", scale="x")
        scale = torch.tensor(1.0, requires_grad=True)
        self.check("expected tensors without gradients but got 'scale'", kind=UnsupportedError, scale=scale)
        self.check("expected a finite positive softcap but got -1.0", softcap=-1.0)
        self.check("expected an integer offset but got 1.5", offset=1.5)
        self.check("expected layout bhsd, bshd or thd but got 'x'", layout="x")

    def test_pairs(self):
        self.check("expected key length of 'bias' to be 1 or 6 but got 5", bias=rows(N, 5))
        self.check("expected query length of 'bias' to be 1 or 6 but got 5", bias=rows(5, N))
        self.check("expected head count of 'bias' to be 1 or 2 but got 3", bias=rows(3, N, N))
        self.check("expected 'bias' of rank 4 at most but got rank 5", bias=rows(1, 1, 1, N, N))
        self.check("expected 'bias' to be an array but got lists", bias=[[0.0] * N, [0.0]])
        self.check("expected 'bias' on cpu as 'q' but got meta", bias=rows(N, N, device="meta"))
        self.check("expected 'attn_mask' with element type bool but got f32; bias=", attn_mask=rows(N, N))
        self.check("expected key length of 'attn_mask' to be 1 or 6 but got 7", attn_mask=rows(N, 7, dtype=torch.bool))
        self.check("expected no bias where heads", kind=UnsupportedError, bias=rows(N, N), scheme="heads")
        hidden = torch.zeros(N, N, dtype=torch.bool)
        self.check("expected no attn_mask where heads", kind=UnsupportedError, attn_mask=hidden, scheme="heads")
        self.assertTrue(torch.equal(self.call(bias=torch.tensor(1.0)), self.call(bias=rows(1))))

    def test_sinks_and_lengths(self):
        self.check("expected head count of 'sink_logits' to be 2 as in 'q' but got 1", sink_logits=rows(1))
        self.check("expected 'sink_logits' with element type f32 but got f16", sink_logits=rows(2).half())
        self.check("expected batch size of 'kv_len' to be 1 as in 'q' but got 2", kv_len=[1, 2])
        self.check("expected 'kv_len' with element type i32 but got f32", kv_len=rows(1))
        self.check("expected 'kv_len' of rank 1 but got rank 0", kv_len=torch.tensor(3))
        shards = Shards(N, [[(3, 3), (0, 3)]])
        self.check("expected shards whose rows ascend", kind=UnsupportedError, kv_len=[3], shards=shards)
        self.check("expected no kv_len with cu_seqlens", kv_len=[3], cu_seqlens=[0, N])

    def test_packed(self):
        self.check("that do not decrease but got [0, 4, 2]", cu_seqlens=[0, 4, 2])
        self.check("expected cu_seqlens from 0 to 6 that do not decrease but got [0, 7]", cu_seqlens=[0, 7])
        self.check("expected cu_seqlens to be at least 2 integers", cu_seqlens=[0.0, 6.0])
        self.check("but got int64 of shape [1, 2]", cu_seqlens=[[0, N]])
        self.check("expected cu_seqlens in one dimension but got lists", cu_seqlens=[[0], [1, 2]])
        five = [rows(1, 2, 5, 8)] * 2
        self.check("as many keys as queries with cu_seqlens but got 5 keys", self.q, *five, cu_seqlens=[0, 5])
        for message, options in (
            ("expected one number for all sequences in 'per_sequence0'", {"mask": prefix([1, 2])}),
            ("expected a score_mod that reads no positions", {"score_mod": by_position}),
            ("expected a score_mod that reads no batch", {"score_mod": lambda score, b, h, p, k: score + b}),
        ):
            self.check(message, kind=UnsupportedError, cu_seqlens=[0, 3, N], **options)

    def test_score_mods(self):
        aux = [rows(2)] * 3
        self.check("expected at most 2 aux_tensors", kind=UnsupportedError, score_mod=by_position, aux_tensors=aux)
        self.check("expected score_mod with aux_tensors but got None", aux_tensors=aux)
        self.check("expected head count of 'aux0' to be 2", score_mod=by_position, aux_tensors=(rows(3),))
        self.check("expected score_mod to be a function or None but got str", kind=TraceError, score_mod="x")

    def test_masks(self):
        self.check("expected mask to be a flashattn mask or None but got Tensor", mask=rows(N, N))
        for name in ("per_query", "per_key"):
            message = f"expected '{name}0' with a number for each of 6 rows but got 5"
            self.check(message, mask=affine_set(U, **{name: [ids(5)]}))
        self.check("batch size of 'per_query0' to be 1", mask=affine_set(U, per_query=[ids(3, N)]))
        self.check("head count of 'per_query0' to be 1 or 2", mask=affine_set(U, per_query=[ids(1, 3, N)]))
        self.check("expected batch size of 'per_sequence0' to be 1 but got 3", mask=prefix(ids(3)))
        five = [rows(1, 2, 5, 8)] * 2
        self.check("with the mask documents but got 5 keys and 6 queries", self.q, *five, mask=documents(ids(N)))
        self.check("expected align top_left in a call with kv_len", mask=documents(ids(N)), kv_len=[3])
        self.check("expected no cu_seqlens with the mask tree", mask=tree([-1] * N), cu_seqlens=[0, N])
        self.check("expected 'per_key0' with a number for each of 6 rows but got 3", mask=tree([-1, 0, 1]))
        self.check("expected a mask of the dialect flashattn", mask=Mask("#flashattn.foo"))
        other = Mask("#flashattn.any_of<[#flashattn.causal,  #flashattn.sink<2>]>")
        self.check("expected a mask that this package made", kind=UnsupportedError, mask=other, cu_seqlens=[0, 3, N])
        words = ", ".join(f"u{i}" for i in range(7))
        many = affine_set(f"(p, k)[nq, nk, {words}] : (u0 - k >= 0)", per_query=[ids(N) for _ in range(7)])
        self.check("at most 6 tensors of per_query", kind=UnsupportedError, mask=many, cu_seqlens=[0, 3, N])

    def test_dtensors(self):
        whole = distribute_tensor(self.q, self.mesh, [Shard(2)])
        self.check("expected q, k and v to be all DTensors or none but got both", whole, self.k, self.v)
        for placement in (Replicate(), Shard(1)):
            wrong = distribute_tensor(self.q, self.mesh, [placement])
            self.check("expected 'k' with placement Shard(2) in dim 0 but got", whole, wrong, whole)
        self.check("expected length 6 of the DTensors but got 7", whole, whole, whole, length=7)
        bias = distribute_tensor(rows(N, N), self.mesh)
        self.check("expected 'bias' to be a plain tensor but got a DTensor", bias=bias)
        two = {"mesh": self.square, "dim": ("a", "b")}
        self.check("expected one dimension of the mesh with DTensors", *[whole] * 3, kind=UnsupportedError, **two)
        o, lse = self.call(whole, whole, whole, return_lse=True)
        self.assertEqual((o.placements, lse.placements, lse.shape), (whole.placements, (Shard(2),), (1, 2, N)))

    def test_gradients(self):
        for scheme in ("ring", "heads"):
            q = self.q.clone().requires_grad_()
            gradient, = torch.autograd.grad(self.call(q, self.k, self.v, scheme=scheme).sum(), q, create_graph=True)
            with self.assertRaisesRegex(UnsupportedError, "expected attention to be differentiated once"):
                torch.autograd.grad(gradient.sum(), q)
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(self.q, self.q)
                message = "expected gradients in reverse mode"
                self.check(message, dual, self.k, self.v, kind=UnsupportedError, scheme=scheme)
        for transform, q in ((torch.vmap, self.q[None]), (torch.func.grad, self.q)):
            with self.assertRaisesRegex(UnsupportedError, "outside of torch.func"):
                transform(lambda q: self.call(q, self.k, self.v).sum())(q)
        with torch.inference_mode():
            self.assertFalse(self.call(self.q.clone().requires_grad_(), self.k, self.v).requires_grad)

    def test_autocast(self):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for scheme in ("ring", "heads"):
                o = self.call(self.q.half(), self.k, self.v, scheme=scheme)
                self.assertEqual(o.dtype, torch.bfloat16)

    def test_rows_of_no_sequence(self):
        torch.manual_seed(1)
        x = torch.randn(1, 2, N, 8)
        x[:, :, [0, 5]] = float("nan")
        for scheme in ("ring", "gather", "heads"):
            leaves = [x.clone().requires_grad_() for _ in range(3)]
            o, lse = self.call(*leaves, scheme=scheme, cu_seqlens=[1, 3, 5], sink_logits=rows(2), return_lse=True)
            o.backward(torch.where(x.isnan(), x, 1.0))
            for found in (o, *(leaf.grad for leaf in leaves)):
                self.assertTrue(found.isfinite().all() and (found[:, :, [0, 5]] == 0).all())
            self.assertEqual(lse[0, 0].isinf().tolist(), [True, False, False, False, False, True])

    def test_contents_of_masks(self):
        """A plan is found by the contents of a mask's tensor, not by its memory."""
        torch.manual_seed(2)
        q = torch.randn(1, 2, N, 8)
        tensor, first = torch.arange(N, dtype=torch.int32), torch.arange(N, dtype=torch.int32)
        wanted = self.call(q, q, q, mask=affine_set(U, per_query=[tensor]))
        tensor.zero_()
        self.call(q, q, q, mask=affine_set(U, per_query=[tensor]))
        self.assertTrue(torch.equal(self.call(q, q, q, mask=affine_set(U, per_query=[first])), wanted))

    def test_shards_alone(self):
        for message, length, segments in (
            ("got row 3 in none", N, [[(0, 3)], [(4, 2)]]), ("got row 5 in none", N, [[(0, 5)]]),
            ("got row 3 in several", N, [[(0, 4)], [(3, 3)]]), ("got row 2 in several", N, [[(0, N)], [(2, 2, 3)]]),
            ("got row 1 in none", N, [[(0, 3, 2)], [(3, 2, 2)]]), ("but got (-1, 7, 1)", N, [[(-1, 7)]]),
            ("but got (3, -1, 1)", N, [[(0, N), (3, -1)]]), ("but got (5, 6, -1)", N, [[(5, 6, -1)]]),
            ("of integers but got (0.0, 6)", N, [[(0.0, N)]]), ("of integers but got (False, 6)", N, [[(False, N)]]),
            ("for each rank but got NoneType", N, None), ("for each rank but got 3", N, [3]),
            ("at least 1 rank but got none", N, []), ("length from 0 to 2147483647 but got -1", -1, [[]]),
            ("length from 0 to 2147483647 but got tensor", ids(2), [[]]),
        ):  # fmt: skip
            with self.assertRaises(ArgumentError) as caught:
                Shards(length, segments)
            self.assertIn(message, str(caught.exception))
        with self.assertRaisesRegex(ArgumentError, "expected a number of ranks from 1 to 65536 but got 0"):
            Shards.zigzag(N, 0)
        with self.assertRaisesRegex(ArgumentError, "expected a rank from 0 to 1 but got 2"):
            Shards.contiguous(N, 2).rows(2)
        self.assertEqual(Shards.contiguous((1 << 31) - 1, 8).count(7), (1 << 28) - 1)
        self.assertEqual(Shards(numpy.int64(N), [[(numpy.int32(0), N)]]), Shards.contiguous(N, 1))

    def test_balanced_shards(self):
        for message, *given in (
            ("expected mask to be a flashattn mask or None but got str", N, 2, "causal"),
            ("expected 'per_query0' with a number for each of 6 rows but got 5", N, 2, documents(ids(5))),
            ("expected a number of ranks from 1 to 65536 but got 2.0", N, 2.0, causal),
            ("expected cu_seqlens from 0 to 6 that do not decrease but got [0, 7]", N, 2, causal, [0, 7]),
            ("expected no cu_seqlens with the mask documents", N, 2, documents(ids(N)), [0, N]),
        ):
            with self.assertRaises(ArgumentError) as caught:
                balanced_shards(*given)
            self.assertIn(message, str(caught.exception))
        self.assertEqual([balanced_shards(n, 4, causal).length for n in (0, 3)], [0, 3])


class Ranks:
    """The checks of one of two ranks."""

    def __init__(self, rank, mesh):
        self.rank, self.mesh = rank, mesh
        self.q = rows(2, 4, 8, 8).requires_grad_()

    def call(self, count=8, **options):
        q = self.q[:, :, :count]
        return context_parallel(q, q, q, mesh=self.mesh, **options)

    def check(self, kind, message, call):
        start = time.monotonic()
        try:
            call()
        except kind as error:
            assert message in str(error), (message, error)
            assert time.monotonic() - start < 10
        else:
            raise AssertionError(f"no error: {message}")

    def differ(self):
        """Arguments that differ between ranks."""
        r, cases = self.rank, []
        for name, both in (
            ("softcap", (1.0, 2.0)), ("scale", (1.0, 2.0)), ("mask", (None, causal)),
            ("mask", (prefix([2, 3]), prefix([2, 4]))), ("scheme", ("ring", "gather")), ("scheme", ("ring", "heads")),
            ("sink_logits", (None, torch.zeros(4))), ("score_mod", (None, by_position)),
        ):  # fmt: skip
            message = {"sink_logits": "optional tensors"}.get(name, name)
            cases.append((message, {name: both[r]}))
        cases.append(("rows, shards or length", {"shards": ("contiguous", "striped")[r]}))
        cases.append(("rows, shards or length", {"count": 8 - r}))
        for number, (message, options) in enumerate(cases):
            message = f"expected the same arguments on all ranks but got others on rank 1: {message}"
            self.check(ArgumentError, message, lambda: self.call(offset=number + 9, **options))
        self.q = self.q[: r + 1]
        self.check(ArgumentError, "others on rank 1: q, k or v", lambda: self.call(offset=99))
        self.q = self.q._base

    def differentiate(self):
        """A stage with one launch, which has some of the stage's keys."""
        shards = Shards(8, [[(0, 2, 3), (4, 2)], [(1, 2), (6, 2)]])
        q = torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
        mask = documents(starts=[0, 1, 3], length=8)
        wanted, = torch.autograd.grad(flashattn.attention(q, q, q, mask=mask).square().sum(), q)
        own = q[:, :, torch.from_numpy(shards.rows(self.rank))]
        o = context_parallel(own, own, own, mesh=self.mesh, shards=shards, scheme="ring", mask=mask)
        found, = torch.autograd.grad(o.square().sum(), q)
        dist.all_reduce(found)
        assert (found - wanted).abs().max() < 1e-4

    def attend(self):
        """A score_mod that reads positions, which lengths move, of rows that do not follow one another."""
        x, lengths = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([7, 3])
        rows = torch.from_numpy(Shards.striped(8, 2).rows(self.rank))
        options = {"score_mod": by_position, "kv_len": lengths.int(), "return_lse": True}
        wanted = flashattn.attention(x, x, x, **options)[1][:, :, rows]
        found = context_parallel(*[x[:, :, rows]] * 3, mesh=self.mesh, shards="striped", scheme="gather", **options)[1]
        assert torch.allclose(found, wanted, atol=1e-4), (found, wanted)

    def count(self):
        """The ranks compare their arguments once."""
        counted, gather = [], dist.all_gather
        dist.all_gather = lambda *args, **options: counted.append(1) or gather(*args, **options)
        for scheme in ("ring", "gather", "heads"):
            for _ in range(3):
                self.call(scheme=scheme, mask=causal).sum().backward()
        dist.all_gather = gather
        assert len(counted) == 3, counted


def run(rank, where):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{where}", rank=rank, world_size=2, timeout=timedelta(seconds=20)
    )
    ranks = Ranks(rank, init_device_mesh("cpu", (2,)))
    alone = DeviceMesh("cpu", [0])
    ranks.differ()
    ranks.differentiate()
    ranks.attend()
    ranks.count()
    results = [ranks.call(scheme=scheme, mask=causal) for scheme in ("ring", "heads")]
    if rank == 1:
        ranks.mesh = alone
        ranks.check(ArgumentError, "expected this rank to be in the mesh but it is not", ranks.call)
        ranks.mesh = dist.group.WORLD
        message = "expected 8 rows of 'q' on rank 1, as in its shards, but got 7"
        ranks.check(ArgumentError, message, lambda: ranks.call(7, length=16))
        os._exit(0)
    messages = "expected messages to and from rank 1 in "
    # This rank is in the ring when the other one ends.
    for step, call in (
        ("step 2 of 2", lambda: ranks.call(mask=causal, scheme="ring")),
        ("step 2 of 2, backward", results[0].sum().backward),
        ("the exchange of heads", lambda: ranks.call(mask=causal, scheme="heads")),
        ("the exchange of heads", results[1].sum().backward),
        ("the check of arguments", lambda: ranks.call(offset=55)),
    ):
        ranks.check(DeviceError, f"{messages}{step} of context_parallel but got: ", call)
    ranks.mesh = alone
    ranks.call()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, (os.path.join(folder, "store"),), nprocs=2)
    unittest.main(verbosity=0)

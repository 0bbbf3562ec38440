# DTensors: attention and its gradients split along batches and heads, on two processes, against whole
# tensors; what cannot be split is gathered. A model whose parameters FSDP shards learns what a whole one does.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import copy
import os
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from flashattn import affine_set, attention, causal
from flashattn import torch as ft
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

BATCH, HEADS = Shard(0), Shard(1)


def of_head(score, b, h, p, k):
    return score - 0.25 * h * (p - k)


def make(batch=2, hq=4, hkv=2, layout="bhsd"):
    shapes = [(batch, h, n, 8) for h, n in ((hq, 5), (hkv, 7), (hkv, 7))]
    made = [torch.randn(shape) for shape in shapes]
    return [x.transpose(1, 2).contiguous() if layout == "bshd" else x for x in made]


def check(mesh, tensors, operands, place, wanted, is_free=True, **options):
    """Values and gradients of DTensors in `place`, with o in `wanted`; whether the call sends nothing."""
    results = []
    for is_split in (False, True):
        leaves = [x.clone() for x in (*tensors, *(x for x, _ in operands.values()))]
        if is_split:
            places = [place] * 3 + [p for _, p in operands.values()]
            leaves = [distribute_tensor(x, mesh, [p]) for x, p in zip(leaves, places)]
        leaves = [x.requires_grad_(x.is_floating_point()) for x in leaves]
        with CommDebugMode() as sent:
            o, lse = attention(*leaves[:3], return_lse=True, **dict(zip(operands, leaves[3:])), **options)
        if is_split:
            assert isinstance(o, DTensor) and o.placements == (wanted,), (o.placements, place)
            assert (sent.get_total_counts() == 0) == is_free, (place, sent.get_comm_counts())
            o, lse = o.full_tensor(), lse.full_tensor()
        weigh = torch.linspace(-1, 1, o.numel()).reshape(o.shape)
        given = [x for x in leaves if x.requires_grad]
        found = torch.autograd.grad((o * weigh).sum() + lse.sum(), given)
        results.append([o, lse, *(x.full_tensor() if is_split else x for x in found)])
    for whole, split in zip(*results):
        torch.testing.assert_close(split, whole, rtol=1e-5, atol=1e-5)


def check_symbols(mesh, place):
    """A mask of tensors, which have the batch and the heads of a device."""
    shapes = {"per_sequence": (2,), "per_query": (2, 4, 5), "per_key": (2, 2, 7)}
    tensors = {name: torch.randint(0, 5, shape, dtype=torch.int32) for name, shape in shapes.items()}
    for short in (False, True):
        rows, results = make(), []
        if short:
            tensors = {"per_sequence": tensors["per_sequence"], **{n: tensors[n][:, 0] for n in ("per_query", "per_key")}}
        for is_split in (False, True):
            given = dict(tensors)
            if is_split:
                rows = [distribute_tensor(x, mesh, [place]) for x in rows]
                places = {n: place if x.ndim > place.dim and x.ndim != 2 else Replicate() for n, x in tensors.items()}
                given = {n: distribute_tensor(x, mesh, [places[n]]) for n, x in tensors.items()}
            mask = affine_set(
                "(p, k)[nq, nk, n, u, w] : (n + u - w - k >= 0, p - k + n >= 0)", **{n: [x] for n, x in given.items()}
            )
            leaves = [x.detach().requires_grad_() for x in rows]
            o = attention(*leaves, mask=mask)
            if is_split:
                assert o.placements == (place,), o.placements
                o = o.full_tensor()
            found = torch.autograd.grad((o * torch.linspace(-1, 1, o.numel()).reshape(o.shape)).sum(), leaves)
            results.append([o, *(x.full_tensor() if is_split else x for x in found)])
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


def check_narrow(mesh, place):
    """Keys and values of 8 bits, and their scales, which have the batch and the heads of a device."""
    q, k, v = make()
    k, v = (20 * k).to(torch.int8), (20 * v).to(torch.int8)
    scales = {"k_scale": torch.rand(2, 2, 7, 1) / 20, "v_scale": torch.rand(1, 2) / 20}
    wanted = attention(q, k, v, **scales)
    rows = [distribute_tensor(x, mesh, [place]) for x in (q, k, v)]
    places = {"k_scale": place, "v_scale": place if place is HEADS else Replicate()}
    given = {name: distribute_tensor(x, mesh, [places[name]]) for name, x in scales.items()}
    found = attention(*rows, **given)
    assert found.placements == (place,), found.placements
    torch.testing.assert_close(found.full_tensor(), wanted, rtol=1e-5, atol=1e-5)


def run(rank, where):
    dist.init_process_group("gloo", init_method=f"file://{where}", rank=rank, world_size=2)
    torch.manual_seed(3)
    mesh = init_device_mesh("cpu", (2,))
    wide, narrow = torch.randn(2, 4, 5, 7), torch.randn(4, 1, 7)
    sinks, attn_mask = torch.randn(4), torch.rand(2, 1, 5, 7) > 0.3
    lengths = torch.tensor([4, 7], dtype=torch.int32)
    whole = Replicate()
    check(mesh, make(hkv=1), {}, whole, whole)
    for place in (BATCH, HEADS):
        check(mesh, make(), {}, place, place, mask=causal)
        rest = {"bias": (wide, place), "attn_mask": (attn_mask, BATCH if place is BATCH else whole),
                "sink_logits": (sinks, Shard(0) if place is HEADS else whole),
                "kv_len": (lengths, Shard(0) if place is BATCH else whole)}  # fmt: skip
        check(mesh, make(), rest, place, place, softcap=5.0)
        # What is broadcast stays whole, and its gradient is a sum.
        spread = Shard(0) if place is HEADS else whole
        check(mesh, make(), {"bias": (narrow, spread)}, place, place, scale=0.3)
        check_symbols(mesh, place)
        check_narrow(mesh, place)
    check(mesh, make(layout="bshd"), {}, Shard(2), Shard(2), layout="bshd", mask=causal)
    check(mesh, make(layout="bshd"), {}, Shard(0), Shard(0), layout="bshd")
    check(mesh, make(batch=3), {}, BATCH, BATCH)
    # Query heads would read key heads of another device; keys are gathered for their rows; a score_mod
    # counts heads.
    check(mesh, make(hq=6, hkv=3), {}, HEADS, whole, is_free=False)
    check(mesh, make(hkv=4), {}, Shard(2), whole, is_free=False)
    check(mesh, make(), {}, HEADS, whole, is_free=False, score_mod=of_head)
    check(mesh, make(), {}, BATCH, BATCH, score_mod=of_head)
    square = init_device_mesh("cpu", (1, 2))
    tensors = make()
    split = [distribute_tensor(x, square, [BATCH, HEADS]) for x in tensors]
    o = ft.sdpa(*split, is_causal=True, enable_gqa=True)
    assert o.placements == (BATCH, HEADS), o.placements
    torch.testing.assert_close(o.full_tensor(), ft.sdpa(*tensors, is_causal=True, enable_gqa=True))
    caches = [distribute_tensor(torch.zeros(2, 2, 8, 8), mesh, [HEADS]) for _ in range(2)]
    q, k, v = (distribute_tensor(torch.randn(2, h, 1, 8), mesh, [HEADS]) for h in (4, 2, 2))
    lengths = distribute_tensor(torch.tensor([3, 8]), mesh, [whole])
    for new in ((), (k, v)):
        with unittest.TestCase().assertRaisesRegex(RuntimeError, "expected plain tensors for decoding but got DTensors"):
            ft.decode(q, *caches, lengths, *new)
    local = [x.to_local() for x in (q, *caches, lengths, k, v)]
    assert ft.decode(*local).shape == (2, 2, 1, 8)
    dist.destroy_process_group()


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(32, 64)
        self.sinks = torch.nn.Parameter(torch.randn(4))

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (8, 8)).split([4, 2, 2], dim=2)
        o = attention(q, k, v, layout="bshd", mask=causal, sink_logits=self.sinks)
        return x + torch.tanh(o.flatten(2))


def run_fsdp(rank, where):
    dist.init_process_group("gloo", init_method=f"file://{where}", rank=rank, world_size=2)
    torch.manual_seed(4)
    whole = torch.nn.Sequential(Layer(), Layer())
    sharded = copy.deepcopy(whole)
    mesh = init_device_mesh("cpu", (2,))
    for module in (*sharded, sharded):
        fully_shard(module, mesh=mesh)
    tokens = torch.randn(2, 4, 6, 32)
    results = []
    for model, part in ((whole, slice(None)), (sharded, slice(2 * rank, 2 * rank + 2))):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for batch in tokens:
            loss = model(batch[part]).square().mean()
            loss.backward()
            gradients = [x.grad for x in model.parameters()]
            optimizer.step()
            optimizer.zero_grad()
        results.append([*gradients, *model.parameters(), model(tokens[0])])
    is_split = [isinstance(x, DTensor) and x.to_local().shape != x.shape for x in results[1][:-1]]
    assert all(is_split), is_split
    for one, other in zip(*results):
        other = other.full_tensor() if isinstance(other, DTensor) else other
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)
    dist.destroy_process_group()


class ShardingTest(unittest.TestCase):
    @unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch lacks gloo")
    def test_two_processes(self):
        for function in (run, run_fsdp):
            with self.subTest(function.__name__), tempfile.TemporaryDirectory() as folder:
                mp.spawn(function, (os.path.join(folder, "store"),), nprocs=2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(argv=sys.argv)

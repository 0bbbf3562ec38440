# Context parallelism on 4 processes against whole sequences on one: values and gradients of random calls, over schemes,
# shards, masks, lengths, heads, packed sequences, operands and meshes of 2 and 4 ranks.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import os
import random
import sys
import tempfile
import warnings

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from flashattn import Mask, Shards, _context, affine_set, attention, causal, causal_if, documents, prefix, sink, tree
from flashattn import window
from flashattn.torch import context_parallel
from torch.distributed.device_mesh import init_device_mesh

COUNT = int(os.environ.get("FLASHATTN_TEST_COUNT", "8"))
SEED = int(os.environ.get("FLASHATTN_TEST_SEED", "53"))
WORLD = int(os.environ.get("FLASHATTN_TEST_RANKS", "4"))
#: "cuda" runs the same cases through NCCL, one GPU a process.
DEVICE = os.environ.get("FLASHATTN_TEST_DEVICE", "cpu")


def random_mask(rng, nq, nk, batch, heads, kv_heads):
    size = max(nq, nk)

    def numbers(length, of_heads):
        shape = rng.choice([(length,), (batch, length), (batch, of_heads, length), (1, 1, length)])
        return torch.tensor(numpy.array([rng.randrange(-2, size + 2) for _ in range(numpy.prod(shape))]).reshape(shape),
                            dtype=torch.int32)  # fmt: skip

    per_batch = torch.tensor([rng.randrange(size) for _ in range(batch)], dtype=torch.int32)
    masks = [
        None, causal, causal, window(rng.randrange(9), 0), window(rng.randrange(6), rng.randrange(6)),
        sink(2) & causal, window(5, 0) | sink(2) & causal, prefix(per_batch) | causal, causal_if([1] * batch),
        affine_set("(p, k)[nq, nk] : (p - k >= 0, k mod 4 == 0)"),
        affine_set("(a, b)[m, n] : (a floordiv 4 - b floordiv 4 >= 0, n - 2 - b >= 0)"),
        affine_set("(p, k)[nq, nk, u] : (u - k >= 0)", per_query=[numbers(nq, heads)]),
        affine_set("(p, k)[nq, nk, s, u, w] : (p + s - w >= 0, k - u >= 0)", per_sequence=[per_batch],
                   per_query=[numbers(nq, heads)], per_key=[numbers(nk, kv_heads)]),
        Mask("#flashattn.any_of<[]>"),
    ]  # fmt: skip
    if nq == nk and nq > 1:
        starts = [0] + sorted(rng.sample(range(1, size), min(3, size - 1)))
        masks += [documents(starts=starts, length=nq, causal=True), documents(starts=starts, length=nq)]
        masks.append(tree([-1] + [i if rng.random() < 0.7 else -1 for i in range(nq - 1)]))
    return rng.choice(masks)


def random_shards(rng, length, ranks):
    kind = rng.choice(["contiguous", "zigzag", "striped", "chunks", "chunks"])
    if kind != "chunks":
        return getattr(Shards, kind)(length, ranks)
    cuts = sorted(rng.choices(range(length + 1), k=min(7, length)))
    held = [[] for _ in range(ranks)]
    for first, end in zip([0, *cuts], [*cuts, length]):
        rng.choice(held).append((first, end - first))
    return Shards(length, held)


def by_position(score, b, h, p, k):
    return score - 0.125 * h * (p - k) + 0.01 * b


def by_position_and_slope(score, b, h, p, k, slopes):
    return score + slopes[h] * (k - 0.5 * p)


def by_head(score, b, h, p, k):
    return score * (1.0 + 0.25 * h)


class Case:
    """One random call, which is the same on every rank."""

    def __init__(self, rng, ranks, is_square):
        generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
        self.nq = rng.choice([1, 3, 8, 17, 32, 33])
        self.nk = self.nq if rng.random() < 0.75 else rng.choice([1, 5, 12, 40])
        self.kv_heads = rng.choice([1, 2, 4])
        self.heads = self.kv_heads * rng.choice([1, 2])
        self.batch = rng.choice([1, 1, 2])
        self.layout = rng.choice(["bhsd", "bshd"])
        self.dtype = rng.choice([torch.float32, torch.float32, torch.float16, torch.bfloat16])
        self.scheme = rng.choice(["ring", "gather", "heads", "auto"])
        if self.scheme == "heads" or is_square:
            self.heads, self.kv_heads = rng.choice([(4, 1), (4, 2), (4, 4), (8, 2), (8, 4)])
            if WORLD % 2:
                self.heads, self.kv_heads = rng.choice([(WORLD, 1), (2 * WORLD, WORLD), (2 * WORLD, 2)])
        self.axis = 2 if self.layout == "bhsd" else 1
        mask = random_mask(rng, self.nq, self.nk, self.batch, self.heads, self.kv_heads)
        self.options = {"mask": mask, "layout": self.layout, "scale": rng.choice([None, 0.3])}
        self.own = {}
        d, dv = rng.choice([(8, 8), (16, 8)])

        def make(count, rows, width):
            shape = [self.batch, count, rows, width]
            x = torch.randn(shape, generator=generator)
            return (x if self.layout == "bhsd" else x.transpose(1, 2).contiguous()).to(self.dtype)

        self.tensors = make(self.heads, self.nq, d), make(self.kv_heads, self.nk, d), make(self.kv_heads, self.nk, dv)
        self.weights = make(self.heads, self.nq, dv), torch.randn(self.batch, self.heads, self.nq, generator=generator)
        if rng.random() < 0.2:
            self.options["softcap"] = 3.0
        self.operands = {}
        if rng.random() < 0.25:
            self.operands["sink_logits"] = torch.randn(self.heads, generator=generator)
        kind = rng.randrange(10)
        self.packed = None
        self.is_square = bool(mask is not None and mask._of_rows)
        if kind == 0 and self.scheme != "heads":
            rows = rng.choice([1, self.nq])
            shape = rng.choice([1, self.heads]), rows, rng.choice([1, self.nk])
            self.operands["bias"] = torch.randn(shape, generator=generator)
        elif kind == 1 and self.scheme != "heads":
            self.operands["attn_mask"] = torch.rand(self.batch, 1, self.nq, self.nk, generator=generator) > 0.3
        elif kind == 2 and not self.is_square:
            lengths = [rng.randrange(self.nk + 1) for _ in range(self.batch)]
            self.operands["kv_len"] = torch.tensor(lengths, dtype=torch.int32)
            if rng.random() < 0.5:
                self.options["align"] = "top_left"
        elif kind in (3, 4) and self.nq == self.nk and not self.is_square and self.batch == 1 and self.nq > 3 and (
            mask is None or not any(not name.startswith("per_sequence") for name, _ in mask._symbols)
        ):
            mask_numbers = [] if mask is None else [x for _, x in mask._symbols]
            if not mask_numbers:
                cuts = sorted(rng.choices(range(self.nq + 1), k=3))
                self.packed = torch.tensor([cuts[0] // 2, *cuts], dtype=torch.int32)
        elif kind == 5 and not self.is_square:
            self.options["offset"] = rng.randrange(-3, 9)
        if rng.random() < 0.25:
            functions = [by_head, by_position, by_position_and_slope]
            function = rng.choice(functions if self.packed is None else functions[:1])
            self.options["score_mod"] = function
            if function is by_position_and_slope:
                self.options["aux_tensors"] = (torch.randn(self.heads, generator=generator) * 0.1,)
        self.tensors, self.weights = ([x.to(DEVICE) for x in xs] for xs in (self.tensors, self.weights))
        self.operands = {name: x.to(DEVICE) for name, x in self.operands.items()}
        if self.packed is not None:
            self.packed = self.packed.to(DEVICE)
        if "aux_tensors" in self.options:
            self.options["aux_tensors"] = tuple(x.to(DEVICE) for x in self.options["aux_tensors"])
        if mask is not None:
            numbers = [(name, x if isinstance(x, int) else torch.as_tensor(x).to(DEVICE)) for name, x in mask._symbols]
            self.options["mask"] = Mask(str(mask), symbols=tuple(numbers), of_rows=mask._of_rows)
        self.shards = random_shards(rng, self.nq, ranks), random_shards(rng, self.nk, ranks)
        if self.nq == self.nk:
            self.shards = self.shards[0], self.shards[0]
        if self.layout == "bshd" and self.batch == 1 and self.packed is not None and rng.random() < 0.5:
            self.layout_name = "thd"
        else:
            self.layout_name = self.layout

    def __repr__(self):
        kept = {name: x for name, x in vars(self).items() if name not in ("tensors", "weights", "own")}
        return str(kept)

    def leaves(self):
        return [x.detach().clone().requires_grad_() for x in (*self.tensors, *self.operands_with_gradients())]

    def operands_with_gradients(self):
        return [x for name, x in self.operands.items() if name in ("bias", "sink_logits")]

    def whole(self):
        """The result and the gradients of the whole sequence."""
        leaves = self.leaves()
        given = {name: x for name, x in self.operands.items()}
        given.update(zip([n for n in given if n in ("bias", "sink_logits")], leaves[3:]))
        options = {**self.options, **given}
        if self.packed is not None:
            options.update(cu_seqlens_q=self.packed, cu_seqlens_k=self.packed)
        o, lse = attention(*leaves[:3], return_lse=True, **options)
        return self.differentiate(o, lse, leaves, self.weights)

    def differentiate(self, o, lse, leaves, weights):
        shown = torch.where(torch.isinf(lse), 0.0, lse)
        loss = (o.float() * weights[0].float()).sum() + (shown * weights[1]).sum()
        return [o.detach(), lse.detach(), *torch.autograd.grad(loss, leaves)]

    def cut(self, x, which, rank, axis=None):
        rows = torch.from_numpy(self.shards[which].rows(rank)).to(x.device)
        return x.index_select(self.axis if axis is None else axis, rows)

    def parts(self, mesh, rank, **mesh_options):
        """The same of one rank, and the whole result cut for it."""
        leaves = self.leaves()
        local = [self.cut(x, at > 0, rank) for at, x in enumerate(leaves[:3])]
        given, at = {}, 3
        for name, x in self.operands.items():
            if name in ("bias", "sink_logits"):
                x, at = leaves[at], at + 1
            if name in ("bias", "attn_mask") and x.shape[-2] > 1:
                x = self.cut(x, 0, rank, x.ndim - 2)
            given[name] = x
        weights = self.cut(self.weights[0], 0, rank), self.cut(self.weights[1], 0, rank, 2)
        options = {**self.options, **given, "layout": self.layout_name}
        if self.packed is not None:
            options["cu_seqlens"] = self.packed
        if self.layout_name == "thd":
            local = [x[0] for x in local]
        o, lse = context_parallel(
            *local, mesh=mesh, shards=self.shards[0], k_shards=self.shards[1], scheme=self.scheme, return_lse=True,
            **options, **mesh_options,
        )  # fmt: skip
        if self.layout_name == "thd":
            o, lse = o[None], lse[None]
        return self.differentiate(o, lse, leaves, weights)


def is_close(found, wanted, dtype):
    limit = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    both = [x.float() for x in (found, wanted)]
    if not torch.equal(*map(torch.isinf, both)) or torch.isnan(both[0]).any():
        return False
    both = [torch.where(torch.isinf(x), 0.0, x) for x in both]
    return (both[0] - both[1]).abs().max() <= limit * max(1.0, float(both[1].abs().max())) if both[1].numel() else True


def check(case, mesh, rank, group, **mesh_options):
    wanted = case.whole()
    try:
        found = case.parts(mesh, rank, **mesh_options)
    except Exception as error:
        error.args = (f"{error}\n{case}",)
        raise
    o, lse, *gradients = found
    for x in gradients:
        dist.all_reduce(x, group=group)
    pairs = [(o, case.cut(wanted[0], 0, rank)), (lse, case.cut(wanted[1], 0, rank, 2)), *zip(gradients, wanted[2:])]
    for at, (one, other) in enumerate(pairs):
        assert is_close(one, other, case.dtype), (at, case, (one.float() - other.float()).abs().max())


def run(rank, where):
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{where}", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # masks that hide every pair
    _context._CUT_ROWS = 4  # so that launches are cut in short sequences too
    every = init_device_mesh(DEVICE, (WORLD,))
    kinds = ["all", "pair", "pair", "square"]
    if WORLD % 2:
        kinds = ["all"]
    else:
        square = init_device_mesh(DEVICE, (WORLD // 2, 2), mesh_dim_names=("outer", "inner"))
        pair = square["inner"]
    rng = random.Random(SEED)
    for number in range(COUNT):
        kind = rng.choice(kinds)
        case = Case(rng, 2 if kind == "pair" else WORLD, kind == "square")
        if kind == "square":
            if case.scheme == "heads":
                case.scheme = "ring"
            for name in ("bias", "attn_mask"):
                case.operands.pop(name, None)
        try:
            if kind == "all":
                check(case, every, rank, every.get_group())
            elif kind == "pair":
                check(case, pair, pair.get_local_rank(), pair.get_group())
            else:
                check(case, square, rank, every.get_group(), dim=("outer", "inner"))
        except Exception:
            print(f"case {number} on {kind}", file=sys.stderr)
            raise
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, (os.path.join(folder, "store"),), nprocs=WORLD)
    print("OK")

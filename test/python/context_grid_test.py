# Context parallelism over the grid of configurations by which TransformerEngine tests its own (how keys travel, masks
# and windows, biases, heads, layouts), and over what it refuses: windows and sinks in rings, score functions, and tails
# that no rank pads; then DTensors, torch.compile and torch's own context manager. By default some of the grid;
# FLASHATTN_TEST_GRID=all runs all of it.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import itertools
import os
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from flashattn import ArgumentError, Shards, attention, causal, sink, window
from flashattn.torch import context_parallel, replace_sdpa
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel as context_manager
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from context_parallel_test import Case, by_position, check  # noqa: E402

SCHEMES = {"p2p": "ring", "all_gather": "gather", "a2a": "heads", "a2a+p2p": "ring"}
MASKS = {"none": None, "causal": causal, "window both": window(6, 5), "window left": window(6, 0)}
#: Query heads, key/value heads, and the head dimensions of keys and values.
HEADS = {"MHA": (4, 4, 16, 16), "GQA": (8, 4, 16, 16), "MLA": (4, 4, 24, 16)}
LAYOUTS = ("bshd", "sbhd", "thd")


class GridCase(Case):
    """A configuration of the grid."""

    def __init__(
        self, comm, mask, heads, layout, dtype, length=32, shards="zigzag", bias=False, sinks=False, score_mod=None,
    ):  # fmt: skip
        generator = torch.Generator().manual_seed(11)
        self.name = (comm, mask, heads, layout, dtype, length, shards, bias, sinks, score_mod)
        self.scheme, self.dtype, self.nq, self.nk = SCHEMES[comm], dtype, length, length
        self.is_square_mesh = comm == "a2a+p2p"
        self.heads, self.kv_heads, d, dv = HEADS[heads]
        self.batch = 1 if layout == "thd" else 2
        self.layout = "bhsd" if layout == "sbhd" else "bshd"
        self.layout_name = "thd" if layout == "thd" else self.layout
        self.axis = 2 if self.layout == "bhsd" else 1
        self.packed = torch.tensor([0, 9, 9, 23, length], dtype=torch.int32) if layout == "thd" else None

        def make(count, width):
            if layout == "sbhd":  # read where it lies, as a view [B, H, S, D]
                return torch.randn(length, self.batch, count, width, generator=generator).to(dtype).permute(1, 2, 0, 3)
            return torch.randn(self.batch, length, count, width, generator=generator).to(dtype)

        self.tensors = make(self.heads, d), make(self.kv_heads, d), make(self.kv_heads, dv)
        self.weights = make(self.heads, dv), torch.randn(self.batch, self.heads, length, generator=generator)
        self.options = {"mask": MASKS[mask] if isinstance(mask, str) else mask, "layout": self.layout}
        if score_mod is not None:
            self.options["score_mod"] = score_mod
        self.operands = {}
        if bias:
            self.operands["bias"] = torch.randn(self.heads, length, length, generator=generator)
        if sinks:
            self.operands["sink_logits"] = torch.randn(self.heads, generator=generator)
        ranks = 4 if self.is_square_mesh else 2
        cut = getattr(Shards, shards)(length, ranks)
        self.shards = cut, cut

    def __repr__(self):
        return str(self.name)


def grid():
    for index, (comm, mask, heads, layout) in enumerate(itertools.product(SCHEMES, MASKS, HEADS, LAYOUTS)):
        dtype = (torch.bfloat16, torch.float16)[index % 2]
        yield GridCase(comm, mask, heads, layout, dtype)
        if comm in ("p2p", "all_gather") and layout != "thd" and not mask.startswith("window"):
            yield GridCase(comm, mask, heads, layout, dtype, bias=True)


def refused_elsewhere():
    """What TransformerEngine refuses or, for tails, computes wrongly."""
    for comm in ("p2p", "a2a+p2p"):
        yield GridCase(comm, "window left", "GQA", "bshd", torch.bfloat16, sinks=True)
        yield GridCase(comm, window(4, 0) | sink(2) & causal, "MHA", "sbhd", torch.float16, sinks=True)
        yield GridCase(comm, "causal", "GQA", "bshd", torch.bfloat16, score_mod=by_position)
        for shards in ("zigzag", "contiguous", "striped"):
            yield GridCase(comm, "causal", "GQA", "bshd", torch.bfloat16, length=29, shards=shards)
            yield GridCase(comm, "window both", "MLA", "thd", torch.float16, length=31, shards=shards)


def check_front_ends(mesh):
    """DTensors, torch.compile without graph breaks, and torch's own context manager, against whole sequences."""
    torch.manual_seed(5)
    q, k, v = (torch.randn(1, heads, 32, 16) for heads in (4, 2, 2))
    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    o = attention(*whole, mask=causal)
    weights = torch.randn_like(o)
    gradients = torch.autograd.grad(o, whole, weights)
    split = [distribute_tensor(x.clone(), mesh, [Shard(2)]).requires_grad_() for x in (q, k, v)]
    found = context_parallel(*split, mesh=mesh, mask=causal)
    assert isinstance(found, DTensor) and found.placements == (Shard(2),), found
    torch.testing.assert_close(found.full_tensor(), o, rtol=1e-4, atol=1e-5)
    of_split = torch.autograd.grad(found, split, distribute_tensor(weights, mesh, [Shard(2)]))
    torch.testing.assert_close([x.full_tensor() for x in of_split], list(gradients), rtol=1e-4, atol=1e-5)

    shards = Shards.zigzag(32, 2)
    rows = torch.from_numpy(shards.rows(mesh.get_local_rank()))
    local = [x[:, :, rows].clone().requires_grad_() for x in (q, k, v)]
    compiled = torch.compile(
        lambda q, k, v: context_parallel(q, k, v, mesh=mesh, shards="zigzag", mask=causal), fullgraph=True,
        backend="aot_eager",
    )  # fmt: skip
    compiled(*(x.detach()[:, :, :6] for x in local))  # another length is another graph
    found = compiled(*local)
    torch.testing.assert_close(found, o[:, :, rows], rtol=1e-4, atol=1e-5)
    of_local = list(torch.autograd.grad(found, local, weights[:, :, rows]))
    for x in of_local[1:]:  # whole gradients of this rank's keys
        assert x.shape[2] == 16
    torch.testing.assert_close(of_local, [x[:, :, rows] for x in gradients], rtol=1e-4, atol=1e-5)

    cut = [x.clone() for x in (q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))]
    with context_manager(mesh, buffers=cut, buffer_seq_dims=[2, 2, 2]), replace_sdpa(mesh=mesh, shards="zigzag"):
        found = scaled_dot_product_attention(*cut, is_causal=True)
    torch.testing.assert_close(found, o[:, :, rows].detach(), rtol=1e-4, atol=1e-5)
    for options, wanted in (({"shards": "zigzag"}, "mesh with shards"), ({"mesh": mesh, "mask": None}, "'mask'")):
        try:
            replace_sdpa(**options)
        except ArgumentError as error:
            assert wanted in str(error), error
        else:
            raise AssertionError(options)


def run(rank, where):
    dist.init_process_group("gloo", init_method=f"file://{where}", rank=rank, world_size=4)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    every = init_device_mesh("cpu", (4,))
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    pair = square["inner"]
    is_whole = os.environ.get("FLASHATTN_TEST_GRID") == "all"
    cases = [*grid(), *refused_elsewhere()]
    count = 0
    for case in cases if is_whole else [*cases[5:156:31], *cases[-16::4]]:
        if case.is_square_mesh:
            check(case, square, rank, every.get_group(), dim=("outer", "inner"))
        else:
            check(case, pair, pair.get_local_rank(), pair.get_group())
        count += 1
    check_front_ends(pair)
    if rank == 0:
        print(f"{count} of {len(cases)} configurations")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, (os.path.join(folder, "store"),), nprocs=4)
    print("OK")

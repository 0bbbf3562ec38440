# On a GPU with torch: random problems against a reference of torch in float64, with guard margins;
# the same bits at every repetition; more heads and more elements than 16 and 31 bits count.
# REQUIRES: python-package, cuda, torch
# RUN: %flashattn_python %s
#
# By hand, as cuda_test.py; --seed and --count choose other problems, --problem=N runs one of them
# alone, --device=cpu tries the test itself without a GPU.

import argparse
import random
import sys
import time

import torch

import cuda_test
import flashattn
from cuda_test import TYPES, bits, expect
from flashattn import (
    _cache,
    _reference,
    affine_set,
    attention,
    attention_backward,
    causal,
    sink,
    window,
)

#: Mask and alignment.
MASKS = {
    "none": (None, "bottom_right"),
    "causal": (causal, "bottom_right"),
    "causal top-left": (causal, "top_left"),
    "window 64": (window(left=63, right=0), "bottom_right"),
    "window 700": (window(left=699, right=0), "bottom_right"),
    "window both ways": (window(left=17, right=40), "top_left"),
    "sinks": (window(left=127, right=0) | sink(4) & causal, "bottom_right"),
    "set as causal": (affine_set("(p, k)[nq, nk] : (p - k >= 0)"), "bottom_right"),
    "set of blocks": (affine_set("(p, k)[nq, nk] : (p floordiv 96 - k floordiv 96 == 0)"), "bottom_right"),
    "set with steps": (affine_set("(p, k)[nq, nk] : (p - k >= 0, k mod 3 == 0)"), "bottom_right"),
}
WIDTHS = (16, 32, 64, 80, 96, 128, 256)
#: Relative Frobenius norm of the error.
RELATIVE = {"f16": 1e-3, "bf16": 8e-3}
#: A NaN whose bits no arithmetic gives: what nobody wrote.
POISON = 0x7E5A
#: Elements on either side of an output.
MARGIN = 512
#: Scores of a problem, so that all of them take a minute.
MOST_SCORES = 1 << 27

#: What is repeated: batches, heads, heads of keys, queries, keys, D, type and mask.
REPEATED = (
    (1, 8, 8, 1024, 1024, 128, "f16", "none"),
    (2, 6, 2, 777, 1333, 128, "bf16", "causal"),
    (1, 16, 2, 2000, 2000, 64, "bf16", "sinks"),
    (1, 4, 4, 515, 515, 256, "f16", "causal"),
)
TURNS = {"cuda": 1000, "cpu": 3}

options = argparse.Namespace(device="cuda", seed=20, count=500, problem=None)


def make_kinds(chooser):
    """What kernels are compiled for. Each is met with rows of two of three sorts, so that there are
    at most 56."""
    masks, kinds = [], []
    for d in WIDTHS:
        for element in ("f16", "bf16"):
            for layout in ("bhsd", "bshd"):
                if not masks:
                    masks = list(MASKS)
                    chooser.shuffle(masks)
                rows = ("dense", "strided") if len(kinds) % 2 else ("dense", "aligned")
                if len(kinds) % 5 == 0:
                    rows = ("aligned", "strided")
                lse = len(kinds) % 3 > 0
                kinds.append((element, d, masks.pop(), layout, lse, rows))
    return kinds


def choose_length(chooser):
    kind = chooser.random()
    if kind < 0.4:
        return chooser.randint(1, 64)
    if kind < 0.7:  # at the edges of tiles
        tile = chooser.choice((48, 64, 80, 96, 128, 192))
        return max(1, tile * chooser.randint(1, 8) + chooser.randint(-1, 1))
    if kind < 0.9:
        return chooser.randint(65, 1500)
    return chooser.randint(1500, 5000)


def choose_problem(chooser, kinds):
    element, d, mask, layout, lse, rows = chooser.choice(kinds)
    problem = {
        "element": element, "d": d, "mask": mask, "layout": layout, "lse": lse, "rows": chooser.choice(rows),
        "batch": chooser.randint(1, 3), "kv_heads": chooser.randint(1, 3), "group": chooser.choice((1, 2, 3, 8)),
        "nq": choose_length(chooser), "nk": choose_length(chooser), "seed": chooser.getrandbits(31),
    }  # fmt: skip
    if chooser.random() < 0.3:
        problem["nk"] = problem["nq"]
    # Large ones have fewer heads.
    for name in ("batch", "kv_heads", "group"):
        scores = problem["batch"] * problem["kv_heads"] * problem["group"]
        if scores * problem["nq"] * problem["nk"] > MOST_SCORES:
            problem[name] = 1
    return problem


def memory(count, element, poisoned):
    """`count` elements: poison, or NaN where the inputs do not lie."""
    flat = torch.empty(count, device=options.device, dtype=TYPES[element])
    if poisoned:
        bits(flat).fill_(POISON)
    else:
        flat.fill_(float("nan"))
    return flat


def place(shape, way, element, chooser, poisoned):
    """A tensor of `shape` in memory of its own, and that memory. `way`: dense; aligned, with rows at
    multiples of 16 bytes; strided, with rows anywhere."""
    sizes, order, before, offset = list(shape), [0, 1, 2], [0] * 4, MARGIN
    if way != "dense":
        chooser.shuffle(order)
        # Rows of a wider tensor, and a slice of a longer or larger one.
        pad = 8 * chooser.randint(1, 4) if way == "aligned" else chooser.randint(1, 15)
        sizes[3] += pad
        before[3] = 8 * chooser.randint(0, pad // 8) if way == "aligned" else chooser.randint(0, pad)
        if chooser.random() < 0.5:
            sizes[2] += 3
            before[2] = chooser.randint(0, 3)
        offset += 8 * chooser.randint(0, 3) if way == "aligned" else chooser.randint(0, 15)
        if way == "strided" and chooser.random() < 0.3:
            # Rows that are dense but begin beside a multiple of 16 bytes.
            sizes, before, offset = list(shape), [0] * 4, MARGIN + chooser.randint(1, 7)
    strides, step = [0, 0, 0, 1], sizes[3]
    for dim in reversed(order):
        strides[dim], step = step, step * sizes[dim]
    flat = memory(offset + step + MARGIN, element, poisoned)
    start = offset + sum(n * stride for n, stride in zip(before, strides))
    return flat.as_strided(shape, strides, start), flat


def make_inputs(problem, chooser):
    """q, k and v, and whether heads of k and v are one and the same in memory."""
    generator = torch.Generator(device=options.device).manual_seed(problem["seed"])
    heads = problem["kv_heads"] * problem["group"]
    ways, expanded = [problem["rows"]] * 3, False
    if problem["rows"] == "aligned":
        expanded = chooser.random() < 0.25
    elif problem["rows"] == "strided":
        # One operand decides for all.
        ways = [chooser.choice(("dense", "aligned", "strided")) for _ in range(3)]
    tensors = []
    for count, length, way in zip(
        (heads, problem["kv_heads"], problem["kv_heads"]),
        (problem["nq"], problem["nk"], problem["nk"]),
        ways,
    ):
        shared = expanded and tensors
        shape = [problem["batch"], 1 if shared else count, length, problem["d"]]
        if problem["layout"] == "bshd":
            shape[1], shape[2] = shape[2], shape[1]
        x, _ = place(shape, way, problem["element"], chooser, poisoned=False)
        x.copy_(torch.randn(shape, device=options.device, generator=generator).to(x.dtype))
        if shared:
            shape[1 if problem["layout"] == "bhsd" else 2] = count
            x = x.expand(shape)
        tensors.append(x)
    return tensors, expanded


def in_heads(x, layout):
    return x if layout == "bhsd" else x.transpose(1, 2)


def reference(q, k, v, seen, kind, round_to=None):
    """o and lse of heads that have each a key head, in `kind`; `round_to` rounds the probabilities
    (rules A5, A6)."""
    q, k, v = (x.to(kind) for x in (q, k, v))
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    if seen is not None:
        scores.masked_fill_(~seen, -float("inf"))
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp_(scores.sub_(top.masked_fill(top == -float("inf"), 0)))
    total = weights.sum(-1, keepdim=True)
    weights /= total.masked_fill(total == 0, 1)
    if round_to is not None:
        weights = weights.to(round_to).to(kind)
    return weights @ v, (top + total.log())[..., 0]


def compare(o, lse, q, k, v, mask, align, element, first=0, queries=None):
    """Raises where o or lse is off; operands as bhsd, row 0 of q being row `first` of `queries`, and
    all of the keys there. Gives the error over its bound."""
    nq, nk = q.shape[2], k.shape[2]
    queries = queries or nq
    position = first + torch.arange(nq, device=q.device)[:, None]
    position = position + (nk - queries if align == "bottom_right" else 0)
    keys = torch.arange(nk, device=q.device)[None, :]
    seen = None if mask is None else _reference.visible(mask, position, keys, queries, nk)
    group = q.shape[1] // k.shape[1]
    # A batch and a few heads at once.
    step = max(1, (1 << 26) // (group * nq * nk))
    worst = bound = lse_error = difference = norm = 0.0
    for b in range(q.shape[0]):
        for h in range(0, k.shape[1], step):
            key, value = (x[b, h : h + step, None] for x in (k, v))
            heads = slice(h * group, min(h + step, k.shape[1]) * group)
            query, found = (
                x[b, heads].reshape(-1, group, nq, x.shape[-1]) for x in (q, o)
            )
            exact, exact_lse = reference(query, key, value, seen, torch.float64)
            naive, _ = reference(query, key, value, seen, torch.float32, TYPES[element])
            error = found.double() - exact
            worst = max(worst, error.abs().max().item())
            expect(worst == worst and not bool(error.isnan().any()), "NaN in o")
            naive_error = naive.to(TYPES[element]).double() - exact
            bound = max(bound, naive_error.abs().max().item())
            difference += error.square().sum().item()
            norm += exact.square().sum().item()
            if lse is not None:
                found_lse = lse[b, heads].reshape(exact_lse.shape).double()
                empty = exact_lse == -float("inf")
                expect(torch.equal(found_lse == -float("inf"), empty), "lse of rows that see no key")
                off = (found_lse - exact_lse).masked_fill(empty, 0).abs() / exact_lse.abs().clamp(min=1)
                lse_error = max(lse_error, off.masked_fill(empty, 0).max().item())
    bound = 2 * bound + 1e-5
    expect(worst <= bound, f"error {worst:.2e} exceeds {bound:.2e}")
    relative = (difference / norm) ** 0.5 if norm else 0.0
    expect(relative <= RELATIVE[element], f"relative error {relative:.2e} exceeds {RELATIVE[element]}")
    expect(lse_error <= 1e-3, f"error {lse_error:.2e} of lse exceeds 1e-3")
    return worst / bound


def is_untouched(flat, written):
    """Whether all of `flat` but `written`, a view of it, is poison. Poisons that too."""
    bits_of = torch.int16 if flat.element_size() == 2 else torch.int32
    whole = flat.view(bits_of)
    whole.as_strided(
        written.shape, written.stride(), written.storage_offset() - flat.storage_offset()
    ).fill_(POISON)
    return bool((whole == POISON).all())


def run_problem(problem):
    chooser = random.Random(problem["seed"])
    element, layout = problem["element"], problem["layout"]
    mask, align = MASKS[problem["mask"]]
    (q, k, v), _ = make_inputs(problem, chooser)
    o, o_memory = place(tuple(q.shape), problem["rows"], element, chooser, poisoned=True)
    out, lse = o, None
    if problem["lse"]:
        heads = in_heads(q, layout).shape[:3]
        lse_memory = torch.empty(
            heads.numel() + 2 * MARGIN, device=options.device, dtype=torch.float32
        )
        lse_memory.view(torch.int32).fill_(POISON)
        lse = lse_memory[MARGIN:-MARGIN].view(heads)
        out = (o, lse)
    attention(q, k, v, mask=mask, align=align, layout=layout, return_lse=problem["lse"], out=out)
    operands = (in_heads(x, layout) for x in (q, k, v))
    part = compare(in_heads(o, layout), lse, *operands, mask, align, element)
    expect(is_untouched(o_memory, o), "something beside o was written")
    if lse is not None:
        expect(is_untouched(lse_memory, lse), "something beside lse was written")
    return part


def test_random():
    """Lengths, heads, types, masks, layouts and strides by chance."""
    chooser = random.Random(options.seed)
    kinds = make_kinds(chooser)
    problems = [choose_problem(chooser, kinds) for _ in range(options.count)]
    failures, parts, before = [], [], set(_cache.cache.kernels)
    for number, problem in enumerate(problems):
        if options.problem is not None and number != options.problem:
            continue
        try:
            parts.append(run_problem(problem))
        except Exception as error:
            failures.append(f"problem {number}, {problem}: {type(error).__name__}: {error}")
            print(f"  FAIL {failures[-1]}", flush=True)
            # After a fatal error of the device nothing runs.
            expect("fatal error" not in str(error), failures[-1])
        if number % 100 == 99:
            print(f"  {number + 1} of {len(problems)}, {len(failures)} failed", flush=True)
    expect(not failures, f"{len(failures)} of {len(problems)} failed, first {failures[:1]}")
    made = len(set(_cache.cache.kernels) - before)
    return f"{len(parts)} problems, {made} kernels; largest error {max(parts):.2f} of its bound"


def repeat(call, what):
    """Whatever else the device does between, each call's outputs have the bits of the first one's."""
    expected = call()
    differs = torch.zeros((), dtype=torch.bool, device=options.device)
    for _ in range(TURNS[options.device]):
        for found, first in zip(call(), expected):
            differs |= (bits(found) != bits(first)).any()
    expect(not bool(differs), f"{what}: a repetition differs")


def test_repeat():
    """The same bits 1,000 times."""
    shapes = (*REPEATED, (3, 3, 1, 1, 4999, 80, "f16", "none"))
    for *sizes, d, element, mask in shapes:
        q, k, v = cuda_test.operands(*sizes, d, element, options.device)
        repeat(
            lambda: attention(q, k, v, mask=MASKS[mask][0], return_lse=True),
            f"D = {d}, {element}, {mask}",
        )
    return f"{len(shapes)} shapes, {TURNS[options.device]} times each"


def test_repeat_gradients():
    """The same of gradients that are deterministic, with those of a bias and of sinks."""
    torch.manual_seed(options.seed)
    shapes = (*REPEATED, (2, 4, 2, 300, 300, 64, "f32", "causal"))
    for *sizes, d, element, mask in shapes:
        q, k, v = cuda_test.operands(*sizes, d, element, options.device)
        do, bias = torch.randn_like(q), torch.randn_like(k[:1, :1, :, 0])[:, :, None]
        sinks = torch.randn(q.shape[1], device=options.device)
        shaped = {"mask": MASKS[mask][0], "bias": bias, "sink_logits": sinks}
        o, lse = attention(q, k, v, return_lse=True, **shaped)
        wanted = {"return_d_bias": True, "return_d_sink_logits": True, "deterministic": True}
        repeat(
            lambda: attention_backward(q, k, v, o, lse, do, **wanted, **shaped),
            f"gradients, D = {d}, {element}, {mask}",
        )
    return f"{len(shapes)} shapes, {TURNS[options.device]} times each"


def test_many_heads():
    """More heads, more batches and more of both than a dimension of a grid has blocks."""
    for batch, heads, kv_heads, nq, nk, mask in (
        (1, 70_002, 35_001, 3, 5, "none"),
        (70_001, 1, 1, 5, 3, "causal"),
        (300, 222, 111, 2, 17, "sinks"),
    ):
        q, k, v = cuda_test.operands(batch, heads, kv_heads, nq, nk, 64, "f16", options.device)
        o, lse = attention(q, k, v, mask=MASKS[mask][0], return_lse=True)
        expect(o.shape == q.shape and not bool(o.isnan().any()), "NaN in o")
        # Batches one by one would take minutes; heads are alike.
        q, k, v, o = (x.reshape(1, -1, *x.shape[2:]) for x in (q, k, v, o))
        compare(o, lse.reshape(1, -1, nq), q, k, v, MASKS[mask][0], "bottom_right", "f16")
    return "batch * heads to 70,002"


def test_large():
    """Tensors of more than 2^31 elements, by length and by heads."""
    if options.device != "cuda":
        return "skipped: no GPU"
    free = torch.cuda.mem_get_info()[0]
    if free < 28 << 30:
        return f"skipped: {free / 2**30:.0f} GiB are free, 28 needed"
    mask = window(left=63, right=0)
    length, d = (1 << 31) // 64 + 1001, 64
    q, k, v = cuda_test.operands(1, 1, 1, length, length, d, "f16", options.device)
    o = torch.full_like(q, float("nan"))
    attention(q, k, v, mask=mask, out=o)
    expect(not bool(o.isnan().any()), "NaN in o")
    for first in (0, length // 2, (1 << 31) // 64 - 150, length - 300):
        # The keys that these rows see, and those before them of the first one.
        start, end = max(0, first - 63), first + 300
        compare(
            o[:, :, first:end], None, q[:, :, first:end], k[:, :, start:end], v[:, :, start:end], mask,
            "bottom_right", "f16",
        )  # fmt: skip
    del q, k, v, o
    heads = (1 << 31) // (64 * d) + 16
    q, k, v = cuda_test.operands(1, heads, heads // 8, 64, 64, d, "bf16", options.device)
    o = torch.full_like(q, float("nan"))
    attention(q, k, v, mask=causal, out=o)
    expect(not bool(o.isnan().any()), "NaN in o")
    for first in (0, heads // 16, heads // 8 - 8):
        queries = slice(first * 8, first * 8 + 64)
        compare(
            o[:, queries], None, q[:, queries], k[:, first : first + 8], v[:, first : first + 8], causal,
            "bottom_right", "bf16",
        )  # fmt: skip
    return f"{length * d} elements along the length, {heads * 64 * d} along the heads"


TESTS = [test_random, test_repeat, test_repeat_gradients, test_many_heads, test_large]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seed", type=int, default=options.seed)
    parser.add_argument("--count", type=int, default=options.count)
    parser.add_argument("--problem", type=int, help="the number of a single one")
    parser.add_argument("--strict", action="store_true", help="as of host_time_cuda_test.py; all is strict here")
    parser.add_argument("--only", help="one test, without test_")
    parser.parse_args(namespace=options)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("error: expected a CUDA device that torch can use but got none")
    # The reference in float32 must be one.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    start = time.perf_counter()
    status = cuda_test.run(TESTS, options.only, options.device)
    print(f"{time.perf_counter() - start:.0f} s, flashattn {flashattn.__version__}")
    return status


if __name__ == "__main__":
    sys.exit(main())

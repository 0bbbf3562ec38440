# On a GPU with torch: random problems with any of bias, attn_mask, softcap, sink_logits, kv_len, offset and
# score_mod, against a reference of torch in float64, with NaN past kv_len and guard margins.
# REQUIRES: python-package, cuda, torch
# RUN: %flashattn_python %s
#
# By hand, as cuda_test.py; --seed and --count choose other problems, --always=attn_mask gives each of them
# an attn_mask, --problem=N runs one of them alone, --device=cpu tries the test itself without a GPU.

import argparse
import random
import sys
import time

import torch

import random_cuda_test
from cuda_test import TYPES, expect
from flashattn import _cache, _reference, attention
from flashattn import math as fm
from random_cuda_test import MARGIN, MASKS, POISON, choose_length, in_heads, is_untouched, place

WIDTHS = (8, 16, 24, 40, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256)
#: Relative Frobenius norm of the error.
RELATIVE = {"f16": 1e-3, "bf16": 8e-3, "f32": 1e-5}
#: Scores of a problem, and the length of a sequence.
MOST_SCORES, LONGEST = 1 << 24, 1500

options = random_cuda_test.options


def alibi(score, b, h, p, k):
    return score + fm.exp2(-1.0 - h * 0.5) * (k - p)


def cap(score, b, h, p, k):
    return 30.0 * fm.tanh(score / 30.0)


def relative(score, b, h, p, k):
    """As of T5: near distances have a number each, far ones share by their logarithm."""
    distance = fm.maximum(p - k, 0)
    far = 8 + fm.floor(fm.log2(fm.maximum(distance, 1) / 8.0) * 2 + 0.25)
    bucket = fm.where(distance < 8, distance, fm.minimum(far, 15))
    return score - 0.1 * (h + 1) * bucket


def by_key(score, b, h, p, k):
    return fm.where((k % 3 == 0) & (p > 2), score * 1.5, score - b)


SCORE_MODS = {f.__name__: f for f in (alibi, cap, relative, by_key)}
FEATURES = ("bias", "attn_mask", "softcap", "sink_logits", "kv_len", "offset", "score_mod")


def choose_problem(chooser):
    """One problem, which its text describes in full."""
    d = chooser.choice(WIDTHS)
    problem = {
        "element": chooser.choice(("f16", "f16", "bf16", "bf16", "f32")), "d": d,
        "dv": d if chooser.random() < 0.7 else chooser.choice(WIDTHS), "mask": chooser.choice(list(MASKS)),
        "layout": chooser.choice(("bhsd", "bshd")), "lse": chooser.random() < 0.6,
        "rows": chooser.choice(("dense", "dense", "aligned", "strided")), "batch": chooser.randint(1, 3),
        "kv_heads": chooser.randint(1, 3), "group": chooser.choice((1, 2, 3, 8)),
        "nq": min(choose_length(chooser), LONGEST), "nk": min(choose_length(chooser), LONGEST),
        "seed": chooser.getrandbits(31),
    }  # fmt: skip
    if chooser.random() < 0.3:
        problem["nk"] = problem["nq"]
    for name in ("batch", "kv_heads", "group"):
        heads = problem["batch"] * problem["kv_heads"] * problem["group"]
        if heads * problem["nq"] * problem["nk"] > MOST_SCORES:
            problem[name] = 1
    features = [name for name in FEATURES if chooser.random() < 0.35]
    features = features or [chooser.choice(FEATURES)]
    problem["features"] = [f for f in FEATURES if f in features or f in options.always]
    return problem


def make_qkv(problem, chooser, generator):
    tensors = []
    for heads, length, width in (
        (problem["kv_heads"] * problem["group"], problem["nq"], problem["d"]),
        (problem["kv_heads"], problem["nk"], problem["d"]),
        (problem["kv_heads"], problem["nk"], problem["dv"]),
    ):
        shape = [problem["batch"], heads, length, width]
        if problem["layout"] == "bshd":
            shape[1], shape[2] = shape[2], shape[1]
        x, _ = place(shape, problem["rows"], problem["element"], chooser, poisoned=False)
        x.copy_(torch.randn(shape, device=options.device, generator=generator).to(x.dtype))
        tensors.append(x)
    return tensors


def hide_blocks(attn_mask, chooser, generator):
    """`attn_mask` with blocks of one value: a quarter true, half false, the others as they are."""
    sizes = chooser.choice((1, 64, 100, 128, 192, 512)), chooser.choice((48, 64, 80, 128, 1024))
    counts = [-(-n // size) for n, size in zip(attn_mask.shape[2:], sizes)]
    kind = torch.randint(
        4, [*attn_mask.shape[:2], *counts], device=options.device, generator=generator
    )
    for dim, size in zip((2, 3), sizes):
        kind = kind.repeat_interleave(size, dim)
    kind = kind[..., : attn_mask.shape[2], : attn_mask.shape[3]]
    return (attn_mask & (kind != 1) & (kind != 2)) | (kind == 3)


def make_operands(problem, chooser, generator):
    """What attention is given beside q, k and v."""
    heads = problem["kv_heads"] * problem["group"]
    sizes = (problem["batch"], heads, problem["nq"], problem["nk"])
    operands = {}

    def broadcast():
        shape = [n if chooser.random() < 0.6 else 1 for n in sizes]
        return shape if chooser.random() < 0.5 else [1, heads, *sizes[2:]]

    for name in problem["features"]:
        if name == "bias":
            element = chooser.choice((problem["element"], "f32", "bf16"))
            shape = broadcast()
            x, _ = place(
                shape,
                chooser.choice(("dense", "aligned", "strided")),
                element,
                chooser,
                poisoned=False,
            )
            x.copy_(torch.randn(shape, device=options.device, generator=generator).to(x.dtype))
            operands[name] = x
        elif name == "attn_mask":
            shape = broadcast()
            wide = (
                torch.rand([*shape[:3], shape[3] + 5], device=options.device, generator=generator)
                < 0.8
            )
            if chooser.random() < 0.6:
                wide = hide_blocks(wide, chooser, generator)
            # The rows of a dense one may be aligned, and are read by more at once.
            start = chooser.choice((0, 3))
            wide = wide[..., start : start + shape[3]]
            operands[name] = wide if start else wide.contiguous()
        elif name == "softcap":
            operands[name] = chooser.choice((15.0, 50.0))
        elif name == "sink_logits":
            operands[name] = torch.randn(heads, device=options.device, generator=generator)
        elif name == "kv_len":
            lengths = [chooser.randint(-1, problem["nk"] + 1) for _ in range(problem["batch"])]
            operands[name] = torch.tensor(lengths, device=options.device, dtype=torch.int32)
        elif name == "offset":
            operands[name] = chooser.randint(-20, problem["nk"])
        else:
            operands[name] = SCORE_MODS[chooser.choice(list(SCORE_MODS))]
    return operands


def plant_nan(problem, k, v, operands):
    """Rule A7: in the memory of keys that do not exist."""
    if "kv_len" not in operands:
        return
    for b, length in enumerate(operands["kv_len"].tolist()):
        for x in (k, v):
            in_heads(x, problem["layout"])[b, :, max(0, length) :] = float("nan")
        bias = operands.get("bias")
        if (
            bias is not None
            and bias.shape[0] == problem["batch"]
            and bias.shape[3] == problem["nk"]
        ):
            bias[b, :, :, max(0, length) :] = float("nan")


def reference(q, k, v, seen, kind, operands, b, h, p, keys, round_to=None):
    """o and lse of one head in `kind` (rules A2, A5, A6); `round_to` rounds the probabilities."""
    q, k, v = (x.to(kind) for x in (q, k, v))
    scores = (q @ k.T) * q.shape[-1] ** -0.5
    if "softcap" in operands:
        scores = operands["softcap"] * torch.tanh(scores / operands["softcap"])
    if "score_mod" in operands:
        scores = operands["score_mod"](scores, b, h, p.to(kind), keys.to(kind)).to(kind)
    if "bias" in operands:
        bias = operands["bias"]
        scores = scores + bias[b if bias.shape[0] > 1 else 0, h if bias.shape[1] > 1 else 0].to(
            kind
        )
    scores = scores.masked_fill(~seen, -float("inf"))
    top = scores.amax(-1, keepdim=True)
    sink = None
    if "sink_logits" in operands:
        sink = operands["sink_logits"][h].to(kind)
        top = torch.maximum(top, sink)
    base = top.masked_fill(top == -float("inf"), 0)
    weights = torch.exp(scores - base)
    total = weights.sum(-1, keepdim=True)
    if sink is not None:
        total = total + torch.exp(sink - base)
    weights = weights / total.masked_fill(total == 0, 1)
    if round_to is not None:
        weights = weights.to(round_to).to(kind)
    return weights @ v, (base + total.log())[..., 0]


def compare(problem, o, lse, q, k, v, operands):
    """Raises where o or lse is off; gives the error over its bound."""
    element, nq, nk, group = problem["element"], problem["nq"], problem["nk"], problem["group"]
    mask, align = MASKS[problem["mask"]]
    keys = torch.arange(nk, device=q.device)[None, :]
    attn_mask = operands.get("attn_mask")
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*q.shape[:2], nq, nk)
    lengths = operands["kv_len"].tolist() if "kv_len" in operands else [nk] * problem["batch"]
    worst = bound = lse_error = difference = naive_difference = norm = 0.0
    for b, length in enumerate(min(nk, max(0, n)) for n in lengths):
        offset = operands.get("offset", length - nq if align == "bottom_right" else 0)
        p = torch.arange(nq, device=q.device)[:, None] + offset
        visible = _reference.visible(mask, p, keys, nq, nk) & (keys < length)
        # What does not exist is not for the reference to multiply by 0.
        key, value = (x[b].nan_to_num(0) if "kv_len" in operands else x[b] for x in (k, v))
        for h in range(q.shape[1]):
            seen = visible if attn_mask is None else visible & attn_mask[b, h]
            heads = q[b, h], key[h // group], value[h // group]
            where = (operands, b, h, p, keys)
            exact, exact_lse = reference(*heads, seen, torch.float64, *where)
            naive, _ = reference(*heads, seen, torch.float32, *where, round_to=TYPES[element])
            error = o[b, h].double() - exact
            expect(not bool(error.isnan().any()), f"NaN in o of batch {b}, head {h}")
            naive_error = naive.to(TYPES[element]).double() - exact
            worst = max(worst, error.abs().max().item())
            bound = max(bound, naive_error.abs().max().item())
            difference += error.square().sum().item()
            naive_difference += naive_error.square().sum().item()
            norm += exact.square().sum().item()
            hidden = ~seen.any(-1)
            expect(not bool(o[b, h][hidden].any()), "o of rows that see no key (A6)")
            if lse is None:
                continue
            empty = exact_lse == -float("inf")
            found = lse[b, h].double()
            expect(torch.equal(found == -float("inf"), empty), "lse of rows that see no key (A6)")
            off = (found - exact_lse).masked_fill(empty, 0).abs() / exact_lse.abs().clamp(min=1)
            lse_error = max(lse_error, off.masked_fill(empty, 0).max().item())
    bound = 2 * bound + 1e-5
    expect(worst <= bound, f"error {worst:.2e} exceeds {bound:.2e}")
    if norm:
        # Far distances times a slope lose digits in float32 however they are computed.
        most = max(RELATIVE[element], 2 * (naive_difference / norm) ** 0.5)
        found = (difference / norm) ** 0.5
        expect(found <= most, f"relative error {found:.2e} exceeds {most:.2e}")
    expect(lse_error <= 1e-3, f"error {lse_error:.2e} of lse exceeds 1e-3")
    return worst / bound


def run_problem(problem):
    chooser = random.Random(problem["seed"])
    generator = torch.Generator(device=options.device).manual_seed(problem["seed"])
    layout, element = problem["layout"], problem["element"]
    mask, align = MASKS[problem["mask"]]
    q, k, v = make_qkv(problem, chooser, generator)
    operands = make_operands(problem, chooser, generator)
    plant_nan(problem, k, v, operands)
    shape = (*q.shape[:3], problem["dv"])
    o, o_memory = place(shape, problem["rows"], element, chooser, poisoned=True)
    out, lse = o, None
    if problem["lse"]:
        heads = in_heads(q, layout).shape[:3]
        flat = torch.empty(heads.numel() + 2 * MARGIN, device=options.device, dtype=torch.float32)
        flat.view(torch.int32).fill_(POISON)
        lse = flat[MARGIN:-MARGIN].view(heads)
        out = (o, lse)
    arguments = {
        "mask": mask,
        "align": align,
        "layout": layout,
        "return_lse": problem["lse"],
        **operands,
    }
    attention(q, k, v, out=out, **arguments)
    # Without out= the plan of the first of two calls serves the second.
    first, second = (attention(q, k, v, **arguments) for _ in range(2))
    if problem["lse"]:
        first, second = first[0], second[0]
    expect(torch.equal(first, second), "a call that finds its plan gives other bits")
    if problem["rows"] == "dense":
        expect(torch.equal(first, o), "a call without out= gives other bits")
    part = compare(
        problem, in_heads(o, layout), lse, *(in_heads(x, layout) for x in (q, k, v)), operands
    )
    expect(is_untouched(o_memory, o), "something beside o was written")
    if lse is not None:
        expect(is_untouched(flat, lse), "something beside lse was written")
    return part


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument(
        "--always", choices=FEATURES, action="append", default=[], help="a feature of every problem"
    )
    parser.add_argument("--problem", type=int, help="the number of a single one")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.parse_args(namespace=options)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("error: expected a CUDA device that torch can use but got none")
    # The reference in float32 must be one.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    start, chooser = time.perf_counter(), random.Random(options.seed)
    problems = [choose_problem(chooser) for _ in range(options.count)]
    parts, failed = [], 0
    for number, problem in enumerate(problems):
        if options.problem is not None and number != options.problem:
            continue
        if options.seconds and time.perf_counter() - start > options.seconds:
            print(f"stopped before problem {number} of {len(problems)}")
            break
        try:
            parts.append(run_problem(problem))
        except Exception as error:
            failed += 1
            print(f"FAIL problem {number}, {problem}: {type(error).__name__}: {error}", flush=True)
            # After a fatal error of the device nothing runs.
            if "fatal error" in str(error) or "CUDA error" in str(error):
                break
        # Each kind of problem has a kernel of its own, met once.
        if len(_cache.cache.kernels) > 64:
            _cache.cache.clear()
        if number % 50 == 49:
            print(f"{number + 1} of {len(problems)}, {failed} failed", flush=True)
    seconds = time.perf_counter() - start
    print(f"{seconds:.0f} s; largest error {max(parts, default=0):.2f} of its bound")
    print(f"{len(parts)} passed, {failed} failed")
    return 1 if failed or not parts else 0


if __name__ == "__main__":
    sys.exit(main())

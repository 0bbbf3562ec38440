# flashattn.torch.flex_attention against torch's own in float64: sampled mask_mods, score_mods, block masks
# and shapes, values and gradients, those of what is captured too; and what is refused.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import argparse
import random
import sys
import unittest
from functools import partial

import flashattn
import torch
from flashattn import ArgumentError, TraceError, UnsupportedError, _reference
from flashattn import torch as ft
from torch.nn.attention.flex_attention import (
    BlockMask,
    and_masks,
    create_block_mask,
    flex_attention,
    or_masks,
)

# Otherwise each of torch's calls is compiled, in seconds, and then run without a kernel all the same.
own_module = sys.modules[flex_attention.__module__]
own_module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
BOUNDS = {getattr(torch, name): _reference.FROBENIUS[short] for name, short in
          (("float32", "f32"), ("float16", "f16"), ("bfloat16", "bf16"))}  # fmt: skip

#: Every how many of the sampled cases are taken.
options = argparse.Namespace(step=17)


def causal(b, h, q, k):
    return q >= k


def affine_mods(rng):
    """Those that are sets, with the numbers of a draw."""
    width, block, first = rng.randrange(1, 9), rng.randrange(2, 6), rng.randrange(0, 7)
    return {
        "causal": causal,
        "window": lambda b, h, q, k: (q - k <= width) & (q >= k),
        "two-sided": lambda b, h, q, k: (q - k < width) & (k - q < width),
        "prefix": or_masks(causal, lambda b, h, q, k: k < first),
        "blocks": lambda b, h, q, k: q // block == k // block,
        "strided": lambda b, h, q, k: (q - k) % block == 0,
        "not": lambda b, h, q, k: ~((q < k) | (k == first)),
        "xor": lambda b, h, q, k: (q < width) ^ (k < first),
        "where": lambda b, h, q, k: torch.where(q < width, k <= q, k >= first),
        "all of": and_masks(causal, lambda b, h, q, k: k + width >= q, lambda b, h, q, k: k != 1),
        "scaled": lambda b, h, q, k: 2 * k <= q + first,
        "logical": lambda b, h, q, k: torch.logical_or(torch.eq(q, k), torch.logical_not(k.gt(first))),
    }  # fmt: skip


def captured_mods(rng, batch, heads, rows, keys):
    """Those that read tensors, batches or heads."""
    documents = torch.sort(torch.randint(0, 3, (max(rows, keys),)))[0]
    lengths = torch.randint(1, keys + 1, (batch,))
    table = torch.rand(heads, keys) > 0.3
    limit = torch.tensor(rng.randrange(1, keys + 1))
    return {
        "documents": lambda b, h, q, k: documents[q] == documents[k],
        "causal documents": lambda b, h, q, k: (q >= k) & (documents[q] == documents[k]),
        "lengths": lambda b, h, q, k: k < lengths[b],
        "table": lambda b, h, q, k: table[h, k],
        "table of rows": lambda b, h, q, k: table[h][k] | (q == k),
        "heads": lambda b, h, q, k: (h % 2 == 0) | (q >= k),
        "limit": lambda b, h, q, k: k < limit,
    }


def plain_scores(rng):
    slope = rng.random()
    return {
        "none": None,
        "identity": lambda s, b, h, q, k: s,
        "softcap": lambda s, b, h, q, k: 2 * torch.tanh(s / 2),
        "alibi": lambda s, b, h, q, k: s + slope * (k - q),
        "alibi of heads": lambda s, b, h, q, k: s + torch.exp2(-((h + 1) * 8.0 / 4)) * (k - q),
        "where": lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")),
        "relative": lambda s, b, h, q, k: s * (1.0 + (q - k).abs().float() * 0.125).rsqrt(),
        "checker": lambda s, b, h, q, k: torch.where((q + k) % 2 == 0, s.sigmoid(), s.square()),
        "chain": lambda s, b, h, q, k: torch.minimum(s, torch.maximum(-s, s * 0.5)) - b * 0.25,
    }


def learned_scores(tensors):
    """Of captured tensors, which are drawn for the call: a name, a shape and a function each."""
    heads, rows, keys, both, whole, one = tensors
    return {
        "head": lambda s, b, h, q, k: s + heads[h],
        "slopes": lambda s, b, h, q, k: s + heads[h] * (q - k),
        "rows and keys": lambda s, b, h, q, k: s + rows[q] - 2 * keys[k],
        "relative": lambda s, b, h, q, k: torch.tanh(s) + both[q - k + keys.shape[0] - 1],
        "full": lambda s, b, h, q, k: s + whole[b, h, q, k],
        "nested": lambda s, b, h, q, k: s + whole[b][h][q, k].exp(),
        "scaled sum": lambda s, b, h, q, k: (heads[h] + s * 2 - rows[q]) / 2,
        "scalar": lambda s, b, h, q, k: s + one * k,
        "where": lambda s, b, h, q, k: torch.where(q >= k, s + heads[h], s - heads[h]),
        "hides": lambda s, b, h, q, k: torch.where(rows[q] > keys[k] - 2, s, float("-inf")),
        "negative": lambda s, b, h, q, k: -(keys[k] - s),
    }


def multiplied_scores(tensors):
    """The same where captured tensors multiply the score."""
    heads, rows, keys, both, whole, one = tensors
    return {
        "times heads": lambda s, b, h, q, k: s * heads[h],
        "times heads and bias": lambda s, b, h, q, k: s * heads[h] + whole[b, h, q, k],
        "times queries": lambda s, b, h, q, k: whole[b, h, q, 0] * s,
        "times keys": lambda s, b, h, q, k: s * keys[k],
        "times batches of keys": lambda s, b, h, q, k: s * whole[b, 0, 0, k] - heads[h],
        "times both": lambda s, b, h, q, k: s * rows[q] * (q - k) * 0.1 * keys[k] + both[q - k + keys.shape[0] - 1],
        "over": lambda s, b, h, q, k: -s / (1 + heads[h].exp()),
        "more": lambda s, b, h, q, k: s + s * heads[h],
        "gate": lambda s, b, h, q, k: (s - 0.1 * (q - k) + keys[k]) * torch.sigmoid(rows[q]),
        "capped behind": lambda s, b, h, q, k: 2 * torch.tanh(s * heads[h] / 2) + rows[q],
        "times where": lambda s, b, h, q, k: torch.where(h == 0, s * heads[h], 2 * s + 1),
        "hides times": lambda s, b, h, q, k: torch.where(rows[q] > keys[k] - 2, s * one, float("-inf")),
    }


class _Softmax(torch.autograd.Function):
    """`softmax(scores) v` by rules B1 and B6 of the gradients, with `round_to` of what products take and
    of o. A row that sees no key is 0, with gradients of 0."""

    @staticmethod
    def forward(ctx, scores, v, round_to):
        sees = (scores > float("-inf")).any(-1, keepdim=True)
        weights = torch.where(sees, torch.where(sees, scores, 0.0).softmax(-1), 0.0)
        o = round_to(round_to(weights) @ v)
        ctx.save_for_backward(weights, v, o)
        ctx.round_to = round_to
        return o

    @staticmethod
    def backward(ctx, d_o):
        weights, v, o = ctx.saved_tensors
        d_scores = weights * (d_o @ v.mT - (d_o * o).sum(-1, keepdim=True))
        return d_scores, ctx.round_to(weights).mT @ d_o, None


class _RoundGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, round_to):
        ctx.round_to = round_to
        return scores.clone()

    @staticmethod
    def backward(ctx, d_scores):
        return ctx.round_to(d_scores), None


def rounder(dtype, unit):
    """Rounds to multiples of what `dtype` has, times `unit`."""
    return lambda x: (x / unit).to(dtype).to(x.dtype) * unit


def reference(q, k, v, score_mod, block_mask, scale=None, enable_gqa=False, round_to=lambda x: x):
    """The definition, with gradients, which torch's own has not on the CPU; or plain arithmetic that
    rounds what products take."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale)
    scores = _RoundGradient.apply(scores, round_to)
    indices = [torch.arange(n) for n in scores.shape]
    for function, is_score in ((score_mod, True), (block_mask and block_mask.mask_mod, False)):
        if function is None:
            continue
        for dim in (3, 2, 1, 0):
            places = [0 if i == dim else None for i in range(4)]
            function = torch.vmap(function, (0, *places) if is_score else tuple(places))
        found = function(*(scores,) * is_score, *indices)
        scores = found if is_score else scores.masked_fill(~found, float("-inf"))
    return _Softmax.apply(scores, v, round_to)


class FlexTest(unittest.TestCase):
    def draw(self, seed):
        torch.manual_seed(seed)
        rng = random.Random(seed)
        batch, kv_heads, group = rng.choice((1, 2)), rng.choice((1, 2)), rng.choice((1, 1, 2))
        rows, keys = rng.choice(((9, 9), (5, 17), (17, 6), (1, 21)))
        dtype = rng.choice(list(BOUNDS))
        make = lambda h, n, d: torch.randn(batch, n, h, d).transpose(1, 2).to(dtype)  # noqa: E731
        heads = kv_heads * group
        rest = {"enable_gqa": group > 1, "scale": rng.choice((None, 0.5))}
        qkv = make(heads, rows, 16), make(kv_heads, keys, 16), make(kv_heads, keys, 24)
        return rng, qkv, rest, (batch, heads, rows, keys)

    def compare(self, qkv, captured, make_score, block_mask, rest):
        """Values and gradients against torch's own in float64 of the same numbers: off by two and three
        times what plain arithmetic in the type is off, plus 1e-5. Norms are off by the bound on them; those
        of gradients by three times what plain arithmetic is off where that is more, as where they cancel.

        How far that is off is luck in tensors so small: the greatest of a few roundings counts."""
        element = qkv[0].dtype
        weigh = torch.randn(*qkv[0].shape[:3], qkv[2].shape[3]).to(element)

        def run(call, kind=None):
            leaves = [x.detach().to(kind or x.dtype).requires_grad_() for x in (*qkv, *captured)]
            o = call(*leaves[:3], make_score(leaves[3:]), block_mask, **rest)
            return o, *torch.autograd.grad(o, leaves, weigh.to(o.dtype), allow_unused=True)

        found, exact = run(ft.flex_attention), run(reference, torch.float64)
        units = (1.0,) if element is torch.float32 else (1.0, 1.1, 1.3, 1.7)
        naive = [
            run(partial(reference, round_to=rounder(element, unit)), torch.float32) for unit in units
        ]
        with torch.no_grad():
            double = [x.detach().double() for x in (*qkv, *captured)]
            own = flex_attention(*double[:3], make_score(double[3:]), block_mask, **rest)
        torch.testing.assert_close(torch.nan_to_num(own), exact[0].detach())
        for place, (mine, wanted, *others) in enumerate(zip(found, exact, *naive)):
            self.assertEqual(mine is None, wanted is None)
            if mine is None:
                continue
            wanted = wanted.detach()
            dtype = (*qkv[:1], *qkv, *captured)[place].dtype
            self.assertEqual((mine.shape, mine.dtype), (wanted.shape, dtype))
            errors = [x.detach().to(dtype).double() - wanted for x in (mine, *others)]
            error, *plain = (float(x.abs().max()) for x in errors)
            self.assertLessEqual(error, (3 if place else 2) * max(plain) + 1e-5, f"output {place}")
            if wanted.abs().max() > 1e-9:
                error, *plain = (float(x.norm() / wanted.norm()) for x in errors)
                limit = max(BOUNDS[element], 3 * max(plain) if place else 0)
                self.assertLessEqual(error, limit, f"norm of output {place}")

    def make_captured(self, sizes):
        batch, heads, rows, keys = sizes
        shapes = (heads,), (rows,), (keys,), (rows + keys,), (batch, heads, rows, keys), ()
        return [torch.randn(shape) for shape in shapes]

    def test_sampled(self):
        counts = {"affine": 0, "keep": 0, "scores": 0, "learned": 0}
        for seed in range(0, 320, options.step):
            rng, qkv, rest, sizes = self.draw(seed)
            kind = list(counts)[seed % 4]
            counts[kind] += 1
            masks = affine_mods(rng) if kind in ("affine", "learned") else {
                **captured_mods(rng, *sizes), "none": None}  # fmt: skip
            mask_name = list(masks)[seed // 4 % len(masks)]
            scores = plain_scores(rng)
            score_name = list(scores)[seed // 4 % len(scores) if kind == "scores" else rng.randrange(3)]
            captured = []
            make_score = lambda _, name=score_name: scores[name]  # noqa: E731
            if kind == "learned":
                captured = self.make_captured(sizes)
                names = list(learned_scores(captured))
                score_name = names[seed // 4 % len(names)]
                make_score = lambda leaves, name=score_name: learned_scores(leaves)[name]  # noqa: E731
            block_mask = None
            if masks[mask_name] is not None:
                batches = rng.choice((None, sizes[0])) if kind == "affine" else sizes[0]
                heads = None if kind == "affine" else sizes[1]
                block_mask = create_block_mask(masks[mask_name], batches, heads, *sizes[2:], device="cpu")
            with self.subTest(seed=seed, kind=kind, mask=mask_name, score=score_name):
                self.compare(qkv, captured, make_score, block_mask, rest)
        self.assertGreater(min(counts.values()), 320 // options.step // 5)

    def test_tensors_that_multiply(self):
        for seed in range(0, 204, options.step):  # the step of 17 meets each of the twelve
            _, qkv, rest, sizes = self.draw(seed)
            captured = self.make_captured(sizes)
            names = list(multiplied_scores(captured))
            name = names[seed % len(names)]
            make_score = lambda leaves, name=name: multiplied_scores(leaves)[name]  # noqa: E731
            block_mask = create_block_mask(causal, None, None, *sizes[2:], device="cpu") if seed % 2 else None
            with self.subTest(seed=seed, score=name):
                self.compare(qkv, captured, make_score, block_mask, rest)

    def test_sets_are_sets(self):
        for name, mod in affine_mods(random.Random(0)).items():
            with self.subTest(mask=name):
                mask = ft.affine_mask(mod)
                wanted = create_block_mask(mod, None, None, 13, 11, device="cpu", BLOCK_SIZE=1)
                x = torch.eye(11)[None, None]
                q = torch.zeros(1, 1, 13, 11)
                seen = flashattn.attention(q, x, x, mask=mask, align="top_left") > 0
                dense = wanted.to_dense().bool()
                self.assertTrue(torch.equal(seen, dense))

    def test_lists_without_a_function(self):
        counts = torch.tensor([[[1, 2, 1]]], dtype=torch.int32)
        blocks = torch.tensor([[[[0, 1, 2], [0, 2, 1], [2, 0, 1]]]], dtype=torch.int32)
        block_mask = BlockMask.from_kv_blocks(counts, blocks, BLOCK_SIZE=8, seq_lengths=(24, 24))
        q, k, v = (torch.randn(1, 2, 24, 16) for _ in range(3))
        keep = block_mask.to_dense().bool().repeat_interleave(8, -1).repeat_interleave(8, -2)
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, keep)
        self.assertLess(float((ft.flex_attention(q, k, v, None, block_mask) - wanted).norm()), 1e-4)

    def test_log_sum_exp_and_hidden_rows(self):
        q, k, v = (torch.randn(1, 2, 8, 16) for _ in range(3))
        block_mask = create_block_mask(lambda b, h, q, k: k < q, None, None, 8, 8, device="cpu")
        o, lse = ft.flex_attention(q, k, v, block_mask=block_mask, return_lse=True)
        scores = (q @ k.mT / 4).masked_fill(torch.ones(8, 8).tril(-1) == 0, float("-inf"))
        torch.testing.assert_close(lse, scores.logsumexp(-1), rtol=1e-5, atol=1e-5)
        self.assertTrue(torch.equal(o[:, :, 0], torch.zeros(1, 2, 16)))

    def test_one_batch_of_keys_is_that_of_all(self):
        q, k, v = torch.randn(3, 2, 8, 16), torch.randn(1, 2, 8, 16), torch.randn(1, 2, 8, 16)
        wanted = flex_attention(q.double(), k.double().expand(3, -1, -1, -1), v.double().expand(3, -1, -1, -1))
        self.assertLess(float((ft.flex_attention(q, k, v) - wanted).norm()), 1e-4)

    def test_what_is_no_set(self):
        documents = torch.zeros(9, dtype=torch.int64)
        for mod, pattern in (
            (lambda b, h, q, k: q * k > 3, r"expected an integer as an operand of '\*' but got two indices"),
            (lambda b, h, q, k: q // k > 3, "expected an integer as an operand of '//' but got two indices"),
            (lambda b, h, q, k: q % -2 == 0, "expected '%' by a positive integer but got -2"),
            (lambda b, h, q, k: q > k * 0.5, "expected integers in an affine mask_mod but got 0.5"),
            (lambda b, h, q, k: q > h, "expected an affine mask_mod to read positions alone but got the head"),
            (lambda b, h, q, k: q > b, "expected an affine mask_mod to read positions alone but got the batch"),
            (lambda b, h, q, k: documents[q] == k, "read positions alone but got a tensor"),
            (lambda b, h, q, k: q + k, r"expected comparisons of positions in mask_mod but got '\+'"),
            (lambda b, h, q, k: torch.exp(q) > k, "expected affine operations in mask_mod but got 'exp'"),
            (lambda b, h, q, k: 3, "expected mask_mod to return a condition but got 3"),
            (7, "expected mask_mod to be a function or None but got int"),
        ):  # fmt: skip
            with self.subTest(pattern):
                self.assertRaisesRegex(TraceError, pattern, ft.affine_mask, mod)

    def test_wide_heads_on_a_gpu(self):
        with torch._subclasses.FakeTensorMode():
            q, table = (torch.empty(*shape, dtype=torch.float16, device="cuda") for shape in ((1, 4, 8, 96), (4, 8)))
        for function, most in (
            (lambda s, b, h, q, k: s * table[h, q] * table[h, k], 85),
            (lambda s, b, h, q, k: s / table[h, k], 128),
        ):
            wide = torch.cat([q, q], -1) if most == 128 else q
            message = f"head dimension of {most} at most where tensors multiply the score in float16 but got "
            with self.assertRaisesRegex(UnsupportedError, message):
                ft.flex_attention(wide, wide, wide, function)

    def test_what_is_refused(self):
        q, k, v = (torch.randn(2, 4, 8, 16) for _ in range(3))
        table, square = torch.randn(4, 8), torch.randn(8, 8)
        block_mask = create_block_mask(causal, None, None, 8, 8, device="cpu")
        score = lambda function: {"score_mod": function}  # noqa: E731
        for error, pattern, tensors, options in (
            (TraceError, "depend on the query or on the key but got a tensor or a condition of both", (q, k, v),
             score(lambda s, b, h, q, k: s * square[q, k])),
            (TraceError, "depend on the query or on the key but got a tensor or a condition of both", (q, k, v),
             score(lambda s, b, h, q, k: torch.where(q >= k, s * table[h, 0], s))),
            (TraceError, "the same for all heads that share a head of 'key' but got one of each head of 'query'",
             (q, k[:, :2], v[:, :2]), {**score(lambda s, b, h, q, k: s * table[h, k]), "enable_gqa": True}),
            (TraceError, "to multiply the score before 'tanh' but got one that multiplies what comes of it", (q, k, v),
             score(lambda s, b, h, q, k: torch.tanh(s) * table[h, 0])),
            (TraceError, "to multiply the score before '\\*' but got one that multiplies what comes of it", (q, k, v),
             score(lambda s, b, h, q, k: s * s / table[h, 0])),
            (TraceError, "expected one factor of the score in 'maximum' but got scores of different ones", (q, k, v),
             score(lambda s, b, h, q, k: torch.maximum(s, s * table[h, 0]))),
            (TraceError, "a tensor as operand of 'exp' together with the score", (q, k, v),
             score(lambda s, b, h, q, k: torch.exp(s + table[h, k]))),
            (TraceError, "a condition of indices, or one that hides with -inf", (q, k, v),
             score(lambda s, b, h, q, k: torch.where(table[h, k] > 0, s, 2 * s))),
            (TraceError, "but got the truth of a traced value", (q, k, v),
             score(lambda s, b, h, q, k: s if q >= k else 0)),
            (TraceError, "but got a number made of a value", (q, k, v),
             score(lambda s, b, h, q, k: s + (1, 2, 3)[q])),
            (TraceError, "but got torch's cumsum", (q, k, v),
             score(lambda s, b, h, q, k: torch.cumsum(s, 0))),
            (TraceError, r"shape \[4, 8\] to be indexed in each dimension in '\+' but got 1 indices", (q, k, v),
             score(lambda s, b, h, q, k: s + table[h])),
            (TraceError, "expected at most 2 indices of a captured tensor but got 3", (q, k, v),
             score(lambda s, b, h, q, k: s + table[h, q, k])),
            (TraceError, "expected integers as indices of a captured tensor but got slice", (q, k, v),
             score(lambda s, b, h, q, k: s + table[h, :])),
            (TraceError, "expected numbers, tensors and traced values in '\\+' but got str", (q, k, v),
             score(lambda s, b, h, q, k: s + "1")),
            (TraceError, "expected score_mod to be a function or None but got int", (q, k, v), score(3)),
            (TraceError, "in score_mod but got TypeError", (q, k, v), score(lambda s: s)),
            (ArgumentError, "expected block_mask to be a BlockMask but got function", (q, k, v),
             {"block_mask": causal}),
            (ArgumentError, "expected a block_mask of 9 queries and 9 keys but got one of 8 and 8",
             [torch.randn(2, 4, 9, 16) for _ in range(3)], {"block_mask": block_mask}),
            (ArgumentError, "expected a block_mask of 1 or 2 batches but got 3", (q, k, v),
             {"block_mask": create_block_mask(causal, 3, None, 8, 8, device="cpu")}),
            (ArgumentError, "expected a block_mask of 1 or 4 heads but got 2", (q, k, v),
             {"block_mask": create_block_mask(causal, None, 2, 8, 8, device="cpu")}),
            (ArgumentError, "expected 4 heads of 'key' as in 'query' but got 2", (q, k[:, :2], v[:, :2]), {}),
            (ArgumentError, "expected 'query' to be a tensor of rank 4 but got rank 3", (q[0], k, v), {}),
            (ArgumentError, "expected 'key' to be a tensor of rank 4 but got list", (q, [1], v), {}),
        ):  # fmt: skip
            with self.subTest(pattern):
                self.assertRaisesRegex(error, pattern, ft.flex_attention, *tensors, **options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--step", type=int, default=options.step, help="1 takes all 320 cases")
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])

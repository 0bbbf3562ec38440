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
from flashattn.torch import _flex
from torch.nn.attention.flex_attention import (
    AuxRequest,
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
        "halves of tables": lambda b, h, q, k: documents[(q / 2).long()] <= documents[(k >> 1).clamp(max=3)],
        "cast": lambda b, h, q, k: (q / 3).to(torch.int32) == (k / 3).to(torch.int32),
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
        "cast": lambda s, b, h, q, k: s - ((q / 3).to(torch.int32) - (k / 3).int()).abs().type(torch.float32),
        "steps": lambda s, b, h, q, k: s + (s * 4).to(dtype=torch.int64) / 8 - (h == 1).long(),
        "clamped": lambda s, b, h, q, k: s.clamp(-1, max=0.5) + torch.clamp(q - k, min=-2) * 0.1 + torch.relu(s),
        "shifted": lambda s, b, h, q, k: s - (q >> 2) * (1 << (k & 1)) / 4 + torch.bitwise_right_shift(k, 1) * 0.1,
        "narrow": lambda s, b, h, q, k: s + ((q * 40).to(torch.int8) + (k * 99).byte() - (k * 9999).short() / 99) / 64,
        "chain": lambda s, b, h, q, k: torch.minimum(s, torch.maximum(-s, s * 0.5)) - b * 0.25,
    }


def t5_bucket(distance, exact=2, count=5):
    """Small distances have buckets of their own, larger ones share those of their logarithm."""
    bucket = (distance > 0).to(torch.long) * count
    distance = torch.abs(distance)
    large = exact + (torch.log(distance.float() / exact) / 2 * (count - exact)).to(torch.long)
    large = torch.min(large, torch.full_like(large, count - 1))
    return bucket + torch.where(distance < exact, distance, large)


def learned_scores(tensors):
    """Returns functions of scores by name, which read captured tensors."""
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
        "bucket": lambda s, b, h, q, k: s + both[torch.log2((q - k).abs().float() + 1).to(torch.int32)],
        "bucket of T5": lambda s, b, h, q, k: s + both[t5_bucket(k - q)],
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
        counts = {"affine": 0, "attn_mask": 0, "scores": 0, "learned": 0}
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

    def test_casts_and_bounds(self):
        for seed, name in enumerate(("cast", "steps", "clamped", "shifted", "narrow", "bucket of T5")):
            rng, qkv, rest, sizes = self.draw(seed)
            captured = self.make_captured(sizes)
            scores = plain_scores(rng)
            mask = captured_mods(rng, *sizes)["cast" if seed else "halves of tables"]
            block_mask = create_block_mask(mask, *sizes, device="cpu") if seed < 2 else None
            make_score = lambda leaves, name=name: {**scores, **learned_scores(leaves)}[name]  # noqa: E731
            with self.subTest(score=name):
                self.compare([x.float() for x in qkv], captured, make_score, block_mask, rest)

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
        attn_mask = block_mask.to_dense().bool().repeat_interleave(8, -1).repeat_interleave(8, -2)
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask)
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

    def test_casts_round(self):
        """What a shorter type lacks is lost, also behind a factor; gradients pass as torch's do."""
        q, k, v = (torch.randn(1, 2, 8, 16, requires_grad=True) for _ in range(3))
        slope = torch.tensor([1.5, -0.7])
        for function in (
            lambda s, b, h, q, k: (s * 100).to(torch.bfloat16).float() / 100,
            lambda s, b, h, q, k: (s * slope[h]).half().float() * 2,
            lambda s, b, h, q, k: torch.where(s.to(torch.bool), s.bfloat16().float(), 0.0),
        ):
            o = ft.flex_attention(q, k, v, function)
            found = torch.autograd.grad(o.square().sum(), (q, k, v))
            exact = reference(q, k, v, function, None)
            torch.testing.assert_close(o, exact, rtol=1e-4, atol=1e-4)
            wanted = torch.autograd.grad(exact.square().sum(), (q, k, v))
            for x, y in zip(found, wanted):
                torch.testing.assert_close(x, y, rtol=2e-2, atol=2e-2)
            self.assertFalse(torch.allclose(o, ft.flex_attention(q, k, v), atol=1e-4))

    def test_a_block_mask_is_what_it_is_now(self):
        """A captured tensor that is written to or replaced, another mask_mod and other lists count."""
        q, k, v = (torch.randn(1, 2, 24, 16) for _ in range(3))
        offset, held = torch.tensor(3), {"table": torch.arange(24) // 5, "width": 4}
        mods = [
            lambda b, h, q, k: (k <= q + offset) & (held["table"][k] != 1),
            lambda b, h, q, k: q - k < held["width"],
        ]
        block_mask = create_block_mask(mods[0], None, None, 24, 24, device="cpu")
        lists = BlockMask.from_kv_blocks(
            torch.tensor([[[1, 2, 1]]]), torch.tensor([[[[0, 1, 2], [0, 2, 1], [2, 0, 1]]]]), BLOCK_SIZE=8,
            seq_lengths=(24, 24),
        )  # fmt: skip

        def change_lists():
            lists.kv_num_blocks[..., 1] = 3

        def move_data():
            held["table"].data = torch.arange(24) // 3

        for change in (
            lambda: None, lambda: offset.fill_(15), lambda: held.update(table=torch.arange(24) // 7),
            lambda: held["table"][4:].fill_(1), move_data, change_lists,
            lambda: setattr(block_mask, "mask_mod", mods[1]), lambda: held.update(width=9),
        ):  # fmt: skip
            change()
            for mask in (block_mask, lists):
                attn_mask = lists.to_dense().bool().repeat_interleave(8, -1).repeat_interleave(8, -2)
                if mask is block_mask:
                    attn_mask = mask.mask_mod(0, 0, torch.arange(24)[:, None], torch.arange(24))
                wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask)
                torch.testing.assert_close(
                    ft.flex_attention(q, k, v, None, mask), wanted, rtol=1e-4, atol=1e-5
                )

    def test_what_block_masks_keep(self):
        """What was computed for one serves the next call like it, and is not kept for all lengths."""
        table = torch.rand(64, 64) > 0.3
        table[:, 0] = True
        block_mask = create_block_mask(lambda b, h, q, k: table[q, k], None, None, 64, 64, device="cpu")
        known = _flex._known.setdefault(block_mask, {})
        for length in (*range(40, 50), 40):
            q = torch.randn(1, 1, length, 16)
            first, again = (ft.flex_attention(q, q, q, None, block_mask) for _ in range(2))
            newest = list(known.values())[-1]
            self.assertEqual(newest.attn_mask.shape, (1, 1, length, length))
            self.assertIs(_flex._find_pairs(block_mask, (1, 1, length, length), 1, q.device), newest)
            self.assertTrue(torch.equal(first, again))
            self.assertLessEqual(len(known), 4)
        with torch.inference_mode():
            table = torch.ones(64, 64, dtype=torch.bool)  # whose changes torch does not count
            for length in (7, 1):
                table[:, length:] = False
                o = ft.flex_attention(q, q, q, None, block_mask)
                torch.testing.assert_close(o, flashattn.attention(q, q[:, :, :length], q[:, :, :length]))

    def test_tables_shorter_than_what_is_hidden(self):
        """They are read where the mask shows a pair, and raise nowhere else."""
        q, k, v = (torch.randn(1, 2, 9, 16) for _ in range(3))
        block_mask = create_block_mask(lambda b, h, q, k: k < 6, None, None, 9, 9, device="cpu")
        listed = BlockMask.from_kv_blocks(
            torch.full((1, 1, 3), 2), torch.arange(3).expand(1, 1, 3, 3), BLOCK_SIZE=3, seq_lengths=(9, 9)
        )
        table = torch.randn(6, requires_grad=True)
        padded = lambda: torch.cat([table, torch.ones(3)])  # noqa: E731
        for mask, make in (
            (block_mask, lambda t: lambda s, b, h, q, k: s + t()[k].exp() * q),
            (block_mask, lambda t: lambda s, b, h, q, k: s * t()[k]),
            (listed, lambda t: lambda s, b, h, q, k: s + t()[k]),
        ):  # fmt: skip
            results = []
            for function in (make(lambda: table), make(padded)):
                o = ft.flex_attention(q, k, v, function, mask)
                results.append((o, *torch.autograd.grad(o.square().sum(), table)))
            torch.testing.assert_close(*results)
        for got, function in (
            (6, lambda s, b, h, q, k: s + table[k + 1]), (6, lambda s, b, h, q, k: s + table[q]),
            (-7, lambda s, b, h, q, k: s * table[-2 - k]),
        ):  # fmt: skip
            message = rf"expected indices from -6 to 5 of a captured tensor of shape \[6\] but got {got}"
            with self.assertRaisesRegex(ArgumentError, message):
                ft.flex_attention(q, k, v, function, block_mask)

    def test_wide_heads_on_a_gpu(self):
        with torch._subclasses.FakeTensorMode():
            q, table = (torch.empty(*shape, dtype=torch.float16, device="cuda") for shape in ((1, 4, 8, 96), (4, 8)))
        for function, most in (
            (lambda s, b, h, q, k: s * table[h, q] * table[h, k], 85),
            (lambda s, b, h, q, k: s / table[h, k], 128),
        ):
            wide = torch.cat([q, q], -1) if most == 128 else q
            message = f"head dimension of at most {most} for tensors that multiply the score in float16 but got "
            with self.assertRaisesRegex(UnsupportedError, message):
                ft.flex_attention(wide, wide, wide, function)

    def test_what_is_refused(self):
        q, k, v = (torch.randn(2, 4, 8, 16) for _ in range(3))
        table, square = torch.randn(4, 8), torch.randn(8, 8)
        block_mask = create_block_mask(causal, None, None, 8, 8, device="cpu")
        score = lambda function: {"score_mod": function}  # noqa: E731
        for error, pattern, tensors, options in (
            (TraceError, "depends on the query or on the key but got one that depends on both", (q, k, v),
             score(lambda s, b, h, q, k: s * square[q, k])),
            (TraceError, "depends on the query or on the key but got one that depends on both", (q, k, v),
             score(lambda s, b, h, q, k: torch.where(q >= k, s * table[h, 0], s))),
            (TraceError, "for all query heads that share a head of 'key' but got one for each query head",
             (q, k[:, :2], v[:, :2]), {**score(lambda s, b, h, q, k: s * table[h, k]), "enable_gqa": True}),
            (TraceError, "to multiply the score before 'tanh' but got one that multiplies the result of 'tanh'",
             (q, k, v), score(lambda s, b, h, q, k: torch.tanh(s) * table[h, 0])),
            (TraceError, "to multiply the score before '\\*' but got one that multiplies the result of '\\*'",
             (q, k, v), score(lambda s, b, h, q, k: s * s / table[h, 0])),
            (TraceError, "expected all scores in 'maximum' to have the same factor but got different factors", (q, k, v),
             score(lambda s, b, h, q, k: torch.maximum(s, s * table[h, 0]))),
            (TraceError, "one as operand of 'exp' together with the score", (q, k, v),
             score(lambda s, b, h, q, k: torch.exp(s + table[h, k]))),
            (TraceError, "a condition on indices, or a score of -inf", (q, k, v),
             score(lambda s, b, h, q, k: torch.where(table[h, k] > 0, s, 2 * s))),
            (TraceError, "but got a traced value as condition", (q, k, v),
             score(lambda s, b, h, q, k: s if q >= k else 0)),
            (TraceError, "but got a conversion of a traced value to a number", (q, k, v),
             score(lambda s, b, h, q, k: s + (1, 2, 3)[q])),
            (TraceError, r"a Boolean, integer or float type but got torch's to\(torch.complex64\)", (q, k, v),
             score(lambda s, b, h, q, k: s.to(torch.complex64))),
            (TraceError, r"a Boolean, integer or float type but got torch's type\(torch.IntTensor\)", (q, k, v),
             score(lambda s, b, h, q, k: s + q.type("torch.IntTensor"))),
            (TraceError, "but got torch's max", (q, k, v), score(lambda s, b, h, q, k: torch.max(s, 0)[0])),
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


class CallTest(unittest.TestCase):
    """What a call takes beside functions and masks."""

    def setUp(self):
        torch.manual_seed(8)
        self.q, self.k, self.v = (torch.randn(2, 3, n, 16) for n in (9, 12, 12))

    def test_auxiliary_results_are_torchs(self):
        for request in (AuxRequest(), AuxRequest(lse=True)):
            for options in ({}, {"kernel_options": {"BLOCK_M": 64}}, {"score_mod": lambda s, b, h, q, k: s / 2}):
                (o, aux), (own_o, own) = (
                    f(self.q, self.k, self.v, return_aux=request, **options) for f in (ft.flex_attention, flex_attention)
                )
                self.assertIs(type(aux), type(own))
                self.assertEqual([x is None for x in aux], [x is None for x in own])
                torch.testing.assert_close(o, own_o, rtol=1e-5, atol=1e-5)
                if request.lse:
                    torch.testing.assert_close(aux.lse, own.lse, rtol=1e-5, atol=1e-5)
        # By place, as torch takes it: it changes nothing.
        o = ft.flex_attention(self.q, self.k, self.v, None, None, None, False, False, {"num_warps": 8})
        self.assertTrue(torch.equal(o, ft.flex_attention(self.q, self.k, self.v)))

    def test_functions_are_read_at_each_call_of_what_is_compiled(self):
        table, state = torch.randn(3), {"factor": 0.5}
        block_mask = create_block_mask(lambda b, h, q, k: k <= q + 2, None, None, 9, 12, device="cpu")

        def captured(x, factor):
            x = x + 1
            o = ft.flex_attention(x, self.k, self.v, lambda s, b, h, q, k: s * factor + table[h], block_mask)
            return flashattn.attention(x, self.k, self.v, score_mod=lambda s, b, h, p, k: s * state["factor"]) + o

        compiled = torch.compile(captured, backend="eager")
        for factor in (0.5, -2.0):
            state["factor"] = factor
            table.fill_(factor)
            self.assertTrue(torch.equal(compiled(self.q, factor), captured(self.q, factor)))
        # Without functions all of it is one graph.
        whole = torch.compile(lambda x: ft.flex_attention(x, self.k, self.v) * 2, backend="eager", fullgraph=True)
        torch.testing.assert_close(whole(self.q), ft.flex_attention(self.q, self.k, self.v) * 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--step", type=int, default=options.step, help="1 takes all 320 cases")
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])

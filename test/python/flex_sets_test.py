# mask_mods of flex_attention that read tensors become sets with these tensors as operands, without an attn_mask: the
# examples of attention-gym, written anew, and conditions of each kind; what stays a Boolean tensor, which a log reports.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import unittest
from unittest import mock

import torch
from flashattn import _attention
from flashattn import torch as ft
from flashattn.torch import _flex
from torch.nn.attention.flex_attention import and_masks, create_block_mask, or_masks

B, H, N = 2, 4, 100


def causal(b, h, q, k):
    return q >= k


def window(width):
    return and_masks(causal, lambda b, h, q, k: q - k <= width)


def in_documents(inner, ids):
    """A mask within each document, in which positions count from its start."""
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(ids).cumsum(0)[:-1]])

    def mask(b, h, q, k):
        return (ids[q] == ids[k]) & inner(b, h, q - starts[ids[q]], k - starts[ids[k]])

    return mask


def examples():
    ids = torch.repeat_interleave(torch.arange(5), torch.tensor([7, 30, 1, 40, 22]))
    rows = torch.stack([ids, ids.flip(0).max() - ids.flip(0)]).int()
    lengths, prefix = torch.tensor([30, 77]), torch.tensor(12)
    parents = torch.tensor([-1, 0, 1, 1, 0, 4, 5, 4] + [-1] + [*range(8, 20)] + [-1] * (N - 21))
    ends = torch.arange(1, N + 1)
    for node in range(N - 1, 0, -1):
        if parents[node] >= 0:
            ends[parents[node]] = torch.maximum(ends[parents[node]], ends[node])
    is_global = torch.arange(N) % 17 == 0
    spans = torch.tensor([[[3, 20], [50, 61]], [[0, 1], [70, 99]]])
    valid = torch.rand(B, N) > 0.3
    return {
        "document": lambda b, h, q, k: ids[q] == ids[k],
        "document of batches": lambda b, h, q, k: rows[b, q] == rows[b, k],
        "causal document": and_masks(causal, lambda b, h, q, k: ids[q] == ids[k]),
        "document with a causal mask": in_documents(causal, ids),
        "document with a sliding window": in_documents(window(9), ids),
        "document with a prefix": in_documents(or_masks(causal, lambda b, h, q, k: k < 5), ids),
        "prefix language model": or_masks(causal, lambda b, h, q, k: k < prefix),
        "prefix language model of batches": or_masks(causal, lambda b, h, q, k: k < lengths[b]),
        "tree": lambda b, h, q, k: (k <= q) & (q < ends[k]),
        "padding": lambda b, h, q, k: (k < lengths[b]) & (q < lengths[b]),
        "causal padding": and_masks(causal, lambda b, h, q, k: k < lengths[b]),
        "padding to the left": and_masks(causal, lambda b, h, q, k: k >= N - lengths[b]),
        "padding of a table": and_masks(causal, lambda b, h, q, k: valid[b, k]),
        "global tokens": or_masks(window(9), lambda b, h, q, k: is_global[q] | is_global[k]),
        "modalities": or_masks(causal, *(
            lambda b, h, q, k, i=i: (spans[b, i, 0] <= q) & (q < spans[b, i, 1]) & (spans[b, i, 0] <= k) & (
                k < spans[b, i, 1])
            for i in range(2)
        )),
        "neighbourhood": lambda b, h, q, k: ((q // 10 - k // 10).abs() <= 2) & (abs(q % 10 - k % 10) < 3),
        "neighbourhood at the border": lambda b, h, q, k: (
            ((q // 10).clamp(2, 7) - k // 10).abs() <= 2) & (((q % 10).clamp(2, 7) - k % 10).abs() <= 2),
    }  # fmt: skip


def conditions():
    """Conditions of each kind, in each shape of a captured tensor."""
    of_queries, of_keys = torch.randint(0, N, (B, H, N)), torch.randint(0, N, (B, H, N)).int()
    widths, one = torch.tensor([3, 90, 20, 50]), torch.tensor([5])
    table = torch.rand(H, N) > 0.4
    return {
        "queries, heads and batches": lambda b, h, q, k: of_queries[b, h, q] >= k,
        "keys, heads and batches": lambda b, h, q, k: of_keys[b, h, k] >= q,
        "keys, out of order": lambda b, h, q, k: of_keys[b, h, N - 1 - k] >= q,
        "heads": lambda b, h, q, k: q - k < widths[h],
        "heads without a tensor": lambda b, h, q, k: (h % 2 == 0) | (q >= k),
        "batches without a tensor": lambda b, h, q, k: (b == 1) ^ (q >= k),
        "an element": lambda b, h, q, k: k - q <= one[0],
        "a sum": lambda b, h, q, k: k + of_keys[0, 0, k] // 2 < q + of_queries[0, 0, q] + widths[b],
        "not": lambda b, h, q, k: ~(of_queries[0, 0, q] <= of_keys[0, 0, k]),
        "unequal": lambda b, h, q, k: of_queries[0, 0, q] % 4 != of_keys[0, 0, k] % 4,
        "where": lambda b, h, q, k: torch.where(of_queries[0, 0, q] > 50, q >= k, k < widths[b]),
        "a table of queries": lambda b, h, q, k: table[h, q] & (k < 70),
        "a table of heads of keys": lambda b, h, q, k: table[h, k],
        "floats of queries": lambda b, h, q, k: (of_queries[0, 0, q] * 0.01 > 0.5) | (q >= k),
        "a cast": lambda b, h, q, k: (q / 3).to(torch.int32) == (k / 3).int(),
        "distances": lambda b, h, q, k: (of_queries[0, 0, q] - k).abs() > 20,
    }  # fmt: skip


def dense():
    """Conditions that are no sets."""
    table, numbers = torch.rand(N, N) > 0.5, torch.rand(N)
    large = torch.arange(N) * (1 << 30)
    return {
        "a table of pairs": lambda b, h, q, k: table[q, k],
        "a product": lambda b, h, q, k: q * k > 300,
        "floats of both": lambda b, h, q, k: numbers[q] > numbers[k],
        "large numbers": lambda b, h, q, k: large[q] >= large[k],
    }


def pairs_of(mask_mod):
    for dim in (3, 2, 1, 0):
        mask_mod = torch.vmap(mask_mod, tuple(0 if i == dim else None for i in range(4)))
    return mask_mod(*map(torch.arange, (B, H, N, N)))


class FlexSetsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def check(self, mask_mod, kv_heads, is_set=True):
        rows = [torch.randn(B, h, N, 16, requires_grad=True) for h in (H, kv_heads, kv_heads)]
        block_mask = create_block_mask(mask_mod, B, H, N, N, device="cpu")
        call = _attention.attention
        with mock.patch.object(_flex, "attention", side_effect=call) as attention:
            found = ft.flex_attention(*rows, block_mask=block_mask, enable_gqa=True)
        options = attention.call_args.kwargs
        self.assertEqual(options["attn_mask"] is None, is_set)
        self.assertTrue(not is_set or options["mask"] is not None)
        seen = pairs_of(mask_mod)
        q, k, v = (x.double().repeat_interleave(H // x.shape[1], 1) for x in rows)
        scores = (q @ k.mT / 4).masked_fill(~seen, -torch.inf)
        sees = seen.any(-1, keepdim=True)
        wanted = torch.where(sees, scores.where(sees, 0.0).softmax(-1), 0.0) @ v
        d_o = torch.randn(found.shape)
        gradients = torch.autograd.grad(found, rows, d_o), torch.autograd.grad(wanted, rows, d_o.double())
        for one, other in ((found, wanted), *zip(*gradients)):
            one, other = one.detach(), other.detach()
            self.assertLessEqual(float((one - other).norm()), 1e-5 * float(other.norm()) + 1e-12)

    def test_examples(self):
        for name, mask_mod in examples().items():
            with self.subTest(name):
                self.check(mask_mod, 2)

    def test_conditions(self):
        for name, mask_mod in conditions().items():
            with self.subTest(name):
                self.check(mask_mod, H)

    def test_dense(self):
        for name, mask_mod in dense().items():
            with self.subTest(name), self.assertLogs("flashattn", "INFO") as logged:
                self.check(mask_mod, 2, is_set=False)
            self.assertIn("a condition of mask_mod is no set but a Boolean tensor of pairs: expected", logged.output[0])
        # A symbol of keys has a number for each of their heads, not for those of queries.
        with self.assertLogs("flashattn", "INFO"):
            self.check(conditions()["a table of heads of keys"], 2, is_set=False)

    def test_only_some_conditions_are_dense(self):
        table, lengths = torch.rand(N, N) > 0.5, torch.tensor([30, 77])
        mask_mod = and_masks(causal, lambda b, h, q, k: k < lengths[b], lambda b, h, q, k: table[q, k])
        block_mask = create_block_mask(mask_mod, B, H, N, N, device="cpu")
        pairs = _flex._find_pairs(block_mask, (B, H, N, N), 2, torch.device("cpu"))
        self.assertTrue(torch.equal(pairs.attn_mask[0, 0], table))
        self.assertIn("sequence0", str(pairs.mask))

    def test_many_conditions(self):
        """More than 8 tensors of a kind, or more than 64 sets, are a Boolean tensor."""
        tables = [torch.rand(N) > 0.2 for _ in range(9)]
        limits = [torch.randint(0, N, (N,)) for _ in range(9)]
        many = or_masks(*(lambda b, h, q, k, t=t: (k <= t[q]) for t in limits))
        product = and_masks(*(lambda b, h, q, k, t=t, i=i: (t[k] | (q >= k + i)) for i, t in enumerate(tables[:7])))
        for mask_mod in (many, product):
            with self.assertLogs("flashattn", "INFO"):
                self.check(mask_mod, 2, is_set=False)

    def test_tensors_are_read_in_place(self):
        ids, lengths = torch.arange(N, dtype=torch.int32) // 9, torch.tensor([3, 60], dtype=torch.int32)
        starts = torch.zeros(B, 2 * N, dtype=torch.int32)
        mask_mod = lambda b, h, q, k: (ids[q] == ids[k]) | (k < lengths[b]) & (k >= starts[b, q])  # noqa: E731
        block_mask = create_block_mask(mask_mod, B, H, N, N, device="cpu")
        mask = _flex._find_pairs(block_mask, (B, H, N, N), 2, torch.device("cpu")).mask
        found = {name: tensor.data_ptr() for name, tensor in mask._symbols}
        wanted = {"per_sequence0": lengths, "per_query0": ids, "per_query1": starts, "per_key0": ids}
        self.assertEqual(found, {name: tensor.data_ptr() for name, tensor in wanted.items()})
        for _ in range(2):
            self.check(mask_mod, 2)
            ids.copy_(torch.arange(N) // 30)
            lengths += 10
            starts += 5


if __name__ == "__main__":
    unittest.main()

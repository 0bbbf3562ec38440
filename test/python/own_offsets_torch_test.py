# offset as a tensor with torch: autograd, torch.compile and vmap, against attention in float64.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import unittest

import flashattn
import torch
from flashattn import causal


def attend(q, k, v, offsets):
    return flashattn.attention(q, k, v, mask=causal, offset=offsets)


def in_double(q, k, v, offsets):
    scores = q.double() @ k.double().mT * q.shape[3] ** -0.5
    p = offsets[:, None, None, None] + torch.arange(q.shape[2])[:, None]
    scores = scores.masked_fill(p < torch.arange(k.shape[2]), -torch.inf)
    return torch.nan_to_num(scores.softmax(-1)) @ v.double()


class OwnOffsets(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.rows = [torch.randn(2, 3, n, 16, requires_grad=True) for n in (20, 40, 40)]
        self.offsets = torch.tensor([0, 19], dtype=torch.int32)

    def near(self, found, wanted):
        self.assertLess(((found.double() - wanted).norm() / wanted.norm()).item(), 1e-5)

    def test_gradients(self):
        for function in (attend, torch.compile(attend, fullgraph=True)):
            for offsets in (self.offsets, self.offsets.flip(0), self.offsets.long()):
                found, wanted = function(*self.rows, offsets), in_double(*self.rows, offsets)
                self.near(found, wanted)
                d_o = torch.randn(found.shape)
                for x, y in zip(
                    torch.autograd.grad(found, self.rows, d_o),
                    torch.autograd.grad(wanted, self.rows, d_o.double()),
                ):
                    self.near(x, y.double())

    def test_vmap(self):
        q, k, v = (torch.randn(3, *x.shape) for x in self.rows)
        offsets = torch.randint(0, 20, (3, 2), dtype=torch.int32)
        wanted = torch.stack([in_double(*rows) for rows in zip(q, k, v, offsets)])
        self.near(torch.vmap(attend)(q, k, v, offsets), wanted)
        wanted = torch.stack([in_double(*rows, self.offsets) for rows in zip(q, k, v)])
        self.near(torch.vmap(attend, (0, 0, 0, None))(q, k, v, self.offsets), wanted)


if __name__ == "__main__":
    unittest.main()

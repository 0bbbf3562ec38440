# What torch compiles to C++ and exports to a package of its own calls the operators: Inductor and
# AOTInductor, once for all lengths.
# REQUIRES: python-package, torch, cc
# RUN: %flashattn_python %s

import os
import tempfile
import unittest

import torch
from flashattn import attention, causal
from flashattn import torch as ft


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sinks = torch.nn.Parameter(torch.randn(4))

    def forward(self, q, k, v):
        o = attention(q * 2, k, v, mask=causal, softcap=9.0, sink_logits=self.sinks)
        return o + ft.sdpa(q, k, v, enable_gqa=True)


def inputs(length):
    return [torch.randn(2, h, length, 8) for h in (4, 2, 2)]


class ExportTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)

    def test_package_of_aot_inductor(self):
        layer, n = Layer().eval(), torch.export.Dim("n", min=2, max=4096)
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            program = torch.export.export(layer, tuple(inputs(6)), dynamic_shapes=({2: n},) * 3)
            path = torch._inductor.aoti_compile_and_package(
                program, package_path=os.path.join(folder, "layer.pt2")
            )
            loaded = torch._inductor.aoti_load_package(path)
            for length in (6, 31):
                given = inputs(length)
                torch.testing.assert_close(loaded(*given), layer(*given), rtol=1e-5, atol=1e-5)

    def test_inductor(self):
        layer = Layer()
        compiled = torch.compile(layer, fullgraph=True, dynamic=True)
        for length in (6, 31):
            results = []
            for call in (compiled, layer):
                given = [x.requires_grad_() for x in inputs(length)]
                torch.manual_seed(length)
                for x in given:
                    torch.nn.init.normal_(x)
                o = call(*given)
                results.append((o, *torch.autograd.grad(o.square().sum(), (*given, layer.sinks))))
            torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)

    def test_inductor_of_decoding(self):
        """Caches are changed where they are, with keys that the same graph computes."""

        def step(q, k_cache, v_cache, lengths, k):
            lengths += k.shape[2]
            return ft.decode(q, k_cache, v_cache, lengths, k * 2, k + 1).relu()

        compiled, results = torch.compile(step, fullgraph=True, dynamic=True), []
        tokens = [(torch.randn(2, 4, n, 8), torch.randn(2, 2, n, 8)) for n in (3, 2, 4)]
        for call in (compiled, step):
            k_cache, v_cache = torch.zeros(2, 2, 20, 8), torch.zeros(2, 2, 20, 8)
            lengths = torch.tensor([0, 11], dtype=torch.int32)
            with torch.no_grad():
                found = [call(q, k_cache, v_cache, lengths, k) for q, k in tokens]
            results.append((*found, k_cache, v_cache))
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    unittest.main()

# flashattn.flash_attn.install makes other code find FlashAttention's names, among them those that are
# no attention: bert_padding and layers.rotary.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

import torch
from flashattn.flash_attn import bert_padding
from flashattn.flash_attn.layers import rotary

#: Each runs in a process of its own.
INSTALLED = """
import importlib.metadata, importlib.util, sys
from flashattn import flash_attn as ours, flash_attn_interface as third
def is_there(name):
    return importlib.util.find_spec(name) is not None
assert not any(map(is_there, ("flash_attn", "flash_attn_interface", "flash_attn_3")))
before = list(sys.meta_path)

ours.install()
import flash_attn
from flash_attn import flash_attn_func, flash_attn_with_kvcache
from flash_attn.bert_padding import index_first_axis, pad_input, unpad_input
from flash_attn.flash_attn_interface import flash_attn_varlen_func
from flash_attn.layers.rotary import apply_rotary_emb
assert flash_attn_func is ours.flash_attn_func and flash_attn.__version__ == "2.8.4"
assert flash_attn.__spec__.name == flash_attn.__name__ == "flash_attn"
assert not hasattr(flash_attn, "install")
assert is_there("flash_attn.layers.rotary") and not is_there("flash_attn.cute")
for name in ("flash_attn", "flash-attn", "Flash.Attn"):
    assert importlib.metadata.version(name) == "2.8.4"
assert "flash-attn" in importlib.metadata.packages_distributions()["flash_attn"]
assert importlib.metadata.version("numpy") and not is_there("flash_attn_interface")

ours.install(3)
ours.install("4")
ours.install("2")
import flash_attn_interface
import flash_attn_3.flash_attn_interface
from flash_attn.cute import flash_attn_varlen_func as fourth
from flash_attn.cute.interface import flash_attn_func as other
assert flash_attn_interface.flash_attn_func is third.flash_attn_func
assert flash_attn_3.flash_attn_interface.flash_attn_func is third.flash_attn_func
assert fourth is importlib.import_module("flashattn.flash_attn.cute").flash_attn_varlen_func
assert importlib.import_module("flash_attn").flash_attn_func is flash_attn_func
assert importlib.metadata.version("flash_attn_3") == "3.0.0"
found = importlib.metadata.packages_distributions()
assert sorted(found["flash_attn"]) == ["flash-attn", "flash-attn-4"], found["flash_attn"]

ours.uninstall()
ours.uninstall()
assert sys.meta_path == before
assert not any(name.partition(".")[0].startswith("flash_attn") for name in sys.modules)
assert not any(map(is_there, ("flash_attn", "flash_attn_interface", "flash_attn_3")))
try:
    importlib.metadata.version("flash-attn")
except importlib.metadata.PackageNotFoundError:
    print("ok")
"""
#: The folder in argv[1] holds another package of the name.
HIDDEN = """
import sys
sys.path.insert(0, sys.argv[1])
import flash_attn.deep
from flashattn import flash_attn as ours
theirs, deep = flash_attn, flash_attn.deep
ours.install("4")
import flash_attn.cute
assert flash_attn is theirs and flash_attn.deep is deep
ours.uninstall()
assert not hasattr(theirs, "cute") and "flash_attn.cute" not in sys.modules
ours.install("2")
import flash_attn
assert flash_attn.flash_attn_func is ours.flash_attn_func and "flash_attn.deep" not in sys.modules
ours.uninstall()
import flash_attn.deep
assert flash_attn is theirs and flash_attn.deep is deep
print("ok")
"""
TRANSFORMERS = """
from flashattn import flash_attn as ours
for generation in "234":
    ours.install(generation)
from transformers.utils import import_utils
import_utils.is_torch_cuda_available = lambda: True
assert import_utils.is_flash_attn_2_available()
assert import_utils.is_flash_attn_greater_or_equal("2.3.3")
assert import_utils.is_flash_attn_3_available() and import_utils.is_flash_attn_4_available()
from transformers import modeling_flash_attention_utils as utils
for number, where in ((2, "flash_attn"), (3, "flash_attn_interface"), (4, "flash_attn.cute")):
    name = f"flash_attention_{number}"
    functions, _ = utils.lazy_import_flash_attention(name)
    expected = __import__(where, fromlist=["flash_attn_func"])
    assert functions[0] is expected.flash_attn_func, (name, functions)
    assert utils.FLASH_ATTENTION_COMPATIBILITY_MATRIX[number]["pkg_availability_check"]()
print("ok")
"""


class HelpersTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)

    def test_padding(self):
        x = torch.randn(3, 7, 2, 4, dtype=torch.float64, requires_grad=True)
        mask = torch.arange(7) < torch.tensor([5, 0, 7])[:, None]
        rows, indices, starts, longest, used = bert_padding.unpad_input(x, mask)
        self.assertTrue(torch.equal(rows, x[mask]))
        self.assertEqual((starts.tolist(), starts.dtype), ([0, 5, 5, 12], torch.int32))
        self.assertEqual((longest, used.tolist()), (7, [5, 0, 7]))
        padded = bert_padding.pad_input(rows, indices, 3, 7)
        self.assertTrue(torch.equal(padded, x * mask[..., None, None]))
        padded.square().sum().backward()
        self.assertTrue(torch.equal(x.grad, 2 * x * mask[..., None, None]))
        self.assertTrue(torch.equal(bert_padding.index_first_axis(x.flatten(0, 1), indices), rows))
        more = (torch.arange(7) == 5).expand(3, 7) & torch.tensor([True, True, False])[:, None]
        rows, _, starts, longest, used = bert_padding.unpad_input(x, mask.int(), more.int())
        self.assertEqual((starts.tolist(), used.tolist()), ([0, 6, 7, 14], [5, 0, 7]))

    def test_rotary(self):
        angles = torch.outer(torch.arange(32.0), torch.tensor([1.0, 0.5, 0.1, 0.02]))
        cos, sin = angles.cos(), angles.sin()
        x = torch.randn(2, 6, 3, 12, requires_grad=True)
        turn = torch.polar(torch.ones_like(angles), angles)

        def wanted(x, positions, interleaved):
            pairs = x[..., :8].unflatten(-1, (4, 2) if interleaved else (2, 4))
            pairs = pairs if interleaved else pairs.mT
            turned = torch.view_as_complex(pairs.contiguous()) * turn[positions][..., None, :]
            found = torch.view_as_real(turned)
            found = found if interleaved else found.mT
            return torch.cat((found.flatten(-2), x[..., 8:]), -1)

        offsets = torch.tensor([4, 9])
        rows = torch.arange(6)
        for interleaved in (False, True):
            for given, positions in ((0, rows), (5, rows + 5), (offsets, rows + offsets[:, None])):
                found = rotary.apply_rotary_emb(x, cos, sin, interleaved, seqlen_offsets=given)
                other = wanted(x, positions, interleaved)
                torch.testing.assert_close(found, other)
                d = torch.randn_like(found)
                torch.testing.assert_close(
                    torch.autograd.grad(found, x, d), torch.autograd.grad(other, x, d)
                )
        starts = torch.tensor([0, 4, 4, 12], dtype=torch.int32)
        packed = x.detach().flatten(0, 1)
        positions = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7])
        found = rotary.apply_rotary_emb(packed, cos, sin, cu_seqlens=starts, max_seqlen=8)
        torch.testing.assert_close(found, wanted(packed, positions, False))
        copy = packed.clone()
        again = rotary.apply_rotary_emb(copy, cos, sin, inplace=True, cu_seqlens=starts)
        self.assertIs(again, copy)
        torch.testing.assert_close(copy, found)
        self.assertIs(rotary.apply_rotary_emb_func, rotary.apply_rotary_emb)
        half = rotary.apply_rotary_emb(packed.bfloat16(), cos, sin)
        self.assertEqual(half.dtype, torch.bfloat16)


class InstallTest(unittest.TestCase):
    def run_alone(self, text, *arguments):
        done = subprocess.run(
            [sys.executable, "-c", text, *arguments], capture_output=True, text=True, timeout=240
        )
        self.assertEqual((done.stderr, done.stdout, done.returncode)[1:], ("ok\n", 0), done.stderr)

    @unittest.skipIf(importlib.util.find_spec("flash_attn"), "FlashAttention is installed")
    def test_install(self):
        self.run_alone(INSTALLED)

    def test_another_package_comes_back(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "flash_attn"))
            for name in ("__init__.py", "deep.py"):
                open(os.path.join(folder, "flash_attn", name), "w").close()
            self.run_alone(HIDDEN, folder)

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
    def test_transformers(self):
        self.run_alone(TRANSFORMERS)


if __name__ == "__main__":
    unittest.main()

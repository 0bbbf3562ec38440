# Type checkers see what a call takes and gives: a wrong mask, align or score_mod is found, and a result
# is no Any. The modules import each other in one direction.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import ast
import graphlib
import importlib.util
import inspect
import os
import subprocess
import sys
import tempfile
import typing
import unittest
from pathlib import Path

import flashattn
import numpy
from flashattn import Mask, math

GOOD = """
from typing import Tuple
import numpy as np
import flashattn
from numpy.typing import NDArray
F32 = NDArray[np.float32]

def plain(q: F32) -> F32:
    return flashattn.attention(q, q, q, mask=flashattn.causal | flashattn.sink(2), align="top_left")

def both(q: F32) -> Tuple[F32, F32]:
    o, lse = flashattn.attention(q, q, q, return_lse=True)
    return o, lse

def scored(q: F32) -> F32:
    return flashattn.attention(
        q, q, q, score_mod=lambda score, b, h, p, k: score + flashattn.math.exp2(-h) * (k - p)
    )

def differentiated(q: F32, o: F32, lse: F32) -> Tuple[F32, F32, F32]:
    return flashattn.attention_backward(q, q, q, o, lse, o, mask=flashattn.causal, d_lse=lse)

def with_bias(q: F32, o: F32, lse: F32, wanted: bool) -> int:
    return len(flashattn.attention_backward(q, q, q, o, lse, o, bias=lse, return_d_bias=wanted))

def drawn() -> str:
    flashattn.causal.draw(64, 64, "causal.svg", align="top_left", tile=(8, 8), batch=1, head=2)
    return flashattn.causal.draw(64, 64)

def launched(q: F32, o: F32) -> str:
    kernel = flashattn.compile(head_dim=64, dtype="f32", rows="dense", kv_len=True)
    kernel.launch(q, q, q, o, scale=0.5, kv_len=[3])
    return kernel.schedule

def narrow(q: F32) -> F32:
    k, k_scale = flashattn.quantize(q, "int8", per="row", columns=16)
    return flashattn.attention(q, k, q, k_scale=k_scale, v_scale=None)

def masked(q: F32, n: NDArray[np.int32]) -> F32:
    mask = flashattn.prefix(n) | flashattn.documents(ids=n, causal=True) | flashattn.window(left=n, right=[1, 2])
    return flashattn.attention(q, q, q, mask=mask & flashattn.tree([-1, 0, 0]))
"""

#: A line each, and what is said of it.
BAD = {
    'flashattn.attention(q, q, q, mask="causal")': "call-overload",
    'flashattn.attention(q, q, q, align="bottom")': "call-overload",
    "flashattn.attention(q, q, q, score_mod=lambda score: score)": "arg-type",
    'x: str = flashattn.attention(q, q, q)': "assignment",
    'flashattn.attention_backward(q, q, q, q, q, q, layout="bdhs")': "call-overload",
    "flashattn.attention_backward(q, q, q, q)": "call-overload",
    "dq, dk = flashattn.attention_backward(q, q, q, q, q, q)": "misc",
    "number: int = flashattn.attention_backward(q, q, q, q, q, q)[0]": "assignment",
    'flashattn.compile(head_dim=64, mask="causal")': "arg-type",
    'flashattn.compile(head_dim=64, rows="packed")': "arg-type",
    "flashattn.causal | 3": "operator",
    'flashattn.quantize(q, per="batch")': "arg-type",
    'flashattn.window(left="3")': "arg-type",
    'text: str = flashattn.causal.draw(64, 64, "causal.svg")': "assignment",
    'flashattn.causal.draw(64, 64, align="bottom")': "call-overload",
}


class TypesTest(unittest.TestCase):
    def test_hints_are_there(self):
        for function in (
            flashattn.attention,
            flashattn.attention_backward,
            flashattn.compile,
            flashattn.Kernel.launch,
        ):
            hints = typing.get_type_hints(function)
            names = set(inspect.signature(function).parameters) - {"self"}
            self.assertEqual(names - set(hints), set(), function)
        hints = typing.get_type_hints(flashattn.attention)
        self.assertEqual(hints["mask"], typing.Optional[Mask])
        self.assertEqual(typing.get_args(hints["align"]), ("top_left", "bottom_right"))
        *score_mods, _ = typing.get_args(hints["score_mod"])  # with none to four aux_tensors
        self.assertEqual([len(typing.get_args(one)[0]) for one in score_mods], [5, 6, 7, 8, 9])
        self.assertTrue(Path(flashattn.__file__).with_name("py.typed").is_file())

    def test_modules_show_what_they_have(self):
        self.assertEqual(dir(math), sorted(math.__all__))
        self.assertIn("exp2", dir(math))
        for name in math.__all__:
            self.assertTrue(inspect.isfunction(getattr(math, name)), name)
        for name in flashattn.__all__:
            self.assertTrue(hasattr(flashattn, name), name)

    def imported(self, name, paths):
        """What a module imports anywhere: in functions and for type checkers too."""
        package = name if paths[name].name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(paths[name].read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                modules = (f"{source}.{alias.name}" for alias in node.names)
                yield from (module if module in paths else source for module in modules)

    def test_no_module_imports_itself_through_others(self):
        folder = Path(flashattn.__file__).parent
        paths = {}
        for path in folder.rglob("*.py"):
            name = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
            paths[name[: -len(".__init__")] if name.endswith(".__init__") else name] = path
        graph = {name: set(self.imported(name, paths)) & set(paths) for name in paths}
        self.assertIn("flashattn._library", graph["flashattn._module"])
        self.assertIn("flashattn.torch._ops", graph["flashattn"])  # in a function
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            self.fail(" imports ".join(reversed(error.args[1])))

    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "user.py").write_text(text)
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--follow-imports=silent",
                 "--cache-dir", os.path.join(folder, "cache"), "user.py"],
                cwd=folder, env={**os.environ, "MYPYPATH": str(Path(flashattn.__file__).parent.parent)},
                capture_output=True, text=True,
            )  # fmt: skip
        self.assertEqual(done.stderr, "")
        return done.stdout

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_strict(self):
        self.assertEqual(self.check(GOOD), "")
        head = "import numpy\nimport flashattn\nq = numpy.zeros((1, 1, 4, 16), numpy.float32)\n"
        found = self.check(head + "\n".join(BAD) + "\n").splitlines()
        for number, (line, kind) in enumerate(BAD.items(), 4):
            said = [text for text in found if text.startswith(f"user.py:{number}: error:")]
            self.assertTrue(any(f"[{kind}]" in text for text in said), f"{line}: {said}")


if __name__ == "__main__":
    unittest.main()

# A text that a call or a file brings is what it stands for, or an error: it is parsed alone, so that
# nothing in it becomes code.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import flashattn
from flashattn import FlashAttnError, _library, _module, masks

sys.path.insert(0, str(Path(__file__).parent / "Inputs"))
import break_out  # noqa: E402


class TextsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.marker = Path(folder.name, "marker")

    def test_nothing_breaks_out(self):
        attempts = list(break_out.attempts(self.marker))
        self.assertGreaterEqual(len(attempts), 20)
        for name, attempt in attempts:
            with self.subTest(name):
                with self.assertRaisesRegex(FlashAttnError, "^(input:[0-9:]* )?expected ") as caught:
                    attempt()
                self.assertNotIn("PLEASE submit a bug report", str(caught.exception))
                self.assertFalse(self.marker.exists())

    def test_what_they_stand_for_is_taken(self):
        break_out._make()
        break_out._make(mask=masks.causal & masks.sink(3), function="another_name")
        break_out._make(score_mod=break_out.SCORE_MOD.replace("%score", "%other"))
        break_out.attend(break_out.LOADS)

    def test_modules_hold_one_attention(self):
        library = _library.get()
        text = _module.make_module(break_out.PROBLEM)
        begin, end = "func.func @attention(", "  return\n"

        def compile(text):
            options = dict(chip="cpu", device=_library.DEVICE_CPU, schedule=None, tuned=False)
            library.free(library.compile(text, **options)[0])

        compile(text)
        attention = text[text.index("  flashattn") : text.index(end)]
        refused = "expected one function around one attention but got '{}'"
        for changed, found in (
            ("", "builtin.module"),
            (text + text.replace(begin, "func.func private @other("), "func.func"),
            (text.replace(attention, ""), "func.return"),
            (text.replace(attention, attention * 2), "flashattn.attention"),
            (text.replace(end, "  %0 = arith.constant 0 : i32\n" + end), "arith.constant"),
            (text.replace(") {\n", ') attributes {llvm.emit_c_interface} {\n', 1), "func.func"),
            (f"module attributes {{a.b}} {{\n{text}}}", "builtin.module"),
            (f"module {{\n module {{\n{text}}}\n}}", "builtin.module"),
        ):  # fmt: skip
            with self.subTest(found=found, text=changed):
                with self.assertRaises(flashattn.CompileError) as caught:
                    compile(changed)
                self.assertRegex(str(caught.exception), refused.format(found) + "|does not exist")

    def test_code_reaches_the_runtime_alone(self):
        """Also where the module may be anything."""
        library = _library.get()
        for what, message in (
            ("a function of LLVM's dialect", "Dialect `llvm' not found"),
            ("assembly", "Dialect `llvm' not found"),
            ("a function of the C library", "calls undefined functions: _mlir_ciface_system"),
        ):
            text = _module.make_module(break_out.PROBLEM)
            inner, beside = break_out.codes(self.marker)[what]
            text = text.replace("  return\n", f"{inner}  return\n") + beside
            options = dict(chip="cpu", device=_library.DEVICE_CPU, schedule=None, tuned=False)
            with mock.patch.object(library, "attention_only", False):
                with self.assertRaisesRegex(flashattn.CompileError, message):
                    library.compile(text, **options)
        self.assertFalse(self.marker.exists())


if __name__ == "__main__":
    unittest.main()

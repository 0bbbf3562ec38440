"""Texts that try to be more than what they stand for: each ends the part of a module that it is put
into, and goes on with code that makes the file `marker`."""

import pickle
from unittest import mock

import flashattn
import numpy
from flashattn import _kernel, _library, _module, _trace
from flashattn.masks import Mask

MASK = "#flashattn.causal"
SCORE_MOD = _trace.trace(lambda score, b, h, p, k: score * 2 + k)
LOADS = _trace.trace(lambda score, b, h, p, k, table: score + table[b, h], (("f32", 2),))
PROBLEM = _module.Problem("f32", 16, 16, Mask(MASK), "top_left", "bhsd", score_mod=SCORE_MOD)


def codes(marker):
    """What may run: ops in the attention's function, and what stands beside it."""
    command = [*f"touch {marker}".encode(), 0]
    memory = f"memref<{len(command)}xi8>"
    return {
        "a function of LLVM's dialect": (
            "  %cmd = llvm.mlir.addressof @cmd : !llvm.ptr\n"
            "  %got = llvm.call @system(%cmd) : (!llvm.ptr) -> i32\n",
            "llvm.func @system(!llvm.ptr) -> i32\n"
            f'llvm.mlir.global internal constant @cmd("touch {marker}\\00")\n',
        ),
        "a function of the C library": (
            f"  %cmd = memref.get_global @cmd : {memory}\n"
            f"  %at = memref.extract_aligned_pointer_as_index %cmd : {memory} -> index\n"
            "  %got = func.call @system(%at) : (index) -> i32\n",
            "func.func private @system(index) -> i32\n"
            f'memref.global "private" constant @cmd : {memory} = dense<{command}>\n',
        ),
        "assembly": ('  llvm.inline_asm has_side_effects "nop", "" : () -> ()\n', ""),
        "a function of the runtime": (
            "  %got = func.call @flashattnThreadCount() : () -> i64\n",
            "func.func private @flashattnThreadCount() -> i64\n",
        ),
        "memory of others": (
            "  %i = arith.constant 4096 : index\n"
            "  %x = arith.constant 0.0 : f32\n"
            "  %m = memref.alloca() : memref<1xf32>\n"
            "  memref.store %x, %m[%i] : memref<1xf32>\n",
            "",
        ),
    }


def put(text, code, module=None):
    """`text` of the module, with what ends it, the code, and a beginning of what it stands in."""
    inner, beside = code
    head, tail = (module or _module.make_module(PROBLEM)).split(text, 1)
    tail = tail.replace("  return\n", f"{inner}  return\n", 1)
    return f"{text}{tail}{beside}func.func private @rest{head[head.index('('):]}{text}"


def put_name(code):
    inner, beside = code
    tail = _module.make_module(PROBLEM).split("@attention", 1)[1]
    tail = tail.replace("  return\n", f"{inner}  return\n", 1)
    return f"attention{tail}{beside}func.func private @rest"


def _make(function=None, **fields):
    return _kernel.Kernel(PROBLEM._replace(**fields), "cpu", _library.DEVICE_CPU, function=function)


def attend(text):
    """Attention with the text of a score_mod that may load from a table."""
    q, table = numpy.ones((1, 2, 4, 16), numpy.float32), numpy.ones((1, 2), numpy.float32)
    with mock.patch.object(_trace, "text_of", lambda *_: text):
        return flashattn.attention(q, q, q, score_mod=lambda *_: 0, aux_tensors=(table,))


class _Pickled:
    """What a file of pickle may say of a kernel, without a kernel that was made."""

    def __init__(self, *recipe):
        self.recipe = recipe

    def __reduce__(self):
        return _kernel.Kernel, self.recipe


def attempts(marker):
    """Each way in, by its name: a function that tries it."""
    code = codes(marker)
    first = code["a function of LLVM's dialect"]
    for what, each in code.items():
        text = put(MASK, each)
        yield f"mask: {what}", lambda text=text: flashattn.compile(
            head_dim=16, dtype="f32", chip="cpu", mask=Mask(text), align="top_left"
        )
    for what in ("a function of LLVM's dialect", "a function of the C library", "memory of others"):
        text = put(SCORE_MOD, code[what])
        yield f"score_mod: {what}", lambda text=text: _make(score_mod=text)
    last = SCORE_MOD.splitlines(keepends=True)[-1]
    for what, op in (
        ("an op of LLVM's dialect", '        %x = llvm.mlir.zero : !llvm.ptr\n'),
        ("an op with memory", "        %x = memref.alloca() : memref<1xf32>\n"),
        ("an op with a region", "        %x = scf.execute_region -> i32 { scf.yield %0 : i32 }\n"),
        ("a second block", "        cf.br ^bb1\n      ^bb1:\n"),
    ):
        text = SCORE_MOD.replace(last, op + last)
        yield f"score_mod: {what}", lambda text=text: _make(score_mod=text)
    load = next(line for line in LOADS.splitlines(keepends=True) if "memref.load" in line)
    far = "        %by = arith.constant 99999 : index\n        %far = arith.addi %head, %by : index\n"
    for what, changed in (
        ("an index far away", far + load.replace("%head]", "%far]")),
        ("an index of the key", load.replace("%head]", "%key]")),
        ("another memref", load.replace("%aux0", "%k")),
        ("a size that it does not have", load.replace("?x?x", "?x99999x")),
        ("sizes that it does not have", load.replace("?x?x", "99999x99999x")),
        ("a store", f"{load}        memref.store %score, %aux0[%batch, %head] : memref<?x?xf32>\n"),
        ("a global", f"        %g = memref.get_global @g : memref<4xf32>\n{load}"),
        ("a pointer", f"        %g = llvm.inttoptr %batch : index to !llvm.ptr\n{load}"),
        ("its end", f"{load}        flashattn.yield %score : f32\n      }}\n  return\n}}\nfunc.func @g() {{\n"),
    ):
        text = LOADS.replace(load, changed)
        yield f"score_mod that loads: {what}", lambda text=text: attend(text)
    yield "mask: a second clause", lambda: _make(mask=Mask(f"{MASK}) softcap(1.0"))
    yield "mask: a comment", lambda: _make(mask=Mask(f"{MASK} //"))
    yield "mask: a zero", lambda: _make(mask=Mask(f"{MASK}\0"))
    yield "mask: another attribute", lambda: _make(mask=Mask("affine_map<(d0) -> (d0)>"))
    yield "set: its end", lambda: flashattn.affine_set(f'(p, k)[nq, nk] : (p >= 0)">) {put(MASK, first)}')
    yield "function: its name", lambda: _make(function=put_name(first))
    yield "align: its end", lambda: _make(align=put("top_left", first))
    yield "layout: its end", lambda: _make(
        layout=put("bshd", first, _module.make_module(PROBLEM._replace(layout="bshd")))
    )
    yield "element: its end", lambda: _make(element="f32>) { return } llvm.func @f() // ")
    yield "o: its element", lambda: _make(o_element="f32>) { return } llvm.func @f() // ")
    yield "operand: its name", lambda: _make(
        operands=(_module.Operand("bias: f32) { return } //", "f32", "HNK", (False,) * 3),)
    )
    yield "size: a text", lambda: _make(d="16xf32>) { return } //")
    yield "schedule: its end", lambda: _make(schedule="tile_m = 8>) { return } //")
    yield "schedule: a field's value", lambda: flashattn.compile(
        head_dim=16, dtype="f32", chip="cpu", schedule={"tile_m": "8>) { return } //"}
    )
    yield "chip: its end", lambda: flashattn.compile(head_dim=16, chip="sm_80'} llvm.func @f() //")
    problem = PROBLEM._replace(mask=Mask(put(MASK, first)))
    kernel = pickle.dumps(_Pickled(problem, "cpu", _library.DEVICE_CPU))
    yield "pickle of a kernel", lambda: pickle.loads(kernel)
    mask = pickle.dumps(Mask(put(MASK, first)))
    yield "pickle of a mask", lambda: _make(mask=pickle.loads(mask))

# The functions that XLA calls, called as XLA would: with frames made here, on the CPU, and on a GPU or a
# stand-in for its driver, whose kernels do nothing.
# REQUIRES: python-package
# RUN: %flashattn_python %s
# RUN: %if fakecuda %{ env FLASHATTN_CUDA_DRIVER=%fakecuda %flashattn_python %s --device=fake %}
#
# By hand, with torch: --device=cuda computes on every GPU that there is. It needs no jax.

import argparse
import ctypes
import os
import sys
import threading

import numpy

import flashattn
from flashattn import _library, _module

parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=("cpu", "fake", "cuda"), default="cpu")
options = parser.parse_args()

Pointer, Int, Long = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
#: Types of elements and stages, as XLA numbers them: xla/ffi/api/c_api.h of OpenXLA, as are the structures.
TYPES = {"bool": 1, "int32": 4, "float16": 10, "float32": 11, "float64": 12, "bfloat16": 16}
EXECUTE, INSTANTIATE = 3, 0


def structure(name, **fields):
    head = {"struct_size": ctypes.c_size_t, "extensions": Pointer}
    return type(name, (ctypes.Structure,), {"_fields_": [*head.items(), *fields.items()]})


CreateError = structure("CreateError", message=ctypes.c_char_p, code=Int)
GetStream = structure("GetStream", context=Pointer, stream=Pointer)
GetDevice = structure("GetDevice", context=Pointer, ordinal=Int)
Buffer = structure("Buffer", type=Int, data=Pointer, rank=Long, sizes=ctypes.POINTER(Long))
List = structure("List", count=Long, types=ctypes.POINTER(Int), values=ctypes.POINTER(Pointer))
Attributes = structure(
    "Attributes", count=Long, types=ctypes.POINTER(Int), names=ctypes.POINTER(Pointer),
    values=ctypes.POINTER(Pointer),
)  # fmt: skip
Version = structure("Version", major=Int, minor=Int)
Api = structure("Api", version=Version, internal=Pointer, functions=Pointer * 18)
Frame = structure(
    "Frame", api=Pointer, context=Pointer, stage=Int, arguments=List, results=List,
    attributes=Attributes, future=Pointer,
)  # fmt: skip


class Span(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class Scalar(ctypes.Structure):
    _fields_ = [("type", Int), ("value", Pointer)]


class Caller:
    """XLA, as far as the library sees it."""

    def __init__(self, function, stream=0, device=0):
        self.function, self.stream, self.device = function, stream, device
        self.message, self.code = "", 0
        function.argtypes, function.restype = [Pointer], Pointer
        self.api = Api(struct_size=ctypes.sizeof(Api))
        self.kept = []
        for place, kind, call in (
            (0, CreateError, self.create_error), (4, GetStream, self.get_stream),
            (17, GetDevice, self.get_device),
        ):  # fmt: skip
            wrapped = ctypes.CFUNCTYPE(Pointer, ctypes.POINTER(kind))(call)
            self.kept.append(wrapped)
            self.api.functions[place] = ctypes.cast(wrapped, Pointer).value

    def create_error(self, args):
        self.message, self.code = args[0].message.decode(), args[0].code
        return 1

    def get_stream(self, args):
        args[0].stream = self.stream
        return 0

    def get_device(self, args):
        args[0].ordinal = self.device
        return 0

    def list_of(self, tensors):
        """Buffers of (address, shape, name of a type)."""
        buffers = []
        for data, shape, kind in tensors:
            sizes = (Long * len(shape))(*shape)
            buffers.append(Buffer(data=data, rank=len(shape), sizes=sizes, type=TYPES[kind]))
        types = (Int * len(buffers))(*[1] * len(buffers))
        places = (Pointer * len(buffers))(*map(ctypes.addressof, buffers))
        self.kept += [buffers, types, places]
        return List(count=len(buffers), types=types, values=places)

    def attributes_of(self, given):
        names, types, values = [], [], []
        for name, value in sorted(given.items()):
            names.append(Span(name.encode(), len(name)))
            if isinstance(value, str):
                types.append(4)
                values.append(Span(value.encode(), len(value.encode())))
            else:
                types.append(3)
                kind = 11 if value.dtype == numpy.float32 else 5
                values.append(Scalar(kind, value.ctypes.data))
        addresses = [(Pointer * len(x))(*map(ctypes.addressof, x)) for x in (names, values)]
        kinds = (Int * len(types))(*types)
        self.kept += [names, values, kinds, addresses, given]
        return Attributes(count=len(types), types=kinds, names=addresses[0], values=addresses[1])

    def __call__(self, inputs, outputs, attributes, stage=EXECUTE):
        """The error's message, empty where there is none."""
        frame = Frame(
            struct_size=ctypes.sizeof(Frame), api=ctypes.addressof(self.api), stage=stage,
            arguments=self.list_of(inputs), results=self.list_of(outputs),
            attributes=self.attributes_of(attributes),
        )  # fmt: skip
        self.message = ""
        failed = bool(self.function(ctypes.addressof(frame)))
        assert failed == bool(self.message)
        return self.message


def view(array):
    return array.ctypes.data, array.shape, array.dtype.name


def number(value, kind=numpy.float32):
    return numpy.array(value, kind)


def attributes_for(problem, **changed):
    return {
        "module": _module.make_module(problem), "schedule": "", "model": "",
        "version": flashattn.__version__, "scale": number(problem.d**-0.5), **changed,
    }  # fmt: skip


def expect(found, wanted):
    if wanted not in found:
        sys.exit(f"FAIL: expected {wanted!r} in {found!r}")


PROBLEM = _module.Problem("f32", 16, 16, flashattn.causal)
SHAPE = (1, 2, 6, 16)


def check_cpu(lib):
    caller = Caller(lib.flashattnXLACallCPU)
    generator = numpy.random.default_rng(0)
    q, k, v = (generator.standard_normal(SHAPE).astype(numpy.float32) for _ in range(3))
    o = numpy.zeros(SHAPE, numpy.float32)
    rows, out, given = [view(x) for x in (q, k, v)], [view(o)], attributes_for(PROBLEM)
    expect(caller([], [], given, INSTANTIATE) or "no error", "no error")
    expect(caller(rows, out, given) or "no error", "no error")
    numpy.testing.assert_array_equal(o, flashattn.attention(q, k, v, mask=flashattn.causal))

    for inputs, outputs, changed, message, code in (
        (rows[:2], out, {}, "expected 3 arguments and 1 results of the call but got 2 and 1", 3),
        (rows, out * 2, {}, "expected 3 arguments and 1 results of the call but got 3 and 2", 3),
        (rows, [(o.ctypes.data, (1,) * 6, "float32")], {}, "expected a buffer of rank 5 at most but got 6", 3),
        (rows, [view(o[0])], {}, "expected rank 4 of argument 3 ('o') but got 3", 3),
        (rows, [view(o.astype(numpy.float64))], {}, "expected argument 3 ('o') with element type f32 but got f64", 3),
        (rows, rows[:1], {}, "expected the output argument 3 ('o') to share no memory with argument 0 ('q')", 3),
        (rows, out, {"version": "0.0.9"}, f"expected a program compiled by flashattn {flashattn.__version__} but got one compiled by flashattn 0.0.9: compile or export it again", 3),
        (rows, out, {"model": number(1.0)}, "expected attribute 'model' of the call to be a text but got none", 3),
        (rows, out, {"module": "nothing"}, "custom op 'nothing' is unknown", 3),
        (rows, out, {"model": "sm_80", "module": attributes_for(PROBLEM._replace(d=12, dv=12))["module"]}, "expected D to be a multiple of 8 up to 256 but got 12", 12),
        (rows, out, {"module": given["module"].replace("  return", "  %0 = arith.constant 0 : i32\n  return")}, "expected one function around one attention but got 'arith.constant'", 3),
        (rows, out, {"module": given["module"] + "llvm.func @system(!llvm.ptr) -> i32"}, "Dialect `llvm' not found", 3),
        (rows, out, {"schedule": "tile_m = 8>) {}"}, "tile_m", 12),
        (rows, out, {"scale": number(0.25, numpy.int64)}, "expected attribute 'scale' of the call to be a number of type f32 but got another type", 3),
        (rows, out, {"scale": number(-1.0)}, "expected argument 4 ('scale') from 1e-18 to 1e18 but got", 3),
    ):  # fmt: skip
        expect(caller(inputs, outputs, {**given, **changed}), message)
        assert caller.code == code, (message, caller.code)
    del given["scale"]
    expect(caller(rows, out, given), "expected attribute 'scale' of the call to be a number of type f32 but got none")  # fmt: skip
    with_offset = PROBLEM._replace(operands=(_module.Operand("offset", "index", ""),))
    given = attributes_for(with_offset, offset=number(2, numpy.int64))
    expect(caller(rows, out, given) or "no error", "no error")
    wanted = flashattn.attention(q, k, v, mask=flashattn.causal, offset=2)
    numpy.testing.assert_array_equal(o, wanted)
    expect(caller(rows, out, attributes_for(with_offset)), "expected attribute 'offset' of the call to be a number of type i64 but got none")  # fmt: skip
    print("PASS: calls on the CPU")


def check_metadata(lib):
    """The version that XLA asks for before it registers a function."""

    class Base(ctypes.Structure):
        _fields_ = [("struct_size", ctypes.c_size_t), ("type", Int), ("next", Pointer), ("metadata", Pointer)]  # fmt: skip

    class Answer(ctypes.Structure):
        _fields_ = [
            ("struct_size", ctypes.c_size_t), ("version", Version), ("traits", ctypes.c_uint32),
            ("state", Long),
        ]  # fmt: skip

    for function in (lib.flashattnXLACallCPU, lib.flashattnXLACallCUDA):
        answer = Answer(struct_size=ctypes.sizeof(Answer), state=-1)
        base = Base(struct_size=ctypes.sizeof(Base), type=1, metadata=ctypes.addressof(answer))
        frame = Frame(struct_size=ctypes.sizeof(Frame), extensions=ctypes.addressof(base))
        function.argtypes, function.restype = [Pointer], Pointer
        assert not function(ctypes.addressof(frame))
        assert (answer.version.major, answer.version.minor, answer.state) == (0, 3, 0)
    print("PASS: metadata")


def check_fake(lib):
    """The kernel goes to the call's stream, and the driver's errors come back."""
    caller = Caller(lib.flashattnXLACallCUDA, stream=0x77)
    rows = [(at << 20, SHAPE, "float16") for at in (1, 2, 3)]
    out = [(4 << 20, SHAPE, "float16")]
    given = attributes_for(PROBLEM._replace(element="f16", rows="aligned"))
    expect(caller(rows, out, given) or "no error", "no error")
    driver, stream = ctypes.CDLL(os.environ["FLASHATTN_CUDA_DRIVER"]), Pointer()
    driver.fakeCUDALaunches(ctypes.byref(stream))
    assert stream.value == 0x77, stream.value
    os.environ["FAKE_CUDA_FAIL"] = "cuLaunchKernel=701"
    expect(caller(rows, out, given), "(as the fake driver was told)")
    assert caller.code == 13, caller.code
    del os.environ["FAKE_CUDA_FAIL"]
    caller.device = 99
    expect(caller(rows, out, given), "99")
    print("PASS: calls of a stand-in for CUDA")


def check_cuda(lib):
    """Numbers on each GPU, of all at once."""
    import torch

    def work(device, found):
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
            generator = torch.Generator(device=f"cuda:{device}").manual_seed(device)
            for n, queries in ((200, None), (3, 3)):
                q, k, v = (
                    torch.randn(
                        2, 4, m, 64, device=f"cuda:{device}", dtype=torch.float16, generator=generator
                    )
                    for m in (n, 200, 200)
                )
                o, wanted = torch.empty_like(q), flashattn.attention(q, k, v, mask=flashattn.causal)
                problem = _module.Problem("f16", 64, 64, flashattn.causal, queries=queries)
                caller = Caller(
                    lib.flashattnXLACallCUDA, torch.cuda.current_stream().cuda_stream, device
                )
                inputs = [(x.data_ptr(), tuple(x.shape), "float16") for x in (q, k, v, o)]
                error = caller(inputs[:3], inputs[3:], attributes_for(problem))
                torch.cuda.synchronize(device)
                error = error or float((o.float() - wanted.float()).abs().max())
                found.append((device, n, error))

    found, threads = [], []
    for device in range(torch.cuda.device_count()):
        threads.append(threading.Thread(target=work, args=(device, found)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 * len(threads) > 0, found
    for device, n, error in sorted(found):
        good = not isinstance(error, str) and error < 2e-3
        print(f"{'PASS' if good else 'FAIL'}: cuda:{device}, {n} queries, error {error}")
        if not good:
            sys.exit(1)


lib = _library.get().lib
if options.device == "fake":
    check_fake(lib)
elif options.device == "cuda":
    check_cuda(lib)
else:
    check_metadata(lib)
    check_cpu(lib)

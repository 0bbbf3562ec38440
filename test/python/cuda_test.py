# On a GPU with torch: results bit for bit those of flash-run, streams, graphs, threads, memory.
# REQUIRES: python-package, cuda, torch
# RUN: %flashattn_python %s --flash-run=flash-run
#
# By hand: PYTHONPATH=python FLASHATTN_LIBRARY=path/to/libFlashAttnC.so python3
# test/python/cuda_test.py \
#   [--flash-run=path/to/flash-run]

import argparse
import gc
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import numpy
import torch

import flashattn
from flashattn import (
    _cache,
    _module,
    _reference,
    attention,
    causal,
    sink,
    window,
)

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
MASKS = {"none": None, "causal": causal, "sinks": window(left=63, right=0) | sink(4) & causal}

options = argparse.Namespace()


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def make(*shape, element="f16", seed=0, device="cuda"):
    generator = torch.Generator(device=device).manual_seed(seed)
    if len(shape) == 4 and shape[0] * shape[1] * shape[2] * shape[3] > 1 << 30:
        # In its own type at once: in float32 it would take twice the memory.
        return torch.empty(shape, device=device, dtype=TYPES[element]).normal_(generator=generator)
    return torch.randn(shape, device=device, generator=generator).to(TYPES[element])


def operands(b=2, hq=4, hkv=2, nq=113, nk=203, d=64, element="f16", device="cuda"):
    return (
        make(b, hq, nq, d, element=element, seed=1, device=device),
        make(b, hkv, nk, d, element=element, seed=2, device=device),
        make(b, hkv, nk, d, element=element, seed=3, device=device),
    )


def bits(tensor):
    return tensor.contiguous().view(torch.int16 if tensor.element_size() == 2 else torch.int32)


def equal(a, b):
    """Bit for bit, so that NaN equals itself."""
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(bits(a), bits(b))


def check_numbers(o, q, k, v, mask, element):
    nq, nk, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    seen = _reference.visible(
        mask, numpy.arange(nq)[:, None] + nk - nq, numpy.arange(nk)[None, :], nq, nk
    )
    o, q, k, v = (x.float().cpu().numpy() for x in (o, q, k, v))
    for b, h in itertools.product(range(q.shape[0]), range(q.shape[1])):
        heads = q[b, h], k[b, h // group], v[b, h // group]
        error, bound = _reference.check_head(o[b, h], *heads, seen, q.shape[3] ** -0.5, element)
        expect(error <= bound, f"error {error:.2e} of batch {b}, head {h} exceeds {bound:.2e}")


def test_numbers():
    count = 0
    for (name, mask), element, d in itertools.product(MASKS.items(), TYPES, (64, 128)):
        for nq, nk in ((1, 113), (113, 203), (203, 113)):
            q, k, v = operands(nq=nq, nk=nk, d=d, element=element)
            check_numbers(attention(q, k, v, mask=mask), q, k, v, mask, element)
            count += 1
    return f"{count} problems against float64"


def save(path, tensor):
    """NumPy has no bf16: flash-run reads its bits as uint16."""
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
        numpy.save(path, tensor.cpu().numpy().view(numpy.uint16))
    else:
        numpy.save(path, tensor.cpu().numpy())


def test_equals_flash_run():
    if not options.flash_run:
        return "skipped: no flash-run; name it with --flash-run"
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for (name, mask), element, d in itertools.product(
            MASKS.items(), ("f16", "bf16", "f32"), (64, 128)
        ):
            q, k, v = operands(d=d, element=element)
            for x, letter in ((q, "q"), (k, "k"), (v, "v")):
                save(place / f"{letter}.npy", x)
            problem = _module.Problem(element, d, d, mask, lse=True)
            (place / "input.mlir").write_text(_module.make_module(problem))
            size = "x".join(map(str, q.shape))
            lse_size = "x".join(map(str, q.shape[:3]))
            command = [options.flash_run, str(place / "input.mlir"), "--device=cuda"]
            command += [f"--input=@{place / letter}.npy" for letter in "qkv"]
            command += [f"--input={size}x{element}=poison", f"--input={lse_size}xf32=poison"]
            command += [f"--input={d**-0.5!r}", f"--output=@{place / 'o.npy'}", f"--output=@{place / 'lse.npy'}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            expect(done.returncode == 0, f"flash-run: {done.stderr}")
            o, lse = attention(q, k, v, mask=mask, return_lse=True)
            width = numpy.int16 if element != "f32" else numpy.int32
            expected = numpy.load(place / "o.npy").view(width)
            expect(
                (bits(o).cpu().numpy() == expected).all(), f"o differs: {name}, {element}, D = {d}"
            )
            expected = numpy.load(place / "lse.npy").view(numpy.int32)
            expect(
                (bits(lse).cpu().numpy() == expected).all(),
                f"lse differs: {name}, {element}, D = {d}",
            )
            count += 1
    return f"{count} problems, o and lse bit for bit"


def test_few_queries():
    """The keys in parts: numbers, many threads on one stream, and a capture."""
    count = 0
    for (name, mask), element in itertools.product(MASKS.items(), TYPES):
        for nq, nk, hq, hkv, d in (
            (1, 8192, 8, 2, 128), (1, 5003, 4, 4, 64), (7, 1009, 6, 1, 64), (16, 4099, 16, 2, 128),
            (3, 2, 4, 2, 64), (2, 777, 4, 1, 256), (5, 3001, 4, 1, 192),
        ):  # fmt: skip
            q, k, v = operands(b=2, nq=nq, nk=nk, hq=hq, hkv=hkv, d=d, element=element)
            o, lse = attention(q, k, v, mask=mask, return_lse=True)
            check_numbers(o, q, k, v, mask, element)
            swapped = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
            other, other_lse = attention(*swapped, mask=mask, layout="bshd", return_lse=True)
            check_numbers(other.transpose(1, 2), q, k, v, mask, element)
            expect(torch.allclose(lse, other_lse, atol=1e-4), f"lse of bshd differs: {name}")
            count += 2
    q, k, v = operands(nq=1, nk=9000)
    expected, many = attention(q, k, v), operands(b=3, hq=8, nq=4, nk=4000)
    expected_many = attention(*many)
    torch.cuda.synchronize()
    failures = []

    def work():
        for turn in range(200):
            if not equal(attention(q, k, v), expected):
                failures.append(f"turn {turn} differs")
            if not equal(attention(*many), expected_many):
                failures.append(f"turn {turn} of many differs")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failures, "; ".join(failures[:3]))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = attention(q, k, v)
        captured_many = attention(*many)
    for seed in (7, 8):
        q.copy_(make(*q.shape, seed=seed))
        graph.replay()
        torch.cuda.synchronize()
        expect(equal(captured, attention(q, k, v)), "a replay differs")
        expect(equal(captured_many, expected_many), "a second replay differs")
    return f"{count} problems, 4 threads, captured"


def test_strides_and_layouts():
    """Views give the bits of contiguous tensors where rows begin at multiples of 16 bytes; others go
    through a kernel that reads elements one by one, the same for all of them."""
    q, k, v = operands()
    expected, expected_lse = attention(q, k, v, mask=causal, return_lse=True)
    swapped = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    o = attention(*(x.transpose(1, 2) for x in swapped), mask=causal)
    expect(equal(o, expected), "transposed views differ")
    o, lse = attention(*swapped, mask=causal, layout="bshd", return_lse=True)
    expect(equal(o.transpose(1, 2), expected) and equal(lse, expected_lse), "bshd differs")
    for pad in (8, 3):
        padded = [
            torch.nn.functional.pad(x, (0, pad), value=float("nan"))[..., : x.shape[3]]
            for x in (q, k, v)
        ]
        o = attention(*padded, mask=causal)
        if pad % 8 == 0:
            expect(equal(o, expected), f"rows padded by {pad} differ")
        else:
            check_numbers(o, q, k, v, causal, "f16")
            unaligned = o
    shifted = []
    for x in (q, k, v):
        memory = torch.full((x.numel() + 1,), float("nan"), device="cuda", dtype=x.dtype)
        memory[1:] = x.flatten()
        shifted.append(memory[1:].view(x.shape))
    expect(equal(attention(*shifted, mask=causal), unaligned), "tensors off 16 bytes differ")
    frame = torch.full((2, 4, 115, 80), float("nan"), device="cuda", dtype=q.dtype)
    target = frame[:, :, 1:114, 8:72]
    expect(attention(q, k, v, mask=causal, out=target) is target, "out is not given back")
    expect(equal(target, expected), "out differs")
    target.fill_(float("nan"))
    expect(bool(frame.isnan().all()), "something beside out was written")
    rows = {problem.rows for problem, device in _cache.cache.kernels if device >= 0}
    expect(rows == {"dense", "aligned", "strided"}, f"kernels for {rows}")
    return "transposed, bshd, padded, shifted, out="


class Interface:
    """A tensor that shows its __cuda_array_interface__ only."""

    def __init__(self, tensor):
        self.tensor = tensor

    @property
    def __cuda_array_interface__(self):
        return self.tensor.__cuda_array_interface__


class Capsule:
    """A tensor that speaks DLPack only."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, stream=None):
        return self.tensor.__dlpack__()

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_interfaces():
    q, k, v = operands()
    expected = attention(q, k, v)
    for kind in (Interface, Capsule):
        o = torch.empty_like(q)
        attention(
            *(kind(x.transpose(0, 1).contiguous().transpose(0, 1)) for x in (q, k, v)), out=kind(o)
        )
        torch.cuda.synchronize()
        expect(equal(o, expected), f"{kind.__name__} differs")
    q, k, v = operands(element="bf16")
    o = torch.empty_like(q)
    attention(*map(Capsule, (q, k, v)), out=o)
    torch.cuda.synchronize()
    expect(equal(o, attention(q, k, v)), "bf16 through DLPack differs")
    return "__cuda_array_interface__, DLPack"


def test_streams():
    """Work on a stream waits for what is before it there, and the call does not wait."""
    q, k, v = operands(nq=512, nk=512)
    expected = attention(q, k, v)
    attention(q, k, v)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    waits = []
    for way in ("current", "argument", "address"):
        late = torch.zeros_like(q)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)  # cycles, about a tenth of a second
            late.copy_(q)
        start = time.perf_counter()
        if way == "current":
            with torch.cuda.stream(stream):
                o = attention(late, k, v)
        else:
            o = attention(late, k, v, stream=stream if way == "argument" else stream.cuda_stream)
        waits.append(time.perf_counter() - start)
        expect(not stream.query(), f"{way}: the stream was waited for")
        stream.synchronize()
        expect(equal(o, expected), f"{way}: the call did not run on its stream")
    return f"not waited for: {max(waits) * 1e3:.2f} ms"


def test_graph():
    q, k, v = operands(nq=256, nk=256)
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], device="cuda")
    # Compiled and loaded before the capture: test/CAPI/cuda.c captures a first launch.
    attention(q, k, v, mask=causal)
    attention(q, k, v, mask=causal, return_lse=True, out=(o, lse))
    first = o.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attention(q, k, v, mask=causal, return_lse=True, out=(o, lse))
        free = attention(q, k, v, mask=causal)
    for seed in (7, 8):
        q.copy_(make(*q.shape, seed=seed))
        graph.replay()
        torch.cuda.synchronize()
        replayed, replayed_free = o.clone(), free.clone()
        expected = attention(q, k, v, mask=causal)
        expect(equal(replayed, expected), "a replay differs")
        expect(equal(replayed_free, expected), "a replay with an allocated result differs")
        expect(not equal(replayed, first), "the replay did not run")
    return "captured and replayed"


def test_claims():
    """Blocks that claim their programs, with a counter for each call: on several streams at once, in a
    graph, and behind what makes their operands; beside a call of too few programs for one."""
    for heads in (128, 8):
        q, k, v = operands(b=4, hq=heads, hkv=heads, nq=700, nk=700)
        expected = attention(q, k, v, mask=causal)
        check_numbers(expected[:1, :2], q[:1, :2], k[:1, :2], v[:1, :2], causal, "f16")
        torch.cuda.synchronize()
        results, streams = [], [torch.cuda.Stream() for _ in range(4)]
        for _ in range(25):
            for stream in streams:
                with torch.cuda.stream(stream):
                    late = torch.empty_like(q)
                    late.copy_(q)
                    results.append(attention(late, k, v, mask=causal))
        torch.cuda.synchronize()
        wrong = sum(not equal(o, expected) for o in results)
        expect(wrong == 0, f"{wrong} of {len(results)} calls of {heads} heads on 4 streams differ")
        del results
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = [attention(q, k, v, mask=causal) for _ in range(2)]
        for turn in range(3):
            for o in captured:
                o.zero_()
            graph.replay()
            torch.cuda.synchronize()
            expect(all(equal(o, expected) for o in captured), f"replay {turn} of {heads} heads differs")
    return "streams and graphs"


def test_threads():
    problems = [
        (operands(nq=n, nk=n + 5, element=e), m)
        for n in (64, 130)
        for e in ("f16", "bf16")
        for m in MASKS.values()
    ]
    expected = [attention(*tensors, mask=mask) for tensors, mask in problems]
    torch.cuda.synchronize()
    failures, start = [], threading.Barrier(8)

    def work(number):
        try:
            start.wait()
            with torch.cuda.stream(torch.cuda.Stream()):
                for turn in range(200):
                    index = (number + turn) % len(problems)
                    tensors, mask = problems[index]
                    o = attention(*tensors, mask=mask)
                    if turn % 20 == 0:
                        torch.cuda.current_stream().synchronize()
                        if not equal(o, expected[index]):
                            failures.append(f"thread {number}, turn {turn} differs")
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failures, "; ".join(failures[:3]))
    return "8 threads, a stream each, 1600 calls"


def test_threads_compile_once():
    q, k, v = operands(d=32)
    key = lambda: [p for p, device in _cache.cache.kernels if p.d == 32]  # noqa: E731
    expect(not key(), "compiled before")
    results, start = [], threading.Barrier(8)

    def work():
        start.wait()
        results.append(attention(q, k, v))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    expect(len(results) == 8 and all(equal(o, results[0]) for o in results), "results differ")
    expect(len(key()) == 1, f"{len(key())} kernels")
    return "one kernel for 8 threads"


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory():
    """A call takes its outputs' memory and no more, and keeps none."""
    q, k, v = operands(b=4, hq=8, hkv=8, nq=1024, nk=1024)
    for _ in range(200):
        attention(q, k, v, mask=causal, return_lse=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, free = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    o, lse = attention(q, k, v, mask=causal, return_lse=True)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    outputs = sum(-(-x.numel() * x.element_size() // 512) * 512 for x in (o, lse))
    expect(peak <= outputs, f"peak {peak} bytes, outputs {outputs}")
    del o, lse
    gc.collect()
    host = resident()
    for _ in range(10_000):
        attention(q, k, v, mask=causal, return_lse=True)
    torch.cuda.synchronize()
    grown, lost = resident() - host, free - torch.cuda.mem_get_info()[0]
    expect(torch.cuda.memory_allocated() == before, "torch's memory grew")
    expect(lost <= 0, f"{lost} bytes of the device are gone")
    expect(grown < 4 << 20, f"the host's memory grew by {grown} bytes")
    return f"10000 calls: host {grown / 2**20:+.2f} MiB, device {lost:+d} bytes; peak = outputs"


def raises(kind, message, call):
    try:
        call()
    except kind as error:
        expect(message in str(error), f"expected {message!r} but got {str(error)!r}")
        return
    raise AssertionError(f"expected {kind.__name__}: {message}")


def test_refusals():
    q, k, v = operands()
    bad = flashattn.ArgumentError
    raises(bad, "expected 'k' on cuda:0 as 'q' but got the CPU", lambda: attention(q, k.cpu(), v))
    raises(
        bad,
        "expected 'o' on cuda:0 as 'q' but got the CPU",
        lambda: attention(q, k, v, out=q.cpu()),
    )
    raises(
        bad,
        "expected 'v' with element type f16 as in 'q', f8E4M3FN, f8E5M2 or i8 but got f32",
        lambda: attention(q, k, v.float()),
    )
    raises(bad, "expected head dimension of 'k' to be 64", lambda: attention(q, k[..., :32], v))
    raises(
        flashattn.UnsupportedError,
        "but got float64",
        lambda: attention(q.double(), k.double(), v.double()),
    )
    leaf = q.clone().requires_grad_()
    raises(
        flashattn.UnsupportedError,
        "expected no out in a call that torch records",
        lambda: attention(leaf, k, v, out=torch.empty_like(q)),
    )
    with torch.no_grad():
        expect(equal(attention(leaf, k, v), attention(q, k, v)), "a leaf under no_grad differs")
    odd = make(1, 1, 8, 20)
    raises(
        flashattn.UnsupportedError,
        "expected D to be a multiple of 8",
        lambda: attention(odd, odd, odd),
    )
    raises(
        bad,
        "expected a CUDA stream or its address but got str",
        lambda: attention(q, k, v, stream="main"),
    )
    attention(q, k, v)
    raises(
        bad,
        "expected a CUDA stream or its address but got str",
        lambda: attention(q, k, v, stream="main"),
    )
    return "and the device works on"


def test_nothing_to_compute():
    q, k, v = operands(nq=0)
    expect(attention(q, k, v).shape == q.shape, "empty o")
    q, k, v = operands(nk=0)
    for _ in range(2):
        o, lse = attention(q, k, v, return_lse=True)
        expect(bool((o == 0).all()) and bool((lse == -float("inf")).all()), "rows that see no key")
    return "no queries; no keys"


def test_cpu_tensors():
    q, k, v = (x.cpu() for x in operands(element="bf16"))
    o = attention(q, k, v, mask=causal)
    expect(o.device.type == "cpu" and o.dtype == torch.bfloat16, "o of another kind")
    check_numbers(o, q, k, v, causal, "bf16")
    return "torch tensors of the CPU"


def test_other_devices():
    if torch.cuda.device_count() < 2:
        return "skipped: one device"
    q, k, v = operands()
    o = attention(*(x.to("cuda:1") for x in (q, k, v)))
    expect(o.device.index == 1 and equal(o.to("cuda:0"), attention(q, k, v)), "cuda:1 differs")
    return "cuda:1 while cuda:0 is current"


TESTS = [value for name, value in sorted(globals().items()) if name.startswith("test_")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flash-run", default=shutil.which("flash-run"))
    parser.add_argument("--only", help="one test, without test_")
    parser.parse_args(namespace=options)
    if not torch.cuda.is_available():
        sys.exit("error: expected a CUDA device that torch can use but got none")
    return run(TESTS, options.only)


def run(tests, only, device="cuda"):
    """Runs the tests, or the only one, and prints a line for each; 1 where one failed."""
    rows = []
    for test in tests:
        name = test.__name__[len("test_") :]
        if only and only != name:
            continue
        print(f"{name} ...", flush=True)
        start = time.perf_counter()
        try:
            text = test()
            verdict = "skip" if text.startswith("skipped") else "pass"
        except Exception as error:
            traceback.print_exc()
            verdict, text = (
                "FAIL",
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            )
        rows.append((verdict, name, time.perf_counter() - start, text))
    where = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"\n{where}, torch {torch.__version__}")
    for verdict, name, seconds, text in rows:
        print(f"{verdict}  {name:22} {seconds:6.1f} s  {text}")
    failed, skipped = (sum(row[0] == verdict for row in rows) for verdict in ("FAIL", "skip"))
    print(f"{len(rows) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

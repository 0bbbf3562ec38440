#!/usr/bin/env python3
"""Compiles the most common kernels ahead of time, into flashattn-kernels.a next to the library.

The library compiles each problem of `list_problems` as it does for a caller, and ptxas assembles each group
of kernels. The archive contains the disk cache entry of each compilation and the cubins (KernelArchive.h).
If ptxas rejects a kernel, or reports that `wgmma` is serialized (C75xx), this is an error, and no archive is
written.
"""

import argparse
import concurrent.futures
import hashlib
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHIP = "sm_90a"
SYSTEM_PYTHON = "/usr/bin/python3"
#: The package to install if no ptxas is found. Machine code of CUDA 12 runs on drivers of CUDA 12 and later.
PACKAGE = "nvidia-cuda-nvcc-cu12==12.9.86"

#: (query heads, key/value heads) of models, and of their shards on two, four and eight GPUs.
#: D = 64: Llama 3.2 1B, gpt-oss, Qwen 2.5 0.5B. D = 128: Llama 3 and Mistral, Qwen 2.5 and 3. D = 256:
#: Gemma 2 and 3.
HEADS = {
    64: ((32, 8), (64, 8), (14, 2), (16, 16), (32, 32), (16, 4), (32, 4)),
    128: (
        (32, 8), (64, 8), (24, 8), (40, 8), (16, 8), (32, 4), (64, 4), (28, 4), (12, 2), (32, 32),
        (16, 4), (8, 2), (16, 2), (8, 1), (32, 16), (16, 16),
    ),
    256: ((8, 4), (16, 8), (4, 1), (8, 8), (16, 16)),
}  # fmt: skip


def list_problems():
    """Yields the Problems that callers compile. PyTorch, JAX and ONNX use the layouts `bhsd` and `bshd`;
    transformers uses `bshd` with tensors that are not contiguous."""
    from flashattn import _module, causal, sink, window

    def make(element, d, mask=None, *, operands=(), **fields):
        kinds = {
            "kv_len": ("i32", "B"), "sink_logits": ("f32", "H"), "page_table": ("i32", "BT"),
            "cu_seqlens_q": ("i32", "C"), "cu_seqlens_k": ("i32", "C"),
        }  # fmt: skip
        listed = tuple(_module.Operand(name, *kinds[name]) for name in operands)
        problem = _module.Problem(element, d, fields.pop("dv", d), mask, operands=listed, **fields)
        return _module.canonicalize(problem, is_cpu=False)

    layouts = ({"layout": "bhsd"}, {"layout": "bshd", "rows": "aligned"})
    elements, masks, with_lse = ("bf16", "f16"), (None, causal), ({}, {"lse": True})
    training = {"op": "attention_backward"}

    # For any head counts.
    for element, d, mask, layout, lse in itertools.product(
        elements, (64, 96, 128, 256), masks, layouts, with_lse
    ):
        yield make(element, d, mask, **layout, **lse)
    for mask, layout, lse in itertools.product(masks, layouts, with_lse):
        yield make("bf16", 192, mask, dv=128, **layout, **lse)  # DeepSeek
    # Padded batches and caches of fixed size.
    for d, mask, layout in itertools.product((64, 128, 256), masks, layouts):
        yield make("bf16", d, mask, operands=["kv_len"], **layout)

    # Backward passes: for any head counts, and for given ones.
    for element, d, mask, layout in itertools.product(elements, (64, 128, 256), masks, layouts):
        yield make(element, d, mask, **training, **layout)
    for d, heads in ((64, (32, 8)), (128, (32, 8)), (128, (64, 8)), (128, (16, 8)), (256, (16, 8))):
        for layout in layouts:
            yield make("bf16", d, causal, heads=heads, **training, **layout)

    # Packed sequences, forward and backward. FlashAttention's functions always return a log-sum-exp.
    packed = {"operands": ["cu_seqlens_q", "cu_seqlens_k"], "layout": "bshd"}
    for d, mask, lse in itertools.product((64, 128), masks, with_lse):
        yield make("bf16", d, mask, **packed, **lse)
    for d, heads in itertools.product((64, 128), (None, (32, 8), (64, 8))):
        yield make("bf16", d, causal, heads=heads, **training, **packed)

    # Keys in pages of 16 rows, vLLM's default: packed queries, and one query for each sequence.
    pages = {"page_size": 16, "layout": "bshd"}
    for d, rows in itertools.product((64, 128), ({}, {"rows": "aligned"})):
        for heads in HEADS[d]:
            if heads[1] == 8:
                mixed = {"heads": heads, "operands": ["kv_len", "cu_seqlens_q", "page_table"]}
                yield make("bf16", d, causal, **mixed, **pages, **rows)
                one = {"queries": 1, "heads": heads, "operands": ["kv_len", "page_table"]}
                yield make("bf16", d, **one, **pages, **rows)

    # Decoding, one token at a time.
    for d, layout in itertools.product(HEADS, layouts):
        for heads in HEADS[d]:
            one = {"queries": 1, "heads": heads, **layout}
            yield make("bf16", d, **one)
            if heads[1] == 8:
                yield make("f16", d, **one)
                yield make("bf16", d, operands=["kv_len"], **one)

    # Models with windows: D, heads, width of the window, and other fields that affect the scores.
    for d, heads, width, fields in (
        (128, (32, 8), 4096, {}),  # Mistral
        (64, (64, 8), 128, {"operands": ["sink_logits"]}),  # gpt-oss
        (256, (8, 4), 4096, {"softcap": 50.0}),  # Gemma 2
        (256, (16, 8), 4096, {"softcap": 50.0}),
        (128, (32, 16), 4096, {"softcap": 50.0}),
        (256, (4, 1), 512, {}),  # Gemma 3
        (256, (8, 4), 1024, {}),
        (256, (16, 8), 1024, {}),
        (128, (32, 16), 1024, {}),
    ):
        near = window(left=width - 1, right=0)
        for layout in layouts:
            for lse in with_lse:
                yield make("bf16", d, near, heads=heads, **layout, **lse, **fields)
                # The layers of these models without a window.
                if fields:
                    yield make("bf16", d, causal, **layout, **lse, **fields)
            yield make("bf16", d, near, heads=heads, queries=1, **layout, **fields)
            if "operands" not in fields:
                yield make("bf16", d, near, heads=heads, **training, **layout, **fields)
    # Other shapes of the benchmark.
    for d, heads, width, sinks in (
        (128, (32, 8), 1024, 0),
        (128, (32, 8), 1024, 4),
        (64, (64, 8), 128, 4),
    ):
        near = window(left=width - 1, right=0)
        mask = near | sink(sinks) & causal if sinks else near
        yield make("bf16", d, mask, heads=heads)
        yield make("bf16", d, mask, heads=heads, **training)


def fail(message):
    sys.exit(f"error: {message}")


def find_ptxas(work):
    """Returns FLASHATTN_PTXAS, an installed ptxas, or that of PACKAGE; None if there is none."""
    named = os.environ.get("FLASHATTN_PTXAS")
    if named:
        return shutil.which(named) or fail(f"expected ptxas in FLASHATTN_PTXAS but got {named!r}")
    found = shutil.which("ptxas") or shutil.which("/usr/local/cuda/bin/ptxas")
    if found:
        return found
    folder = work / "ptxas"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    subprocess.run([*command, "--target", str(folder), PACKAGE], check=False)
    return next(map(str, folder.glob("nvidia/*/bin/ptxas")), None)


def split(text):
    """Returns the PTX of each group of kernels, as the library passes it to the driver."""
    starts = [match.start() for match in re.finditer(r"^//\n// Generated by LLVM", text, re.MULTILINE)]
    return [text[begin:end] for begin, end in zip(starts, [*starts[1:], len(text)])]


def assemble(ptxas, ptx, folder):
    """Writes the cubin to the folder, under its name in the archive."""
    name = hashlib.sha256(ptx.encode()).hexdigest() + ".cubin"
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as source:
        source.write(ptx)
        source.flush()
        done = subprocess.run(
            [ptxas, f"-arch={CHIP}", source.name, "-o", str(folder / name)],
            capture_output=True,
            text=True,
        )
    said = done.stdout + done.stderr
    if done.returncode or "C75" in said:
        fail(f"expected {ptxas} to assemble {name} but it says:\n{said}")


def main():
    # A virtual environment lacks the packages that apt installed.
    if not importlib.util.find_spec("numpy") and sys.executable != SYSTEM_PYTHON:
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, required=True, help="libFlashAttnC.so")
    parser.add_argument("--output", type=Path, required=True, help="the archive")
    parser.add_argument("--work", type=Path, required=True, help="folder for ptxas")
    parser.add_argument("--match", default="", help="regular expression that problems have to match")
    parser.add_argument("--list", action="store_true", help="print the problems instead")
    chosen = parser.parse_args()
    ptxas = None if chosen.list else find_ptxas(chosen.work)

    # As in a first call: no tuned schedules and no precompiled kernels.
    os.environ.update(
        FLASHATTN_LIBRARY=str(chosen.library), FLASHATTN_TUNED="0", FLASHATTN_KERNELS="off"
    )
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
    from flashattn import _kernel, _library

    problems = dict.fromkeys(list_problems())
    problems = [problem for problem in problems if re.search(chosen.match, str(problem))]
    if not problems:
        fail(f"expected problems that match {chosen.match!r} but got none")
    if chosen.list:
        print(*problems, sep="\n")
        return
    if ptxas is None:
        print(f"make_kernels.py: no ptxas, so none of {len(problems)} kernels is made", file=sys.stderr)
        chosen.output.unlink(missing_ok=True)
        return

    def compile_one(problem):
        return split(_kernel.Kernel(problem, CHIP, _library.DEVICE_AUTO, tuned=False).ptx)

    with tempfile.TemporaryDirectory(dir=chosen.work) as folder:
        members, cache = Path(folder, "members"), Path(folder, "cache")
        members.mkdir()
        os.environ["FLASHATTN_CACHE"] = str(cache)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            texts = set(itertools.chain.from_iterable(pool.map(compile_one, problems)))
            for _ in pool.map(lambda ptx: assemble(ptxas, ptx, members), texts):
                pass
        for kept in cache.glob("llvmcache-*"):
            kept.rename(members / (kept.name.replace("llvmcache-", "") + ".code"))
        part = Path(folder, chosen.output.name)
        # Sorted members without times and owners make the archive reproducible.
        subprocess.run(["ar", "rcSD", part, *sorted(members.iterdir())], check=True)
        shutil.copyfile(part, chosen.output.with_suffix(".part"))
        chosen.output.with_suffix(".part").replace(chosen.output)
    size = chosen.output.stat().st_size / 2**20
    print(f"{chosen.output}: {len(problems)} kernels with {len(texts)} cubins, {size:.1f} MiB")


if __name__ == "__main__":
    main()

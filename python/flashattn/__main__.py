"""python -m flashattn: the commands of the package."""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List, Optional, Tuple

from . import __version__, _environment, _flags, _library, _signals, _tuned
from .bench import _timing
from .errors import FlashAttnError

Finding = Tuple[str, str, str]  # level ("ok", "note" or "missing"), name, text


def _library_findings() -> List[Finding]:
    try:
        library = _library.get()
    except FlashAttnError as error:
        return [("missing", "library", str(error))]
    found = [("ok", "library", f"{library.path}, version {library.version()}")]
    if library.version() != __version__:
        text = f"expected version {__version__}, the version of this package; rebuild the library"
        found.append(("note", "library", text))
    return found


def _driver_findings() -> List[Finding]:
    path = _environment.variable("FLASHATTN_CUDA_DRIVER") or "libcuda.so.1"
    try:
        ctypes.CDLL(path)
    except OSError as error:
        return [
            (
                "note",
                "driver",
                f"{error}; install NVIDIA's driver to run on a GPU; the CPU needs none",
            )
        ]
    return [("ok", "driver", path)]


def _device_findings() -> List[Finding]:
    library = _library.get()
    cpu = library.device(_library.DEVICE_CPU)
    found = [
        ("ok", "cpu", f"{cpu.name}, {cpu.compute_units} threads, {cpu.vector_width} f32 lanes")
    ]
    try:
        count = library.device_count()
    except FlashAttnError as error:
        return found + [("note", "cuda", f"{error}; tensors run on the CPU")]
    for ordinal in range(count):
        device = library.device(ordinal)
        version = device.driver_version
        text = (
            f"{device.name}, {device.chip}, {device.memory_bytes / 2**30:.1f} GiB, "
            f"{device.compute_units} multiprocessors, {device.shared_memory_per_block} bytes of shared memory "
            f"a block, driver for CUDA {version // 1000}.{version % 1000 // 10}, takes PTX up to "
            f"{device.max_ptx_version // 10}.{device.max_ptx_version % 10}"
        )
        found.append(("ok", f"cuda:{ordinal}", text))
        if (
            not device.chip.startswith("sm_")
            or int("".join(filter(str.isdigit, device.chip)) or 0) < 80
        ):
            found.append(
                ("missing", f"cuda:{ordinal}", f"expected sm_80 or newer but got {device.chip}")
            )
    return found


def _tool_findings() -> List[Finding]:
    ptxas = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    if ptxas is None:
        found = [("note", "ptxas", "not found; not required, because the driver compiles PTX")]
    else:
        try:
            done = subprocess.run([ptxas, "--version"], capture_output=True, text=True, timeout=20)
            release = next(
                (line for line in done.stdout.splitlines() if "release" in line), ""
            ).strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            release = str(error)
        found = [("ok", "ptxas", f"{ptxas}: {release}")]
    for name, use in (
        ("numpy", "needed"),
        ("torch", "for tensors on a GPU, and as the benchmark's peer"),
        ("ml_dtypes", "for bf16 arrays of NumPy; arrays of uint16 with dtype='bf16' do without"),
        ("matplotlib", "for the benchmark's chart"),
    ):
        try:
            module = __import__(name)
        except ImportError:
            found.append(("missing" if name == "numpy" else "note", name, f"not installed; {use}"))
        else:
            found.append(("ok", name, str(getattr(module, "__version__", "found"))))
    return found


def _compiled_findings() -> List[Finding]:
    cache = _library.get().disk_cache()
    if cache.off_reason:
        where = f"{cache.folder}: " if cache.folder else ""
        compiled = ("note", "compiled code", f"{where}{cache.off_reason}; every process compiles again")
    else:
        text = (
            f"{cache.files} kernels in {cache.folder}, {cache.bytes / 2**20:.1f} of at most "
            f"{cache.max_bytes / 2**20:.1f} MiB"
        )
        compiled = ("ok", "compiled code", text)
    if cache.archive_off_reason:
        where = f"{cache.archive_file}: " if cache.archive_file else ""
        text = f"{where}{cache.archive_off_reason}; no kernel is compiled ahead of time"
        return [compiled, ("note", "ahead of time", text)]
    text = f"{cache.archive_members} members in {cache.archive_file}"
    return [compiled, ("ok", "ahead of time", text)]


def _cache_findings() -> List[Finding]:
    try:
        path = _tuned.default_path()
        if not _tuned.enabled():
            return [("note", "tuned", f"FLASHATTN_TUNED={os.environ['FLASHATTN_TUNED']}: {path} is not read")]
        count = len(_tuned.load(path))
    except FlashAttnError as error:
        return [("note", "tuned", str(error))]
    if count:
        found = [("ok", "tuned", f"{count} schedules in {path}")]
    else:
        found = [("note", "tuned", f"no schedules in {path}; python -m flashattn tune finds some")]
    jit = Path(os.environ.get("CUDA_CACHE_PATH") or Path.home() / ".nv" / "ComputeCache")
    if os.environ.get("CUDA_CACHE_DISABLE") == "1":
        found.append(
            ("note", "driver's cache", "CUDA_CACHE_DISABLE=1: every process compiles its PTX anew")
        )
    else:
        found.append(
            ("ok", "driver's cache", str(jit) + ("" if jit.is_dir() else ", not there yet"))
        )
    return found


def doctor() -> int:
    """Prints the findings. Returns 0 if nothing that is required is missing, and 1 otherwise."""
    findings: List[Finding] = [
        ("ok", "python", sys.version.split()[0]),
        ("ok", "flashattn", __version__),
    ]
    findings += _library_findings()
    usable = findings[-1][0] != "missing"
    findings += _driver_findings()
    if usable:
        findings += _device_findings() + _compiled_findings()
    findings += _tool_findings() + _cache_findings()
    width = max(len(name) for _, name, _ in findings)
    for level, name, text in findings:
        print(f"{level:7} {name:{width}}  {text}")
    return 1 if any(level == "missing" for level, _, _ in findings) else 0


#: Commands with the modules that parse their flags, and their help texts.
MODULES = {
    "bench": (".bench._command", "time attention beside other implementations"),
    "tune": (".tune", "find the fastest schedule of a shape and keep it"),
}


def main(arguments: Optional[List[str]] = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in MODULES:
        return importlib.import_module(MODULES[arguments[0]][0], __package__).main(arguments[1:])
    parser = _flags.Parser(prog="python -m flashattn", description=__doc__)
    parser.add_argument("--version", action="version", version=f"flashattn {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    text = "report what is installed on this machine, and how to fix what is missing"
    commands.add_parser("doctor", help=text, description=text).add_argument(
        "--timing", action="store_true", help="instead, show where the time of a first call goes"
    )
    for name, (_, text) in MODULES.items():
        commands.add_parser(name, help=text)
    if not parser.parse_args(arguments).timing:
        return doctor()
    try:
        with _signals.ending_in_order():
            _timing.report()
    except FlashAttnError as error:
        print(f"missing  {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Puts the C library, and that of custom ops for ONNX Runtime, into the wheel. What it is made of stands
in pyproject.toml."""

import functools
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import List, NamedTuple, Tuple

from setuptools import setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

NAME = "libFlashAttnC.so"
#: Over the C library, which it looks for in its own folder.
ONNX_NAME = "libFlashAttnONNX.so"
#: The most common kernels, compiled ahead of time, which it looks for there too; not in every build.
ARCHIVE_NAME = "flashattn-kernels.a"
ROOT = Path(__file__).resolve().parent.parent


def find_library() -> Path:
    """FLASHATTN_LIBRARY, or that of a build tree, or a new one."""
    named = os.environ.get("FLASHATTN_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise SystemExit(
                f"error: expected a library at FLASHATTN_LIBRARY but got {named}, which is no file"
            )
        return Path(named)
    built = [ROOT / "build" / preset / "lib" / NAME for preset in ("release", "bundle")]
    for path in built:
        if path.is_file():
            return path
    script = ROOT / "build.sh"
    if not script.is_file():
        raise SystemExit(
            f"error: expected {NAME} in FLASHATTN_LIBRARY or a checkout with {script} but got neither"
        )
    if (
        subprocess.run([str(script), "build", "FlashAttnC", "FlashAttnONNX"]).returncode != 0
        or not built[0].is_file()
    ):
        raise SystemExit(
            f"error: expected '{script} build FlashAttnC FlashAttnONNX' to make {built[0]} but it did not"
        )
    return built[0]


class Needs(NamedTuple):
    libraries: List[str]  #: beyond what every Linux has
    glibc: Tuple[int, int]  #: the oldest that will do


#: Of PEP 600: what a wheel for manylinux may take from the system.
SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z)|ld-linux[-\w]*)\.so\.\d+$")


@functools.lru_cache(maxsize=None)
def needs() -> Needs:
    """What the library needs of the machine that it goes to, as its dynamic section says."""
    command = ["readelf", "--dynamic", "--version-info", "--wide", str(find_library())]
    try:
        done = subprocess.run(
            command, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(
            f"error: expected readelf (binutils) to show what {NAME} needs but got: {error}"
        ) from None
    libraries = re.findall(r"\(NEEDED\).*\[(.+)\]", done.stdout)
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", done.stdout)
    oldest = max((int(major), int(minor)) for major, minor in versions)
    return Needs([name for name in libraries if not SYSTEM.match(name)], oldest)


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        folder = Path(self.build_lib) / "flashattn"
        self.mkpath(str(folder))
        library = find_library()
        onnx = library.with_name(ONNX_NAME)
        if not onnx.is_file():
            raise SystemExit(f"error: expected {ONNX_NAME} beside {library} but found none")
        shutil.copyfile(library, folder / NAME)
        shutil.copyfile(onnx, folder / ONNX_NAME)
        archive = library.with_name(ARCHIVE_NAME)
        if archive.is_file():
            shutil.copyfile(archive, folder / ARCHIVE_NAME)


class PlatformWheel(bdist_wheel):
    """For every Python 3, but for one platform: the library is not Python's. With LLVM inside
    (./build.sh bundle) it is a manylinux wheel of its glibc; with LLVM's shared libraries it is one
    for this Linux, and its metadata name them."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        found = needs()
        name = "linux" if found.libraries else "manylinux_{}_{}".format(*found.glibc)
        return "py3", "none", f"{name}_{platform.machine()}"

    def write_wheelfile(self, folder, *args, **options):
        super().write_wheelfile(folder, *args, **options)
        found = needs()
        external = ["glibc (>={}.{})".format(*found.glibc), *found.libraries]
        path = Path(folder, "METADATA")
        head, separator, body = path.read_text(encoding="utf-8").partition("\n\n")
        lines = [head.rstrip("\n"), *(f"Requires-External: {name}" for name in external)]
        path.write_text("\n".join(lines) + (separator or "\n") + body, encoding="utf-8")


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel})

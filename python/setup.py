"""Puts the C library into the wheel. What it is made of stands in pyproject.toml."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

NAME = "libFlashAttnC.so"
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
        subprocess.run([str(script), "build", "FlashAttnC"]).returncode != 0
        or not built[0].is_file()
    ):
        raise SystemExit(
            f"error: expected '{script} build FlashAttnC' to make {built[0]} but it did not"
        )
    return built[0]


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        target = Path(self.build_lib) / "flashattn" / NAME
        self.mkpath(str(target.parent))
        shutil.copyfile(find_library(), target)


class PlatformWheel(bdist_wheel):
    """For every Python 3, but for one platform: the library is not Python's."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", f"linux_{platform.machine()}"


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel})

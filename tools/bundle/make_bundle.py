#!/usr/bin/env python3
"""Packs the tools and their tests into one archive for machines without LLVM.

Each program is stripped and must need no shared library but those of glibc and libstdc++; the
archive must stay below the limit. Either failing is an error, and leaves no archive.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

# What glibc and libstdc++ bring, and so every machine that the bundle is for has.
ALLOWED = re.compile(r"^(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so\.\d+|ld-linux-x86-64\.so\.2"
                     # Lies in the bundle too.
                     r"|libFlashAttnC\.so)$")
LIMIT_MIB = 48


def fail(message):
    sys.exit(f"error: {message}")


def needed_libraries(path):
    """The shared libraries that an ELF file names itself."""
    dump = subprocess.run(
        ["readelf", "-d", path], check=True, capture_output=True, text=True
    ).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", dump)


def newest_glibc(path):
    """The newest version of glibc whose symbols an ELF file uses, as (2, 36)."""
    dump = subprocess.run(
        ["readelf", "-V", path], check=True, capture_output=True, text=True
    ).stdout
    versions = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_(\d+\.\d+)", dump)]
    return max(versions, default=(0, 0))


def install(source, target, strip):
    shutil.copy2(source, target)
    subprocess.run([strip, "--strip-all" if os.access(source, os.X_OK) and
                    not source.endswith(".so") else "--strip-unneeded", target], check=True)
    for name in needed_libraries(target):
        if not ALLOWED.match(name):
            fail(f"expected {os.path.basename(target)} to need only glibc and libstdc++ "
                 f"but it needs {name}")
    if newest_glibc(target) > (2, 36):
        fail(f"expected {os.path.basename(target)} to need glibc 2.36 at most but it needs "
             "%d.%d" % newest_glibc(target))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--source", required=True, help="root of the source tree")
    parser.add_argument("--output", required=True, help="folder for the archive")
    parser.add_argument("--work", required=True, help="folder for what goes into it")
    parser.add_argument("--strip", required=True)
    parser.add_argument("--lit", required=True, help="lit's Python package")
    parser.add_argument("--library", action="append", default=[], help="shared library to pack")
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()

    name = f"flash-mlir-{args.version}-linux-x86_64"
    root = os.path.join(args.work, name)
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("bin", "lib"):
        os.makedirs(os.path.join(root, folder))
    for program in args.programs:
        install(program, os.path.join(root, "bin", os.path.basename(program)), args.strip)
    for library in args.library:
        install(library, os.path.join(root, "lib", os.path.basename(library)), args.strip)

    here = os.path.dirname(os.path.abspath(__file__))
    for script in ("not", "count", "split-file"):
        shutil.copy2(os.path.join(here, "bin", script), os.path.join(root, "bin", script))
    shutil.copy2(os.path.join(here, "check.sh"), root)
    shutil.copy2(os.path.join(args.source, "LICENSE"), root)
    shutil.copy2(os.path.join(args.source, "README.md"), root)
    ignore = shutil.ignore_patterns("__pycache__", "CMakeLists.txt", "*.in", "Unit")
    shutil.copytree(os.path.join(args.source, "test"), os.path.join(root, "test"), ignore=ignore)
    # With the library in lib/, this is the Python package: PYTHONPATH=python is enough.
    ignore_built = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "*.so")
    shutil.copytree(os.path.join(args.source, "python"), os.path.join(root, "python"), ignore=ignore_built)
    shutil.copy2(os.path.join(here, "lit.site.cfg.py"), os.path.join(root, "lit.site.cfg.py"))
    shutil.copytree(args.lit, os.path.join(root, "lit", "lit"), ignore=ignore)

    os.makedirs(args.output, exist_ok=True)
    archive = os.path.join(args.output, name + ".tar.xz")
    part = archive + ".part"
    # The same names, owners and order give the same archive. The two tools share most of their code:
    # a dictionary as large as both, and call targets made absolute (--x86), halve the second one.
    subprocess.run(
        ["tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-C", args.work,
         "-I", "xz --x86 --lzma2=preset=6,dict=128MiB", "-cf", part, name], check=True)
    size = os.path.getsize(part) / 2**20
    if size > LIMIT_MIB:
        os.remove(part)
        fail(f"expected an archive of {LIMIT_MIB} MiB at most but got {size:.1f} MiB")
    os.replace(part, archive)
    print(f"{archive}: {size:.1f} MiB")


if __name__ == "__main__":
    main()

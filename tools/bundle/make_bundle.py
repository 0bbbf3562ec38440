#!/usr/bin/env python3
"""Packs the tools and their tests into one archive for machines without LLVM.

The RUN lines of the tests determine the content (bundle_content.py). Each program is stripped and may
need no shared libraries except those of glibc and libstdc++; the size of the archive is limited. A
missing program, a program with other dependencies, or an archive that is too large is an error, and
then no archive is left.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

import bundle_content

# Shared libraries of glibc and libstdc++, which every target machine has.
ALLOWED = re.compile(r"^(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so\.\d+|ld-linux-x86-64\.so\.2"
                     # Part of the bundle.
                     r"|libFlashAttnC\.so)$")
LIMIT_MIB = 48


def fail(message):
    sys.exit(f"error: {message}")


def needed_libraries(path):
    """Returns the direct shared library dependencies of an ELF file."""
    dump = subprocess.run(
        ["readelf", "-d", path], check=True, capture_output=True, text=True
    ).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", dump)


def newest_glibc(path):
    """Returns the newest glibc version whose symbols an ELF file uses, such as (2, 36)."""
    dump = subprocess.run(
        ["readelf", "-V", path], check=True, capture_output=True, text=True
    ).stdout
    versions = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_(\d+\.\d+)", dump)]
    return max(versions, default=(0, 0))


def install(source, target, strip, shared):
    shutil.copy2(source, target)
    subprocess.run([strip, "--strip-all" if os.access(source, os.X_OK) and
                    not source.endswith(".so") else "--strip-unneeded", target], check=True)
    if shared:
        return
    for name in needed_libraries(target):
        if not ALLOWED.match(name):
            fail(f"expected {os.path.basename(target)} to need only glibc and libstdc++ "
                 f"but it needs {name}")
    if newest_glibc(target) > (2, 36):
        fail(f"expected {os.path.basename(target)} to need glibc 2.36 at most but it needs "
             "%d.%d" % newest_glibc(target))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--source", default=os.path.dirname(os.path.dirname(here)),
                        help="root of the source tree")
    parser.add_argument("--build", required=True, help="build tree with the programs")
    parser.add_argument("--llvm-tools", required=True, help="folder with llvm-strip")
    parser.add_argument("--output", required=True, help="folder for the archive")
    parser.add_argument("--work", required=True, help="folder for what goes into it")
    parser.add_argument("--shared", action="store_true",
                        help="the programs may need shared libraries of this machine: to test the "
                        "bundle with a build that is not static")
    args = parser.parse_args()

    strip = os.path.join(args.llvm_tools, "llvm-strip")
    lit = os.path.join(os.path.dirname(args.llvm_tools), "utils", "lit", "lit")
    # The scripts in this folder replace programs of LLVM.
    scripts = os.path.join(here, "bin")
    folders = [os.path.join(args.build, "bin"), os.path.join(args.build, "tools", "bundle"), scripts]
    tests = os.path.join(args.source, "test")
    content = bundle_content.find(
        tests, os.path.dirname(lit), folders, os.path.join(args.build, "lib"))
    for test, reason in content.left_out:
        print(f"left out: {test}: {reason}")
    if content.missing:
        fail("\n  ".join(content.missing))

    name = f"flash-mlir-{args.version}-linux-x86_64"
    root = os.path.join(args.work, name)
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("bin", "lib"):
        os.makedirs(os.path.join(root, folder))
    for program in content.programs:
        target = os.path.join(root, "bin", os.path.basename(program))
        if os.path.dirname(program) == scripts:
            shutil.copy2(program, target)
        else:
            install(program, target, strip, args.shared)
    for library in content.libraries:
        install(library, os.path.join(root, "lib", os.path.basename(library)), strip, args.shared)

    # Missing if the build found no ptxas.
    kernels = os.path.join(args.build, "lib", "flashattn-kernels.a")
    if os.path.exists(kernels):
        shutil.copy2(kernels, os.path.join(root, "lib"))

    for file in ("check.sh", "lit.site.cfg.py"):
        shutil.copy2(os.path.join(here, file), root)
    for file in ("LICENSE", "README.md", "CHANGELOG.md", "BENCHMARKS.md", "BENCHMARKS.png"):
        shutil.copy2(os.path.join(args.source, file), root)
    for folder in ("docs", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(os.path.join(args.source, folder), os.path.join(root, folder), ignore=ignored)
    for test in content.files:
        target = os.path.join(root, "test", test)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(os.path.join(tests, test), target)
    # The Python package finds the library in lib/, so that PYTHONPATH=python suffices.
    built = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "*.so")
    shutil.copytree(os.path.join(args.source, "python"), os.path.join(root, "python"), ignore=built)
    shutil.copytree(lit, os.path.join(root, "lit", "lit"),
                    ignore=shutil.ignore_patterns("__pycache__"))

    os.makedirs(args.output, exist_ok=True)
    archive = os.path.join(args.output, name + ".tar.xz")
    part = archive + ".part"
    # Fixed names, owners and order make the archive reproducible. The programs share most of their
    # code: with a dictionary that holds three programs and with absolute call targets (--x86), each
    # later program becomes small. Unpacking takes as much memory as the dictionary. The precompiled
    # kernels share no code with the programs; they come last, so that they do not push programs out
    # of the dictionary.
    files = [os.path.relpath(os.path.join(folder, file), args.work)
             for folder, _, names in os.walk(root) for file in names]
    files.sort(key=lambda file: (file.endswith("flashattn-kernels.a"), file))
    subprocess.run(
        ["tar", "--owner=0", "--group=0", "--numeric-owner", "-C", args.work,
         "-I", "xz --x86 --lzma2=preset=6,dict=256MiB", "-cf", part, "-T", "-"],
        input="\n".join(files), text=True, check=True)
    size = os.path.getsize(part) / 2**20
    if size > LIMIT_MIB:
        os.remove(part)
        fail(f"expected an archive of {LIMIT_MIB} MiB at most but got {size:.1f} MiB")
    os.replace(part, archive)
    print(f"{archive}: {size:.1f} MiB")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Packs the tools and their tests into one archive for machines without LLVM.

What goes in follows from the RUN lines of the tests (bundle_content.py). Each program is stripped
and must need no shared library but those of glibc and libstdc++; the archive must stay below the
limit. A program that is missing or needs more, or an archive too large, is an error, and leaves no
archive.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

import bundle_content

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
    # What lies beside this file stands in for LLVM's own.
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

    # Not there where nobody could assemble them.
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
    # With the library in lib/, this is the Python package: PYTHONPATH=python is enough.
    built = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "*.so")
    shutil.copytree(os.path.join(args.source, "python"), os.path.join(root, "python"), ignore=built)
    shutil.copytree(lit, os.path.join(root, "lit", "lit"),
                    ignore=shutil.ignore_patterns("__pycache__"))

    os.makedirs(args.output, exist_ok=True)
    archive = os.path.join(args.output, name + ".tar.xz")
    part = archive + ".part"
    # The same names, owners and order give the same archive. The programs share most of their code: a
    # dictionary that holds three of them, and absolute call targets (--x86), make each later one small.
    # Unpacking takes as much memory as the dictionary. The kernels compiled ahead share no code with
    # the programs and come last, lest they push these out of the dictionary.
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

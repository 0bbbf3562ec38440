"""Checks that flash-opt reads back, and verifies, what every pass of a pipeline leaves.

usage: read_back.py PIPELINE FILE.mlir
"""

import pathlib
import subprocess
import sys
import tempfile


def main(pipeline, file):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["flash-opt", file, pipeline, "-o", f"{folder}/result.mlir"]
            + ["--mlir-print-ir-after-all", f"--mlir-print-ir-tree-dir={folder}"],
            check=True,
        )
        stages = sorted(pathlib.Path(folder).rglob("*.mlir"))
        for stage in stages:
            done = subprocess.run(
                ["flash-opt", str(stage), "-o", "/dev/null"], capture_output=True, text=True
            )
            if done.returncode != 0:
                sys.exit(f"{stage.relative_to(folder)} does not read back:\n{done.stderr[:2000]}")
    print(f"{len(stages)} stages read back")


main(*sys.argv[1:])

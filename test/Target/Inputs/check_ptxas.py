"""Compiles attention for every row of the schedule tables and reads what ptxas says of it.

usage: check_ptxas.py PTXAS CHIP

Fails on a spill, on local memory, on a C75xx message (wgmma or setmaxnreg given up), or where ptxas
rejects the PTX. Prints a line per kernel.
"""

import re
import subprocess
import sys
import tempfile

MASKS = {
    "none": "",
    "causal": "mask(#flashattn.causal)",
    "window": "mask(#flashattn.window<left = 1023, right = 0>)",
    "sinks": "mask(#flashattn.any_of<[#flashattn.window<left = 1023, right = 0>, "
             "#flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)",
}


def module(element, dim, clauses):
    t = f"memref<?x?x?x{dim}x{element}>"
    return f"""
func.func @attention(%q: {t}, %k: {t}, %v: {t}, %o: {t}, %lse: memref<?x?x?xf32>) {{
  flashattn.attention {clauses} ins(%q, %k, %v : {t}, {t}, {t}) outs(%o, %lse : {t}, memref<?x?x?xf32>)
  return
}}
"""


def kernel_ptx(ir):
    """The PTX text of the only gpu.binary, out of its quoted attribute."""
    text = re.search(r'"(//(?:[^"\\]|\\.)*)"', ir).group(1)
    return re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m.group(1), 16)), text).rstrip("\0")


def main(ptxas, chip):
    failures = 0
    for element in ("f16", "bf16", "f32"):
        for dim in (16, 32, 64, 128, 256):
            # All masks share the loops' code; one head dimension sees every one of them.
            for name, clauses in MASKS.items() if dim == 64 else [("causal", MASKS["causal"])]:
                ir = subprocess.run(
                    ["flash-opt", f"-flashattn-to-nvvm=chip={chip}"],
                    input=module(element, dim, clauses), capture_output=True, text=True, check=True,
                ).stdout
                with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
                    file.write(kernel_ptx(ir))
                    file.flush()
                    done = subprocess.run(
                        [ptxas, "-v", f"-arch={chip}", "-o", "/dev/null", file.name],
                        capture_output=True, text=True)
                report = done.stdout + done.stderr
                spilled = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", report)
                registers = re.search(r"Used (\d+) registers", report)
                bad = (done.returncode != 0 or not spilled or not registers
                       or any(int(n) for n in spilled.groups()) or re.search(r"C75\d\d", report))
                failures += bool(bad)
                print(f"{element} D={dim} {name}:", f"{registers.group(1)} registers" if registers else "",
                      "FAIL\n" + report if bad else "ok")
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

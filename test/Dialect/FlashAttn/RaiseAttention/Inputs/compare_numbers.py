"""Runs forms of attention on the CPU as they are and raised, and compares their outputs.

compare_numbers.py PREFIX FORM...: flash-opt and flash-run are found on PATH; files begin with PREFIX.
"""
import os
import subprocess
import sys

import attention_forms as forms


def main(prefix, names):
    for name in names:
        text = forms.cases[name]().replace("@NAME", "@main")
        plain, raised, output = prefix + ".mlir", prefix + ".raised.mlir", prefix + ".npy"
        with open(plain, "w") as file:
            file.write(text)
        subprocess.run(["flash-opt", plain, "-flashattn-raise-attention", "-o", raised], check=True)
        with open(raised) as file:
            if "flashattn.attention" not in file.read():
                sys.exit("expected '%s' to be raised but got linalg" % name)
        inputs = ["--input=random:%d" % i for i in range(1, 4)]
        if "%arg3" in text:
            inputs.append("--input=ones" if "xi32>" in text or "<i32>" in text else "--input=random:4")
        run = ["flash-run", "--device=cpu"] + inputs
        subprocess.run(run + [plain, "--output=@" + output], check=True)
        subprocess.run(run + [raised, "--expected-output=@" + output, "--rtol=1e-4", "--atol=1e-5"],
                       check=True)
        os.remove(output)
        print(name, "is equal")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

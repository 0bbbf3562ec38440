"""Runs a module as it is and raised on the CPU, on the same inputs, and compares what comes out.

usage: compare_raised.py MODULE.mlir RAISED [--function=NAME] [--size=N] [--seed=S]

RAISED is how many attention ops flash-run --raise is to make, or another module with a function of that name.
The reference is the module with every float widened to 64 bits. An element may be off by what the rule of
low precision allows: max|raised - reference| <= 2 max|plain - reference| + 1e-5. Where the module cannot be
widened, as one that looks at the bits of a float, the plain result is the reference, with a tolerance by its
element type. Dynamic sizes are N, 64 by default. Prints a line for each result.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

FLOATS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}  # bits of the significand
INTEGERS = {"i1": np.bool_, "i8": np.int8, "i32": np.int32, "i64": np.int64}
TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 1e-5, "f64": 1e-5}


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def find_types(text, name):
    """The types of the arguments and of the results of a function: (sizes, element) each."""
    named = re.escape(name) if name else r"[\w$.]+"
    match = re.search(r"func\.func (?:public )?@%s\((.*?)\)\s*(?:->\s*(\(.*?\)|tensor<.*?>))?\s*(?:attributes.*?)?\{$" % named,
                      text, re.M | re.S)
    if not match:
        sys.exit(f"expected a public function '{name}' of tensors but found none")

    def split(types):
        return [(re.findall(r"(\d+|\?)x", t), re.sub(r"(\d+|\?)x", "", t)) for t in re.findall(r"tensor<([^>]*)>", types or "")]

    return split(match[1]), split(match[2])


def make_input(sizes, element, size, random):
    shape = [size if s == "?" else int(s) for s in sizes]
    if element in INTEGERS:
        return (random.random(shape) < 0.75).astype(INTEGERS[element])
    if element not in FLOATS:
        sys.exit(f"expected arguments of {', '.join([*FLOATS, *INTEGERS])} but got {element}")
    values = random.standard_normal(shape)
    mantissa, exponent = np.frexp(values)
    scale = 2.0 ** FLOATS[element]
    return np.ldexp(np.round(mantissa * scale) / scale, exponent)


def widen(text):
    """The module in f64. What went from one float type to another does nothing any more."""

    def as_f64(bits, element):
        if element == "bf16":
            return from_bf16(np.frombuffer(bits, np.uint16))
        return np.frombuffer(bits, {"f16": np.float16, "f32": np.float32}[element])

    def widen_line(line):
        def number(match):
            element = re.search(r"\b(?:[\dx?]*x)?(bf16|f16|f32)\b", line[match.end():])
            if not element or len(match[1]) != (8 if element[1] == "f32" else 4):
                return match[0]
            value = as_f64(bytes.fromhex(match[1])[::-1], element[1]).astype(np.float64)
            return "0x%016X" % value.view(np.uint64)[0]

        def blob(match):
            values = as_f64(bytes.fromhex(match[1]), match[3]).astype(np.float64)
            return f'dense<"0x{values.tobytes().hex().upper()}"> : tensor<{match[2]}f64>'

        line = re.sub(r'dense<"0x([0-9A-Fa-f]*)"> : tensor<([\dx]*)(bf16|f16|f32)>', blob, line)
        line = re.sub(r'(?<!")0x([0-9A-Fa-f]+)\b', number, line)
        line = re.sub(r"(?<=[x<( ])(?:bf16|f16|f32)\b", "f64", line)
        return re.sub(r"arith\.(?:extf|truncf)\b", "arith.bitcast", line)

    return "\n".join(map(widen_line, text.split("\n")))


def run(module, function, inputs, results, folder, *flags):
    """What flash-run gives for each result, as float64, and its text; nothing where it fails."""
    outputs = [os.path.join(folder, f"result.{i}.npy") for i in range(len(results))]
    command = ["flash-run", module, "--device=cpu", *flags]
    command += [f"--function={function}"] if function else []
    command += [f"--input=@{path}" for path in inputs] + [f"--output=@{path}" for path in outputs]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, done.stdout + done.stderr
    arrays = [np.load(path) for path in outputs]
    return [(from_bf16(a) if a.dtype == np.uint16 else a).astype(np.float64) for a in arrays], done.stdout


def compare(index, element, plain, raised, reference):
    """A line, and whether the raised result holds."""
    finite = np.isfinite(reference if reference is not None else plain)
    right = reference if reference is not None else plain
    same_kind = np.array_equal(np.nan_to_num(right[~finite], nan=7.0), np.nan_to_num(raised[~finite], nan=7.0))
    error = np.max(np.abs(raised - right)[finite], initial=0.0)
    if reference is not None:
        naive = np.max(np.abs(plain - reference)[finite], initial=0.0)
        bound = 2 * naive + 1e-5
    else:
        bound = TOLERANCE.get(element, 0) * (1 + np.max(np.abs(right)[finite], initial=0.0))
    holds = same_kind and bool(error <= bound)  # a NaN here does not hold
    against = "float64" if reference is not None else "the plain module"
    kind = "" if same_kind else ", and what is not finite differs"
    print(f"result {index}: max error {error:.3e} from {against}, at most {bound:.3e}{kind}: {'PASS' if holds else 'FAIL'}")
    return holds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("raised")
    parser.add_argument("--function", default="")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with open(options.module, encoding="utf-8") as file:
        text = file.read()
    arguments, results = find_types(re.sub("//.*", "", text), options.function)
    random = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        inputs = []
        for i, (sizes, element) in enumerate(arguments):
            inputs.append(os.path.join(folder, f"input.{i}.npy"))
            np.save(inputs[-1], make_input(sizes, element, options.size, random))
        wide = os.path.join(folder, "wide.mlir")
        with open(wide, "w", encoding="utf-8") as file:
            file.write(widen(text))

        def result_of(module, *flags):
            values, said = run(module, options.function, inputs, results, folder, *flags)
            if values is None:
                sys.exit(f"expected {module} to run but got\n{said}")
            return values, said

        plain, _ = result_of(options.module)
        if options.raised.isdigit():
            raised, said = result_of(options.module, "--raise")
            count = re.search(r"^raise: (\d+) attention", said, re.M)
            if not count or count[1] != options.raised:
                sys.exit(f"expected {options.raised} attention ops to be raised but got\n{said}")
        else:
            raised, _ = result_of(options.raised)
        reference, _ = run(wide, options.function, inputs, results, folder)
        holds = [
            compare(i, element, plain[i], raised[i], reference and reference[i])
            for i, (_, element) in enumerate(results)
        ]
    sys.exit(not all(holds))


if __name__ == "__main__":
    main()

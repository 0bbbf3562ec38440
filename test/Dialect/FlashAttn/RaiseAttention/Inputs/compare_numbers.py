"""Runs functions on the CPU as they are and raised, and compares what they give: one run for all of them.

compare_numbers.py MODULE PREFIX [--share=N] [--seed=S] [--atol=X] [--fill-integers] [FUNCTION...]

MODULE holds functions on tensors, each of which has to be raised; N of them are taken at random, by default
all. Files begin with PREFIX; flash-opt and flash-run are found on PATH. A function with a scalar is called with
one below 0, with 0 and with one above. With --fill-integers, each function is called with tensors of runs of
equal integers, and of integers around those of positions beside the ends of the type.
"""
import argparse
import random
import re
import subprocess
import sys

INTEGERS = ["7", "5", "16"]  # positions, and lengths of batches
SCALARS = ["-0.75", "0.0", "0.5"]
FILLINGS = ["runs", "ends"]


def fill(kind, filling, source):
    """Integers for a tensor of type `kind`, as text."""
    *sizes, width = re.match(r"tensor<((?:\d+x)*)i(\d+)>", kind).groups()
    sizes = [int(size) for size in sizes[0].split("x") if size]
    least, most = -2 ** (int(width) - 1), 2 ** (int(width) - 1) - 1
    ends = [least, least + 1, least + 7, most - 7, most - 1, most, -1, 0, 2 ** 31 % (most + 1), 2 ** 32 % (most + 1)]

    def make(sizes):
        if len(sizes) > 1:
            return "[" + ", ".join(make(sizes[1:]) for _ in range(sizes[0])) + "]"
        count = sizes[0] if sizes else 1
        if width == "1":
            values = source.choices(["false", "true"], k=count)
        elif filling == "runs":
            values = sorted(source.choices(range(5), k=count))
        else:
            values = [source.choice(ends) if filling == "ends" and source.random() < 0.5 else source.randint(-3, 19) for _ in range(count)]
        return "[" + ", ".join(map(str, values)) + "]" if sizes else str(values[0])

    return make(sizes)


def make_main(functions, fills):
    """A function that calls all of the others, on the same tensors where the types are the same."""
    arguments, body, results, source = {}, [], [], random.Random(1)
    for name, (types, result) in functions.items():
        for value in FILLINGS if fills else SCALARS if "tensor<f32>" in types else SCALARS[:1]:
            operands, seen = [], {}
            for i, kind in enumerate(types):
                number = f"%{name}_{len(results)}_{i}"
                if fills and re.search(r"[x<]i\d+>", kind):
                    body.append(f"{number} = arith.constant dense<{fill(kind, value, source)}> : {kind}")
                elif "xi" in kind and not kind.endswith("xi1>"):
                    size = int(re.search(r"<(\d+)x", kind)[1])
                    body.append(f"{number} = arith.constant dense<[{', '.join(INTEGERS[1:1 + size])}]> : {kind}")
                elif kind in ("tensor<i32>", "tensor<f32>"):
                    body.append(f"{number} = arith.constant dense<{INTEGERS[0] if 'i32' in kind else value}> : {kind}")
                else:
                    seen[kind] = seen.get(kind, 0) + 1
                    key = (kind, seen[kind])
                    number = arguments.setdefault(key, f"%a{len(arguments)}")
                operands.append(number)
            made = [f"%r{len(results) + i}" for i in range(len(result))]
            body.append(f"{', '.join(made)} = func.call @{name}({', '.join(operands)}) : ({', '.join(types)}) -> ({', '.join(result)})")
            results += zip(made, result)
    text = ", ".join(f"{value}: {kind}" for (kind, _), value in arguments.items())
    kinds = ", ".join(kind for _, kind in results)
    values = ", ".join(value for value, _ in results)
    body.append(f"return {values} : {kinds}")
    return f"func.func @main({text}) -> ({kinds}) {{\n" + "\n".join(body) + "\n}\n", len(arguments), len(results)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("prefix")
    parser.add_argument("--share", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atol", default="1e-5")
    parser.add_argument("--fill-integers", action="store_true")
    parser.add_argument("functions", nargs="*")
    options = parser.parse_intermixed_args()
    with open(options.module, encoding="utf-8") as file:
        parts = re.split(r"^(?=func\.func )", re.sub("^//.*\n", "", file.read(), flags=re.M), flags=re.M)[1:]
    texts = {re.match(r"func\.func @(\w+)", part)[1]: part for part in parts}
    names = options.functions or list(texts)
    if options.share is not None:
        names = random.Random(options.seed).sample(names, options.share)
    functions = {}
    for name in names:
        header = texts[name].split("\n")[0]
        before, after = header.split(" -> ")
        functions[name] = (re.findall(r"tensor<[^>]*>", before), re.findall(r"tensor<[^>]*>", after))
    call, inputs, outputs = make_main(functions, options.fill_integers)
    plain, raised = options.prefix + ".plain.mlir", options.prefix + ".raised.mlir"
    with open(plain, "w", encoding="utf-8") as file:
        file.write("\n".join(texts[name] for name in names))
    done = subprocess.run(["flash-opt", plain, "-flashattn-raise-attention"], check=True, capture_output=True, text=True)
    for body in re.split(r"^ *func\.func ", done.stdout, flags=re.M)[1:]:
        if "flashattn.attention" not in body:
            sys.exit(f"expected '{body.split('(')[0]}' to be raised but got linalg")
    flags = [f"--input=random:{i + 1}" for i in range(inputs)]
    names = [f"@{options.prefix}.{i}.npy" for i in range(outputs)]
    for path, text, flag in [(plain, open(plain, encoding="utf-8").read(), "--output="),
                             (raised, done.stdout, "--expected-output=")]:
        # Maps that are named stand outside of the module.
        end = text.rindex("}\n\n") if text.startswith(("module", "#")) else len(text)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text[:end] + call + text[end:])
        run = subprocess.run(["flash-run", path, "--device=cpu", "--function=main", "--rtol=1e-4", "--atol=" + options.atol]
                             + flags + [flag + name for name in names], capture_output=True, text=True)
        if run.returncode:
            sys.exit(run.stdout + run.stderr)
    print(f"{len(functions)} functions, {outputs} results: equal")


if __name__ == "__main__":
    main()

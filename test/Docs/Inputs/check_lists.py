"""Checks that the lists in the documents are complete and agree with what they list.

usage: check_lists.py SOURCE_ROOT, with flash-run and flash-opt on PATH
"""

import ast
import glob
import json
import os
import re
import subprocess
import sys

ROOT = sys.argv[1]
failures = []


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def section(text, heading):
    """What stands under a heading, up to the next one of its level."""
    level = heading.split()[0]
    return re.split(rf"^{level} ", text.split(f"\n{heading}\n", 1)[1], flags=re.M)[0]


def rows(text):
    """The cells of each row of the tables in it, but for their headings."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = {i for i, row in enumerate(cells) if all(re.fullmatch(r":?-+:?", cell) for cell in row)}
    return [row for i, row in enumerate(cells) if i not in rules and i + 1 not in rules]


def tables(text):
    """Its tables, one after the other: rows of cells by their headings."""
    for part in re.findall(r"(?:^\|.*\n)+", text + "\n", re.M):
        heading, _, *cells = ([cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines())
        if cells:
            yield [dict(zip(heading, row)) for row in cells]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def compare(what, listed, actual):
    for name in sorted(set(actual) - set(listed)):
        failures.append(f"{what}: expected {name} in the list but found none")
    for name in sorted(set(listed) - set(actual)):
        failures.append(f"{what}: expected no {name} in the list, which does not exist")


def help_of(tool):
    return subprocess.run([tool, "--help"], capture_output=True, text=True, check=True).stdout


def check_flags():
    """flash-run's flags, but for those that every tool of LLVM has."""
    listed = {f for row in rows(section(read("docs/flash-run.md"), "## Flags")) for f in quoted(row[0])}
    actual = set(re.findall(r"^ +(--[\w-]+)", help_of("flash-run"), re.M))
    compare("docs/flash-run.md, flags", listed, actual - {"--help", "--help-hidden", "--help-list", "--version"})


def check_passes():
    listed = {name for row in rows(section(read("docs/walk.md"), "## The passes")) for name in quoted(row[0])}
    options = re.findall(r"^ +--([\w-]+)", help_of("flash-opt"), re.M)
    ours = re.compile(r"(convert-)?(flashattn|hopper)-")
    compare("docs/walk.md, the passes", listed, {name for name in options if ours.match(name)})


def check_environment():
    listed = {name for row in rows(read("docs/environment.md")) for name in quoted(row[0])}
    listed = {name for name in listed if re.fullmatch(r"[A-Z_]+", name)}
    patterns = {
        (".cpp", ".h", ".py"): (
            r'(?:getenv|GetEnv|getVariable|getSwitch|getNumber|getPathOrSwitch|_environment\.\w+)\("(\w+)"[,)]'
        ),
        (".py",): r'environ(?:\.get\(|\[)"(\w+)"[],)]',
        (".sh", "run"): r"\$\{(\w+):-",
        (".txt", ".cmake"): r"ENV\{(\w+)\}",
    }
    found = set()
    places = ["build.sh", ".ci/run", "CMakeLists.txt", "cmake/*", "test/lit.cfg.py", "test/Unit/lit.cfg.py"]
    places += [f"{folder}/**/*" for folder in ("include", "lib", "tools", "python")]
    for path in {p for place in places for p in glob.glob(os.path.join(ROOT, place), recursive=True)}:
        for ends, pattern in patterns.items():
            if path.endswith(ends) and os.path.isfile(path):
                with open(path, encoding="utf-8") as file:
                    for match in re.findall(pattern, file.read()):
                        found.update(name for name in ([match] if isinstance(match, str) else match) if name)
    # An argument or a variable of the script itself is in lower case.
    found = {name for name in found if name.isupper()}
    # LLVM reads it for the C++ side; the tests make the names of tools.
    elsewhere = {"XDG_CACHE_HOME"} | {f"FLASHATTN_{tool}" for tool in ("PTXAS", "NVDISASM", "CUOBJDUMP")}
    compare("docs/environment.md", listed, found | elsewhere)


def check_c_api():
    header = read("include/flashattn-c/FlashAttn.h")
    actual = set(re.findall(r"\b(flashattn[A-Z]\w+)\(", header))
    page = read("docs/c-api.md")
    compare("docs/c-api.md", {name for name in re.findall(r"\b(flashattn[A-Z]\w+)", page)}, actual)


def check_python():
    """Each argument of `attention` and of `attention_backward` stands somewhere."""
    text = read("README.md") + read("docs/features.md")
    for name, file in (("attention", "_attention"), ("attention_backward", "_backward")):
        tree = ast.parse(read(f"python/flashattn/{file}.py"))
        # The last one of a name is no overload.
        function = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name][-1]
        names = {a.arg for a in function.args.kwonlyargs}
        listed = {n for n in names if re.search(rf"\b{n}\b", text)}
        compare(f"arguments of flashattn.{name}", listed, names)


def find_sentences(text, *wanted):
    text = " ".join(text.split())
    for sentence in wanted:
        if sentence not in text:
            failures.append(f"README.md, speed: expected '{sentence}', as BENCHMARKS.md has it, but found no such text")


def check_speed():
    """Each figure of the README is that of the record."""
    readme = section(read("README.md"), "## Speed")
    # The first tables with these headings are the newest record beside all peers.
    found = list(tables(read("BENCHMARKS.md")))
    ratio = "ours / best peer"
    forward = next(table for table in found if {"shape", "ours", "cudnn", ratio} <= set(table[0]))
    backward = next(table for table in found if table[0].keys() >= {"gradients of", ratio})
    record = {row["shape"]: row for row in forward}
    gradients = {row["gradients of"]: row for row in backward}
    shapes = {shape["name"]: shape for shape in json.loads(read("python/flashattn/shapes.json"))}
    table = next(tables(readme.replace("fastest peer", "forward peer", 1).replace("fastest peer", "backward peer", 1)))
    if len(table) < 8:
        failures.append(f"README.md, speed: expected at least 8 shapes but got {len(table)}")
    peers = {"cudnn": "cuDNN", "fa2": "FA-2", "fa3": "FA-3", "fa4": "FA-4", "flex": "Flex"}

    def figures(row):
        """Ours and the fastest peer's, with its name."""
        if row is None:
            return ["-", "-"]
        best = max((peer for peer in peers if row[peer] != "-"), key=lambda peer: float(row[peer]))
        return [row["ours"], f"{row[best]} {peers[best]}"]

    for row in table:
        name, shape = row["shape"], shapes[row["shape"]]
        expected = f"({shape['B']}, {shape['Hq']}/{shape['Hkv']}, {shape['Nk']}, {shape['D']}) {shape['dtype']}"
        if (got := f"{row['(B, Hq/Hkv, N, D)']} {row['type']}") != expected:
            failures.append(f"README.md, {name}: expected {expected} but got {got}")
        expected = figures(record[name]) + figures(gradients.get(name))
        if (got := [row[c] for c in ("forward", "forward peer", "backward", "backward peer")]) != expected:
            failures.append(f"README.md, {name}: expected {', '.join(expected)} but got {', '.join(got)}")

    def extremes(ratios):
        return f"{min(ratios):.2f} to {max(ratios):.2f}"

    def beside(rows):
        """Ratios of rows without sinks, of those with them, and to cuDNN."""
        plain = [float(row[ratio]) for row in rows if row["fa3"] != "-"]
        sinks = [float(row[ratio]) for row in rows if row["fa3"] == "-"]
        cudnn = [float(row["ours"]) / float(row["cudnn"]) for row in rows if row["cudnn"] != "-"]
        return extremes(plain), extremes(sinks), extremes(cudnn)

    decoding = float(record["decode-gqa"][ratio])
    forward = beside([row for name, row in record.items() if name != "decode-gqa"])
    backward = beside(backward)
    first_calls = next(table for table in found if {"ours", "cudnn"} <= set(table[0]) and ratio not in table[0])
    ours = [int(row["ours"]) for row in first_calls]
    with_flex = next(table for table in found if {"ours", "flex"} <= set(table[0]) and ratio not in table[0])
    flex = [int(row["flex"]) / 1000 for row in with_flex if row["flex"] != "-"]
    host = re.search(r"Host time of a cached Python call.*?: ([\d.]+ to [\d.]+ µs) plain", read("BENCHMARKS.md"), re.S)
    cpu = re.search(r"CPU of that machine.*?flash-mlir ([\d.]+ ms), PyTorch ([\d.]+ ms)", read("BENCHMARKS.md"))
    find_sentences(
        read("README.md"),
        f"passes run at {forward[0]} times the speed of the fastest peer, with sinks at {forward[1]} ([speed]",
    )
    find_sentences(
        readme,
        f"at {forward[0]} times the fastest peer's speed, decoding at {decoding:.2f}, with sinks at {forward[1]};",
        f"backward passes at {backward[0]} times, with sinks at {backward[1]}.",
        f"{forward[2]} times its speed forward and {backward[2]} backward",
        f"first call takes {min(ours)} to {max(ours)} ms with a kernel made ahead",
        f"FlexAttention's first call {min(flex):.1f} to {max(flex):.1f} s",
        f"costs the host {host.group(1)}",
        f"takes {cpu.group(1)}, where PyTorch's own `scaled_dot_product_attention` takes {cpu.group(2)}",
    )


def check_versions():
    version = re.search(r"project\(flash-mlir VERSION ([\d.]+)", read("CMakeLists.txt")).group(1)
    for name, pattern in (
        ("CHANGELOG.md", r"^## ([\d.]+)"),
        ("README.md", r"Version ([\d.]+),"),
        ("python/pyproject.toml", r'^version = "([\d.]+)"'),
        ("python/flashattn/__init__.py", r'__version__ = "([\d.]+)"'),
    ):
        found = re.search(pattern, read(name), re.M)
        if not found or found.group(1) != version:
            failures.append(f"{name}: expected version {version} but got {found and found.group(1)}")


def check_lengths():
    """A section of the README is at most a screen."""
    text = read("README.md")
    for part in re.split(r"^(?=#+ )", text, flags=re.M)[1:]:
        heading, *lines = part.rstrip().splitlines()
        if len(lines) >= 50:
            failures.append(f"README.md, {heading}: expected less than 50 lines but got {len(lines)}")
    if text.count("\n") > 340:
        failures.append(f"README.md: expected at most 340 lines but got {text.count(chr(10))}")


checks = [check for name, check in globals().items() if name.startswith("check_")]
for check in checks:
    check()
if failures:
    sys.exit("\n".join(f"error: {failure}" for failure in failures))
print(f"{len(checks)} lists agree")

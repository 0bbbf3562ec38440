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
            failures.append(
                f"README.md, speed: expected '{sentence}', as benchmarks/records has it, but found no such text"
            )


#: The peers of the benchmark, as the README names them.
PEERS = {"cudnn": "cuDNN", "fa2": "FA-2", "fa3": "FA-3", "fa4": "FA-4", "flex": "Flex"}


def read_records():
    """The records of `bench --json`, the newest first."""
    paths = sorted(glob.glob(os.path.join(ROOT, "benchmarks/records/*.json")), reverse=True)
    records = [json.loads(read(os.path.relpath(path, ROOT))) for path in paths]
    records = [record for record in records if isinstance(record, dict)]
    return sorted(records, key=lambda record: record["date"], reverse=True)


def speeds_of(record, get=lambda row: row.get("tflops")):
    """What `get` has of each row: by shape, then by implementation."""
    found = {}
    for row in record["rows"]:
        if get(row) is not None:
            found.setdefault(row["shape"], {})[row["peer"]] = get(row)
    return found


def ratios_to(name, speeds):
    """Ours over one peer's, of shapes with more than one query."""
    return [of["ours"] / of[name] for shape, of in speeds.items() if name in of and shape != "decode-gqa"]


def best_peer(speeds):
    return max((peer for peer in PEERS if peer in speeds), key=lambda peer: speeds[peer])


def extremes(ratios):
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def beside_peers(speeds):
    """Ratios to the fastest peer without sink tokens and with them, and to cuDNN."""
    speeds = {shape: of for shape, of in speeds.items() if shape != "decode-gqa"}
    plain = [of["ours"] / of[best_peer(of)] for of in speeds.values() if "fa3" in of]
    sinks = [of["ours"] / of[best_peer(of)] for of in speeds.values() if "fa3" not in of]
    return extremes(plain), extremes(sinks), extremes(ratios_to("cudnn", speeds))


def check_speed():
    """Each figure of the README is that of the newest record beside all peers, or of another one."""
    readme = section(read("README.md"), "## Speed")
    records = read_records()
    beside_all = [record for record in records if {row["peer"] for row in record["rows"]} >= PEERS.keys()]
    forward = speeds_of(next(record for record in beside_all if not record["backward"]))
    backward = speeds_of(next(record for record in beside_all if record["backward"]))
    shapes = {shape["name"]: shape for shape in json.loads(read("python/flashattn/bench/shapes.json"))}
    table = next(tables(readme.replace("fastest peer", "forward peer", 1).replace("fastest peer", "backward peer", 1)))
    if len(table) < 8:
        failures.append(f"README.md, speed: expected at least 8 shapes but got {len(table)}")

    def figures(speeds):
        """Ours and the fastest peer's, with its name."""
        if speeds is None:
            return ["-", "-"]
        best = best_peer(speeds)
        return [f"{speeds['ours']:.3g}", f"{speeds[best]:.3g} {PEERS[best]}"]

    for row in table:
        name, shape = row["shape"], shapes[row["shape"]]
        expected = f"({shape['B']}, {shape['Hq']}/{shape['Hkv']}, {shape['Nk']}, {shape['D']}) {shape['dtype']}"
        if (got := f"{row['(B, Hq/Hkv, N, D)']} {row['type']}") != expected:
            failures.append(f"README.md, {name}: expected {expected} but got {got}")
        expected = figures(forward[name]) + figures(backward.get(name))
        if (got := [row[c] for c in ("forward", "forward peer", "backward", "backward peer")]) != expected:
            failures.append(f"README.md, {name}: expected {', '.join(expected)} but got {', '.join(got)}")

    decoding = forward["decode-gqa"]["ours"] / forward["decode-gqa"][best_peer(forward["decode-gqa"])]
    forward, backward = beside_peers(forward), beside_peers(backward)
    find_sentences(
        read("README.md"),
        f"passes run at {forward[0]} times the speed of the fastest other implementation",
        f"and at {forward[1]} times with sink tokens ([speed]",
    )
    find_sentences(
        readme,
        f"forward passes run at {forward[0]} times the fastest peer's speed, and backward passes at "
        f"{backward[0]} times. With sink tokens, forward passes run at {forward[1]} times that speed, and backward "
        f"passes at {backward[1]} times. Decoding runs at {decoding:.2f} times.",
        f"forward passes run at {forward[2]} times its speed, and backward passes at {backward[2]} times.",
    )
    find_other_figures(readme, records)


def newest_of(peer, get, records):
    """What `get` has of the rows of the newest forward record that has it of a peer."""
    found = (speeds_of(record, get) for record in records if not record["backward"])
    return next(speeds for speeds in found if any(peer in of for of in speeds.values()))


def find_other_figures(readme, records):
    """What calls sustain, and the figures that figures.json has."""
    figures = {figure["name"]: figure["values"] for figure in json.loads(read("benchmarks/records/figures.json"))}
    held = newest_of("fa3", lambda row: row.get("sustained", {}).get("tflops"), records)
    firsts = newest_of("flex", lambda row: row.get("first_call_ms"), records)
    flex = [of["flex"] / 1000 for of in firsts.values() if "flex" in of]
    ahead, late = (
        [of[column] for of in figures["first-call"].values()] for column in ("compiled ahead", "nothing ahead")
    )
    recorded = figures["host-time-autograd"].items()
    recorded = [value for name, of in recorded if name.startswith("flashattn") for value in of.values()]
    llama, gemma, decode, host, cpu = (
        figures[name] for name in ("layers-llama3", "layers-gemma2", "decode-over-cudnn", "host-time", "cpu")
    )
    find_sentences(
        readme,
        f"at {extremes(ratios_to('fa3', held))} times FlashAttention-3's speed",
        f"at {extremes(ratios_to('cudnn', held))} times cuDNN's.",
        f"at {decode['least']:.2f} times cuDNN's speed or more, and at {decode['geometric mean']:.2f} times in the",
        f"is {llama['cudnn'] / llama['flashattn']:.2f} times as fast as with cuDNN's attention",
        f"is {gemma['flex'] / gemma['flashattn']:.2f} times as fast as with FlexAttention",
        f"first call takes {min(ahead)} to {max(ahead)} ms with a precompiled kernel",
        f"{min(late) / 1000:.1f} to {max(late) / 1000:.1f} s without",
        f"FlexAttention's first call takes {min(flex):.1f} to {max(flex):.1f} s",
        f"costs the host {host['least']} to {host['most']} µs",
        f"{min(recorded):.0f} to {max(recorded):.0f} µs if autograd records it",
        f"takes {cpu['flashattn']} ms; PyTorch's `scaled_dot_product_attention` takes {cpu['torch']} ms.",
    )


def check_page():
    """BENCHMARKS.md is what its records make, and short."""
    script = os.path.join(ROOT, "benchmarks", "make_page.py")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    if done.returncode:
        failures.append(done.stderr.strip().replace("error: ", "", 1))
    if (lines := read("BENCHMARKS.md").count("\n")) >= 400:
        failures.append(f"BENCHMARKS.md: expected less than 400 lines but got {lines}")


def check_rationale():
    """The index lists every page of docs/rationale, its links lead somewhere, and comments name pages that exist."""
    index = "README.md"
    pages = {os.path.basename(path) for path in glob.glob(os.path.join(ROOT, "docs/rationale/*.md"))}
    texts = {page: read(f"docs/rationale/{page}") for page in sorted(pages)}
    compare(f"docs/rationale/{index}", re.findall(r"\]\(([\w-]+\.md)\)", texts[index]), pages - {index})
    for page, text in texts.items():
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            if not os.path.exists(os.path.join(ROOT, "docs/rationale", target)):
                failures.append(f"docs/rationale/{page}: expected a file at the link {target} but found none")
    for folder in ("include", "lib", "tools"):
        for path in sorted(glob.glob(os.path.join(ROOT, folder, "**", "*.*"), recursive=True)):
            with open(path, encoding="utf-8", errors="replace") as file:
                for page in sorted(set(re.findall(r"docs/rationale/([\w-]+\.md)", file.read())) - pages):
                    name = os.path.relpath(path, ROOT)
                    failures.append(f"{name}: expected a page of docs/rationale but got {page}")


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

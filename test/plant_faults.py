#!/usr/bin/env python3
"""Plants faults in the sources, one at a time, and shows which tests notice.

    plant_faults.py [--only REGEX] [--build build/release] [--jobs N] [--list | --check]

Each fault is a small change that leaves the project building and makes it wrong. The tests named beside it must fail
by numbers or by behaviour, not by the text of IR. Prints a line a fault; the exit status is 0 only if all are noticed.
A run takes minutes for each fault in C++, so continuous integration has none but --check, which changes nothing. The
sources that it changes must be as committed, and are put back whatever happens.
"""

import argparse
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "lib/Dialect/FlashAttn/Program/"
RAISE = "lib/Dialect/FlashAttn/Transforms/Raise/"


class Fault(NamedTuple):
    name: str
    path: str
    right: str  #: occurs once
    wrong: str
    tests: str  #: a filter of lit: tests of which one must fail


FAULTS = [
    # What Python rewrites must mean the same.
    Fault(
        "one causal query with an offset loses its mask",
        "python/flashattn/_module.py",
        'if problem.align == "bottom_right" and not operands & {"offset", "offsets"}:',
        'if problem.align == "bottom_right":',
        "python/(cache|rules)_test",
    ),
    Fault(
        "one causal query with an offset for each batch element loses its mask",
        "python/flashattn/_module.py",
        'not operands & {"offset", "offsets"}:',
        'not operands & {"offset"}:',
        "python/(cache|own_offsets)_test",
    ),
    Fault(
        "one causal query aligned at the top loses its mask",
        "python/flashattn/_module.py",
        'if problem.align == "bottom_right" and not operands & {"offset", "offsets"}:',
        'if not operands & {"offset", "offsets"}:',
        "python/(cache|rules)_test",
    ),
    Fault(
        "torch's lower-right causal bias counts from the first key",
        "python/flashattn/torch/_sdpa.py",
        'align = "bottom_right"',
        'align = "top_left"',
        "python/sdpa_test",
    ),
    Fault(
        "a transformers mask with padding is taken for a causal one",
        "python/flashattn/hf.py",
        "if is_full:",
        "if True:",
        "python/hf_(sequences_)?test",
    ),
    Fault(
        "a transformers cache with room ahead is taken for a causal mask",
        "python/flashattn/hf.py",
        "ends = isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length",
        "ends = True",
        "python/hf_test",
    ),
    Fault(
        "any conjunction with a causal mask is taken for a sliding window",
        "python/flashattn/hf.py",
        'and _is_made_by("sliding_window_overlay", parts[0])',
        "and True",
        "python/hf_test",
    ),
    Fault(
        "a sliding window of transformers is a key too wide",
        "python/flashattn/hf.py",
        "window(left=sliding_window - 1, right=0)",
        "window(left=sliding_window, right=0)",
        "python/hf_test",
    ),
    Fault(
        "a position bias is dropped beside a float mask",
        "python/flashattn/hf.py",
        "bias = attention_mask if bias is None else bias + attention_mask",
        "bias = attention_mask",
        "python/hf_test",
    ),
    Fault(
        "padding between the tokens of a transformers batch is taken for a block",
        "python/flashattn/hf.py",
        "(blocks <= 1).all()",
        "(blocks <= 2).all()",
        "python/hf_sequences_test",
    ),
    Fault(
        "padded keys of transformers hide the queries of another sequence",
        "python/flashattn/hf.py",
        'sequences = {"kv_len": attention_mask[:, 0, 0, 0]}',
        'sequences = {name: attention_mask[:, 0, 0, 0] for name in ("q_len", "kv_len")}',
        "python/hf_sequences_test",
    ),
    Fault(
        "the starts of some positions are taken for those of others",
        "python/flashattn/hf.py",
        "if known() is not position_ids or version != position_ids._version:",
        "if version != position_ids._version:",
        "python/hf_sequences_test",
    ),
    Fault(
        "a causal varlen_attn sees the keys after its window",
        "python/flashattn/torch/_hook.py",
        "bounded(left, 0 if is_causal else right)",
        "bounded(left, right)",
        "python/varlen_test",
    ),
    Fault(
        "starts are checked in the first call alone",
        "python/flashattn/_plans.py",
        "in self.starts:",
        "in ():",
        "python/sequences_test",
    ),
    # Each field of a key.
    Fault(
        "compiled code is found whatever its function",
        "lib/CAPI/Compile.cpp",
        "text.str(),       options.function,",
        'text.str(),       "",',
        "python/(disk_)?cache_test",
    ),
    Fault(
        "compiled code is found whatever its vector width",
        "lib/CAPI/Compile.cpp",
        "input.push_back(std::to_string(options.vectorWidth));",
        "",
        "python/(disk_)?cache_test",
    ),
    Fault(
        "compiled code is found whatever its schedule",
        "lib/CAPI/Compile.cpp",
        "options.schedule, compilation.tuned};",
        "compilation.tuned};",
        "python/(disk_)?cache_test",
    ),
    Fault(
        "compiled code is found whatever its chip",
        "lib/CAPI/Compile.cpp",
        "options.chip,     kernel.model",
        '"",     kernel.model',
        "python/(disk_)?cache_test",
    ),
    Fault(
        "the parts of a key run into each other",
        "lib/Runtime/DiskCache.cpp",
        'hash.update(std::to_string(part.size()) + ":");',
        "",
        "RuntimeUnitTests",
    ),
    # Who may write to what is run.
    Fault(
        "a cache folder that a group may write to is trusted",
        "lib/Support/TrustedFolder.cpp",
        "kOthersWrite = S_IWGRP | S_IWOTH;",
        "kOthersWrite = S_IWOTH;",
        "python/disk_cache_test|CAPI|Unit",
    ),
    Fault(
        "a folder above the cache that others may write to is trusted",
        "lib/Support/TrustedFolder.cpp",
        "if (!(status.st_mode & kOthersWrite) || status.st_mode & S_ISVTX)",
        "if (true)",
        "python/disk_cache_test|CAPI|Unit",
    ),
    # Infinite operands.
    Fault(
        "a base of -inf is taken off scores of -inf",
        PROGRAM + "OnlineSoftmax.cpp",
        "shifts = arith::SelectOp::create(b, loc, shifted, finite, splat(rows, 0));",
        "shifts = arith::SelectOp::create(b, loc, shifted, base, splat(rows, 0));",
        "Integration/large-scores|python/rules_test|Integration/Numbers/features-cpu",
    ),
    Fault(
        "a merge takes -inf off -inf",
        PROGRAM + "Merge.cpp",
        "base.max = arith::SelectOp::create(b, loc, isNone(result.max), number(0), result.max);",
        "base.max = result.max;",
        "Integration/merge",
    ),
    Fault(
        "a merge reads the output of a part without keys",
        PROGRAM + "Merge.cpp",
        "out = arith::SelectOp::create(b, loc, none, nothing, out);",
        "(void)nothing;",
        "Integration/merge",
    ),
    Fault(
        "gradients of a row that sees nothing are taken against -inf",
        PROGRAM + "ScoreGradients.cpp",
        "exponent = arith::SelectOp::create(b, loc, empty, splat(rowType, 0), exponent);",
        "",
        "Integration/(large-scores|counted-rows|Verify/gradients)|Integration/Numbers/gradients-features-cpu",
    ),
    # Scores far from 0.
    Fault(
        "weights of large scores are made by one rounded product",
        PROGRAM + "OnlineSoftmax.cpp",
        "constexpr double kLargest = 1 << 8;",
        "constexpr double kLargest = 3e38;",
        "Integration/large-scores",
    ),
    Fault(
        "gradients of large rows are taken against a rounded log-sum-exp",
        PROGRAM + "ScoreGradients.cpp",
        "const double largest = isF32 ? 32 : 1024;",
        "const double largest = 3e38;",
        "Integration/large-scores",
    ),
    Fault(
        "a large row is found again whatever log-sum-exp was given",
        PROGRAM + "LargeRows.cpp",
        "Value isFound = arith::AndIOp::create(b, loc, sums.isLarge(given), agrees);",
        "Value isFound = sums.isLarge(given);\n  (void)agrees;",
        "Integration/large-scores",
    ),
    Fault(
        "weights of large rows may exceed 1",
        PROGRAM + "ScoreGradients.cpp",
        "return arith::MinimumFOp::create(b, loc, x, most).getResult();",
        "(void)most;\n    return x;",
        "Integration/large-scores|Integration/Numbers/gradients",
    ),
    # What must not be read.
    Fault(
        "gradients read K past kv_len",
        PROGRAM + "Backward.cpp",
        "seen = countedKeys.get(sequence);",
        "seen;",
        "Integration/(counted-rows|Verify/gradients)|Integration/Numbers/gradients-model",
    ),
    Fault(
        "gradients read queries that see no key",
        PROGRAM + "Backward.cpp",
        "operands.loadRows(op.getQ(), TileAxis::Queries, sequence, head, tile, columns, of.queryRows);",
        "operands.loadRows(op.getQ(), TileAxis::Queries, sequence, head, tile, columns);",
        "Integration/(counted-rows|Verify/gradients)|Integration/Numbers/gradients-model",
    ),
    Fault(
        "dk and dv past kv_len keep what was made of poison",
        PROGRAM + "Backward.cpp",
        "Value exists = isCounted(*this, countedKeys.get(sequence), firstKey, count);",
        "Value exists;\n  (void)count;",
        "Integration/(counted-rows|Verify/gradients)|Integration/Numbers/gradients",
    ),
    Fault(
        "a d_o of NaN reaches a query that sees no key",
        PROGRAM + "ScoreGradients.cpp",
        "delta = takeNumbers(delta, counts, splat(rowType, 0));",
        "",
        "Integration/counted-rows",
    ),
    Fault(
        "a full tile of queries reads keys past the last one",
        PROGRAM + "ScoreGradients.cpp",
        "if (keys == all && count && *count % rows == 0)",
        "if (true)",
        "Integration/(counted-rows|Verify/gradients)|Integration/Numbers/gradients",
    ),
    Fault(
        "a negative kv_len is taken as it is",
        PROGRAM + "Operands.cpp",
        "auto clamp = [&](Value length, Value most) { return min(max(length, index(0)), most); };",
        "auto clamp = [&](Value length, Value most) { return min(length, most); };",
        "Integration/(Errors|Verify|Numbers/features-cpu|counted-rows)|python/rules_test",
    ),
    Fault(
        "shared tiles of keys lose their last part",
        PROGRAM + "KeyParts.cpp",
        "Value last = index(std::numeric_limits<int32_t>::max());",
        "Value last = index(0);",
        "Integration/(Model|Verify/gradients)|Integration/Numbers/gradients-model",
    ),
    Fault(
        "shares of dv are added to those of dk",
        PROGRAM + "KeyParts.cpp",
        "TileBuilder::add(number, index(which * heavy))",
        "TileBuilder::add(number, index(0 * which))",
        "Integration/(Model|Verify/gradients)|Integration/Numbers/gradients-model",
    ),
    Fault(
        "keys under kv_len are placed as all keys are",
        PROGRAM + "Operands.cpp",
        "own.offset = op.getAlign() == Align::TopLeft ? index(0) : sub(own.keys, own.queries);",
        "own.offset = op.getAlign() == Align::TopLeft ? index(0) : sub(sizes.keys, own.queries);",
        "Integration/(Examples|Verify)|Integration/Numbers/features-cpu|python/rules_test",
    ),
    Fault(
        "no tile is skipped by the numbers of queries or keys",
        PROGRAM + "Operands.cpp",
        "if (rows && ranges)",
        "if (false)",
        "Integration/Model/visited-tiles",
    ),
    # Rewritings that would change results.
    Fault(
        "any constant that is selected hides a score",
        RAISE + "AttentionScores.cpp",
        "static constexpr double lowScore = -1e4;",
        "static constexpr double lowScore = -1;",
        "Dialect/FlashAttn/RaiseAttention/(look-alikes|numbers|rewritings|forms)",
    ),
    Fault(
        "summands behind a mask may bring hidden scores back",
        RAISE + "AttentionScores.cpp",
        "if (value * factor > -highestLow / 2)",
        "if (false)",
        "Dialect/FlashAttn/RaiseAttention/(look-alikes|numbers|rewritings|forms)",
    ),
    Fault(
        "a factor behind a mask may bring hidden scores back",
        RAISE + "AttentionScores.cpp",
        "if (factor <= 0 || highestLow > lowScore)",
        "if (factor <= 0)",
        "Dialect/FlashAttn/RaiseAttention/(look-alikes|numbers|rewritings|forms)",
    ),
    Fault(
        "a factor behind a bias leaves it as it was",
        RAISE + "AttentionScores.cpp",
        "    bias.factor *= factor;",
        "    (void)bias;",
        "Dialect/FlashAttn/RaiseAttention/(look-alikes|numbers|rewritings|forms)",
    ),
    Fault(
        "a guard hides rows that see keys",
        RAISE + "AttentionMatch.cpp",
        "if (hides && isHidden(n))",
        "if (hides)",
        "Dialect/FlashAttn/RaiseAttention/(look-alikes|numbers|rewritings|forms)",
    ),
    Fault(
        "a sum of weights may leave out any",
        RAISE + "AttentionSums.cpp",
        "product.guards.emplace_back(summand->operands[0], false);",
        "",
        "Dialect/FlashAttn/RaiseAttention/(look-alikes|numbers|rewritings|forms)",
    ),
    Fault(
        "rows that finite numbers hide whole become 0",
        RAISE + "RaiseMask.cpp",
        "if (visible.empty() || (hasFinite && !everyRowSees()))",
        "if (visible.empty())",
        "Dialect/FlashAttn/RaiseAttention/(look-alikes|numbers|rewritings|forms)",
    ),
    Fault(
        "ids of 64 bits are equal if their low halves are",
        RAISE + "MaskSymbols.cpp",
        "for (int64_t shift : {0, 32}) {",
        "for (int64_t shift : {0}) {",
        "Dialect/FlashAttn/RaiseAttention/data-masks-numbers",
    ),
    Fault(
        "lengths of 64 bits are cut",
        RAISE + "MaskSymbols.cpp",
        'value = exprs.makeOp("arith.minsi", i64, {value, constant(kMost)});',
        "",
        "Dialect/FlashAttn/RaiseAttention/data-masks-numbers",
    ),
    Fault(
        "sums of 32 bits in masks do not wrap",
        RAISE + "MaskSymbols.cpp",
        "if ((isSum || isCast) && (x->type.isIndex() || x->type.isInteger(64))) {",
        "if (isSum || isCast) {",
        "Dialect/FlashAttn/RaiseAttention/data-masks-numbers",
    ),
    # Shares.
    Fault(
        "hidden pairs of gradients add what absent keys hold",
        PROGRAM + "ScoreGradients.cpp",
        "return arith::SelectOp::create(b, loc, shown, gradient, splat(type, 0));",
        "return gradient;",
        "Integration/(counted-rows|Verify/gradients)|Integration/Numbers/gradients-features-cpu",
    ),
    Fault(
        "a query that sees none of these keys loses the log-sum-exp of others",
        PROGRAM + "ScoreGradients.cpp",
        "arith::OrIOp::create(b, loc, counts, isNumber)",
        "counts",
        "Dialect/FlashAttn/Sharding/numbers",
    ),
    Fault(
        "a share of the keys is rounded down",
        PROGRAM + "SplitKeys.cpp",
        "build.divide32(build.add(all, build.sub(parts, build.index(1))), parts)",
        "build.divide32(all, parts)",
        "Integration/(CPU/splits|Numbers/model-schedules)",
    ),
    Fault(
        "an interval of tiles ends where another share begins",
        PROGRAM + "SplitKeys.cpp",
        "Value end = build.add(begin, count);",
        "Value end = build.add(begin, build.add(count, build.index(1)));",
        "Integration/(CPU/splits|Numbers/model-schedules)",
    ),
]


def run(command, **options):
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def build(tree: Path, jobs: int) -> str:
    """What the build says where it fails."""
    done = run(["ninja", "-C", str(tree), f"-j{jobs}"])
    return done.stdout if done.returncode else ""


def failing(tree: Path, tests: str, jobs: int) -> list:
    """The names of those that fail, of the tests that run."""
    done = run(
        [sys.executable, lit(tree), "-v", str(tree / "test"), f"-j{jobs}", f"--filter=^(.* :: )?({tests})"]
    )
    if "PASS: " not in done.stdout and "FAIL: " not in done.stdout:
        sys.exit(f"expected '{tests}' to choose tests that run but got:\n{done.stdout[-2000:]}")
    return sorted({name for name in re.findall(r"^FAIL: \S+ :: (\S+)", done.stdout, re.M)})


def lit(tree: Path) -> str:
    site = (tree / "test/lit.site.cfg.py").read_text()
    return str(Path(re.search(r'llvm_tools_dir = r"(.*)"', site).group(1)) / "lit")


def find(fault: Fault) -> str:
    """Why the fault cannot be planted; empty: it can."""
    count = (ROOT / fault.path).read_text().count(fault.right)
    return "" if count == 1 else f"{fault.path}: expected {fault.right!r} once but got it {count} times"


def plant(fault: Fault, tree: Path, jobs: int) -> str:
    """What notices the fault; empty: nothing does."""
    path = ROOT / fault.path
    source = path.read_text()
    if reason := find(fault):
        sys.exit(reason)
    try:
        path.write_text(source.replace(fault.right, fault.wrong))
        broken = build(tree, jobs) if path.suffix == ".cpp" else ""
        if broken:
            sys.exit(f"{fault.name}: expected sources that build but got:\n{broken[-3000:]}")
        return ", ".join(failing(tree, fault.tests, jobs))
    finally:
        path.write_text(source)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose names match")
    parser.add_argument("--build", default=str(ROOT / "build/release"), help="a build tree of these sources")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print the faults' names alone")
    parser.add_argument("--check", action="store_true", help="say which faults have no place in the sources alone")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that sources are put back
    chosen = [fault for fault in FAULTS if re.search(arguments.only, fault.name + " " + fault.path)]
    if arguments.list:
        print("\n".join(fault.name for fault in chosen))
        return 0
    if arguments.check:
        reasons = list(filter(None, map(find, chosen)))
        print("\n".join([*reasons, f"{len(chosen)} faults, {len(reasons)} without a place"]))
        return 1 if reasons or not chosen else 0
    changed = run(["git", "status", "--porcelain", "--", *{fault.path for fault in chosen}]).stdout
    if changed:
        sys.exit(f"expected sources as committed but got changes:\n{changed}")
    tree = Path(arguments.build).resolve()
    unnoticed = 0
    for fault in chosen:
        found = plant(fault, tree, arguments.jobs)
        unnoticed += not found
        print(f"{fault.name} | {fault.path} | {found or 'NOT NOTICED'}", flush=True)
    build(tree, arguments.jobs)
    print(f"{len(chosen)} faults, {unnoticed} not noticed")
    return 1 if unnoticed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())

"""python -m flashattn bench: times attention and its peers in one run.

Each round times every implementation once, in a new random order, because the clock of a GPU depends on
its load. A figure is the median over the rounds. TFLOP/s count D + Dv multiply-adds for each pair that
the mask leaves visible and, with --backward, 2.5 times as many. On CUDA, the peers are cuDNN and
FlashAttention-2 through PyTorch's scaled_dot_product_attention, compiled FlexAttention, and
FlashAttention-3 and -4 if flash_attn_interface and flash_attn.cute are installed. On the CPU, the peers
are NumPy, and PyTorch if it is installed. --backward times the backward passes of the peers, through
PyTorch's autograd. The limit is the rate of a large matmul or, if reading all operands once takes longer,
a read of as many bytes, timed in the same rounds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

import numpy

from .. import _cache, _files, _flags, _library, _reference
from . import _backward, _counters, _features, _peers, _power, _stack, _timing
from ._backends import (
    OURS,
    CPUBackend,
    CUDABackend,
    forget_compiled_kernels,
    interleave,
    makers_of,
    read_gbs,
)
from ._features import mask_of
from ._record import commit, draw, format_table, read_record, write_json

BYTES = {"f16": 2, "bf16": 2, "f32": 4}


def load_shapes() -> List[Dict[str, Any]]:
    """Returns the shapes of the benchmark, from shapes.json."""
    return json.loads((Path(__file__).parent / "shapes.json").read_text())


def sweep_shapes(longest: int = 32768) -> List[Dict[str, Any]]:
    """Returns shapes of lengths from 512 to `longest`, with 16384 tokens per batch or one longer sequence, 2048
    elements per token, and with or without a causal mask."""
    shapes = []
    for d in (64, 128):
        for mask in ("none", "causal"):
            length = 512
            while length <= longest:
                heads, batch = 2048 // d, max(1, 16384 // length)
                shapes.append(
                    {"name": f"d{d}-{mask}-{length}", "B": batch, "Hq": heads, "Hkv": heads, "Nq": length,
                     "Nk": length, "D": d, "dtype": "f16", "mask": mask, "sweep": f"d{d} {mask}"}
                )  # fmt: skip
                length *= 2
    return shapes


def for_cpu(shape: Dict[str, Any], longest: int = 1024) -> Dict[str, Any]:
    """Returns the shape with fewer batches, heads and tokens, so that NumPy takes at most about a second. The name
    contains the numbers of batches, query heads, queries and, if different, keys."""
    group = shape["Hq"] // shape["Hkv"]
    heads = max(4, group)
    nq, nk = min(shape["Nq"], longest), min(shape["Nk"], longest if shape["Nq"] > 1 else 8192)
    sizes = "x".join(map(str, (1, heads, nq) if nq == nk else (1, heads, nq, nk)))
    name = f"{shape['name']}@{sizes}"
    return dict(shape, name=name, B=1, Hq=heads, Hkv=heads // group, Nq=nq, Nk=nk)


def visible_pairs(shape: Dict[str, Any]) -> int:
    """Returns the number of pairs of one head that the mask shows."""
    nq, nk = shape["Nq"], shape["Nk"]
    if shape.get("feature") == "attn_mask":
        return int(_features.make_attn_mask(shape).sum())
    if shape["mask"] == "none":
        return nq * nk
    end = numpy.clip(numpy.arange(nq) + nk - nq + 1, 0, nk)
    begin = (
        numpy.maximum(0, end - shape["window"]) if shape["mask"] in ("window", "sink") else 0 * end
    )
    pairs = end - begin
    if shape["mask"] == "sink":
        pairs += numpy.minimum(shape["sinks"], begin)
    return int(pairs.sum())


def flops_of(shape: Dict[str, Any], is_backward: bool = False) -> float:
    pairs = visible_pairs(shape)
    forward = 4.0 * shape["B"] * shape["Hq"] * shape["D"] * pairs
    return forward * _backward.FLOPS if is_backward else forward


def bytes_of(shape: Dict[str, Any], is_backward: bool = False) -> float:
    """Returns the bytes of q, k, v and o, each read or written once; for a backward pass, twice as many, with their
    gradients."""
    rows = shape["B"] * (2 * shape["Hq"] * shape["Nq"] + 2 * shape["Hkv"] * shape["Nk"])
    tensors = 2 if is_backward else 1
    return float(tensors * rows * shape["D"] * BYTES[shape["dtype"]])


def say(text: str) -> None:
    """Prints progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def check(backend, shape, q, k, v, o) -> None:
    """Compares up to four heads of `o` with float64. Raises ValueError if an error exceeds its bound."""
    heads = shape["B"] * shape["Hq"]
    nq, nk, group = shape["Nq"], shape["Nk"], shape["Hq"] // shape["Hkv"]
    # Some rows of each head, because all rows of a long sequence would take minutes.
    rows = _features.sample(nq, 256)
    seen = _reference.visible(
        mask_of(shape), rows[:, None] + nk - nq, numpy.arange(nk)[None, :], nq, nk
    )
    if backend.attn_mask is not None:
        seen = seen & _features.make_attn_mask(shape)[0, 0, rows]
    for index in sorted({n * (heads - 1) // 3 for n in range(4)}):
        b, h = divmod(index, shape["Hq"])
        query, result = (backend.head(x, b, h, shape)[rows] for x in (q, o))
        key, value = (backend.head(x, b, h // group, shape) for x in (k, v))
        scale = 1 / math.sqrt(shape["D"])
        features = _features.reference_of(
            shape, h, rows, lambda h: backend.head(backend.bias, 0, h, shape), numpy.arange(nk)
        )
        error, bound = _reference.check_head(
            result, query, key, value, seen, scale, shape["dtype"], **features
        )
        if not error <= bound:
            raise ValueError(f"error {error:.2e} of batch {b}, head {h} exceeds {bound:.2e}")


class Limits(NamedTuple):
    """Limits on the speed of any implementation."""

    matmul: float  #: TFLOP/s
    read: float  #: GB/s, for a buffer that is larger than the caches


def make_calls(backend, shape, chosen, tensors, backward):
    """Returns the calls of the implementations that support the shape, the milliseconds of the first calls, our
    schedule, and rows for the implementations that refuse the shape."""
    calls, first_ms, refused = {}, {}, []
    schedule = None
    _cache.cache.clear()
    for name, make in makers_of(backend, shape, *tensors, backward).items():
        if chosen.peers is not None and name != OURS and name not in chosen.peers:
            continue
        backend.timer.synchronize()
        start = time.perf_counter()
        try:
            call = make()
            result = call()
            backend.timer.synchronize()
            first_ms[name] = (time.perf_counter() - start) * 1e3
            if name == OURS:
                schedule = max(_cache.cache.kernels.values(), key=lambda kernel: kernel._used).schedule
                # The call may have found code that an earlier shape or process compiled.
                first_ms[name] = _timing.first_call_ms(
                    shape, backward is not None, backend.ordinal != _library.DEVICE_CPU
                )
        except Exception as error:  # any exception of a peer is a refusal
            if name == OURS and not chosen.keep_going:
                raise
            reason = f"{type(error).__name__}: {error}"
            refused.append({"shape": shape["name"], "peer": name, "refused": reason})
            line = (str(error) or repr(error)).splitlines()[0][:100]
            say(f"  {shape['name']}: {name} refused: {line}")
            continue
        if name == OURS and chosen.check:
            if backward:
                backward.check(result)
            else:
                check(backend, shape, *tensors, result)
        calls[name] = call
        del result
    return calls, first_ms, schedule, refused


def run_shape(
    backend, shape, chosen, limits: Limits, meter: Optional[_power.Meter] = None
) -> List[Dict[str, Any]]:
    """Returns a row for every implementation, with the sustained speed if there is a `meter`, or with the reason
    why the implementation refuses the shape."""
    tensors = backend.tensors(shape)
    backward = _backward.Backward(backend, shape, *tensors) if chosen.backward else None
    calls, first_ms, schedule, refused = make_calls(backend, shape, chosen, tensors, backward)
    flops, moved = (count(shape, chosen.backward) for count in (flops_of, bytes_of))
    # Whether reading the operands once takes longer than the products at the rate of the matmul.
    memory_bound = moved / (limits.read * 1e9) > flops / (limits.matmul * 1e12)
    reads = backend.readers(int(moved)) if memory_bound else {}
    times = interleave({**calls, **reads}, backend.timer, chosen.rounds, chosen.ms)
    median = {name: statistics.median(values) for name, values in times.items()}
    # The time at the limit: a read of as many bytes, or the products.
    limit_ms = min((median.pop(name) for name in reads), default=flops / limits.matmul / 1e9)
    rivals = [value for name, value in median.items() if name != OURS]
    rows = []
    for name, ms in median.items():
        rows.append(
            {
                "shape": shape["name"],
                "peer": name,
                "ms": ms,
                "ms_low": times[name][0],
                "ms_high": times[name][-1],
                "tflops": flops / ms / 1e9,
                "gbs": moved / ms / 1e6,
                "limit": "read" if memory_bound else "matmul",
                "of_limit": limit_ms / ms,
                "of_best_peer": min(rivals) / ms if rivals and name == OURS else None,
                "first_call_ms": first_ms[name],
                "schedule": schedule if name == OURS else None,
                "sweep": shape.get("sweep"),
                "length": shape["Nk"],
            }
        )
    if meter:
        found = _power.sustain_all(
            calls, backend.timer, median, chosen.sustained, meter, flops
        )
        for row in rows:
            row["sustained"] = found[row["peer"]]
    backend.release()
    return rows + refused


def count_shape(
    profiler: _counters.Profiler, shape: Dict[str, Any], is_backward: bool, rows: List[Any]
) -> Optional[_counters.CountersError]:
    """Adds "counters" to the rows of a shape, or the reason why there are none, and returns that error."""
    measured = [row for row in rows if "ms" in row]
    try:
        found = profiler.count(shape, [row["peer"] for row in measured], is_backward)
    except _counters.CountersError as error:
        for row in measured:
            row["counters_refused"] = str(error)
        return error
    for row in measured:
        row["counters"] = found[row["peer"]]
    return None


def keep_only(shapes: List[Dict[str, Any]], names: Optional[str]) -> List[Dict[str, Any]]:
    """Returns the shapes that --only names, with or without the sizes after their names. Raises SystemExit for an
    unknown name."""
    if not names:
        return shapes
    known = [{shape["name"], shape["name"].partition("@")[0]} for shape in shapes]
    wanted = names.split(",")
    unknown = [name for name in wanted if not any(name in both for both in known)]
    if unknown:
        listed = ", ".join(shape["name"] for shape in shapes)
        raise SystemExit(f"error: expected shapes {listed} but got {', '.join(unknown)}")
    return [shape for shape, both in zip(shapes, known) if both.intersection(wanted)]


def listed_shapes(chosen: argparse.Namespace, on_cpu: bool) -> List[Dict[str, Any]]:
    """Returns the shapes that --sweep, --features, --backward and --only select, in small sizes for the CPU."""
    longest = 32768 if not on_cpu else 2048 if chosen.sweep else 1024
    shapes = sweep_shapes(longest) if chosen.sweep else load_shapes()
    if chosen.features:
        shapes = _features.with_features(shapes)
    if chosen.backward:
        shapes = _backward.with_gradients(shapes)
    shapes = keep_only(shapes, chosen.only)
    if on_cpu:
        say("the CPU uses smaller shapes, with their sizes in the names")
        shapes = [for_cpu(shape, longest) for shape in shapes]
    return shapes


def show_record(path: str, only: Optional[str], chart: Optional[str]) -> int:
    """Prints the record in `path`, and draws it to `chart` if given. Times nothing."""
    try:
        record = read_record(path)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
    measured = list(dict.fromkeys(row["shape"] for row in record["rows"]))
    kept = {shape["name"] for shape in keep_only([{"name": name} for name in measured], only)}
    record["rows"] = [row for row in record["rows"] if row["shape"] in kept]
    print(format_table(record))
    if chart:
        draw(record, chart)
    return 0


def choose_backend(device: str):
    """Returns the backend of `device`. "auto" selects CUDA if PyTorch finds a CUDA device."""
    torch = None
    forget_compiled_kernels()
    if device != "cpu":
        try:
            import torch
        except ImportError:
            torch = None
        if torch is not None and torch.cuda.is_available():
            return CUDABackend(torch)
        reason = "torch is not installed" if torch is None else "torch finds no CUDA device"
        if device == "cuda":
            raise SystemExit(f"error: expected a CUDA device but got none: {reason}")
        say(f"no GPU to measure ({reason}): timing the CPU target against NumPy")
    return CPUBackend()


def check_peers(names: Optional[List[str]], backend) -> None:
    """Raises SystemExit if --peers names a peer that is unknown or not installed."""
    for name in names or ():
        if name not in backend.peer_names:
            listed = ", ".join(backend.peer_names)
            raise SystemExit(f"error: expected peers {listed} but got {name}")
        module = _peers.MODULES.get(name)
        if module and not _peers.is_installed(name):
            raise SystemExit(f"error: expected {module}, the peer {name}, but it is not installed")


def parse_arguments(arguments: Optional[List[str]] = None) -> argparse.Namespace:
    parser = _flags.Parser(
        prog="python -m flashattn bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", help="names of shapes, separated by commas")
    parser.add_argument(
        "--peers",
        type=lambda text: [name for name in text.split(",") if name],
        help=f"peers to time, of {', '.join(CUDABackend.peer_names)}, on the CPU {', '.join(CPUBackend.peer_names)}; by "
        "default all installed peers; '' for none",
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument(
        "--sweep", action="store_true", help="lengths 512 to 32768 instead of the list of shapes"
    )
    parser.add_argument(
        "--features",
        action="store_true",
        help="a softcap, a bias, ALiBi as score_mod and an attn_mask of documents, each on llama3-gqa, "
        "beside FlexAttention",
    )
    parser.add_argument(
        "--backward",
        action="store_true",
        help="time the gradients of q, k and v (and of a bias) instead, of shapes with more than one query",
    )
    parser.add_argument("--check", action="store_true", help="compare with float64 before timing")
    parser.add_argument(
        "--keep-going", action="store_true", help="continue if a shape fails"
    )
    parser.add_argument("--rounds", type=_flags.count, default=9)
    parser.add_argument(
        "--ms", type=_flags.above_zero, default=30, help="milliseconds of each implementation in a round"
    )
    parser.add_argument(
        "--counters",
        action="store_true",
        help="run each shape again under ncu (Nsight Compute), and report the utilization of the tensor pipe, the "
        "XU pipe, the issue slots, DRAM and L2",
    )
    parser.add_argument(
        "--sustained",
        type=_flags.above_zero,
        nargs="?",
        const=1.0,
        metavar="SECONDS",
        help="run each implementation for this many further seconds (default 1), in several turns, and report speed, "
        "clock and power from NVML",
    )
    parser.add_argument(
        "--stacks",
        nargs="?",
        const="",
        metavar="NAMES",
        help=f"instead, time steps of layers of transformers' models: {', '.join(_stack.STACKS)}, by default all",
    )
    parser.add_argument(
        "--compiled", action="store_true", help="with --stacks, layers through torch.compile"
    )
    parser.add_argument("--tokens", type=_flags.count, help="with --stacks, tokens of each of two sequences")
    parser.add_argument("--json", help="write the record to this file")
    parser.add_argument("--chart", help="draw the record to this PNG file; needs matplotlib")
    parser.add_argument(
        "--from-json",
        help="time nothing: print the record in this file, or what --only names, and draw --chart",
    )
    _flags.add_shape(parser)
    chosen = parser.parse_args(arguments)
    own = _flags.given(chosen)
    times = ("peers", "sweep", "features", "backward", "check", "counters", "sustained", "json")
    beside = [_flags.flag_of(name) for name in times if getattr(chosen, name)] + own
    if chosen.from_json and beside:
        parser.error(f"expected only --only and --chart with --from-json but got {beside[0]}")
    if chosen.stacks is None and (chosen.compiled or chosen.tokens is not None):
        parser.error("expected --stacks with --compiled or --tokens but got none")
    others = ("only", *times[1:], "keep_going", "ms", "chart", "from_json")
    others = [name for name in others if getattr(chosen, name) != parser.get_default(name)]
    others = [*map(_flags.flag_of, others), *own]
    if chosen.stacks is not None and others:
        parser.error(
            "expected only --peers, --device, --rounds, --compiled and --tokens with --stacks but got "
            f"{others[0]}"
        )
    if chosen.features and chosen.sweep:
        parser.error("expected --sweep or --features but got both")
    lists = [f"--{name}" for name in ("only", "sweep", "features") if getattr(chosen, name)]
    if own and lists:
        parser.error(f"expected {lists[0]} or {own[0]} but got both")
    chosen.own_shape = _flags.read_shape(parser, chosen) if own else None
    if chosen.chart:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            parser.error("expected matplotlib for --chart but it is not installed")
    return chosen


def start_instruments(chosen: argparse.Namespace, backend):
    """Returns the profiler of --counters and the meter of --sustained; None for an absent flag. Raises SystemExit if
    the machine lacks an instrument."""
    for flag in ("counters", "sustained"):
        if getattr(chosen, flag) and backend.name != "cuda":
            raise SystemExit(f"error: expected a CUDA device for --{flag} but got the CPU")
    try:
        profiler = _counters.Profiler() if chosen.counters else None
        meter = _power.Meter(backend.bus_id()) if chosen.sustained else None
    except (_counters.CountersError, _power.PowerError) as error:
        raise SystemExit(f"error: {error}") from None
    return profiler, meter


def say_shape(place: str, rows: List[Dict[str, Any]]) -> None:
    """Prints a line of progress for a shape that was timed."""
    measured = [row for row in rows if "ms" in row]
    line = "  ".join(f"{row['peer']} {row['tflops']:.3g}" for row in measured)
    firsts = ", ".join(
        f"{row['peer']} {row['first_call_ms']:.0f}"
        for row in measured
        if row["peer"] in (OURS, "flex")
    )
    ratio = next((row["of_best_peer"] for row in rows if row.get("of_best_peer")), None)
    say(
        f"{place}: {line}"
        + (f"  ours/best {ratio:.2f}" if ratio else "")
        + (f"  first result, ms: {firsts}" if firsts else "")
    )


def main(arguments: Optional[List[str]] = None) -> int:
    return _flags.run_command(run, parse_arguments(arguments))


def run(chosen: argparse.Namespace) -> int:
    if chosen.from_json:
        return show_record(chosen.from_json, chosen.only, chosen.chart)
    backend = choose_backend(chosen.device)
    if chosen.stacks is not None:
        _stack.report(
            chosen.stacks, chosen.peers, backend.name, chosen.tokens, chosen.compiled, chosen.rounds,
            say,
        )  # fmt: skip
        return 0
    check_peers(chosen.peers, backend)
    shapes = [chosen.own_shape] if chosen.own_shape else listed_shapes(chosen, backend.name == "cpu")

    machine = {**backend.describe(), "python": platform.python_version()}
    say(", ".join(f"{key} {value}" for key, value in machine.items()))
    profiler, meter = start_instruments(chosen, backend)
    limits = Limits(backend.matmul_tflops(5, chosen.ms), read_gbs(backend, 5, chosen.ms))
    backend.release()
    say(f"matmul {backend.matmul_name}: {limits.matmul:.3g} TFLOP/s; read: {limits.read:.0f} GB/s")
    record: Dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine_kind": backend.name,
        "machine": machine,
        "matmul_name": backend.matmul_name,
        "matmul_tflops": limits.matmul,
        "read_gbs": limits.read,
        "rounds": chosen.rounds,
        "ms": chosen.ms,
        "backward": chosen.backward,
        "sustained_seconds": chosen.sustained,
        "sustained_turns": _power.TURNS,
        "shapes": shapes,
        "rows": [],
    }
    failed = False
    for number, shape in enumerate(shapes, 1):
        place = f"[{number}/{len(shapes)}] {shape['name']}"
        try:
            rows = run_shape(backend, shape, chosen, limits, meter)
        except Exception as error:
            failed = True
            say(f"{place}: FAIL: {type(error).__name__}: {error}")
            continue
        record["rows"] += rows
        say_shape(place, rows)
        if profiler:
            error = count_shape(profiler, shape, chosen.backward, rows)
            if error:
                failed = True
                say(f"{place}: no counters: {error}")
                profiler = None if error.is_final else profiler
        if chosen.json and not _files.is_stream(chosen.json):
            write_json(record, chosen.json)  # keeps the results if the run is interrupted
    if meter:
        meter.close()
    print(format_table(record))
    if chosen.json:
        write_json(record, chosen.json)
    if chosen.chart:
        draw(record, chosen.chart)
    return 1 if failed else 0

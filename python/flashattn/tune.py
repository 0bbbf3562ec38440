"""python -m flashattn.tune: finds the fastest schedule of a shape on this machine and keeps it.

Every schedule of a small product of tile sizes, warps and stages, and of warpgroups with roles where
the chip has them, is compiled; the compiler says why
it refuses one. The others are compared with the compiler's own choice for numbers and timed in turn.
The fastest goes to the user's file of tuned schedules, where `flashattn.attention` finds it, if its
median is 2% below that of the compiler's own choice and its upper quartile below the other's lower
one; else the compiler's own choice does.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy

from . import _kernel, _library, _tuned, bench
from .errors import CompileError, DeviceError, FlashAttnError, UnsupportedError

#: What another schedule must gain on the compiler's own choice to be kept.
MARGIN = 0.02

#: Lower quartile, median and upper quartile of the milliseconds of a call.
Times = Tuple[float, float, float]


def candidates(
    element: str, chip: str, group: int = 1, packs: bool = False, **lists: Optional[List[int]]
) -> List[str]:
    """The schedules to try, as the attribute's fields. `group` is the query heads of a key/value head;
    `packs` says that tiles of several heads may pay. Lists given, of _library.TRIAL_LISTS, stand in
    place of the library's own: `consumers`, `registers`, `blocks` and `pack` ask for schedules with
    roles and nothing else."""
    return _library.get().trials(chip, element, group, packs, **lists)


def first_line(error: Union[Exception, str]) -> str:
    """The reason alone: what stands before it names the op and the chip, the same in every row."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text.split("with the schedule given: ", 1)[-1].strip()


def compile_all(
    options: Dict[str, Any], schedules: List[str]
) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Kernels, and the reasons of those that there are none of."""
    kernels, refused = {}, {}
    for number, schedule in enumerate(schedules, 1):
        try:
            kernels[schedule] = _kernel.compile(schedule=schedule, **options)
        except (CompileError, UnsupportedError, DeviceError) as error:
            refused[schedule] = first_line(error)
        if number % 10 == 0 or number == len(schedules):
            bench.say(f"compiled {number} of {len(schedules)}, {len(refused)} refused")
    return kernels, refused


def measure(
    backend, shape, kernels, rounds: int, ms: float
) -> Tuple[Dict[str, Times], Dict[str, str]]:
    """The times of each kernel, the compiler's own choice under ""; and which failed."""
    q, k, v = backend.tensors(shape)
    calls: Dict[str, Callable[[], Any]] = {}
    failed: Dict[str, str] = {}
    expected: Optional[numpy.ndarray] = None
    for schedule, kernel in kernels.items():
        out = backend.empty_out(q)
        try:
            kernel.launch(q, k, v, out)
            backend.timer.synchronize()
        except DeviceError as error:
            failed[schedule] = first_line(error)
            continue
        last = shape["B"] - 1, shape["Hq"] - 1
        found = backend.head(out, *last, shape).astype(numpy.float64)
        if expected is None:
            expected = found
        error = numpy.abs(found - expected).max(initial=0)
        # Two roundings of the result apart at most, where values are about 1.
        if not error <= {"f16": 4e-3, "bf16": 3e-2, "f32": 1e-4}[shape["dtype"]]:
            failed[schedule] = f"differs by {error:.1e} from the compiler's own choice"
            continue
        calls[schedule] = lambda kernel=kernel, out=out: kernel.launch(q, k, v, out)
    times = bench.interleave(calls, backend.timer, rounds, ms)
    return {schedule: quartiles(list(values)) for schedule, values in times.items()}, failed


def quartiles(times: List[float]) -> Times:
    if len(times) == 1:
        return times[0], times[0], times[0]
    lower, median, upper = statistics.quantiles(times, n=4, method="inclusive")
    return lower, median, upper


def choose(times: Dict[str, Times]) -> str:
    """The fastest schedule whose median is below that of the compiler's own choice, "", by MARGIN,
    and whose upper quartile is below the other's lower one; "" if none is."""
    own_lower, own_median, _ = times[""]
    faster = [
        (median, schedule)
        for schedule, (_, median, upper) in times.items()
        if median < own_median * (1 - MARGIN) and upper < own_lower
    ]
    return min(faster)[1] if faster else ""


def format_table(
    times: Dict[str, Times], refused: Dict[str, str], default: str, flops: float
) -> str:
    rows = []
    for schedule, (lower, ms, upper) in sorted(times.items(), key=lambda item: item[1][1]):
        name = f"{default} (the compiler's own)" if schedule == "" else schedule
        rows.append((name, f"{ms:.4f}", f"{lower:.4f} to {upper:.4f}", f"{flops / ms / 1e9:.3g}"))
    rows += [(schedule, "refused", "", reason) for schedule, reason in refused.items()]
    header = ("schedule", "ms", "quartiles", "TFLOP/s, or why refused")
    lines = ["| " + " | ".join(row) + " |" for row in [header, ("---",) * 4, *rows]]
    return "\n".join(lines)


def parse_arguments(arguments: Optional[List[str]] = None) -> argparse.Namespace:
    names = [shape["name"] for shape in bench.load_shapes()]
    numbers = {"type": lambda text: [int(part) for part in text.split(",")], "metavar": "N,…"}
    parser = argparse.ArgumentParser(
        prog="python -m flashattn.tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--shape", choices=names, help="one of the benchmark's shapes; else the flags below"
    )
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dtype", choices=("f16", "bf16", "f32"), default="f16")
    parser.add_argument("--mask", choices=("none", "causal", "window"), default="none")
    parser.add_argument("--window", type=int, default=1024, help="keys of --mask=window")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, help="as many as --heads by default")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument(
        "--chip", help="only say what would be refused for this chip; nothing is run"
    )
    for name in _library.TRIAL_LISTS:
        parser.add_argument(f"--{name.replace('_', '-')}", help="values to try", **numbers)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--ms", type=float, default=20, help="milliseconds of each schedule in a round"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the table, keep nothing")
    return parser.parse_args(arguments)


def shape_of(chosen: argparse.Namespace, on_cpu: bool) -> Dict[str, Any]:
    if chosen.shape:
        shape = next(shape for shape in bench.load_shapes() if shape["name"] == chosen.shape)
        return bench.for_cpu(shape) if on_cpu else shape
    heads = chosen.kv_heads or chosen.heads
    if heads < 1 or chosen.heads % heads:
        raise SystemExit(
            f"error: expected --heads to be a multiple of --kv-heads but got {chosen.heads} and {heads}"
        )
    return {
        "name": "given", "B": chosen.batch, "Hq": chosen.heads, "Hkv": heads, "Nq": chosen.length,
        "Nk": chosen.length, "D": chosen.head_dim, "dtype": chosen.dtype, "mask": chosen.mask,
        "window": chosen.window,
    }  # fmt: skip


def main(arguments: Optional[List[str]] = None) -> int:
    chosen = parse_arguments(arguments)
    backend = bench.choose_backend(chosen.device) if chosen.chip is None else None
    on_cpu = chosen.chip == "cpu" or (backend is not None and backend.name == "cpu")
    shape = shape_of(chosen, on_cpu)
    options: Dict[str, Any] = {
        "head_dim": shape["D"],
        "dtype": shape["dtype"],
        "mask": bench.mask_of(shape),
    }
    if backend is None:
        options["chip"] = chosen.chip
    else:
        options["device"] = _library.DEVICE_CPU if on_cpu else backend.ordinal
    # What an earlier run found must not pass for the compiler's own choice.
    own = _kernel.compile(tuned=False, **options)
    if backend is not None and not chosen.dry_run:
        try:
            _tuned.check()  # not when all the time is spent
        except FlashAttnError as error:
            raise SystemExit(f"error: {error}") from None
    # A tile of few positions may well be of several heads.
    packs = own.tuning_key.split("/")[4] == "banded"
    lists = {name: getattr(chosen, name) for name in _library.TRIAL_LISTS}
    tries = candidates(shape["dtype"], own.chip, shape["Hq"] // shape["Hkv"], packs, **lists)
    if backend is None:
        for schedule in tries:
            reason = own.explain_schedule(schedule)
            print(f"{schedule}: {first_line(reason) if reason else 'fits'}")
        return 0
    kernels, refused = compile_all(options, [text for text in tries if text != own.schedule])
    times, failed = measure(backend, shape, {"": own, **kernels}, chosen.rounds, chosen.ms)
    print(format_table(times, {**refused, **failed}, own.schedule, bench.flops_of(shape)))
    best = choose(times)
    key = own.tuning_key
    gain = times[""][1] / times[best][1]
    print(
        f"best for {key}: {best or own.schedule}, {gain:.3f} times the speed of the compiler's own choice"
    )
    if not chosen.dry_run:
        finding = {
            "schedule": best or own.schedule,
            "ms": times[best][1],
            "own_ms": times[""][1],
            "shape": shape,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            "version": _library.get().version(),
        }
        print(f"written to {_tuned.store(key, finding)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""python -m flashattn tune: finds the fastest schedule of a shape on this machine and keeps it.

Every schedule of a small product of tile sizes, warps and stages, and of warpgroups with warp specialization where
the chip has them, is compiled; the compiler says why
it refuses one. The others are compared with the compiler's own choice for numbers and timed in turn.
The fastest goes to the user's file of tuned schedules, where `flashattn.attention` finds it, if its
median is 2% below that of the compiler's own choice and its upper quartile below the other's lower
one; else the compiler's own choice does. With --backward it is the gradients that are tuned, and
`flashattn.attention_backward` and torch's autograd find the schedule.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy

from . import _bench_backward, _flags, _kernel, _library, _tuned, attention_backward, bench
from .errors import CompileError, DeviceError, UnsupportedError

#: What another schedule must gain on the compiler's own choice to be kept.
MARGIN = 0.02

#: Lower quartile, median and upper quartile of the milliseconds of a call.
Times = Tuple[float, float, float]


class Call(NamedTuple):
    """What is timed: a kernel with its tensors."""

    run: Callable[[], Any]
    outputs: Tuple[Any, ...]


#: Compiles a schedule.
Maker = Callable[[str], Call]


def candidates(
    element: str,
    chip: str,
    group: int = 1,
    packs: bool = False,
    gradients: bool = False,
    **lists: Optional[List[int]],
) -> List[str]:
    """The schedules to try, as the attribute's fields. `group` is the query heads of a key/value head;
    `packs` says that tiles of several heads may pay, `gradients` that they are what is tuned. Lists
    given, of _library.TRIAL_LISTS, stand in place of the library's own: `consumers`, `registers`,
    `blocks_per_sm` and `pack` ask for schedules with warp specialization and nothing else."""
    return _library.get().trials(chip, element, group, packs, gradients, **lists)


def first_line(error: Union[Exception, str]) -> str:
    """The reason alone: what stands before it names the op and the chip, the same in every row."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text.split("with the schedule given: ", 1)[-1].strip()


def forward_maker(backend, shape: Dict[str, Any], options: Dict[str, Any]) -> Maker:
    """Of attention with the `options` of `flashattn.compile`."""
    q, k, v = backend.tensors(shape)

    def make(schedule: str) -> Call:
        kernel = _kernel.compile(schedule=schedule, **options)
        out = backend.empty_out(q)
        return Call(lambda: kernel.launch(q, k, v, out), (out,))

    return make


def gradient_maker(backend, shape: Dict[str, Any], deterministic: bool) -> Maker:
    """Of its gradients."""
    q, k, v = backend.tensors(shape)
    forward = _bench_backward.Backward(backend, shape, q, k, v)
    tensors = q, k, v, forward.o, forward.lse, forward.do
    options = dict(forward.options, deterministic=deterministic)

    def make(schedule: str) -> Call:
        out = tuple(map(backend.empty_out, (q, k, v)))
        given = dict(options, out=out, schedule=schedule)
        call = Call(lambda: attention_backward(*tensors, **given), out)
        call.run()  # which compiles
        return call

    return make


def compile_all(make: Maker, schedules: List[str]) -> Tuple[Dict[str, Call], Dict[str, str]]:
    """Calls, and the reasons of the schedules that there are none of."""
    calls, refused = {}, {}
    for number, schedule in enumerate(schedules, 1):
        try:
            calls[schedule] = make(schedule)
        except (CompileError, UnsupportedError, DeviceError) as error:
            refused[schedule] = first_line(error)
        if number % 10 == 0 or number == len(schedules):
            bench.say(f"compiled {number} of {len(schedules)}, {len(refused)} refused")
    return calls, refused


def measure(
    backend, shape: Dict[str, Any], calls: Dict[str, Call], rounds: int, ms: float
) -> Tuple[Dict[str, Times], Dict[str, str]]:
    """The times of each call, the compiler's own choice under ""; and which failed."""
    right: Dict[str, Callable[[], Any]] = {}
    failed: Dict[str, str] = {}
    expected: List[numpy.ndarray] = []
    for schedule, call in calls.items():
        try:
            call.run()
            backend.timer.synchronize()
        except DeviceError as error:
            if schedule == "":
                raise
            failed[schedule] = first_line(error)
            continue
        found = [last_head(backend, out, shape) for out in call.outputs]
        expected = expected or found
        error = max(map(difference, found, expected))
        # Two roundings of the result apart at most, where values are about 1.
        if not error <= {"f16": 4e-3, "bf16": 3e-2, "f32": 1e-4}[shape["dtype"]]:
            failed[schedule] = f"differs by {error:.1e} from the compiler's own choice"
            continue
        right[schedule] = call.run
    times = bench.interleave(right, backend.timer, rounds, ms)
    return {schedule: quartiles(list(values)) for schedule, values in times.items()}, failed


def last_head(backend, out: Any, shape: Dict[str, Any]) -> numpy.ndarray:
    found = backend.head(out, shape["B"] - 1, out.shape[1] - 1, shape)
    return numpy.asarray(found, numpy.float64)


def difference(found: numpy.ndarray, expected: numpy.ndarray) -> float:
    """The largest one, relative to values above 1; NaN where one is none."""
    error = numpy.abs(found - expected) / numpy.maximum(1, numpy.abs(expected))
    return float(error.max(initial=0))


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
    times: Dict[str, Times], refused: Dict[str, str], default: str, kept: Optional[str], flops: float
) -> str:
    rows = []
    for schedule, (lower, ms, upper) in sorted(times.items(), key=lambda item: item[1][1]):
        name = f"{default} (the compiler's own)" if schedule == "" else schedule
        if (schedule or default) == kept:
            name += " (kept so far)"
        rows.append((name, f"{ms:.4f}", f"{lower:.4f} to {upper:.4f}", f"{flops / ms / 1e9:.3g}"))
    rows += [(schedule, "refused", "", reason) for schedule, reason in refused.items()]
    header = ("schedule", "ms", "quartiles", "TFLOP/s, or why refused")
    lines = ["| " + " | ".join(row) + " |" for row in [header, ("---",) * 4, *rows]]
    return "\n".join(lines)


#: What a run takes, which --chip does without.
RUN_DEFAULTS: Dict[str, Any] = {"device": "auto", "rounds": 5, "ms": 20.0, "dry_run": False}


def parse_arguments(arguments: Optional[List[str]] = None) -> argparse.Namespace:
    names = [shape["name"] for shape in bench.load_shapes()]
    parser = _flags.Parser(
        prog="python -m flashattn tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--shape", choices=names, help="one of the benchmark's shapes; else the flags below"
    )
    parser.add_argument(
        "--backward", action="store_true", help="tune the gradients of q, k and v instead"
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="with --backward: those that are the same bits each time",
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), help="auto by default")
    parser.add_argument(
        "--chip", help="only say what would be refused for this chip; nothing is run"
    )
    for name in _library.TRIAL_LISTS:
        parser.add_argument(f"--{name.replace('_', '-')}", help="values to try", type=_flags.numbers, metavar="N,…")
    parser.add_argument("--rounds", type=_flags.count, help="5 by default")
    parser.add_argument(
        "--ms", type=_flags.above_zero, help="milliseconds of each schedule in a round, 20 by default"
    )
    parser.add_argument(
        "--dry-run", action="store_true", default=None, help="print the table, keep nothing"
    )
    _flags.add_shape(parser)
    chosen = parser.parse_args(arguments)
    if chosen.deterministic and not chosen.backward:
        parser.error("expected --backward for --deterministic but got it alone")
    beside = _flags.given(chosen)
    if chosen.shape is not None and beside:
        parser.error(f"expected --shape or {beside[0]} but got both")
    chosen.own_shape = None if chosen.shape else _flags.read_shape(parser, chosen)
    for name, default in RUN_DEFAULTS.items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, default)
        elif chosen.chip is not None:
            parser.error(f"expected --chip or {_flags.flag_of(name)} but got both")
    return chosen


def shape_of(chosen: argparse.Namespace, on_cpu: bool) -> Dict[str, Any]:
    if chosen.own_shape:
        return chosen.own_shape
    shape = next(shape for shape in bench.load_shapes() if shape["name"] == chosen.shape)
    return bench.for_cpu(shape) if on_cpu else shape


def main(arguments: Optional[List[str]] = None) -> int:
    return _flags.run_command(run, parse_arguments(arguments))


def run(chosen: argparse.Namespace) -> int:
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
    if chosen.backward:
        problem = own.problem._replace(op="attention_backward", deterministic=chosen.deterministic)
        own = _kernel.Kernel(problem, options.get("chip"), own._recipe[2], tuned=False)
    kept = None
    if backend is not None and not chosen.dry_run:
        _tuned.check()  # not when all the time is spent
        kept = _tuned.load().get(own.tuning_key, {}).get("schedule")
    # A tile of few positions may well be of several heads.
    packs = own.tuning_key.split("/")[4] == "banded"
    lists = {name: getattr(chosen, name) for name in _library.TRIAL_LISTS}
    group = shape["Hq"] // shape["Hkv"]
    tries = candidates(shape["dtype"], own.chip, group, packs, chosen.backward, **lists)
    if backend is None:
        for schedule in tries:
            reason = own.explain_schedule(schedule)
            print(f"{schedule}: {first_line(reason) if reason else 'fits'}")
        return 0
    if chosen.backward:
        make = gradient_maker(backend, shape, chosen.deterministic)
    else:
        make = forward_maker(backend, shape, options)
    if kept is not None and kept not in tries:
        tries.insert(0, kept)
    calls = {"": make(own.schedule)}
    others, refused = compile_all(make, [text for text in tries if text != own.schedule])
    bench.say(f"timing {1 + len(others)} schedules in {chosen.rounds} rounds of {chosen.ms:g} ms each")
    times, failed = measure(backend, shape, {**calls, **others}, chosen.rounds, chosen.ms)
    flops = bench.flops_of(shape, chosen.backward)
    print(format_table(times, {**refused, **failed}, own.schedule, kept, flops))
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
        if kept is not None and kept != finding["schedule"]:
            print(f"it replaces {kept}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

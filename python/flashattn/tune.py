"""python -m flashattn tune: finds the fastest schedule of a shape on this machine and stores it.

The tuner compiles every schedule in a small product of tile sizes, warps and stages and, on chips with warp
specialization, of consumer warpgroups. The compiler gives the reason for each schedule that it refuses. The
tuner compares the results of the other schedules with those of the compiler's own choice and times all of them
in turn. It stores the fastest schedule in the user's file of tuned schedules, where `flashattn.attention` finds
it, if the median is at least 2% below that of the compiler's own choice and the upper quartile is below the lower
quartile of the compiler's own choice. Otherwise it stores the compiler's own choice. With --backward, it tunes
the backward pass, and `flashattn.attention_backward` and PyTorch's autograd find the schedule.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy

from . import _flags, _kernel, _library, _structs, _tuned, attention_backward
from .bench import _backward, _command as bench
from .errors import CompileError, DeviceError, UnsupportedError

#: Minimum gain of a schedule over the compiler's own choice, as a fraction of the time.
MARGIN = 0.02

#: Lower quartile, median and upper quartile of the milliseconds of a call.
Times = Tuple[float, float, float]


class Call(NamedTuple):
    """A kernel with its tensors, which is timed."""

    run: Callable[[], Any]
    outputs: Tuple[Any, ...]


#: A function that compiles a schedule.
Maker = Callable[[str], Call]


def candidates(
    element: str,
    chip: str,
    group: int = 1,
    packs: bool = False,
    gradients: bool = False,
    **lists: Optional[List[int]],
) -> List[str]:
    """Returns the schedules to try, as fields of the attribute. `group` is the number of query heads per key/value
    head. `packs`: packed heads may be faster. `gradients`: the backward pass is tuned. `lists`, with names of
    _structs.TRIAL_LISTS, replace the library's values; `consumers`, `registers`, `blocks_per_sm` and `pack` also
    restrict the schedules to warp specialization."""
    return _library.get().trials(chip, element, group, packs, gradients, **lists)


def first_line(error: Union[Exception, str]) -> str:
    """Returns the reason in an error, without the op and the chip, which are the same in every row."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text.split("with the schedule given: ", 1)[-1].strip()


def forward_maker(backend, shape: Dict[str, Any], options: Dict[str, Any]) -> Maker:
    """Returns the maker of forward passes with the `options` of `flashattn.compile`."""
    q, k, v = backend.tensors(shape)

    def make(schedule: str) -> Call:
        kernel = _kernel.compile(schedule=schedule, **options)
        out = backend.empty_out(q)
        return Call(lambda: kernel.launch(q, k, v, out), (out,))

    return make


def gradient_maker(backend, shape: Dict[str, Any], deterministic: bool) -> Maker:
    """Returns the maker of backward passes."""
    q, k, v = backend.tensors(shape)
    forward = _backward.Backward(backend, shape, q, k, v)
    tensors = q, k, v, forward.o, forward.lse, forward.do
    options = dict(forward.options, deterministic=deterministic)

    def make(schedule: str) -> Call:
        out = tuple(map(backend.empty_out, (q, k, v)))
        given = dict(options, out=out, schedule=schedule)
        call = Call(lambda: attention_backward(*tensors, **given), out)
        call.run()  # compiles the kernel
        return call

    return make


def compile_all(make: Maker, schedules: List[str]) -> Tuple[Dict[str, Call], Dict[str, str]]:
    """Returns the calls of the schedules that compile, and the reasons why the others are refused."""
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
    """Returns the times of each call, with the compiler's own choice under "", and the reasons of failed calls."""
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
        # At most two roundings of the result, for values of about 1.
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
    """Returns the largest error, relative for values above 1; NaN if a value is NaN."""
    error = numpy.abs(found - expected) / numpy.maximum(1, numpy.abs(expected))
    return float(error.max(initial=0))


def quartiles(times: List[float]) -> Times:
    if len(times) == 1:
        return times[0], times[0], times[0]
    lower, median, upper = statistics.quantiles(times, n=4, method="inclusive")
    return lower, median, upper


def choose(times: Dict[str, Times]) -> str:
    """Returns the fastest schedule whose median is below that of the compiler's own choice, "", by MARGIN, and
    whose upper quartile is below the lower quartile of the compiler's own choice; "" if there is none."""
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


#: Defaults of the flags that --chip excludes.
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
        help="with --backward: tune the deterministic backward pass",
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), help="auto by default")
    parser.add_argument(
        "--chip", help="only print which schedules this chip rejects; runs nothing"
    )
    for name in _structs.TRIAL_LISTS:
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, help="comma-separated values to try", type=_flags.numbers, metavar="N,…")
    parser.add_argument("--rounds", type=_flags.count, help="5 by default")
    parser.add_argument(
        "--ms", type=_flags.above_zero, help="milliseconds of each schedule in a round, 20 by default"
    )
    parser.add_argument(
        "--dry-run", action="store_true", default=None, help="print the table, store nothing"
    )
    _flags.add_shape(parser)
    chosen = parser.parse_args(arguments)
    if chosen.deterministic and not chosen.backward:
        parser.error("expected --backward with --deterministic but got none")
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
    # A schedule that an earlier run stored is not the compiler's own choice.
    own = _kernel.compile(tuned=False, **options)
    if chosen.backward:
        problem = own.problem._replace(op="attention_backward", deterministic=chosen.deterministic)
        own = _kernel.Kernel(problem, options.get("chip"), own._recipe[2], tuned=False)
    kept = None
    if backend is not None and not chosen.dry_run:
        _tuned.check()  # fails now instead of after all measurements
        kept = _tuned.load().get(own.tuning_key, {}).get("schedule")
    # With a band of few positions per tile, packed heads may be faster.
    packs = own.tuning_key.split("/")[4] == "banded"
    lists = {name: getattr(chosen, name) for name in _structs.TRIAL_LISTS}
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
            print(f"the new schedule replaces {kept}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

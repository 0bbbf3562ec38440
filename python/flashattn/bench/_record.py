"""The record of a run of `python -m flashattn bench`: its file, its tables and its chart."""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from .. import __version__, _files
from ._backends import OURS
from ._counters import METRICS

Row = Dict[str, Any]  #: figures of one implementation on one shape


def commit() -> str:
    """Returns the checkout's commit, or the package's version if there is no checkout."""
    folder = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True, text=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return __version__
    return done.stdout.strip() if done.returncode == 0 else __version__


def format_table(record: Dict[str, Any]) -> str:
    """Returns the record as Markdown: speeds, then sustained speeds and counters, then times of the first calls.
    The tables have a row for each shape, or for each shape and implementation."""
    rows = [row for row in record["rows"] if "ms" in row]
    names, found = _names_of(rows), _by_shape(rows)
    firsts = [
        [shape, *(f"{of[name]['first_call_ms']:.0f}" if name in of else "-" for name in names)]
        for shape, of in found.items()
    ]
    of_gradients = " for the gradients" if record.get("backward") else ""
    header = ", ".join(f"{key} {value}" for key, value in record["machine"].items())
    parts = [
        f"{record['date']}, commit {record['commit']}, {header}",
        f"TFLOP/s of visible pairs{of_gradients}, median of {record['rounds']} rounds in random order. The limit of a shape "
        f"is the matmul's rate ({record['matmul_name']}: {record['matmul_tflops']:.3g} TFLOP/s) or, where reading the "
        f"operands once takes longer, a read of as many bytes, timed in the same rounds (of more than the caches hold: "
        f"{record['read_gbs']:.0f} GB/s)." + _explain_counters(rows),
        _lines(_speeds(names, found, _has_counters(rows))),
    ]
    if any("sustained" in row for row in rows):
        parts += [
            f"Sustained: {record['sustained_seconds']:g} s of each without a pause, {_explain_turns(record)}. "
            f"Power is that of the whole card, the clock that of its multiprocessors.",
            _lines(_sustained(found)),
        ]
    if _has_counters(rows):
        parts += [
            "Counters of one call by ncu, at the card's own clock: percent of what the unit can do at most, averaged over "
            "the kernels of the call by their time.",
            _lines(_counted(found)),
        ]
    parts += [
        "From the first call to the first result, milliseconds, compilation included and nothing of it cached: "
        "ours in a process of its own, behind the imports and the device's context; the others in this one.",
        _lines([["shape", *names], *firsts]),
    ]
    return "\n\n".join(parts)


def _names_of(rows: List[Row]) -> List[str]:
    """Returns the names of the implementations, ours first."""
    return sorted({row["peer"] for row in rows}, key=lambda name: (name != OURS, name))


def _by_shape(rows: List[Row]) -> Dict[str, Dict[str, Row]]:
    """Returns the rows by shape and then by implementation."""
    found: Dict[str, Dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row["shape"], {})[row["peer"]] = row
    return found


def _has_counters(rows: List[Row]) -> bool:
    return any("counters" in row for row in rows)


def _lines(table: List[List[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(table[0]) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [table[0], rule, *table[1:]])


def _speeds(names: List[str], found: Dict[str, Dict[str, Row]], counted: bool) -> List[List[str]]:
    """Returns the table of speeds; with `counted`, also our counters."""
    units = list(METRICS) if counted else []
    heads = [f"{unit} %" for unit in units]
    table = [["shape", *names, "ours / best peer", "ours / limit", "limit", *heads]]
    for shape, of in found.items():
        ours = of.get(OURS)
        ratio = f"{ours['of_best_peer']:.2f}" if ours and ours["of_best_peer"] else "-"
        table.append(
            [
                shape,
                *(f"{of[name]['tflops']:.3g}" if name in of else "-" for name in names),
                ratio,
                *([f"{ours['of_limit']:.2f}", ours["limit"]] if ours else ["-", "-"]),
                *(_percent(ours, unit) for unit in units),
            ]
        )
    return table


def _percent(row: Optional[Row], unit: str) -> str:
    value = (row or {}).get("counters", {}).get(unit)
    return "n/a" if value is None else f"{value:.0f}"


def _explain_counters(rows: List[Row]) -> str:
    """Returns a sentence for each reason why counters are missing."""
    reasons = dict.fromkeys(row["counters_refused"] for row in rows if "counters_refused" in row)
    text = "".join(f" No counters: {reason}." for reason in reasons)
    lacking = [
        unit
        for unit in METRICS
        if any("counters" in row and row["counters"][unit] is None for row in rows)
    ]
    if lacking:
        text += f" ncu gave no figure for n/a, of {', '.join(METRICS[unit] for unit in lacking)}."
    return text


def _explain_turns(record: Dict[str, Any]) -> str:
    turns = record.get("sustained_turns")
    if turns is None:  # a record from before 2026-11-27
        return "one implementation after the other"
    return (
        f"{turns} times in turns, medians; as CUDA graphs where calls can be recorded, lest the host is "
        "measured"
    )


def _sustained(found: Dict[str, Dict[str, Row]]) -> List[List[str]]:
    table = [["shape", "", "TFLOP/s", "W", "MHz", "J/TFLOP", "ours / peer"]]
    for shape, of in found.items():
        measured = {name: of[name]["sustained"] for name in _names_of(list(of.values()))}
        for name, one in measured.items():
            ratio = "-"
            if name != OURS and OURS in measured:
                ratio = f"{measured[OURS]['tflops'] / one['tflops']:.2f}"
            figures = [f"{one['tflops']:.3g}", f"{one['watts']:.0f}", f"{one['mhz']:.0f}"]
            table.append([shape, name, *figures, f"{one['joules_per_tflop']:.3g}", ratio])
    return table


def _counted(found: Dict[str, Dict[str, Row]]) -> List[List[str]]:
    table = [["shape", "", *(f"{unit} %" for unit in METRICS), "kernels", "us"]]
    for shape, of in found.items():
        for name in _names_of(list(of.values())):
            counters = of[name].get("counters")
            last = (
                [str(len(counters["kernels"])), f"{counters['us']:.1f}"]
                if counters
                else 2 * ["n/a"]
            )
            table.append([shape, name, *(_percent(of[name], unit) for unit in METRICS), *last])
    return table


def draw(record: Dict[str, Any], path: str) -> None:
    """Draws the chart: bars for shapes, lines over the length for a sweep, then bars of sustained speeds and of
    our counters."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in record["rows"] if "ms" in row]
    colours = {name: f"C{index}" for index, name in enumerate(_names_of(rows))}
    plain = [row for row in rows if not row["sweep"]]
    sweeps = dict.fromkeys(row["sweep"] for row in rows if row["sweep"])
    speed = "TFLOP/s of visible pairs"
    limit = record["matmul_tflops"] if record["machine_kind"] == "cuda" else None
    panels: List[Callable[[Any], None]] = []
    if plain:
        bars = {
            name: {row["shape"]: row["tflops"] for row in plain if row["peer"] == name}
            for name in colours
        }
        panels.append(functools.partial(_draw_bars, bars, speed, colours, limit))
    for sweep in sweeps:
        swept = [row for row in rows if row["sweep"] == sweep]
        panels.append(functools.partial(_draw_lines, swept, sweep, speed, colours, limit))
    held = [row for row in rows if "sustained" in row]
    if held:
        bars = {
            name: {row["shape"]: row["sustained"]["tflops"] for row in held if row["peer"] == name}
            for name in colours
        }
        panels.append(functools.partial(_draw_bars, bars, f"{speed}, sustained", colours, limit))
    ours = [row for row in rows if row["peer"] == OURS and "counters" in row]
    if ours:
        # A missing bar has height 0.
        bars = {
            unit: {row["shape"]: row["counters"][unit] or 0 for row in ours} for unit in METRICS
        }
        units = {unit: f"C{index}" for index, unit in enumerate(METRICS)}
        panels.append(
            functools.partial(_draw_bars, bars, "ours, percent of the unit's peak", units, None)
        )
    columns = min(2, len(panels))
    height = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(
        height, columns, figsize=(11 if columns == 1 else 12, 4.5 * height), squeeze=False
    )
    for axis, panel in zip(axes.flat, panels):
        panel(axis)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle(f"{record['machine']['device']}, {record['date']}, commit {record['commit']}")
    figure.tight_layout()
    image = io.BytesIO()
    # The extension selects the format if matplotlib supports it. Other paths, such as devices, get a PNG.
    kind = os.path.splitext(path)[1][1:].lower()
    known = kind in figure.canvas.get_supported_filetypes()
    figure.savefig(image, dpi=120, format=kind if known else "png")
    _files.write_output(path, image.getvalue())


def _draw_bars(
    bars: Dict[str, Dict[str, float]],
    title: str,
    colours: Dict[str, str],
    limit: Optional[float],
    axis: Any,
) -> None:
    """Draws a group of bars for each shape. `bars` maps the name of a bar, then of a shape, to the height."""
    shapes = list(dict.fromkeys(shape for heights in bars.values() for shape in heights))
    width = 0.8 / len(bars)
    for place, (name, heights) in enumerate(bars.items()):
        at = [index + (place - (len(bars) - 1) / 2) * width for index in range(len(shapes))]
        axis.bar(
            at, [heights.get(shape, 0) for shape in shapes], width, label=name, color=colours[name]
        )
    axis.set_xticks(range(len(shapes)), shapes, rotation=45, ha="right")
    _finish(axis, title, limit, "upper right")  # the last shapes have the shortest bars


def _draw_lines(
    rows: List[Row],
    sweep: str,
    title: str,
    colours: Dict[str, str],
    limit: Optional[float],
    axis: Any,
) -> None:
    """Draws a line for each implementation over the length."""
    for name, colour in colours.items():
        line = sorted((row["length"], row["tflops"]) for row in rows if row["peer"] == name)
        if line:
            axis.plot(*zip(*line), marker="o", label=name, color=colour)
    axis.set_xscale("log", base=2)
    axis.set_xlabel("length")
    axis.set_title(sweep)
    _finish(axis, title, limit, "best")


def _finish(axis: Any, title: str, limit: Optional[float], place: str) -> None:
    axis.set_ylabel(title)
    if limit:
        axis.axhline(limit, linestyle="--", color="grey", linewidth=1)
    axis.legend(loc=place)


def read_record(path: str) -> Dict[str, Any]:
    """Returns the record that --json wrote to `path`. Raises ValueError for another content."""
    try:
        record = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"expected a record of --json in {path} but got {error}") from None
    wanted = ("date", "commit", "machine", "matmul_tflops", "read_gbs", "rounds", "rows")
    lacking = [key for key in wanted if not isinstance(record, dict) or key not in record]
    if lacking:
        raise ValueError(
            f"expected a record of --json in {path} but got JSON without {', '.join(lacking)}"
        )
    return record


def write_json(content: Any, path: str) -> None:
    _files.write_output(path, (json.dumps(content, indent=1) + "\n").encode())

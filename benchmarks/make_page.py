"""Generates BENCHMARKS.md from head.md and the records, or checks that the page is up to date.

usage: make_page.py [--check]

Records are files that `python -m flashattn bench --json` writes. figures.json lists all other figures. The page
shows the newest figures of every shape and GPU, forward and backward. With --check nothing is written, and the exit
status is 1 if the page is out of date.
"""

import argparse
import difflib
import glob
import json
import os
import sys
import textwrap

FOLDER = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(os.path.dirname(FOLDER), "BENCHMARKS.md")
FIGURES = os.path.join(FOLDER, "records", "figures.json")
OURS = "ours"
#: The columns of the tables, in order.
NAMES = {OURS: "ours", "cudnn": "cuDNN", "fa2": "FA-2", "fa3": "FA-3", "fa4": "FA-4", "flex": "Flex"}
#: The limits of a machine in a record, and their text on the page.
LIMITS = {"matmul_tflops": "matmul {:.0f} TFLOP/s", "read_gbs": "read {:.0f} GB/s", "copy_gbs": "copy {:.0f} GB/s"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_records():
    """Returns the records of speed, newest first."""
    paths = sorted(set(glob.glob(os.path.join(FOLDER, "records", "*.json"))) - {FIGURES})
    return sorted((json.loads(read(path)) for path in paths), key=lambda record: record["date"], reverse=True)


def show(value):
    """Returns the text of a figure: an integer in full, and another number with three digits."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def wrap(text):
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def make_table(heading, rows):
    rule = ["---"] + ["---:"] * (len(heading) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [heading, rule, *rows])


def compare(rows, get, get_ratio=None):
    """Returns a table with a line for each shape: `get(row)` of each row and, with `get_ratio`, our row's ratio."""
    found = {}
    for row in rows:
        if get(row) is not None:
            found.setdefault(row["shape"], {})[row["peer"]] = get(row)
    names = {name for figures in found.values() for name in figures}
    columns = [name for name in NAMES if name in names] + sorted(names - NAMES.keys())
    heading = ["shape", *(NAMES.get(name, name) for name in columns)]
    lines = [[shape, *(show(figures.get(name)) for name in columns)] for shape, figures in found.items()]
    if get_ratio:
        ours = [row for row in rows if row["peer"] == OURS and get(row) is not None]
        ratios = {row["shape"]: get_ratio(row, found[row["shape"]]) for row in ours}
        heading.append("ours / fastest peer")
        lines = [[*line, f"{ratios[line[0]]:.2f}" if ratios.get(line[0]) else "-"] for line in lines]
    return make_table(heading, lines)


def divide(row, figures):
    """Returns our figure divided by that of the fastest peer."""
    peers = [figure for name, figure in figures.items() if name != OURS]
    return figures[OURS] / max(peers) if peers else None


def show_record(record, rows):
    """Returns the conditions of a record, and tables of some of its rows."""
    facts = [f"{key} {value}" for key, value in record["machine"].items() if key != "device"]
    facts += [text.format(record[key]) for key, text in LIMITS.items() if key in record]
    parts = [
        f"### {record['machine']['device']}, {record['date']}",
        wrap(f"Commit {record['commit']}: {', '.join(facts)}. {record.get('note', '')}"),
        compare(rows, lambda row: row.get("tflops"), lambda row, figures: row.get("of_best_peer")),
    ]
    if any("sustained" in row for row in rows):
        seconds, turns = record["sustained_seconds"], record["sustained_turns"]
        parts.append(f"TFLOP/s sustained for {seconds:g} s without a pause, medians of {turns} turns:")
        parts.append(compare(rows, lambda row: row.get("sustained", {}).get("tflops"), divide))
    if any("first_call_ms" in row for row in rows):
        parts.append("Milliseconds from the first call to the first result, nothing cached:")
        parts.append(compare(rows, lambda row: row.get("first_call_ms")))
    return parts


def show_newest(records, backward):
    """Returns the newest rows of each shape on each GPU. All rows of a shape are from one record."""
    parts, shown = [], set()
    for record in records:
        card = record["machine"]["device"]
        rows = [row for row in record["rows"] if (card, row["shape"]) not in shown]
        if record["backward"] == backward and rows:
            parts += show_record(record, rows)
            shown.update((card, row["shape"]) for row in rows)
    return parts


def show_figure(figure):
    values, unit = figure["values"], figure["unit"]
    source = wrap(f"{figure['card']}, {figure['date']}, commit {figure['commit']}. {figure['conditions']}")
    if any(not isinstance(value, dict) for value in values.values()):
        body = f"{', '.join(f'{NAMES.get(name, name)} {value}' for name, value in values.items())} ({unit})."
    else:
        columns = list(dict.fromkeys(name for figures in values.values() for name in figures))
        lines = [[row, *(show(figures.get(name)) for name in columns)] for row, figures in values.items()]
        body = make_table([unit, *(NAMES.get(name, name) for name in columns)], lines)
    return [f"### {figure['title']}", source, body]


def make_page():
    records = read_records()
    parts = [read(os.path.join(FOLDER, "head.md")).rstrip()]
    parts += ["## Forward passes", *show_newest(records, backward=False)]
    parts += ["## Backward passes", *show_newest(records, backward=True), "## Other figures"]
    for figure in json.loads(read(FIGURES)):
        parts += show_figure(figure)
    return "\n\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if BENCHMARKS.md is not up to date")
    arguments = parser.parse_args()
    page = make_page()
    if not arguments.check:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(page)
        return
    lines = [text.splitlines() for text in (read(PAGE), page)]
    if lines[0] != lines[1]:
        print("\n".join(difflib.unified_diff(*lines, "BENCHMARKS.md", "its records", n=0, lineterm="")))
        remedy = "run python3 benchmarks/make_page.py"
        sys.exit(f"error: BENCHMARKS.md: expected the page that its records make but got another text; {remedy}")


if __name__ == "__main__":
    main()

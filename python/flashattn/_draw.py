"""Pictures of masks: the tiles of the plane of queries and keys, as SVG (`_survey` finds what they show)."""

from __future__ import annotations

import html
import os
import re
import textwrap
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy

from . import _files, _reference, _sets, _symbols
from ._survey import FULL, MAX_SIZE, PARTIAL, SKIPPED, Column, Marks, Plane, Survey, find_marks
from ._texts import show
from .errors import ArgumentError

_MAX_BYTES = 200_000  # of a picture
_MAX_DEFAULT = 1 << 17  # queries and keys of a picture in a notebook

_SIDE = 384  # pixels of the longer side of the plane
_MIN_SIDE = 48
_SQUARE = 6  # pixels, at least, of a tile or of a square of several
_MARK = 2  # pixels, at least, of a mark
_NOISE = 256  # samples of a mark, at least; fewer make a picture of noise
_LINE = 62  # characters of the heading

# Blue and orange differ for every kind of colour vision. The paper is painted, so that the picture has the same
# contrast on white and on dark pages.
_PAPER, _BORDER, _INK, _GREY = "#fcfcfa", "#b9bec5", "#1d2733", "#56616e"
_NAMES = {FULL: "full", PARTIAL: "partial", SKIPPED: "skipped"}
_FILLS = {SKIPPED: "#eceef1", PARTIAL: "#fdebcd", FULL: "#9dc3e6"}
#: Marks, from few visible pairs to all.
_SHADES = ("#f8d9ab", "#f1c483", "#e9ae5c", "#df9735")


def _merge(flags: Any) -> Iterator[Tuple[int, int, int, int]]:
    """Yields rectangles that cover the true elements, each once: first and end of the rows, then of the columns. Runs
    of a row that are the same in the next rows are one rectangle."""
    padded = numpy.zeros((flags.shape[0] + 1, flags.shape[1] + 2), numpy.int8)
    padded[:-1, 1:-1] = flags
    steps = numpy.diff(padded, axis=1)
    runs: Dict[int, List[Tuple[int, int]]] = {}
    starts, ends = numpy.argwhere(steps == 1).tolist(), numpy.argwhere(steps == -1).tolist()
    for (row, first), (_, end) in zip(starts, ends):
        runs.setdefault(row, []).append((first, end))
    pending: Dict[Tuple[int, int], int] = {}
    for row in range(len(padded)):
        found = dict.fromkeys(runs.get(row, ()), row)
        for run, top in pending.items():
            if run in found:
                found[run] = top
            else:
                yield (top, row, *run)
        pending = found


def _path(flags: Any, tops: Any, lefts: Any, fill: str) -> str:
    """Returns the path of the true elements of a grid, in pairs. It moves from corner to corner, as absolute positions
    in a long sequence take more text."""
    pieces, at_x, at_y = [], 0, 0
    for top, bottom, left, right in _merge(flags):
        y, height = int(tops[top]), int(tops[bottom] - tops[top])
        x, width = int(lefts[left]), int(lefts[right] - lefts[left])
        pieces.append(f"m{x - at_x} {y - at_y}h{width}v{height}h-{width}z")
        at_x, at_y = x, y
    return f'<path fill="{fill}" d="{"".join(pieces)}"/>' if pieces else ""


class _Frame(NamedTuple):
    """The place of the plane in the picture, in pixels."""

    left: int
    top: int
    width: int
    height: int
    heading: List[str]  #: the lines above it


def _make_frame(plane: Plane) -> _Frame:
    """Returns a frame with the proportions of the plane, unless one side would be too short to see."""
    width, height = (max(_MIN_SIDE, round(_SIDE * size / max(plane.nq, plane.nk))) for size in (plane.nk, plane.nq))
    heading = textwrap.wrap(_name(plane.mask), _LINE, max_lines=2, placeholder="\u2026")
    return _Frame(30 + 7 * len(str(plane.nq - 1)), 48 + 16 * len(heading), width, height, heading)


def _round(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _draw_plane(survey: Survey, marks: Optional[Marks], frame: _Frame) -> List[str]:
    """Returns the elements of the plane: squares, marks, and the lines between squares."""
    plane, kinds = survey.plane, survey.kinds
    rows, columns = numpy.append(survey.rows[0], plane.nq), numpy.append(survey.columns[0], plane.nk)
    x_scale, y_scale = frame.width / plane.nk, frame.height / plane.nq
    parts = [
        f'<g transform="translate({frame.left} {frame.top}) scale({x_scale:.9g} {y_scale:.9g})" '
        f'shape-rendering="crispEdges">',
        f'<rect width="{plane.nk}" height="{plane.nq}" fill="{_FILLS[SKIPPED]}"/>',
        _path(kinds == PARTIAL, rows, columns, _FILLS[PARTIAL]),
        _path(kinds == FULL, rows, columns, _FILLS[FULL]),
    ]
    if marks:
        for level, shade in enumerate(_SHADES, 1):
            parts.append(_path(marks.levels == level, marks.tops, marks.lefts, shade))
    lines = [f"M{_round(x * x_scale)} 0v{frame.height}" for x in columns[1:-1]]
    lines += [f"M0 {_round(y * y_scale)}h{frame.width}" for y in rows[1:-1]]
    parts.append("</g>")
    parts.append(
        f'<path transform="translate({frame.left} {frame.top})" d="{"".join(lines)}" stroke="{_PAPER}" '
        'stroke-width="0.7" fill="none"/>'
    )
    parts.append(
        f'<rect x="{frame.left}" y="{frame.top}" width="{frame.width}" height="{frame.height}" fill="none" '
        f'stroke="{_GREY}"/>'
    )
    return [part for part in parts if part]


def _percent(share: float) -> str:
    """Returns a share in percent. Only nothing is 0, and only all is 100."""
    if 0 < share < 0.0005:
        return "under 0.1 %"
    if 0.9995 <= share < 1:
        return "over 99.9 %"
    return f"{100 * share:.1f} %"


def _about(percent: str) -> str:
    return f"about {percent}" if percent[0].isdigit() else percent


def _describe(survey: Survey) -> List[str]:
    """Returns the texts of the legend: full, partial and skipped tiles, and visible pairs."""
    total, pairs, visible = sum(survey.tiles), survey.plane.nq * survey.plane.nk, _percent(survey.visible_share)
    counts = [(name, int(survey.tiles[kind]), _percent(survey.tiles[kind] / total)) for kind, name in _NAMES.items()]
    if not survey.is_exact:
        texts = [f"{name}: {_about(share)} of the tiles" for name, _, share in counts]
        return [*texts, f"visible pairs: {_about(visible)}"]
    texts = [f"{name}: {count} of {int(total)} tiles, {share}" for name, count, share in counts]
    return [*texts, f"visible pairs: {survey.visible_pairs} of {pairs}, {visible}"]


def _note(survey: Survey, marks: Optional[Marks]) -> List[str]:
    """Returns the texts below the legend, which say how to read the picture."""
    plane, of_square = survey.plane, survey.tiles_of_square
    notes = [
        f"tiles of {plane.tile[0]} x {plane.tile[1]} (queries x keys); query 0 is at position {plane.offset}"
    ]
    if plane.source:
        notes.append(f"the numbers from tensors are those of {plane.source}")
    if of_square != (1, 1):
        notes.append(f"one square is {of_square[0]} x {of_square[1]} tiles, and partial if they are unlike")
    if marks and marks.levels.any():
        queries, keys = marks.part
        if marks.part == (1, 1):
            notes.append("dark in partial tiles: the visible pairs")
        else:
            source = ", from samples" if marks.samples else ""
            notes.append(f"shade in partial tiles: the share of {queries} x {keys} pairs that is visible{source}")
    if not survey.is_exact:
        notes.append("the shares are estimated from samples")
    return notes


def _escape(text: str) -> str:
    """Returns text for an element of XML, without characters that XML does not allow."""
    return html.escape(re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text), quote=False)


def _name(mask: object) -> str:
    """Returns the text of a mask as in `mask(...)`."""
    return str(mask).replace("#flashattn.", "")


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{_round(x)}" y="{_round(y)}"{attributes}>{_escape(text)}</text>'


def _draw_labels(plane: Plane, frame: _Frame) -> List[str]:
    """Returns the heading and the labels of the axes."""
    right, bottom = frame.left + frame.width, frame.top + frame.height
    center, middle = frame.left + frame.width / 2, frame.top + frame.height / 2
    mono = ' font-family="Menlo, Consolas, monospace" font-size="11"'
    first, last = f' font-size="11" fill="{_GREY}"', f' font-size="11" fill="{_GREY}" text-anchor="end"'
    turned = f' text-anchor="middle" transform="rotate(-90 18 {_round(middle)})"'
    labels = [_text(14, 22 + 16 * line, text, mono) for line, text in enumerate(frame.heading)]
    labels.append(_text(center, frame.top - 20, f"keys: {plane.nk}", ' text-anchor="middle"'))
    labels.append(_text(18, middle, f"queries: {plane.nq}", turned))
    labels.append(_text(frame.left, frame.top - 5, "0", first))
    labels.append(_text(frame.left - 5, frame.top + 9, "0", last))
    if plane.nk > 1:
        labels.append(_text(right, frame.top - 5, str(plane.nk - 1), last))
    if plane.nq > 1:
        labels.append(_text(frame.left - 5, bottom - 1, str(plane.nq - 1), last))
    return labels


def _draw_legend(survey: Survey, marks: Optional[Marks], left: int, top: int) -> Tuple[List[str], int]:
    """Returns the elements of the legend, and its height."""
    parts, y = [], top
    for kind, text in zip((*_NAMES, None), _describe(survey)):
        if kind is not None:
            parts.append(f'<rect x="{left}" y="{y}" width="14" height="14" fill="{_FILLS[kind]}"/>')
        if kind == PARTIAL:
            parts.append(f'<path fill="{_SHADES[-1]}" d="M{left} {y}v14h14z"/>')
        parts.append(_text(left + 21, y + 11, text))
        y += 19
    for text in _note(survey, marks):
        parts.append(_text(left, y + 11, text, f' font-size="11" fill="{_GREY}"'))
        y += 16
    return parts, y - top


def _write_svg(survey: Survey, marks: Optional[Marks]) -> str:
    frame = _make_frame(survey.plane)
    legend, height = _draw_legend(survey, marks, frame.left, frame.top + frame.height + 14)
    width, height = frame.left + _SIDE + 18, frame.top + frame.height + height + 24
    title = _escape(f"{_name(survey.plane.mask)[:1000]}: {', '.join(_describe(survey))}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="Helvetica, Arial, sans-serif" font-size="12.5" fill="{_INK}">',
        f"<title>{title}</title>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{_PAPER}" stroke="{_BORDER}"/>',
        *_draw_labels(survey.plane, frame),
        *_draw_plane(survey, marks, frame),
        *legend,
        "</svg>",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def render(plane: Plane) -> str:
    """Returns the picture of a plane as the text of an SVG file of at most 200 kB."""
    frame = _make_frame(plane)
    survey = Survey(plane, (frame.height // _SQUARE, frame.width // _SQUARE))
    for pixels in (_MARK, 2 * _MARK, 4 * _MARK):
        marks = find_marks(survey, (frame.height // pixels, frame.width // pixels))
        if pixels == _MARK and 0 < marks.samples < _NOISE:
            continue
        text = _write_svg(survey, marks)
        if len(text.encode()) <= _MAX_BYTES:
            return text
    return _write_svg(survey, None)


def draw(
    mask: object, nq: Any, nk: Any, path: Any = None, align: Any = "bottom_right", offset: Any = None,
    tile: Any = (128, 128), batch: Any = 0, head: Any = 0,
) -> Optional[str]:  # fmt: skip
    """Implements `Mask.draw`."""
    nq, nk = _check_size("nq", nq), _check_size("nk", nk)
    if align not in _sets.ALIGNS:
        raise ArgumentError(f"expected align top_left or bottom_right but got {align!r}")
    if offset is None:
        offset = nk - nq if align == "bottom_right" else 0
    plane = make_plane(
        mask, nq, nk, _check_integer("offset", offset, -MAX_SIZE, MAX_SIZE), _check_tile(tile), batch, head
    )
    if path is None:
        return render(plane)
    target = _check_path(path)
    _files.write_file(target, render(plane).encode())
    return None


def make_plane(
    mask: object, nq: int, nk: int, offset: int, tile: Tuple[int, int], batch: Any = 0, head: Any = 0
) -> Plane:
    """Returns a plane with the numbers that the mask reads for a batch element and a head. Raises ArgumentError."""
    numbers = _read_numbers(mask, (nq, nk), batch, head)
    shapes = _shapes_of(mask).values()
    sources = [
        f"{what} {number}"
        for axis, (what, number) in enumerate((("batch element", batch), ("head", head)))
        if any(shape[axis] > 1 for shape in shapes)
    ]
    return Plane(mask, nq, nk, offset, tile, numbers, ", ".join(sources))


def _read_numbers(mask: object, sizes: Tuple[int, int], batch: Any, head: Any) -> Tuple[Tuple[str, Any], ...]:
    batch, head = _check_integer("batch", batch, 0, MAX_SIZE), _check_integer("head", head, 0, MAX_SIZE)
    shapes = _shapes_of(mask)
    heads = dict.fromkeys(("per_query", "per_key"), 1)
    for name, (batches, count, length) in shapes.items():
        clause = _symbols.clause_of(name)
        for which, of_clause, size in zip(("nq", "nk"), ("per_query", "per_key"), sizes):
            if clause == of_clause and size != length:
                raise ArgumentError(f"expected {which} to be {length}, the length of {name}, but got {size}")
        if 0 in (batches, count):
            raise ArgumentError(f"expected {name} to have elements but got none")
        if batch >= batches > 1:
            raise ArgumentError(f"expected batch below {batches}, the batch size of {name}, but got {batch}")
        if clause in heads:
            heads[clause] = max(heads[clause], count)
    _symbols.check_square(getattr(mask, "_of_rows", ()), *sizes)
    most = max(heads.values())
    if head >= most > 1:
        raise ArgumentError(f"expected head below {most}, the number of heads of the mask, but got {head}")
    # Heads of queries share those of keys in groups, unless only numbers of keys differ from head to head.
    kv_head = head * heads["per_key"] // most
    return tuple(
        (name, Column(value.reshape(-1)) if numpy.ndim(value) else int(value))
        for name, value in _reference.values_of(mask, batch, head, kv_head).items()
    )


def _shapes_of(mask: object) -> Dict[str, Tuple[int, int, int]]:
    """Returns the numbers of batch elements, heads and positions of each tensor of a mask, by the operand's name."""
    shapes = {}
    for name, tensor in getattr(mask, "_symbols", ()):
        shape = tuple(int(size) for size in getattr(tensor, "shape", ()))
        if _symbols.clause_of(name) == "per_sequence":
            shapes[name] = (shape[0] if shape else 1, 1, 1)
        else:
            shapes[name] = _symbols.extend(shape, "BHN", 1)
    return shapes


def _check_integer(name: str, value: Any, least: int, most: int) -> int:
    # Python's bool is an int, but not a valid number. NumPy's integers are valid.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"expected an integer {name} but got {value!r}")
    number = int(value.__index__())
    if not least <= number <= most:
        raise ArgumentError(f"expected {name} between {least} and {most} but got {show(number)}")
    return number


def _check_size(name: str, value: Any) -> int:
    return _check_integer(name, value, 1, MAX_SIZE)


def _check_tile(tile: Any) -> Tuple[int, int]:
    if not isinstance(tile, (tuple, list)) or len(tile) != 2:
        raise ArgumentError(f"expected tile with the numbers of queries and keys of a tile but got {tile!r}")
    return _check_size("queries of a tile", tile[0]), _check_size("keys of a tile", tile[1])


def _check_path(path: Any) -> str:
    """Returns the absolute path of a file that can be created. Raises ArgumentError otherwise."""
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"expected the path of a file but got {path!r}")
    name = os.fsdecode(path)
    if "\0" in name:
        raise ArgumentError(f"expected a path without zero bytes but got {name!r}")
    if not os.path.basename(name) or os.path.isdir(name):
        raise ArgumentError(f"expected the path of a file but got the folder {name!r}")
    if not os.path.isdir(os.path.dirname(os.path.realpath(name))):
        raise ArgumentError(f"expected a file in an existing folder but got {name!r}")
    return os.path.abspath(name)


def draw_default(mask: object) -> str:
    """Returns a picture of as many queries and keys as show the effect of the largest number in the mask."""
    lengths: Dict[str, int] = {}
    for name, (_, _, length) in _shapes_of(mask).items():
        lengths.setdefault(_symbols.clause_of(name), length)
    nq, nk = lengths.get("per_query"), lengths.get("per_key")
    size = nq or nk or _default_size(mask)
    nq, nk = _check_size("nq", nq or size), _check_size("nk", nk or size)
    tile = (min(128, -(-nq // 8)), min(128, -(-nk // 8)))
    return render(make_plane(mask, nq, nk, nk - nq, tile))


def _default_size(mask: object) -> int:
    """Returns a number of queries and keys for a mask without a number for each of them."""
    numbers = [int(text) for text in re.findall(r"(?<![\w.])\d{1,10}", _name(mask))]
    numbers += [int(value) for _, value in _read_numbers(mask, (1, 1), 0, 0)]
    size = 64
    while size < 4 * max(numbers, default=0) and size < _MAX_DEFAULT:
        size *= 2
    return size

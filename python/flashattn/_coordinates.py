"""Masks in other coordinates: the text of a mask over the rows of a shard, whose positions and keys are expressions.

For example, `#flashattn.causal` over keys from row c of a sequence on is `p - (k + c) >= 0`, where c is a number of the
sequence, and over keys in any order `p - u >= 0`, where u is a number of each key. Packed sequences are a mask over the
sequence of all of their rows.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy

from . import _sets, _symbols
from ._reference import _to_numpy
from ._texts import show
from .errors import ArgumentError, UnsupportedError
from .masks import Mask

#: A set, a window or another leaf of a mask, or the punctuation of combinations.
_TOKEN = re.compile(
    r'#flashattn\.set<"(?P<set>(?:[^"\\]|\\.)*)">|#flashattn\.window(?:<(?P<window>[^<>]*)>)?|'
    r"#flashattn\.sink<(?P<sink>\d+)>|(?P<causal>#flashattn\.causal\b)|"
    r"(?P<punctuation>#flashattn\.(?:any_of|all_of)<\[|\]>|, )"
)
_SET = re.compile(r"\s*\(([^()]*)\)\s*(?:\[([^\[\]]*)\])?\s*:(.*)", re.DOTALL)
_BOUND = re.compile(r"(left|right) = (\d+)")
#: The masks that depend on p - k alone.
_INVARIANT = re.compile(r"(?:#flashattn\.(?:causal\b|window\b(?:<[^<>]*>)?|any_of<\[|all_of<\[)|\]>|, )*")


def is_invariant(mask: Mask) -> bool:
    """Returns whether a mask depends on p - k alone, as far as its attributes show."""
    return not mask._symbols and _INVARIANT.fullmatch(str(mask)) is not None


def parts_of(mask: Mask) -> Tuple[str, ...]:
    """Returns the texts of masks whose union a mask is."""
    text = str(mask)
    if not text.startswith(_UNION):
        return (text,)
    parts, depth, first, at = [], 0, len(_UNION), len(_UNION)
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return (text,)  # of another form
        at = match.end()
        if depth == 0 and match["punctuation"] in (", ", "]>"):
            if match.start() > first:
                parts.append(text[first : match.start()])
            first = match.end()
        depth += {"]>": -1, ", ": 0, None: 0}.get(match["punctuation"], 1)
    return tuple(parts)


_UNION = "#flashattn.any_of<["


def reads_lengths(mask: Mask) -> bool:
    """Returns whether a set of the mask reads nq or nk."""
    return any(
        word in (names[2:4] if len(names) > 2 else ())
        for names, body in map(_split, _sets_in(str(mask)))
        for word in _symbols.WORD.findall(body)
    )


def _sets_in(text: str) -> List[str]:
    return [match["set"] for match in _TOKEN.finditer(text) if match["set"] is not None]


def _split(text: str) -> Tuple[List[str], str]:
    """Returns the names of the dimensions and symbols of a set, and its constraints."""
    plain = re.sub(r"//[^\n]*", " ", _sets.unescape(text)).replace("\n", " ")
    match = _SET.fullmatch(plain)
    if not match:
        raise UnsupportedError(f"expected an integer set such as (p, k)[nq, nk] : (p - k >= 0) but got {show(text)}")
    names = [word.strip() for part in match.groups()[:2] for word in (part or "").split(",")]
    return [name for name in names if name], match.group(3)


def rewrite(mask: Mask, words: Mapping[str, str], present: Sequence[str]) -> str:
    """Returns the text of a mask in which the words "p", "k", "nq" and "nk" are replaced by expressions.

    Args:
      words: the expressions, by word. Words that are missing stay.
      present: the names of all operands that the new text reads, in the order of the op. The symbols of the mask
        keep their names.

    Raises:
      UnsupportedError: the mask has another form than those that this package makes.
    """
    symbols = _symbols.words_of(list(present))
    p, k = (f"({words[x]})" if x in words else x for x in "pk")

    def of_set(constraints: str) -> str:
        return f'#flashattn.set<"(p, k)[{symbols}] : ({constraints})">'

    def replace(match: "re.Match[str]") -> str:
        if match["punctuation"]:
            return match["punctuation"]
        if match["causal"]:
            return of_set(f"{p} - {k} >= 0")
        if match["sink"]:
            return of_set(f"{int(match['sink']) - 1} - {k} >= 0")
        if match["set"] is None:
            bounds = dict(_BOUND.findall(match["window"] or ""))
            sides = {"left": f"{k} - {p}", "right": f"{p} - {k}"}
            constraints = [f"{sides[side]} + {count} >= 0" for side, count in bounds.items()]
            return of_set(", ".join(constraints) or "0 >= 0")
        names, body = _split(match["set"])
        renamed: Dict[str, str] = dict(zip(names, ("p", "k", "nq", "nk")))

        def rename(found: "re.Match[str]") -> str:
            word = renamed.get(found.group(), found.group())
            return f"({words[word]})" if word in words else word

        return f'#flashattn.set<"(p, k)[{symbols}] :{_symbols.WORD.sub(rename, body)}">'

    text, at, pieces = str(mask), 0, []
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnsupportedError(f"expected a mask that this package made but got {show(text)}")
        pieces.append(replace(match))
        at = match.end()
    return "".join(pieces)


def with_names(names: Sequence[str], added: Mapping[str, int]) -> Tuple[Tuple[str, ...], Dict[str, List[str]]]:
    """Returns the names of a mask's operands and of further ones, in the order of the op, and the further ones by
    clause. `added` are their numbers. Raises UnsupportedError if a clause would have too many."""
    counts = {clause: sum(_symbols.clause_of(name) == clause for name in names) for clause in _symbols.CLAUSES}
    new = {}
    for clause, number in added.items():
        if counts[clause] + number > _symbols.LIMIT:
            raise UnsupportedError(
                f"expected a mask with at most {_symbols.LIMIT - number} tensors of {clause}, as its shards read more, "
                f"but got {counts[clause]}"
            )
        new[clause] = [f"{clause}{counts[clause] + at}" for at in range(number)]
    given = {*names, *(name for found in new.values() for name in found)}
    return tuple(name for name in _symbols.NAMES if name in given), new


def word_of(name: str) -> str:
    """Returns the word in the text of a mask that stands for an operand."""
    return name[len("per_") :]


def read_starts(cu_seqlens: Any, length: int) -> Any:
    """Returns the starts of packed sequences as an array on the host. Raises ArgumentError."""
    try:
        starts = _to_numpy(cu_seqlens)
    except ValueError:
        raise ArgumentError("expected cu_seqlens in one dimension but got lists of different lengths") from None
    if starts.ndim != 1 or starts.dtype.kind not in "iu" or len(starts) < 2:
        raise ArgumentError(
            f"expected cu_seqlens to be at least 2 integers in one dimension but got {starts.dtype} of shape "
            f"{list(starts.shape)}"
        )
    if starts[0] < 0 or starts[-1] > length or (starts[1:] < starts[:-1]).any():
        raise ArgumentError(
            f"expected cu_seqlens from 0 to {length} that do not decrease but got {show(starts.tolist())}"
        )
    return starts


def mask_of_packed(mask: Optional[Mask], starts: Any, length: int) -> Mask:
    """Returns the mask of packed sequences in one sequence of rows: pairs of the same one that `mask` shows. Positions
    and keys of `mask` count from the first row of each packed sequence. `starts` are its rows, as `cu_seqlens`."""
    starts = numpy.asarray(starts, numpy.int64)
    rows = numpy.arange(length)
    index = numpy.searchsorted(starts, rows, "right") - 1
    is_in = (index >= 0) & (index < len(starts) - 1)
    index = numpy.where(is_in, index, 0)
    # Rows of no sequence see no key.
    first = numpy.where(is_in, starts[index], 0).astype(numpy.int32)
    end = numpy.where(is_in, starts[numpy.minimum(index + 1, len(starts) - 1)], 0).astype(numpy.int32)
    first.flags.writeable = end.flags.writeable = False
    own = () if mask is None else tuple(name for name, _ in mask._symbols)
    names, new = with_names(own, {"per_query": 2})
    numbers = dict(zip(new["per_query"], (first, end)))
    start, stop = map(word_of, new["per_query"])
    documents = f"k - {start} >= 0, {stop} - 1 - k >= 0"
    text = f'#flashattn.set<"(p, k)[{_symbols.words_of(list(names))}] : ({documents})">'
    if mask is not None:
        # The other pairs of the sequence are hidden, so a key counts from where its query's sequence starts.
        size = f"{stop} - {start}"
        words = {"p": f"p - {start}", "k": f"k - {start}", "nq": size, "nk": size}
        if is_invariant(mask):
            words = {}
        inner = rewrite(mask, words, names)
        text = f"#flashattn.all_of<[{text}, {inner}]>"
        numbers.update(mask._symbols)
    return Mask(text, symbols=tuple((name, numbers[name]) for name in names))


class OfHeads:
    """An auxiliary tensor of some heads. A score_mod reads it by `moved`, the traced number of a head among all, and
    gets the element of `head`, its number among those of the tensor."""

    def __init__(self, tensor: Any, moved: Any, head: Any):
        self._tensor, self._moved, self._head = tensor, moved, head

    def __getitem__(self, index: Any) -> Any:
        each = index if isinstance(index, tuple) else (index,)
        return self._tensor[tuple(self._head if x is self._moved else x for x in each)]

"""Checks the entries of page tables in host memory (rule P2). On a GPU, the host reads no entry."""

from __future__ import annotations

import ctypes
import re
from typing import Any, List, Sequence

import numpy

from . import _module, _reference
from .errors import ArgumentError
from .masks import causal

#: The number of queries of a sequence whose keys are found for masks other than None and `causal`.
_MAX_QUERIES = 32


class PageCheck:
    """Checks the entries of the pages that queries see, at each call of a plan. An entry of another page may be
    any number. With a mask other than None and `causal`, only pages that some of the queries see are checked:
    of each sequence the first and the last query, and up to 30 queries between them. Keys that only a set shows
    are not checked."""

    def __init__(self, problem: _module.Problem, values: Sequence[Any]):
        """`values` are the arguments of a forward pass, which end with the problem's operands."""
        self._problem = problem
        first = len(values) - len(problem.operands)
        self._at = {operand.name: at for at, operand in enumerate(problem.operands, first)}
        table, rows_dim = values[self._at["page_table"]], 2 if problem.layout == "bhsd" else 1
        self._shape, self._strides = table.shape, (4 * table.strides[0], 4)
        self._queries = values[0].shape[rows_dim]
        self._pages, self._size = values[1].shape[0], values[1].shape[rows_dim]

    def check(self, words: List[int]) -> None:
        """Raises ArgumentError for the first wrong entry. `words` are the addresses of the arguments."""
        batch, columns = self._shape
        if not batch or not columns:
            return
        span = (batch - 1) * self._strides[0] + columns * 4
        memory = (ctypes.c_char * span).from_address(words[self._at["page_table"]])
        table = numpy.ndarray(self._shape, numpy.int32, memory, strides=self._strides)
        wrong = table.view(numpy.uint32) >= self._pages  # negative ones too
        if not wrong.any():
            return  # the usual case
        limit = columns * self._size
        leftpad = numpy.clip(self._read(words, "leftpad_k", batch, 0), 0, limit)
        keys = numpy.clip(self._read(words, "kv_len", batch, 0), 0, limit - leftpad)
        most: Any = self._queries
        if "cu_seqlens_q" in self._at:
            most = numpy.diff(self._read(words, "cu_seqlens_q", batch + 1, 0))
        queries = numpy.clip(self._read(words, "q_len", batch, most), 0, most)
        follows = self._problem.align == "bottom_right"
        positions: Any = self._read(words, "offsets", batch, keys - queries if follows else 0)
        if "offset" in self._at:
            positions = numpy.full(batch, ctypes.c_int32(words[self._at["offset"]] & 0xFFFFFFFF).value)
        if self._problem.mask in (None, causal):
            ends: Any = keys if self._problem.mask is None else numpy.clip(positions + queries, 0, keys)
            ends = numpy.where(queries > 0, ends, 0)[:, None]
            begins = self._size * numpy.arange(columns)[None, :] - leftpad[:, None]  # keys
            seen = (begins < ends) & (begins + self._size > 0) & (ends > 0)
        else:
            seen = numpy.zeros((batch, columns), bool)
            for b in range(batch):
                own = self._keys_of(int(positions[b]), int(queries[b]), int(keys[b]))
                seen[b, (leftpad[b] + own) // self._size] = True
        found = numpy.argwhere(wrong & seen)
        if not found.size:
            return
        b, page = (int(index) for index in found[0])
        if not self._pages:
            raise ArgumentError(f"expected at least 1 page of 'k' for the keys of sequence {b} but got 0")
        raise ArgumentError(
            f"expected pages from 0 to {self._pages - 1} in 'page_table' but got {table[b, page]} for page "
            f"{page} of sequence {b}"
        )

    def _read(self, words: List[int], name: str, count: int, default: Any) -> Any:
        """Returns the values of an operand; `default`, for each element, if it is absent."""
        if name not in self._at:
            return numpy.broadcast_to(numpy.asarray(default, numpy.int64), count)
        memory = memoryview((ctypes.c_int32 * count).from_address(words[self._at[name]]))
        return numpy.frombuffer(memory, numpy.int32).astype(numpy.int64)

    def _keys_of(self, position: int, queries: int, keys: int) -> Any:
        """Returns the keys that some of a sequence's queries see. `position` is that of query 0."""
        if not queries or not keys:
            return numpy.zeros(0, numpy.int64)
        rows: Any = numpy.linspace(position, position + queries - 1, min(queries, _MAX_QUERIES))
        rows = rows.round().astype(numpy.int64)[:, None]
        seen = _visible(str(self._problem.mask), rows, numpy.arange(keys)[None, :])
        return numpy.flatnonzero(seen.any(axis=0))


#: Masks that depend on positions and keys alone. The text of a set is not evaluated here: it may be anyone's.
_NAMED = re.compile(r"#flashattn\.(causal|window(<[a-z0-9=, ]*>)?|sink<\d+>)")
_COMBINED = re.compile(r"#flashattn\.(any_of|all_of)<\[(.*)\]>")


def _visible(text: str, positions: Any, keys: Any) -> Any:
    """Returns pairs of `positions` and `keys` that the mask with this text shows: all of them, unless it has a part
    that is neither causal nor a window or sink tokens, and counts as showing none."""
    combined = _COMBINED.fullmatch(text)
    if combined:
        kind, rest = combined.groups()
        parts = [_visible(part, positions, keys) for part in _split(rest)]
        return (numpy.logical_or if kind == "any_of" else numpy.logical_and).reduce(numpy.broadcast_arrays(*parts))
    if _NAMED.fullmatch(text):
        return _reference.visible(text, positions, keys, 0, 0)
    return numpy.zeros((1, 1), bool)


def _split(text: str) -> List[str]:
    """Splits the text of a list of masks at the commas between them."""
    parts, depth, is_quoted = [""], 0, False
    for char in text:
        is_quoted ^= char == '"'
        depth += 0 if is_quoted else (char in "<[(") - (char in ">])")
        if char == "," and depth == 0 and not is_quoted:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]

"""Masks: sets of visible (query, key) pairs, which print as attributes of the compiler.

`p` is the position of a query, `k` the index of a key. `|` is the union of two masks, `&` their
intersection. Masks compare by value and can be keys of a dictionary::

    flashattn.window(left=1023, right=0) | flashattn.sink(4) & flashattn.causal

A mask may read tensors of integers, with one element for each sequence, query or key. Each call reads the current
elements of tensors of 32-bit integers; other tensors are converted when the mask is made. Such masks compare by their
text and by the identity of the tensors, so make a mask once and use it in every layer::

    flashattn.affine_set("(p, k)[nq, nk, n] : (n - 1 - k >= 0)", per_sequence=[lengths]) | flashattn.causal
"""

from __future__ import annotations

import os
from typing import Any, List, Optional, Sequence, Tuple, Union, overload

import numpy

from . import _arrays, _library, _sets, _symbols
from ._symbols import Numbers, Positions, Symbols, Tensor
from ._texts import encode, show
from .errors import ArgumentError, LibraryError

_Path = Union[str, "os.PathLike[str]"]


class Mask:
    """An immutable set of visible pairs. `str(mask)` is the attribute that the compiler parses. A notebook shows a
    mask as a picture, which `draw` makes of any size."""

    __slots__ = ("_text", "_hash", "_kind", "_parts", "_symbols", "_pattern", "_of_rows")
    _text: str
    _hash: int
    _kind: Optional[str]
    _parts: Tuple["Mask", ...]  #: without tensors
    _symbols: Symbols  #: the tensors
    _pattern: Optional["Mask"]  #: the mask without its tensors, if it has any
    #: The functions that made parts of the mask in which query i is at position i, or that cannot be packed
    #: (`_features.check_rows`).
    _of_rows: Tuple[str, ...]

    def __init__(
        self, text: str, kind: Optional[str] = None, parts: Tuple["Mask", ...] = (), symbols: Symbols = (),
        of_rows: Tuple[str, ...] = (),
    ):  # fmt: skip
        if not isinstance(text, str):
            raise ArgumentError(f"expected the text of a mask but got {text!r}")
        set_field = object.__setattr__
        set_field(self, "_text", text)
        set_field(self, "_hash", hash((text, *map(_identity_of, symbols))) if symbols else hash(text))
        set_field(self, "_kind", kind)
        set_field(self, "_parts", parts)
        set_field(self, "_symbols", symbols)
        set_field(self, "_pattern", Mask(text, kind, parts, (), of_rows) if symbols else None)
        set_field(self, "_of_rows", of_rows)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a mask cannot be changed: tried to set {name!r}")

    __delattr__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Tuple[Any, ...]:
        return (Mask, (self._text, self._kind, self._parts, self._symbols, self._of_rows))

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Mask):
            return NotImplemented
        if self._text != other._text or len(self._symbols) != len(other._symbols):
            return False
        return [*map(_identity_of, self._symbols)] == [*map(_identity_of, other._symbols)]

    def __bool__(self) -> bool:
        raise ArgumentError(
            "expected masks joined by & and | but got a mask as condition (if, and, or, not); to test for a "
            "mask, compare with None"
        )

    @overload
    def draw(
        self, nq: int, nk: int, path: None = None, *, align: "_sets.Align" = ..., offset: Optional[int] = ...,
        tile: Tuple[int, int] = ..., batch: int = ..., head: int = ...,
    ) -> str: ...  # fmt: skip
    @overload
    def draw(
        self, nq: int, nk: int, path: "_Path", *, align: "_sets.Align" = ..., offset: Optional[int] = ...,
        tile: Tuple[int, int] = ..., batch: int = ..., head: int = ...,
    ) -> None: ...  # fmt: skip
    def draw(
        self, nq: int, nk: int, path: Optional["_Path"] = None, *, align: "_sets.Align" = "bottom_right",
        offset: Optional[int] = None, tile: Tuple[int, int] = (128, 128), batch: int = 0, head: int = 0,
    ) -> Optional[str]:  # fmt: skip
        """Draws the tiles of the plane of queries and keys as SVG.

        A tile is full if every pair in it is visible, partial if some are, and skipped if none is. The picture shows
        the visible pairs of partial tiles, or their share in each group of pairs if the pairs are too small to see.
        Its legend has the number and the share of the tiles of each kind and of the visible pairs.

        A picture has at most 200 kB. If there are more than 64 tiles in a row or column, a square of the picture
        stands for several tiles. If a large plane has too many partial tiles to look at all of them, the shares are
        estimated, and the picture says so.

        Args:
          nq, nk: the numbers of queries and keys. If the mask reads numbers for each query, or for each key, `nq`, or
            `nk`, is the length of these tensors.
          path: the file to write, which is replaced as a whole.
          align: the position of query 0 if nq and nk differ: nk - nq ("bottom_right") or 0 ("top_left").
          offset: the position of query 0; replaces the position that `align` implies.
          tile: the numbers of queries and keys of a tile.
          batch, head: the batch element and the head whose numbers the mask reads from its tensors. `head` is one of
            the queries, or one of the keys if only numbers of keys differ from head to head.

        Returns:
          The text of the picture if `path` is None, otherwise None.

        Raises:
          ArgumentError: an argument is invalid, the folder of `path` does not exist, or the mask is not one of this
            package.
          OSError: the file cannot be written.
        """
        from . import _draw

        return _draw.draw(self, nq, nk, path, align, offset, tile, batch, head)

    def _repr_svg_(self) -> Optional[str]:
        """Returns the picture that a notebook shows, or None if the mask is not one of this package. Its numbers of
        queries and keys are the lengths of the tensors that it reads for each query and key; otherwise, they are large
        enough to show the effect of the largest number in the mask."""
        from . import _draw

        try:
            return _draw.draw_default(self)
        except ArgumentError:
            return None

    def __or__(self, other: "Mask") -> "Mask":
        return _combine("any_of", self, other)

    def __and__(self, other: "Mask") -> "Mask":
        return _combine("all_of", self, other)


def _identity_of(symbol: Tuple[str, Any]) -> Any:
    """Returns what is equal for the same tensor, or int, of a symbol."""
    return (symbol[1],) if type(symbol[1]) is int else id(symbol[1])


def _combine(kind: str, lhs: Mask, rhs: Mask) -> Mask:
    if not isinstance(rhs, Mask):
        return NotImplemented
    symbols: Symbols = ()
    if lhs._symbols or rhs._symbols:
        symbols, names = _symbols.unify((lhs._symbols, rhs._symbols))
        present = tuple([name for name, _ in symbols])
        lhs, rhs = _rename(lhs, names[0], present), _rename(rhs, names[1], present)
    parts: Tuple[Mask, ...] = ()
    for mask in (lhs, rhs):
        parts += mask._parts if mask._kind == kind else (mask,)
    return _join(kind, parts, symbols, (*lhs._of_rows, *(x for x in rhs._of_rows if x not in lhs._of_rows)))


def _join(
    kind: str, parts: Tuple[Mask, ...], symbols: Symbols = (), of_rows: Tuple[str, ...] = ()
) -> Mask:
    return Mask("#flashattn.%s<[%s]>" % (kind, ", ".join(map(str, parts))), kind, parts, symbols, of_rows)


def _rename(mask: Mask, names: Tuple[Tuple[str, str], ...], present: Tuple[str, ...]) -> Mask:
    """Returns the mask without its tensors, as `_symbols.rename` renames the symbols of its sets."""
    if mask._kind:
        parts = tuple([_rename(part, names, present) for part in mask._parts])
        return _join(mask._kind, parts, (), mask._of_rows)
    return Mask(_symbols.rename(mask._text, names, present), of_rows=mask._of_rows)


_MAX_COUNT = 1 << 31  # the limit of the attributes' verifiers


def _count(name: str, value: Any) -> int:
    # Python's bool is an int, but not a valid count. NumPy's integers are valid.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"expected an integer {name} but got {value!r}")
    count = int(value.__index__())
    if not 0 <= count <= _MAX_COUNT:
        raise ArgumentError(f"expected {name} between 0 and {_MAX_COUNT} but got {show(count)}")
    return count


#: The causal mask, `k <= p`: a query sees the keys up to its own position.
causal = Mask("#flashattn.causal")


def _set(constraints: str, of_rows: str = "", **tensors: Sequence[Any]) -> Mask:
    """Returns the mask of a set of p, k and the tensors of each clause. `of_rows` is a name of `Mask._of_rows`. Not by
    affine_set, which torch.compile cannot follow into the library."""
    symbols = [
        (f"{clause}{number}", tensor)
        for clause in _symbols.CLAUSES
        for number, tensor in enumerate(tensors.get(clause, ()))
    ]
    words = _symbols.words_of([name for name, _ in symbols])
    text = f'#flashattn.set<"(p, k)[{words}] : ({constraints})">'
    return Mask(text, symbols=tuple(symbols), of_rows=(of_rows,) if of_rows else ())


def window(left: Optional[Numbers] = None, right: Optional[Numbers] = None) -> Mask:
    """Returns the mask `p - left <= k <= p + right`. `left` and `right` are numbers of keys on each side of
    the query's position; None means no bound. A bound may be a tensor `[B]` of integers, a number for each batch
    element or packed sequence, which each call reads. A large number in it is no bound.

    A causal sliding window of W keys, including the key at the query's position, is
    `window(left=W - 1, right=0)`.

    Raises:
      ArgumentError: `left` or `right` is not an integer from 0 to 2^31, and no tensor of integers.
    """
    if not (_is_tensor(left) or _is_tensor(right)):
        bounds = [
            f"{name} = {_count(name, value)}"
            for name, value in (("left", left), ("right", right))
            if value is not None
        ]
        return Mask("#flashattn.window" + (f"<{', '.join(bounds)}>" if bounds else ""))
    tensors: List[Any] = []
    constraints = []
    for name, value, distance in (("left", left, "k - p"), ("right", right, "p - k")):
        if _is_tensor(value):
            constraints.append(f"{distance} + sequence{len(tensors)} >= 0")
            tensors.append(_symbols.settle("per_sequence", name, value))
        elif value is not None:
            constraints.append(f"{distance} + {_count(name, value)} >= 0")
    return _set(", ".join(constraints), per_sequence=tensors)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (hasattr(value, "shape") and not isinstance(value, numpy.generic))


def bounded(left: Optional[int], right: Optional[int]) -> Optional[Mask]:
    """Returns the mask of a window in the convention of FlashAttention and of torch: a bound that is negative or
    None is no bound, and without bounds there is no mask."""
    left, right = (None if n is None or n < 0 else n for n in (left, right))
    if left is None and right == 0:
        return causal
    return None if left is right is None else window(left=left, right=right)


def sink(count: int) -> Mask:
    """Returns the mask `k < count`: every query sees the first `count` keys. Usually `sink(n) & causal`.

    Raises:
      ArgumentError: `count` is not an integer from 0 to 2^31.
    """
    return Mask(f"#flashattn.sink<{_count('count', count)}>")


def prefix(n: Numbers) -> Mask:
    """Returns the mask `k < n`: every query sees the first `n[b]` keys. Usually `prefix(n) | causal`, the mask of a
    prefix language model.

    Args:
      n: `[B]`, a number of keys for each batch element or packed sequence; or one number for all, `[1]` or an int. Each
        call reads a tensor's current elements.

    Raises:
      ArgumentError: `n` is not an integer and no tensor of integers.
    """
    return _set("sequence0 - 1 - k >= 0", per_sequence=[_symbols.settle("per_sequence", "n", n)])


def left_padding(n: Numbers) -> Mask:
    """Returns the mask `k >= n`: the first `n[b]` keys are padding, which no query sees. Usually
    `left_padding(n) & causal`. Positions count from the first row, padding included, as in the tensors.

    Args:
      n: `[B]`, the number of rows of padding of each batch element or packed sequence, as in `prefix`.

    Raises:
      ArgumentError: `n` is not an integer and no tensor of integers.
    """
    return _set("k - sequence0 >= 0", per_sequence=[_symbols.settle("per_sequence", "n", n)])


def causal_if(flag: Numbers) -> Mask:
    """Returns the causal mask for the sequences whose flag is true; every pair of another sequence is visible.

    Args:
      flag: `[B]`, Booleans or integers, of which 0 is false; or one for all. Each call reads a tensor of 32-bit
        integers; others are converted here.

    Raises:
      ArgumentError: `flag` is no tensor of Booleans or integers.
    """
    return _set("sequence0 == 0", per_sequence=[_symbols.settle("per_sequence", "flag", flag)]) | causal


def documents(
    ids: Optional[Positions] = None,
    *,
    starts: Optional[Positions] = None,
    length: Optional[int] = None,
    causal: bool = False,
) -> Mask:
    """Returns the mask of documents that lie one after the other in a sequence: a query sees the keys of its own
    document. Query i is at position i, so a call needs as many keys as queries; with kv_len, it needs
    `align="top_left"`, or q_len with the same lengths. Sequences packed by `cu_seqlens_q` and `cu_seqlens_k` need no
    mask if they are the documents. For documents inside them, use
    `affine_set("(p, k)[nq, nk, u, w] : (u - w == 0)", per_query=[ids], per_key=[ids])`.

    The mask reads the first and the last key of the document of each query, which are computed here on the device of
    `ids`. Later writes to `ids` have no effect.

    Args:
      ids: `[N]` or `[B, N]`, integers: the document of each position. Equal ids side by side are one document.
      starts: instead of ids, `[D]` or `[B, D]`: the first position of each of D documents, in order, which is checked
        for arrays of NumPy only. The first document starts at 0 in any case, and starts from `length` on do not count,
        so `cu_seqlens` is valid.
      length: N, with starts.
      causal: whether a query sees only keys up to its own position. This takes less time than an intersection with the
        causal mask.

    Raises:
      ArgumentError: not one of `ids` and `starts` is given, or it is no tensor of integers of rank 1 or 2.
    """
    if (ids is None) == (starts is None):
        raise ArgumentError(f"expected ids or starts of documents but got {'none' if ids is None else 'both'}")
    if ids is not None:
        if length is not None:
            raise ArgumentError(f"expected no length with ids of documents but got {length!r}")
        return _between(*_arrays.runs(_arrays.to_array("ids", ids, (1, 2)), with_ends=not causal))
    if length is None:
        raise ArgumentError("expected a length with starts of documents but got None")
    numbers = _arrays.to_array("starts", starts, (1, 2))
    return _between(*_arrays.between(numbers, _count("length", length), with_ends=not causal))


def _between(first: Any, end: Any, of_rows: str = "documents") -> Mask:
    """Returns the mask of the keys from the `first` one of each query to that before its `end`, or to the query itself
    without an end."""
    # Numbers of queries alone: the forward pass then needs no list of tiles.
    if end is None:
        return _set("p - k >= 0, k - query0 >= 0", of_rows, per_query=[first])
    return _set("k - query0 >= 0, query1 - 1 - k >= 0", of_rows, per_query=[first, end])


def shared_question(n: Numbers, ids: Positions) -> Mask:
    """Returns the causal mask of a question with several answers, as FlashMask's "share question mask": a query sees
    the keys before it of the question, and of its own answer. Query i is at position i, as in `documents`.

    Args:
      n: `[B]`, the number of positions of the question, which comes first; or one number for all.
      ids: `[N]` or `[B, N]`, integers: the answer of each position. Equal ids side by side are one answer. Those of the
        question have no effect.

    Raises:
      ArgumentError: the arguments are no tensors of integers of these ranks.
    """
    runs = _arrays.runs(_arrays.to_array("ids", ids, (1, 2)), with_ends=False)
    return prefix(n) & causal | _between(*runs, "shared_question")


def tree(parents: Positions) -> Mask:
    """Returns the mask of a forest of tokens: a query sees its own key and those of the nodes above it, up to a root.
    Node k is key k, and a query is the node at its position. If there are fewer queries than keys, they are therefore
    the last nodes, as for drafts behind tokens that a cache holds. Sequences cannot be packed.

    The last position below each node is computed here on the device of `parents`. Later writes to `parents` have no
    effect.

    Args:
      parents: `[N]` or `[B, N]` for N keys, integers: the index of each node's parent; a root has a negative one. Nodes
        are in depth-first order: each is followed by all nodes below it. That is checked for arrays of NumPy only.

    Raises:
      ArgumentError: `parents` is no tensor of integers of rank 1 or 2, or is not in depth-first order.
    """
    ends = _arrays.subtree_ends(_arrays.to_array("parents", parents, (1, 2)))
    return _set("p - k >= 0, key0 - 1 - p >= 0", "tree", per_key=[ends])


def flashmask(startend_row_indices: Tensor, causal: bool = False) -> Mask:
    """Returns the mask of PaddlePaddle's FlashMask (arXiv 2410.01359), which states for each key the rows that it is
    hidden from. Rows are positions of queries.

    | columns | with `causal` | without |
    | --- | --- | --- |
    | 1 | rows from `c0` on, and rows before the key | |
    | 2 | rows from `c0` to `c1`, and rows before the key | rows from `c0` on, and rows before `c1` |
    | 4 | | rows from `c0` to `c1`, and rows from `c2` to `c3` |

    Ends are exclusive. Each column is copied here, because a kernel reads rows of stride 1, so later writes have no
    effect. If row indices count rows of a tensor with another number of queries than keys, pass `align="top_left"`.

    Args:
      startend_row_indices: `[B, Hkv, Nk, C]` with these numbers of columns C, i32; B and Hkv may be 1.
      causal: whether a query sees only keys up to its own position.

    Raises:
      ArgumentError: `startend_row_indices` has another shape or type.
    """
    rows = _arrays.to_array("startend_row_indices", startend_row_indices, (4,))
    columns = rows.shape[-1]
    if columns not in ((1, 2) if causal else (2, 4)):
        wanted = "1 or 2 columns of startend_row_indices with causal" if causal else (
            "2 or 4 columns of startend_row_indices without causal"
        )
        raise ArgumentError(f"expected {wanted} but got {columns}")
    c = [_arrays.copy(rows[..., at]) for at in range(columns)]
    before, after = "key0 - 1 - p >= 0", "p - key0 >= 0"
    if not causal and columns == 2:
        return _set(f"{before}, p - key1 >= 0", per_key=c)
    lower = _set(before, per_key=c[:1])
    if columns > 1:
        lower = lower | _set(after, per_key=c[1:2])
    if causal:
        return lower & _CAUSAL
    return lower & (_set(before, per_key=c[2:3]) | _set(after, per_key=c[3:4]))


_CAUSAL = causal
_KINDS = ("full", "causal", "inv_causal", "bi_causal")


def ranges(
    q_ranges: Positions,
    k_ranges: Positions,
    types: Union[None, Sequence[Union[str, int]], Tensor] = None,
    *,
    queries: int,
) -> Mask:
    """Returns the mask of slices, as MagiAttention states them: in slice i, the queries `q_ranges[i]` see the keys
    `k_ranges[i]`. Ranges are `[begin, end)`. A query of no slice sees no key. Queries are counted from 0, as rows. All
    batch elements and heads have the same slices.

    The first and the last key of each query are computed here, on the device of the tensors. Later writes to the
    tensors have no effect.

    Args:
      q_ranges, k_ranges: `[M, 2]`, integers. The ranges of queries do not overlap, which is checked for arrays of NumPy
        only; those of keys may.
      types: M kinds of slices: "full" or 0; "causal" or 1, a triangle whose corner is the last query and the last key;
        "inv_causal" or 2, a triangle above the diagonal whose corner is the first query and the first key; "bi_causal"
        or 3, both. A list, or a tensor of the numbers, which are checked for arrays of NumPy only. None: all are full.
      queries: the number of queries.

    Raises:
      ArgumentError: the arguments are no such tensors, or ranges of queries overlap.
    """
    given = [_arrays.to_array("q_ranges", q_ranges, (2,))]
    given.append(_arrays.to_array("k_ranges", k_ranges, (2,), given[0]))
    m = given[0].shape[0]
    for name, x in zip(("q_ranges", "k_ranges"), given):
        if tuple(x.shape) != (m, 2):
            raise ArgumentError(f"expected {name} of shape [{m}, 2] but got {list(x.shape)}")
    if m == 0:
        raise ArgumentError("expected at least 1 range but got 0")
    numbers: Any = types
    if types is None:
        numbers = 0 * given[0][:, 0]
    elif isinstance(types, (list, tuple)):
        for kind in types:
            if kind not in (*_KINDS, *range(4)):
                raise ArgumentError(f"expected types {', '.join(_KINDS)} or 0 to 3 but got {kind!r}")
        numbers = [_KINDS.index(x) if isinstance(x, str) else int(x) for x in types]
    numbers = _arrays.to_array("types", numbers, (1,), given[0])
    if tuple(numbers.shape) != (m,):
        raise ArgumentError(f"expected {m} types, as there are ranges, but got {list(numbers.shape)}")
    first, end = _arrays.ranges_of(given[0], given[1], numbers, _count("queries", queries))
    return _set("k - query0 >= 0, query1 - 1 - k >= 0", per_query=[first, end])


def affine_set(
    text: str,
    per_sequence: Optional[Sequence[Any]] = None,
    per_query: Optional[Sequence[Any]] = None,
    per_key: Optional[Sequence[Any]] = None,
) -> Mask:
    """Returns the mask of an integer set: `affine_set("(p, k)[nq, nk] : (p - k >= 0, k mod 64 == 0)")`.

    The constraints are affine in the position `p`, the key `k` and the numbers of queries and keys `nq`
    and `nk`, with `floordiv`, `ceildiv` and `mod` by constants. Further symbols are elements of tensors:
    `affine_set("(p, k)[nq, nk, n, start] : (n - 1 - k >= 0, k - start >= 0)", per_sequence=[n], per_query=[start])`.
    The tensors of `per_sequence` belong to the first of these symbols, then those of `per_query`, then those of
    `per_key`. Each call reads them.

    Tensors are arrays of integers, of the library and on the device of q, or lists. Tensors of 32-bit integers are read
    where they are; others are converted here, and later writes to them have no effect. Each call copies a list to the
    device of q. A clause has at most 8 tensors.

    Args:
      per_sequence: tensors with a number for each batch element or packed sequence: `[B]`, or one number for all:
        `[1]`, `[]` or an int.
      per_query: tensors with a number for each query, which is that of its row and not of its position p: `[N]`,
        `[B, N]` or `[B, Hq, N]`, where B and Hq may be 1. With packed queries, `[T]` or `[Hq, T]`.
      per_key: tensors with a number for each key: `[N]`, `[B, N]` or `[B, Hkv, N]`, where B and Hkv may be 1. With
        packed keys, `[T]` or `[Hkv, T]`. With a page_table of P pages of S keys, N is P * S.

    Raises:
      ArgumentError: the text is not such a set, or the tensors are not such tensors.
    """
    if not isinstance(text, str):
        raise ArgumentError(f"expected the text of an integer set but got {text!r}")
    tensors = [
        _symbols.settle_all(clause, given)
        for clause, given in zip(_symbols.CLAUSES, (per_sequence, per_query, per_key))
    ]
    symbols: List[Tuple[str, Any]] = []
    for clause, values in zip(_symbols.CLAUSES, tensors):
        symbols += [(f"{clause}{number}", value) for number, value in enumerate(values)]
    return Mask(_set_text(text, tuple(map(len, tensors))), symbols=tuple(symbols))


@_symbols.constant
def _set_text(text: str, counts: Tuple[int, ...]) -> str:
    """Returns the attribute of an integer set with these numbers of symbols of each clause. Raises ArgumentError."""
    given = text
    if any(counts):
        text = _symbols.canonical(text, counts)
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:02X}"
        for byte in encode("an integer set", text)
    )
    attribute = f'#flashattn.set<"{escaped}">'
    try:
        library = _library.get()
    except LibraryError:  # a mask can be created and printed without the library
        return attribute
    reason = library.explain_mask(attribute)
    if reason:
        raise ArgumentError(reason)
    if not any(counts):
        _symbols.check_none(given)
    return attribute

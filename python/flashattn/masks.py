"""Masks: sets of visible (query, key) pairs, which print as attributes of the compiler.

`p` is the position of a query, `k` the index of a key. `|` is the union of two masks, `&` their
intersection. Masks compare by value and can be keys of a dictionary::

    flashattn.window(left=1023, right=0) | flashattn.sink(4) & flashattn.causal

A mask may read tensors, which have a number for each sequence, query or key. Each call reads the tensors' current
elements. Such masks compare by their text and by the identity of the tensors::

    flashattn.affine_set("(p, k)[nq, nk, n] : (n - 1 - k >= 0)", per_sequence=[lengths]) | flashattn.causal
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

from . import _library, _symbols
from ._symbols import Symbols
from ._texts import encode, show
from .errors import ArgumentError, LibraryError


class Mask:
    """An immutable set of visible pairs. `str(mask)` is the attribute that the compiler parses."""

    __slots__ = ("_text", "_hash", "_kind", "_parts", "_symbols", "_pattern")
    _text: str
    _hash: int
    _kind: Optional[str]
    _parts: Tuple["Mask", ...]  #: without tensors
    _symbols: Symbols  #: the tensors
    _pattern: Optional["Mask"]  #: the mask without its tensors, if it has any

    def __init__(
        self, text: str, kind: Optional[str] = None, parts: Tuple["Mask", ...] = (), symbols: Symbols = ()
    ):
        if not isinstance(text, str):
            raise ArgumentError(f"expected the text of a mask but got {text!r}")
        set_field = object.__setattr__
        set_field(self, "_text", text)
        set_field(self, "_hash", hash((text, *map(_identity_of, symbols))) if symbols else hash(text))
        set_field(self, "_kind", kind)
        set_field(self, "_parts", parts)
        set_field(self, "_symbols", symbols)
        set_field(self, "_pattern", Mask(text, kind, parts) if symbols else None)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a mask cannot be changed: tried to set {name!r}")

    __delattr__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Tuple[Any, ...]:
        return (Mask, (self._text, self._kind, self._parts, self._symbols))

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
    return _join(kind, parts, symbols)


def _join(kind: str, parts: Tuple[Mask, ...], symbols: Symbols = ()) -> Mask:
    return Mask("#flashattn.%s<[%s]>" % (kind, ", ".join(map(str, parts))), kind, parts, symbols)


def _rename(mask: Mask, names: Tuple[Tuple[str, str], ...], present: Tuple[str, ...]) -> Mask:
    """Returns the mask without its tensors, as `_symbols.rename` renames the symbols of its sets."""
    if mask._kind:
        return _join(mask._kind, tuple([_rename(part, names, present) for part in mask._parts]))
    return Mask(_symbols.rename(mask._text, names, present))


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


def window(left: Optional[int] = None, right: Optional[int] = None) -> Mask:
    """Returns the mask `p - left <= k <= p + right`. `left` and `right` are numbers of keys on each side of
    the query's position; None means no bound.

    A causal sliding window of W keys, including the key at the query's position, is
    `window(left=W - 1, right=0)`.

    Raises:
      ArgumentError: `left` or `right` is not an integer from 0 to 2^31.
    """
    bounds = [
        f"{name} = {_count(name, value)}"
        for name, value in (("left", left), ("right", right))
        if value is not None
    ]
    return Mask("#flashattn.window" + (f"<{', '.join(bounds)}>" if bounds else ""))


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

    Tensors are arrays or lists of integers, of the library and on the device of q. Tensors of 32-bit integers are read
    where they are; others are converted here, and later writes to them have no effect. A clause has at most 8 tensors.

    Args:
      per_sequence: tensors with a number for each batch element or packed sequence: `[B]`, or one number for all: `[1]`,
        `[]` or an int.
      per_query: tensors with a number for each query: `[N]`, `[B, N]` or `[B, Hq, N]`, where B and Hq may be 1. With
        packed queries, `[T]` or `[Hq, T]`.
      per_key: tensors with a number for each key: `[N]`, `[B, N]` or `[B, Hkv, N]`, where B and Hkv may be 1. With packed
        keys, `[T]` or `[Hkv, T]`. With a page_table of P pages of S keys, N is P * S.

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

"""Masks: sets of visible (query, key) pairs, which print as attributes of the compiler.

`p` is the position of a query, `k` the index of a key. `|` is the union of two masks, `&` their
intersection. Masks compare by value and can be keys of a dictionary::

    flashattn.window(left=1023, right=0) | flashattn.sink(4) & flashattn.causal
"""

from __future__ import annotations

import os
from typing import Any, Optional, Tuple, Union, overload

from . import _library, _sets
from ._texts import encode, show
from .errors import ArgumentError, LibraryError

_Path = Union[str, "os.PathLike[str]"]


class Mask:
    """An immutable set of visible pairs. `str(mask)` is the attribute that the compiler parses. A notebook shows a
    mask as a picture, which `draw` makes of any size."""

    __slots__ = ("_text", "_hash", "_kind", "_parts")
    _text: str
    _hash: int
    _kind: Optional[str]
    _parts: Tuple["Mask", ...]

    def __init__(self, text: str, kind: Optional[str] = None, parts: Tuple["Mask", ...] = ()):
        if not isinstance(text, str):
            raise ArgumentError(f"expected the text of a mask but got {text!r}")
        set_field = object.__setattr__
        set_field(self, "_text", text)
        set_field(self, "_hash", hash(text))
        set_field(self, "_kind", kind)
        set_field(self, "_parts", parts)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a mask cannot be changed: tried to set {name!r}")

    __delattr__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Tuple[Any, ...]:
        return (Mask, (self._text, self._kind, self._parts))

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return self._text == other._text if isinstance(other, Mask) else NotImplemented

    def __bool__(self) -> bool:
        raise ArgumentError(
            "expected masks joined by & and | but got a mask as condition (if, and, or, not); to test for a "
            "mask, compare with None"
        )

    @overload
    def draw(
        self, nq: int, nk: int, path: None = None, *, align: "_sets.Align" = ..., offset: Optional[int] = ...,
        tile: Tuple[int, int] = ...,
    ) -> str: ...  # fmt: skip
    @overload
    def draw(
        self, nq: int, nk: int, path: "_Path", *, align: "_sets.Align" = ..., offset: Optional[int] = ...,
        tile: Tuple[int, int] = ...,
    ) -> None: ...  # fmt: skip
    def draw(
        self, nq: int, nk: int, path: Optional["_Path"] = None, *, align: "_sets.Align" = "bottom_right",
        offset: Optional[int] = None, tile: Tuple[int, int] = (128, 128),
    ) -> Optional[str]:  # fmt: skip
        """Draws the tiles of the plane of queries and keys as SVG.

        A tile is full if every pair in it is visible, partial if some are, and skipped if none is. The picture shows
        the visible pairs of partial tiles, or their share in each group of pairs if the pairs are too small to see.
        Its legend has the number and the share of the tiles of each kind and of the visible pairs.

        A picture has at most 200 kB. If there are more than 64 tiles in a row or column, a square of the picture
        stands for several tiles. If a large plane has too many partial tiles to look at all of them, the shares are
        estimated, and the picture says so.

        Args:
          nq, nk: the numbers of queries and keys.
          path: the file to write, which is replaced as a whole.
          align: the position of query 0 if nq and nk differ: nk - nq ("bottom_right") or 0 ("top_left").
          offset: the position of query 0; replaces the position that `align` implies.
          tile: the numbers of queries and keys of a tile.

        Returns:
          The text of the picture if `path` is None, otherwise None.

        Raises:
          ArgumentError: an argument is invalid, the folder of `path` does not exist, or the mask is not one of this
            package.
          OSError: the file cannot be written.
        """
        from . import _draw

        return _draw.draw(self, nq, nk, path, align, offset, tile)

    def _repr_svg_(self) -> Optional[str]:
        """Returns the picture that a notebook shows, or None if the mask is not one of this package. Its numbers of
        queries and keys are large enough to show the effect of the largest number in the mask."""
        from . import _draw

        try:
            return _draw.draw_default(self)
        except ArgumentError:
            return None

    def __or__(self, other: "Mask") -> "Mask":
        return _combine("any_of", self, other)

    def __and__(self, other: "Mask") -> "Mask":
        return _combine("all_of", self, other)


def _combine(kind: str, lhs: Mask, rhs: Mask) -> Mask:
    if not isinstance(rhs, Mask):
        return NotImplemented
    parts: Tuple[Mask, ...] = ()
    for mask in (lhs, rhs):
        parts += mask._parts if mask._kind == kind else (mask,)
    return Mask("#flashattn.%s<[%s]>" % (kind, ", ".join(map(str, parts))), kind, parts)


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


def affine_set(text: str) -> Mask:
    """Returns the mask of an integer set: `affine_set("(p, k)[nq, nk] : (p - k >= 0, k mod 64 == 0)")`.

    The constraints are affine in the position `p`, the key `k` and the numbers of queries and keys `nq`
    and `nk`, with `floordiv`, `ceildiv` and `mod` by constants.

    Raises:
      ArgumentError: the text is not such a set.
    """
    if not isinstance(text, str):
        raise ArgumentError(f"expected the text of an integer set but got {text!r}")
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:02X}"
        for byte in encode("an integer set", text)
    )
    mask = Mask(f'#flashattn.set<"{escaped}">')
    try:
        library = _library.get()
    except LibraryError:  # a mask can be created and printed without the library
        return mask
    reason = library.explain_mask(str(mask))
    if reason:
        raise ArgumentError(reason)
    return mask

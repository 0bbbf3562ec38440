"""The sets of masks in plain arithmetic, read from the text of a mask.

`parse` returns a function of values that have the operators of integers: integers, arrays, or bounds of them. It shares
no code with the compiler.
"""

from __future__ import annotations

import functools
import operator
import re
from typing import Any, Callable, Dict, List, Literal, Optional, Sequence, Tuple, TypeVar, get_args

from ._texts import show
from .errors import ArgumentError

#: The position of query 0: 0, or nk - nq.
Align = Literal["top_left", "bottom_right"]
ALIGNS = get_args(Align)

#: A function of the values (p, k, nq, nk), followed by those of further symbols.
Term = Callable[[Sequence[Any]], Any]
_Read = TypeVar("_Read")

_TOKEN = re.compile(
    r"\s+|//[^\n]*|"
    r'("(?:[^"\\]|\\.)*"|[A-Za-z_][\w$.]*|0x[0-9A-Fa-f]+|\d+|>=|<=|==|[-+*()\[\]<>,:=#])',
    re.ASCII,
)
_NAME = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|\d+", re.ASCII)
_RELATIONS = {">=": operator.ge, "<=": operator.le, "==": operator.eq}
#: Python's // and % round like floordiv and mod.
_DIVISIONS = {
    "floordiv": operator.floordiv, "ceildiv": lambda lhs, rhs: -(-lhs // rhs), "mod": operator.mod,
}  # fmt: skip


@functools.lru_cache(maxsize=256)
def parse(text: str) -> Term:
    """Returns the function that maps (p, k, nq, nk) and the values of further symbols to whether the mask with this
    text shows the pair (p, k).

    The result has the shape that the mask's terms give it: that of `k` alone if the mask depends only on `k`.

    Raises:
      ArgumentError: the text is not that of a mask of the dialect flashattn.
    """
    try:
        return _Parser(text).read_whole(_Parser.read_mask)
    except RecursionError:
        raise ArgumentError("expected a mask that nests less deep but got one that exceeds the stack") from None


class _Parser:
    """A recursive-descent parser of masks and of integer sets."""

    def __init__(self, text: str):
        self._text = text
        self._tokens: List[str] = []
        self._at = 0
        self._names: List[str] = []
        self._uses = 0  # of names, to tell constants
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if not match:
                raise self._error("a mask", text[at])
            if match[1]:
                self._tokens.append(match[1])
            at = match.end()

    def read_whole(self, read: Callable[["_Parser"], Term]) -> Term:
        """Returns what `read` makes of the text, all of which it must read."""
        term = read(self)
        if self._peek():
            raise self._error("the end of the text", self._peek())
        return term

    def read_mask(self) -> Term:
        self._skip("#")
        name = self._take_name("a mask")
        if name == "flashattn":  # #flashattn<causal> is #flashattn.causal
            return self._in_brackets(self.read_mask)
        readers: Dict[str, Callable[[], Term]] = {
            "causal": self._read_causal, "window": self._read_window, "sink": self._read_sink,
            "set": self._read_quoted_set, "affine_set": self._read_affine_set,
            "any_of": lambda: self._read_combination(operator.or_, False),
            "all_of": lambda: self._read_combination(operator.and_, True),
        }  # fmt: skip
        reader = readers.get(name[len("flashattn.") :] if name.startswith("flashattn.") else name)
        if reader is None:
            raise self._error("a mask of the dialect flashattn, such as causal or window<left = 3>,", name)
        return reader()

    def read_set(self) -> Term:
        """Reads `(p, k)[nq, nk, ...] : (constraint, ...)`. Fewer symbols stand for the first ones."""
        self._names = self._read_names("(", ")")
        if len(self._names) != 2:
            raise self._error("an integer set of 2 dimensions, (p, k),", f"({', '.join(self._names)})")
        if self._peek() == "[":
            self._names += self._read_names("[", "]")
        self._take(":")
        self._take("(")
        constraints: List[Term] = []
        while not self._skip(")"):
            if constraints:
                self._take(",")
            constraints.append(self._read_constraint())
        return _join(operator.and_, constraints, True)

    def _read_causal(self) -> Term:
        return lambda at: at[1] <= at[0]

    def _read_window(self) -> Term:
        bounds: List[Term] = []
        if not self._skip("<"):
            return _join(operator.and_, bounds, True)
        while not self._skip(">"):
            if bounds:
                self._take(",")
            side = self._take_name("left or right")
            if side not in ("left", "right"):
                raise self._error("left or right", side)
            self._take("=")
            bounds.append(_bound(side, self._take_number()))
        return _join(operator.and_, bounds, True)

    def _read_sink(self) -> Term:
        last = self._in_brackets(self._take_number) - 1
        return lambda at: at[1] <= last

    def _read_quoted_set(self) -> Term:
        def read() -> Term:
            token = self._peek()
            if not token.startswith('"'):
                self._take("affine_set")
                return self._read_affine_set()
            self._at += 1
            return _Parser(unescape(token[1:-1])).read_whole(_Parser.read_set)

        return self._in_brackets(read)

    def _read_affine_set(self) -> Term:
        return self._in_brackets(self.read_set)

    def _read_combination(self, join: Callable[[Any, Any], Any], empty: bool) -> Term:
        def read() -> List[Term]:
            parts: List[Term] = []
            self._take("[")
            while not self._skip("]"):
                if parts:
                    self._take(",")
                parts.append(self.read_mask())
            return parts

        return _join(join, self._in_brackets(read), empty)

    def _read_constraint(self) -> Term:
        lhs = self._read_sum()
        relation = _RELATIONS.get(self._peek())
        if relation is None:
            raise self._error(">=, <= or ==", self._peek())
        self._at += 1
        return _chain(lhs, [(relation, self._read_sum())])

    def _read_sum(self) -> Term:
        first, rest = self._read_product(), []
        while self._peek() in ("+", "-"):
            sign = operator.add if self._next() == "+" else operator.sub
            rest.append((sign, self._read_product()))
        return _chain(first, rest)

    def _read_product(self) -> Term:
        first, rest = self._read_operand(), []
        while self._peek() == "*" or self._peek() in _DIVISIONS:
            name = self._next()
            rest.append((operator.mul, self._read_operand()) if name == "*" else self._read_division(name))
        return _chain(first, rest)

    def _read_division(self, name: str) -> Tuple[Callable[[Any, Any], Any], Term]:
        before = self._uses
        term = self._read_operand()
        divisor = term(()) if self._uses == before else None
        if divisor is None or divisor < 1:
            raise self._error(f"a constant of at least 1 behind {name}", divisor)
        return _DIVISIONS[name], lambda at: divisor

    def _read_operand(self) -> Term:
        """Reads a name, a number or a sum in brackets. A minus sign binds closer than any other operator."""
        if self._skip("-"):
            negated = self._read_operand()
            return lambda at: -negated(at)
        if self._skip("("):
            term = self._read_sum()
            self._take(")")
            return term
        if _NUMBER.fullmatch(self._peek()):
            number = self._take_number()
            return lambda at: number
        name = self._take_name("a term")
        if name not in self._names:
            raise self._error("one of " + ", ".join(self._names), name)
        self._uses += 1
        index = self._names.index(name)
        return lambda at: at[index]

    def _read_names(self, opening: str, closing: str) -> List[str]:
        names: List[str] = []
        self._take(opening)
        while not self._skip(closing):
            if names:
                self._take(",")
            names.append(self._take_name("a name"))
        return names

    def _in_brackets(self, read: Callable[[], _Read]) -> _Read:
        self._take("<")
        found = read()
        self._take(">")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _skip(self, token: str) -> bool:
        found = self._peek() == token
        self._at += found
        return found

    def _take(self, token: str) -> None:
        if not self._skip(token):
            raise self._error(f"'{token}'", self._peek())

    def _take_name(self, wanted: str) -> str:
        if not _NAME.fullmatch(self._peek()):
            raise self._error(wanted, self._peek())
        return self._next()

    def _take_number(self) -> int:
        if not _NUMBER.fullmatch(self._peek()):
            raise self._error("a number", self._peek())
        token = self._next()
        if len(token) > 20 or int(token, 0 if token.startswith("0x") else 10) >= 1 << 63:
            raise self._error("a number below 2^63", token)
        return int(token, 0 if token.startswith("0x") else 10)

    def _error(self, wanted: str, found: Optional[object]) -> ArgumentError:
        got = "the end" if found == "" else "another term" if found is None else show(found)
        return ArgumentError(f"expected {wanted} but got {got} in {self._text}")


def _bound(side: str, count: int) -> Term:
    if side == "left":
        return lambda at: at[1] >= at[0] - count
    return lambda at: at[1] <= at[0] + count


def _chain(first: Term, rest: Sequence[Tuple[Callable[[Any, Any], Any], Term]]) -> Term:
    """Returns a term that applies the operators from left to right. A loop, as sums may have thousands of terms."""
    if not rest:
        return first

    def evaluate(at: Sequence[Any]) -> Any:
        value = first(at)
        for apply, term in rest:
            value = apply(value, term(at))
        return value

    return evaluate


def _join(join: Callable[[Any, Any], Any], parts: Sequence[Term], empty: bool) -> Term:
    if not parts:
        return lambda at: empty
    return _chain(parts[0], [(join, part) for part in parts[1:]])


def unescape(text: str) -> str:
    """Returns the text of a string literal of MLIR."""
    named = {"n": "\n", "t": "\t"}
    return re.sub(
        r"\\([0-9A-Fa-f]{2}|.)",
        lambda match: chr(int(match[1], 16)) if len(match[1]) == 2 else named.get(match[1], match[1]),
        text,
        flags=re.DOTALL,
    )

"""Sets of pairs of a `mask_mod`'s graph. Conditions are affine in the positions and in integers that depend on the
batch, on the query or on the key, which become tensors of the mask.
"""

from __future__ import annotations

import logging
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from .._symbols import as_int32
from ..errors import ArgumentError, TraceError
from ..masks import Mask, _set, affine_set
from ._graph import Node, apply, compute, indices

_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_LOGICAL = ("&", "|", "^", "~", "where")
#: The most sets of a mask, after intersections are expanded to unions.
_MAX_SETS = 64
#: The clauses of a mask, with the words of their symbols and the arguments on which a symbol may depend.
_SIDES = {"per_sequence": ("sequence", "b"), "per_query": ("query", "bhp"), "per_key": ("key", "bhk")}
_log = logging.getLogger("flashattn")


def affine_text(node: Any) -> str:
    """Returns the text of an affine expression. Raises TraceError if the expression is not affine."""
    if not isinstance(node, Node):
        if isinstance(node, bool) or int(node) != node:
            raise TraceError(f"expected integers in an affine mask_mod but got {node}")
        return str(int(node))
    if node.op in ("p", "k"):
        return node.op
    if node.op in ("b", "h"):
        name = {"b": "batch", "h": "head"}[node.op]
        raise TraceError(f"expected an affine mask_mod to read positions alone but got the {name}")
    if node.op == "load":
        raise TraceError("expected an affine mask_mod to read positions alone but got a tensor")
    if node.op == "neg":
        return f"(-({affine_text(node.args[0])}))"
    if node.op in ("+", "-"):
        return f"({affine_text(node.args[0])} {node.op} {affine_text(node.args[1])})"
    if node.op in ("*", "//", "%"):
        numbers = [x for x in node.args if not isinstance(x, Node)]
        if not numbers or node.op != "*" and isinstance(node.args[1], Node):
            raise TraceError(f"expected an integer as an operand of '{node.op}' but got two indices")
        if node.op != "*" and not node.args[1] > 0:
            raise TraceError(f"expected '{node.op}' by a positive integer but got {node.args[1]}")
        name = {"*": "*", "//": "floordiv", "%": "mod"}[node.op]
        # The constant of a product is the second factor.
        first, second = sorted(node.args, key=lambda x: not isinstance(x, Node))
        return f"({affine_text(first)} {name} {affine_text(second)})"
    raise TraceError(f"expected affine operations in mask_mod but got '{node.op}'")


class _Sum:
    """An integer as a sum of nodes with factors: those that are affine in the positions, and by clause those that read
    tensors, the batch or the head."""

    def __init__(self) -> None:
        self.affine: List[Tuple[int, Any]] = []
        self.terms: Dict[str, List[Tuple[int, Any]]] = {clause: [] for clause in _SIDES}


class Sets:
    """Makes sets of the conditions of one call."""

    def __init__(self, sizes: Optional[Tuple[int, int, int, int]] = None, kv_heads: int = 0, device: Any = None):
        """`sizes` are those of the scores, `[B, Hq, Nq, Nk]`. Without them, a condition must be affine in the positions
        alone."""
        self._sizes, self._kv_heads, self._device = sizes, kv_heads, device
        #: The tensors of terms, so that the same term is the same tensor.
        self._known: Dict[Any, Tensor] = {}

    def mask_of(self, node: Any, is_negated: bool = False) -> Mask:
        """Returns the mask of the pairs for which a condition holds or, with `is_negated`, does not hold. Raises
        TraceError."""
        if isinstance(node, bool):
            return _affine_set("k >= 0" if node != is_negated else "-k - 1 >= 0")
        if not isinstance(node, Node):
            raise TraceError(f"expected mask_mod to return a condition but got {node}")
        if node.op in _LOGICAL and self._is_one_table(node):
            return self._table(node, is_negated)
        if node.op == "~":
            return self.mask_of(node.args[0], not is_negated)
        if node.op == "^":
            one, other = node.args
            return self._either(
                self._both(self.mask_of(one), self.mask_of(other, not is_negated)),
                self._both(self.mask_of(one, True), self.mask_of(other, is_negated)),
            )
        if node.op == "where":
            condition, *both = node.args
            then, otherwise = (self.mask_of(x, is_negated) for x in both)
            return self._either(
                self._both(self.mask_of(condition), then), self._both(self.mask_of(condition, True), otherwise)
            )
        if node.op in ("&", "|"):
            one, other = (self.mask_of(x, is_negated) for x in node.args)
            return (self._both if (node.op == "&") != is_negated else self._either)(one, other)
        try:
            return self._compare(node, is_negated)
        except TraceError:
            if self._clause_of(node) is None:
                raise
        return self._table(node, is_negated)

    def both(self, one: Optional[Mask], other: Mask) -> Mask:
        """Returns the intersection of two masks, of which the first may be None. Raises TraceError if it has too many
        sets or tensors."""
        return other if one is None else self._both(one, other)

    def _both(self, one: Mask, other: Mask) -> Mask:
        return _check_size(lambda: one & other)

    def _either(self, one: Mask, other: Mask) -> Mask:
        return _check_size(lambda: one | other)

    def _clause_of(self, node: Any) -> Optional[str]:
        """Returns the clause of the values of a node; None if they depend on the query and on the key, or if there are
        no tensors here."""
        if self._sizes is None:
            return None
        needs = node.needs - {"load"}
        if "k" in needs and "h" in needs and self._kv_heads != self._sizes[1]:
            return None  # a symbol has a value for each head of keys
        return next((clause for clause, (_, known) in _SIDES.items() if needs <= set(known)), None)

    def _is_one_table(self, node: Any) -> bool:
        """Returns whether all conditions in a condition read tensors of queries, or all of them tensors of keys, so
        that the result does too."""
        if self._clause_of(node) not in ("per_query", "per_key"):
            return False
        return all(isinstance(x, Node) and self._is_table(x) for x in node.args)

    def _is_table(self, node: Node) -> bool:
        if node.op in _LOGICAL:
            return self._is_one_table(node)
        if node.op not in _NEGATED:
            return True
        try:
            found = self._sum(node)
        except TraceError:
            return True
        return any(found.terms[clause] for clause in ("per_query", "per_key"))

    def _sum(self, node: Node) -> _Sum:
        found = _Sum()
        for factor, part in zip((1, -1), node.args):
            self._add(found, factor, part)
        return found

    def _add(self, found: _Sum, factor: int, node: Any) -> None:
        """Adds a number of times a node to a sum. Raises TraceError."""
        if isinstance(node, Node) and node.op in ("+", "-", "neg"):
            factors = {"+": (1, 1), "-": (1, -1), "neg": (-1,)}[node.op]
            for sign, part in zip(factors, node.args):
                self._add(found, sign * factor, part)
            return
        clause = self._clause_of(node) if isinstance(node, Node) else None
        if not isinstance(node, Node) or node.needs <= {"p", "k"}:
            try:
                affine_text(node)
            except TraceError:
                if clause is None:
                    raise
            else:
                found.affine.append((factor, node))
                return
        if clause is None:
            affine_text(node)  # names what it is not
            raise TraceError(f"expected affine operations in mask_mod but got '{node.op}' of a query and a key")
        found.terms[clause].append((factor, node))

    def _compare(self, node: Node, is_negated: bool) -> Mask:
        if node.op not in _NEGATED:
            raise TraceError(f"expected comparisons of positions in mask_mod but got '{node.op}'")
        whole = _without_abs(node)
        if whole is not node:
            return self.mask_of(whole, is_negated)
        op = _NEGATED[node.op] if is_negated else node.op
        found = self._sum(node)
        tensors: Dict[str, List[Tensor]] = {}
        if any(found.terms.values()):
            difference, negative, tensors = self._texts_of(found)
        else:
            one, other = map(affine_text, node.args)
            difference, negative = f"{one} - {other}", f"{other} - {one}"

        def make(constraint: str) -> Mask:
            return _set(constraint, **tensors) if tensors else _affine_set(constraint)

        if op == "==":
            return make(f"{difference} == 0")
        if op == "!=":
            return self._either(make(f"{difference} - 1 >= 0"), make(f"{negative} - 1 >= 0"))
        text = difference if op[0] == ">" else negative
        return make(f"{text} >= 0" if op.endswith("=") else f"{text} - 1 >= 0")

    def _texts_of(self, found: _Sum) -> Tuple[str, str, Dict[str, List[Tensor]]]:
        """Returns the text of a sum and that of its negative, and its tensors by clause. A sum has one tensor of each
        clause, which includes the position beside it: tiles are skipped best by one number for each query or key."""
        terms = {clause: list(given) for clause, given in found.terms.items()}
        varying = [clause for clause in ("per_query", "per_key") if terms[clause]]
        if varying:
            terms[varying[0]] += terms.pop("per_sequence")
        positions = {"p": "per_query", "k": "per_key"}
        texts: List[Tuple[int, str]] = []
        constant = 0
        for factor, node in found.affine:
            clause = positions.get(node.op if isinstance(node, Node) else "", "")
            if not isinstance(node, Node):
                constant += factor * int(node)
            elif clause in varying:
                terms[clause].append((factor, node))
            else:
                texts.append((factor, affine_text(node)))
        tensors = {}
        for clause, given in terms.items():
            if given:
                # One captured tensor is read where it is, also if it is subtracted.
                sign = given[0][0] if len(given) == 1 else 1
                tensors[clause] = [self._tensor([(sign * factor, node) for factor, node in given], clause)]
                texts.append((sign, f"{_SIDES[clause][0]}0"))
        if constant or not texts:
            texts.append((1 if constant > 0 else -1, str(abs(constant))))
        first, second = ("".join(
            f"{' + ' if sign * factor > 0 else ' - '}{text}" for factor, text in texts
        ) for sign in (1, -1))  # fmt: skip
        return _without_sign(first), _without_sign(second), tensors

    def _table(self, node: Node, is_negated: bool) -> Mask:
        """Returns the mask of a condition that depends on the query or on the key, whose values become a tensor."""
        clause = self._clause_of(node)
        assert clause is not None
        word = f"{_SIDES[clause][0]}0"
        tensors = {clause: [self._tensor([(1, node)], clause, True)]}
        return _set(f"-{word} >= 0" if is_negated else f"{word} - 1 >= 0", **tensors)

    def _tensor(self, terms: List[Tuple[int, Node]], clause: str, is_condition: bool = False) -> Tensor:
        key = clause, is_condition, *((factor, _key_of(node)) for factor, node in terms)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._compute(terms, clause, is_condition)
        return found

    def _compute(self, terms: List[Tuple[int, Node]], clause: str, is_condition: bool) -> Tensor:
        """Returns the sum of terms as a tensor of a clause. A captured tensor of 32-bit integers that is indexed as the
        clause's operand is, is that operand itself."""
        assert self._sizes is not None
        (factor, node), *others = terms
        if not others and factor == 1 and not is_condition and node.op == "load":
            found = self._view(node, clause)
            if found is not None:
                return _narrow(found)
        values: Any = None
        for factor, node in terms:
            part = torch.as_tensor(compute(node, indices(*self._sizes, self._device)), device=self._device)
            if is_condition:
                part = part.to(torch.bool)
            elif part.is_floating_point() or part.is_complex():
                raise TraceError(f"expected integers in a set of mask_mod but got {str(part.dtype)[6:]}")
            part = part if part.dtype is torch.bool else part.long() * factor
            values = part if values is None else values + part
        values = values.reshape((1,) * (4 - values.ndim) + tuple(values.shape))
        if clause == "per_sequence":
            return _narrow(values.reshape(-1))
        at = 2 if clause == "per_query" else 3
        values = values.squeeze(5 - at)
        return _narrow(values.expand(*values.shape[:2], self._sizes[at]).contiguous())

    def _view(self, node: Node, clause: str) -> Optional[Tensor]:
        """Returns the elements of a captured tensor that is indexed by the arguments of a clause, in order; None for
        other indices."""
        assert self._sizes is not None
        tensor, *given = node.args
        if any(not isinstance(x, Node) or x.op not in "bhpk" for x in given) or tensor.device != self._device:
            return None
        names = "".join(x.op for x in given)
        known = _SIDES[clause][1]
        if clause == "per_sequence":
            known_names: Tuple[str, ...] = ("", "b")
        else:
            known_names = (known[-1], "b" + known[-1], "h" + known[-1], known)
        if names not in known_names:
            return None
        counts = dict(zip("bhpk", self._sizes))
        if any(tensor.shape[i] < counts[name] for i, name in enumerate(names)):
            return None
        tensor = tensor[tuple(slice(counts[name]) for name in names)]
        return tensor.unsqueeze(0) if names[:1] == "h" else tensor


def _without_abs(node: Node) -> Node:
    """Returns a comparison with an absolute value as two comparisons without it, and another one as it is."""
    (one, other), op = node.args, node.op
    if op in ("==", "!="):
        return node
    if isinstance(other, Node) and other.op == "abs":
        one, other, op = other, one, {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
    if not isinstance(one, Node) or one.op != "abs":
        return node
    both = apply(op, one.args[0], other), apply(op, apply("neg", one.args[0]), other)
    found: Node = apply("&" if op[0] == "<" else "|", *both)
    return found


def _without_sign(text: str) -> str:
    """Returns a sum without the sign before its first term, unless it is a minus."""
    return text[3:] if text.startswith(" + ") else f"-{text[3:]}"


def _narrow(tensor: Tensor) -> Tensor:
    """Returns integers as those of 32 bits. Raises TraceError if they do not fit. On a GPU, which the host does not
    wait for, that fails on the device."""
    if tensor.dtype is torch.int64 and tensor.numel():
        fits = ((tensor > -(1 << 31)) & (tensor < 1 << 31)).all()
        if tensor.is_cuda:
            torch._assert_async(fits, "expected integers of 32 bits in a mask_mod")
        elif not fits:
            raise TraceError("expected integers of 32 bits in a set of mask_mod but got larger ones")
    if tensor.is_floating_point() or tensor.is_complex():
        raise TraceError(f"expected integers in a set of mask_mod but got {str(tensor.dtype)[6:]}")
    tensor = as_int32("a captured tensor", tensor)
    return tensor if not tensor.ndim or tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _key_of(node: Any) -> Any:
    """Returns what is equal for nodes with the same values."""
    if isinstance(node, Tensor):
        return id(node)
    return (node.op, *map(_key_of, node.args)) if isinstance(node, Node) else (type(node), node)


def _affine_set(constraint: str) -> Mask:
    return affine_set(f"(p, k)[nq, nk] : ({constraint})")


def _check_size(make: Any) -> Mask:
    try:
        mask = make()
    except ArgumentError as error:  # too many tensors
        raise TraceError(str(error)) from None
    count = _count_sets(mask)
    if count > _MAX_SETS:
        raise TraceError(f"expected at most {_MAX_SETS} sets of a mask_mod but got {count}")
    return mask


def _count_sets(mask: Mask) -> int:
    counts = [_count_sets(part) for part in mask._parts] or [1]
    found = 0 if mask._kind == "any_of" else 1
    for count in counts:
        found = found + count if mask._kind == "any_of" else found * count
    return found


def log_dense(reason: TraceError) -> None:
    """Logs that a condition becomes a Boolean tensor."""
    _log.info("flex_attention: a condition of mask_mod is no set but a Boolean tensor of pairs: %s", reason)

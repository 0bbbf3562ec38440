"""Numbers of positions that masks read, made of arrays of NumPy, PyTorch or JAX on the device of the array. The host
reads no element of an array on a GPU."""

from __future__ import annotations

import sys
from typing import Any, Sequence, Tuple

import numpy

from . import _tensors
from ._symbols import as_int32
from .errors import ArgumentError


def _is_jax(x: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def to_array(name: str, value: Any, ranks: Sequence[int]) -> Any:
    """Returns an argument as an array of 32-bit integers of one of these ranks. Raises ArgumentError."""
    if not (_tensors.is_torch(value) or _is_jax(value)):
        given = value
        try:
            value = numpy.asarray(value)
        except ValueError:
            raise ArgumentError(f"expected {name} to be an array but got lists of different lengths") from None
        if value.dtype == object:
            raise ArgumentError(f"expected {name} to be an array of numpy, torch or jax but got {type(given).__name__}")
    if len(value.shape) not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise ArgumentError(f"expected {name} of rank {wanted} but got rank {len(value.shape)}")
    return as_int32(name, value)


def dense(x: Any) -> Any:
    """Returns the array in rows of stride 1."""
    if isinstance(x, numpy.ndarray):
        return numpy.ascontiguousarray(x)
    return x.contiguous() if _tensors.is_torch(x) else x


def count(n: int, like: Any) -> Any:
    """Returns the numbers from 0 to n - 1."""
    if _tensors.is_torch(like):
        torch = sys.modules["torch"]
        return torch.arange(n, dtype=torch.int32, device=like.device)
    if _is_jax(like):
        jnp = sys.modules["jax.numpy"]
        return jnp.arange(n, dtype=jnp.int32)
    return numpy.arange(n, dtype=numpy.int32)


def like(array: Any, numbers: Sequence[int]) -> Any:
    """Returns numbers as an array of the library and on the device of `array`."""
    if _tensors.is_torch(array):
        return sys.modules["torch"].tensor(numbers, dtype=array.dtype, device=array.device)
    return (sys.modules["jax.numpy"] if _is_jax(array) else numpy).asarray(numbers, dtype="int32")


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    if _tensors.is_torch(condition):
        return sys.modules["torch"].where(condition, then, otherwise)
    return (sys.modules["jax.numpy"] if _is_jax(condition) else numpy).where(condition, then, otherwise)


def _concat(one: Any, other: Any) -> Any:
    """Joins two arrays along the last dimension."""
    if _tensors.is_torch(one):
        return sys.modules["torch"].cat((one, other), -1)
    return (sys.modules["jax.numpy"] if _is_jax(one) else numpy).concatenate((one, other), -1)


def _greatest_so_far(x: Any, reverse: bool = False) -> Any:
    """Returns the greatest number up to each element of a row or, with `reverse`, from each element on."""
    if _tensors.is_torch(x):
        x = x.flip(-1) if reverse else x
        found = x.cummax(-1).values
        return found.flip(-1) if reverse else found
    if _is_jax(x):
        return sys.modules["jax"].lax.cummax(x, axis=x.ndim - 1, reverse=reverse)
    x = x[..., ::-1] if reverse else x
    found = numpy.maximum.accumulate(x, axis=-1)
    return numpy.ascontiguousarray(found[..., ::-1] if reverse else found)


def runs(ids: Any) -> Tuple[Any, Any]:
    """Returns, for each element, the first index of its run of equal ids, and the index after the last one."""
    n = ids.shape[-1]
    changes, ones = ids[..., 1:] != ids[..., :-1], ids[..., :1] == ids[..., :1]
    index = count(n, ids)
    starts = _greatest_so_far(where(_concat(ones, changes), index, 0 * index))
    ends = n - _greatest_so_far(where(_concat(changes, ones), n - 1 - index, 0 * index), reverse=True)
    return as_int32("starts", starts), as_int32("ends", ends)


def ids_of(starts: Any, n: int) -> Any:
    """Returns the number of starts up to each of n positions. Starts from n on do not count."""
    rows = starts.reshape(-1, starts.shape[-1])
    index = where(rows < n, rows, 0 * rows + n)
    index = where(index < 0, 0 * index, index) + (n + 1) * count(rows.shape[0], rows)[:, None]
    marks = 0 * count(rows.shape[0] * (n + 1), rows)
    if _tensors.is_torch(rows):
        ones = sys.modules["torch"].ones_like(index)
        ids = marks.scatter_add(0, index.reshape(-1).long(), ones.reshape(-1)).reshape(-1, n + 1).cumsum(-1)
    elif _is_jax(rows):
        ids = marks.at[index.reshape(-1)].add(1).reshape(-1, n + 1).cumsum(-1)
    else:
        numpy.add.at(marks, index.reshape(-1), 1)
        ids = marks.reshape(-1, n + 1).cumsum(-1)
    return ids[:, :n].reshape(*starts.shape[:-1], n)


def _spread_greatest(numbers: Any, to: Any) -> Any:
    """Returns `numbers`, in which element `to[i]` is at least number i."""
    if _tensors.is_torch(numbers):
        return numbers.scatter_reduce(0, to, numbers, "amax")
    if _is_jax(numbers):
        return numbers.at[to].max(numbers)
    found = numbers.copy()
    numpy.maximum.at(found, to, numbers)
    return found


def subtree_ends(parents: Any) -> Any:
    """Returns the index after the last node below each node of a forest, itself included. A parent below 0 is none.
    Raises ArgumentError for parents in host memory that are not in depth-first order."""
    n = parents.shape[-1]
    rows = parents.reshape(-1, n)
    if isinstance(rows, numpy.ndarray):
        wrong = numpy.argwhere(rows >= numpy.arange(n))
        if wrong.size:
            row, node = wrong[0]
            raise ArgumentError(f"expected the parent of node {node} before the node but got {rows[row, node]}")
    # Each row gets a node n, above the roots, so that all rows are one array.
    above = where(rows < 0, 0 * rows + n, rows)
    first = (n + 1) * count(rows.shape[0], rows)[:, None]
    up = (_concat(above, 0 * above[:, :1] + n) + first).reshape(-1)
    own = (0 * first + count(n + 1, rows)[None]).reshape(-1)
    if _tensors.is_torch(up):
        up = up.long()
    ends, depths = own + 1, where(own < n, 0 * own + 1, 0 * own)
    # After t steps, `up` is 2^t generations above a node, and the numbers of a node count all closer generations.
    for _ in range(max(n - 1, 0).bit_length()):
        ends, depths, up = _spread_greatest(ends, up), depths + depths[up], up[up]
    ends = ends.reshape(-1, n + 1)[:, :n]
    if isinstance(parents, numpy.ndarray):
        _check_order(rows, ends, depths.reshape(-1, n + 1)[:, :n])
    return dense(as_int32("ends", ends.reshape(parents.shape)))


def _check_order(parents: numpy.ndarray, ends: numpy.ndarray, depths: numpy.ndarray) -> None:
    # In depth-first order, the nodes whose subtrees span a node are those above it.
    spans = numpy.zeros((parents.shape[0], parents.shape[1] + 1), numpy.int64)
    spans[:, :-1] += 1
    for row, own in enumerate(ends):
        numpy.subtract.at(spans[row], own, 1)
    wrong = numpy.argwhere(numpy.cumsum(spans, axis=1)[:, :-1] != depths)
    if wrong.size:
        row, node = wrong[0]
        raise ArgumentError(
            f"expected parents in depth-first order but got node {node}, with parent {parents[row, node]}, among the "
            "nodes below another one"
        )


def _check_ranges(begins: numpy.ndarray, lasts: numpy.ndarray) -> None:
    last, end = -1, 0
    for i in numpy.argsort(begins, kind="stable"):
        if begins[i] >= lasts[i]:
            continue
        if begins[i] < end:
            raise ArgumentError(
                f"expected ranges of queries that do not overlap but got [{begins[i]}, {lasts[i]}) and "
                f"[{begins[last]}, {lasts[last]})"
            )
        last, end = i, lasts[i]


def ranges_of(q_ranges: Any, k_ranges: Any, types: Any, n: int) -> Tuple[Any, Any]:
    """Returns the first key that each of n queries sees, and the one after the last: two arrays. Of two ranges of
    queries that overlap, the later one counts."""
    begins, lasts = q_ranges[:, 0], q_ranges[:, 1]
    if isinstance(begins, numpy.ndarray):
        _check_ranges(begins, lasts)
    # An empty range hides no other one.
    keys = where(begins < lasts, begins, 0 * begins + n)
    index = count(n, q_ranges)
    if _tensors.is_torch(q_ranges):
        torch = sys.modules["torch"]
        keys, order = torch.sort(keys, stable=True)
        at = torch.searchsorted(keys, index, right=True) - 1
    else:
        library: Any = sys.modules["jax.numpy"] if _is_jax(q_ranges) else numpy
        order = library.argsort(keys, stable=True)
        at = library.searchsorted(keys[order], index, side="right") - 1
    which = order[where(at < 0, 0 * at, at)]
    q_begin, q_end = begins[which], lasts[which]
    k_begin, k_end, kind = k_ranges[which, 0], k_ranges[which, 1], types[which]
    is_within = (at >= 0) & (index < q_end)
    least, greatest = k_begin + index - q_begin, k_end - (q_end - 1 - index)
    first = where((kind >= 2) & (least > k_begin), least, k_begin)
    end = where(((kind == 1) | (kind == 3)) & (greatest < k_end), greatest, k_end)
    nothing = 0 * index
    first, end = where(is_within, first, nothing), where(is_within, end, nothing)
    return as_int32("ranges", first), as_int32("ranges", end)

"""Numbers of positions that masks read, made of arrays of NumPy, PyTorch or JAX on the device of the array. The host
reads no element of an array on a GPU."""

from __future__ import annotations

import sys
from typing import Any, List, Sequence, Tuple

import numpy

from . import _tensors
from ._symbols import as_int32
from .errors import ArgumentError


def _is_jax(x: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def to_array(name: str, value: Any, ranks: Sequence[int], like: Any = None) -> Any:
    """Returns an argument as an array of 32-bit integers of one of these ranks. A list is converted to the library and
    the device of `like`, an earlier argument, where an array must be. Raises ArgumentError."""
    kind = f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
    try:
        if isinstance(value, (list, tuple)) and like is not None:
            value = _as_like(value, like)
        elif not (_tensors.is_torch(value) or _is_jax(value)):
            value = numpy.asarray(value)
    except ValueError:
        raise ArgumentError(f"expected {name} to be an array but got lists of different lengths") from None
    except TypeError:  # as of CuPy, which does not copy to the host
        value = numpy.empty((), object)
    if value.dtype == object:
        raise ArgumentError(f"expected {name} to be an array of numpy, torch or jax but got {kind}")
    if like is not None and _place_of(value) != _place_of(like):
        raise ArgumentError(f"expected {name} to be {_place_of(like)} but got {_place_of(value)}")
    if len(value.shape) not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise ArgumentError(f"expected {name} of rank {wanted} but got rank {len(value.shape)}")
    return as_int32(name, value)


def _as_like(numbers: Sequence[Any], like: Any) -> Any:
    if _tensors.is_torch(like):
        return sys.modules["torch"].tensor(numbers, device=like.device)
    return (sys.modules["jax.numpy"] if _is_jax(like) else numpy).asarray(numbers)


def _place_of(x: Any) -> str:
    if _tensors.is_torch(x):
        return f"a tensor of torch on {x.device}"
    return f"an array of {'jax' if _is_jax(x) else 'numpy'}"


def copy(x: Any) -> Any:
    """Returns a copy of the array with rows of stride 1."""
    if isinstance(x, numpy.ndarray):
        return numpy.array(x, order="C")
    if _tensors.is_torch(x):
        return x.clone(memory_format=sys.modules["torch"].contiguous_format)
    return x  # cannot change


def count(n: int, like: Any) -> Any:
    """Returns the numbers from 0 to n - 1."""
    if _tensors.is_torch(like):
        torch = sys.modules["torch"]
        return torch.arange(n, dtype=torch.int32, device=like.device)
    if _is_jax(like):
        jnp = sys.modules["jax.numpy"]
        return jnp.arange(n, dtype=jnp.int32)
    return numpy.arange(n, dtype=numpy.int32)


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    if _tensors.is_torch(condition):
        return sys.modules["torch"].where(condition, then, otherwise)
    return (sys.modules["jax.numpy"] if _is_jax(condition) else numpy).where(condition, then, otherwise)


def _concat(one: Any, other: Any) -> Any:
    """Joins two arrays along the last dimension."""
    if _tensors.is_torch(one):
        return sys.modules["torch"].cat((one, other), -1)
    return (sys.modules["jax.numpy"] if _is_jax(one) else numpy).concatenate((one, other), -1)


def search(rows: Any, numbers: Any, right: bool) -> Any:
    """Returns, for each of the `numbers` `[N]` or `[B, N]`, how many elements of its row of `rows`, `[M]` or `[B, M]`
    in ascending order, are less or, with `right`, not greater."""
    if _tensors.is_torch(rows):
        return sys.modules["torch"].searchsorted(rows, numbers, right=right, out_int32=True)
    side = "right" if right else "left"
    if _is_jax(rows):
        jax = sys.modules["jax"]
        find = jax.numpy.searchsorted
        for _ in rows.shape[:-1]:
            find = jax.vmap(find, (0, 0, None))
        return find(rows, numbers, side)
    if rows.ndim == 1:
        return numpy.searchsorted(rows, numbers, side).astype(numpy.int32)
    return numpy.stack([search(*both, right) for both in zip(rows, numbers)])


def _take(rows: Any, index: Any) -> Any:
    """Returns the elements of each row of `rows` at the indices in the same row of `index`."""
    if _tensors.is_torch(rows):
        return rows.gather(-1, index.long())
    return (sys.modules["jax.numpy"] if _is_jax(rows) else numpy).take_along_axis(rows, index, -1)


def runs(ids: Any, with_ends: bool) -> Tuple[Any, Any]:
    """Returns, for each element, the first index of its run of equal ids and, if asked for, the index after the last
    one."""
    # The first element of a row is compared with the last one of the row. The result does not matter, because a run's
    # number is only compared with others of the row. One sum over all rows is faster on a GPU.
    if _tensors.is_torch(ids):
        changes = (ids != ids.roll(1, -1)).reshape(-1)
        numbers = changes.cumsum(0, dtype=ids.dtype)
    else:
        library: Any = sys.modules["jax.numpy"] if _is_jax(ids) else numpy
        numbers = library.cumsum(ids != library.roll(ids, 1, -1), dtype=ids.dtype)
    numbers = numbers.reshape(ids.shape)
    return search(numbers, numbers, right=False), search(numbers, numbers, right=True) if with_ends else None


def between(starts: Any, n: int, with_ends: bool) -> Tuple[Any, Any]:
    """Returns, for each of n positions, the greatest of the ascending `starts` up to it, or 0 if there is none, and, if
    asked for, the least one after it, or n if there is none."""
    if isinstance(starts, numpy.ndarray) and (starts[..., 1:] < starts[..., :-1]).any():
        raise ArgumentError(f"expected starts in ascending order but got {starts.tolist()}")
    index = count(n, starts)
    if len(starts.shape) > 1:
        index = 0 * starts[:, :1] + index
    if _tensors.is_torch(starts):  # 64 bits, as indices need
        numbers = sys.modules["torch"].searchsorted(starts, index, right=True)
    else:
        numbers = search(starts, index, right=True)
    # There are fewer starts than positions: what can be done to starts takes less time on a GPU.
    border = 0 * starts[..., :1]
    first = _take(_concat(border, where(starts < 0, 0 * starts, starts)), numbers)
    if not with_ends:
        return first, None
    return first, _take(_concat(where(starts > n, 0 * starts + n, starts), border + n), numbers)


def subtree_ends(parents: Any) -> Any:
    """Returns the index after the last node below each node of a forest, itself included. A parent below 0 is none.
    Raises ArgumentError for parents in host memory that are not in depth-first order."""
    n = parents.shape[-1]
    rows = parents.reshape(-1, n)
    if isinstance(rows, numpy.ndarray):
        return numpy.array([_subtree_ends(row) for row in rows.tolist()], numpy.int32).reshape(parents.shape)
    # Each row gets a node n above the roots, which is the last child of itself, so that all rows are one array.
    above = where((rows < 0) | (rows > n), 0 * rows + n, rows)
    first = (n + 1) * count(rows.shape[0], rows)[:, None]
    up = (_concat(above, 0 * above[:, :1] + n) + first).reshape(-1)
    if _tensors.is_torch(up):
        up = up.long()
        order = up.argsort(stable=True)
        siblings = order.roll(-1)
        has_next = up[siblings] == up[order]
        after = (0 * up).scatter(0, order, where(has_next, siblings, 0 * up - 1))
    else:
        jnp = sys.modules["jax.numpy"]
        order = jnp.argsort(up, stable=True)
        siblings = jnp.roll(order, -1)
        after = up.at[order].set(jnp.where(up[siblings] == up[order], siblings, -1))
    # A node ends where the next sibling of the closest node above it that has one begins.
    own = count(up.shape[0], rows)
    closest = where(after < 0, up, own)
    for _ in range(n.bit_length()):
        closest = closest[closest]
    ends = after[closest].reshape(-1, n + 1)[:, :n] - first
    return as_int32("ends", ends.reshape(parents.shape))


def _subtree_ends(parents: Sequence[int]) -> Sequence[int]:
    ends = [len(parents)] * len(parents)
    path: List[int] = []  # from a root to the previous node
    for node, parent in enumerate(parents):
        if parent >= node:
            raise ArgumentError(f"expected the parent of node {node} before the node but got {parent}")
        while path and path[-1] != parent:
            ends[path.pop()] = node
        if parent >= 0 and not path:
            raise ArgumentError(
                f"expected parents in depth-first order but got node {node} apart from the nodes below its "
                f"parent {parent}"
            )
        path.append(node)
    return ends


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
        if types.min() < 0 or types.max() > 3:
            raise ArgumentError(f"expected types from 0 to 3 but got {types.min()} to {types.max()}")
    # An empty range hides no other one.
    keys = where(begins < lasts, begins, 0 * begins + n)
    index = count(n, q_ranges)
    if _tensors.is_torch(q_ranges):
        torch = sys.modules["torch"]
        keys, order = torch.sort(keys, stable=True)
        at = torch.searchsorted(keys, index, right=True) - 1
    else:
        library: Any = sys.modules["jax.numpy"] if _is_jax(q_ranges) else numpy
        order = library.argsort(keys) if _is_jax(q_ranges) else numpy.argsort(keys, kind="stable")  # JAX's is stable
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

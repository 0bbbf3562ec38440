"""`flashattn.jax.context_parallel`: its arguments, the exchange of heads, and arrays that a mesh shards.

`_context` computes a call on the rows of one device.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import AbstractMesh, AxisType, Mesh as DeviceMesh, NamedSharding, PartitionSpec

from .. import _aux, _context as _plan, _features, _module, _symbols, _tensors, _trace
from .._coordinates import OfHeads, mask_of_packed, read_starts
from .._options import AttentionOptions
from .._reference import _to_numpy
from .._shards import Shards, resolve
from .._sight import Problem
from .._texts import show
from ..errors import ArgumentError, UnsupportedError
from ..masks import Mask
from . import _calls, _context, _shards
from ._attention import as_array, attention

SCHEMES = (*_plan.SCHEMES, "heads")


def context_parallel(
    q: Any,
    k: Any,
    v: Any,
    *,
    axis_name: str,
    mesh: Union[None, DeviceMesh, AbstractMesh] = None,
    batch_axis: Any = None,
    head_axis: Any = None,
    shards: Union[str, Shards] = "contiguous",
    k_shards: Union[None, str, Shards] = None,
    length: Optional[int] = None,
    scheme: str = "ring",
    mask: Optional[Mask] = None,
    scale: Optional[float] = None,
    align: _module.Align = "bottom_right",
    layout: _module.Layout = "bhsd",
    return_lse: bool = False,
    softcap: Optional[float] = None,
    sink_logits: Any = None,
    cu_seqlens: Any = None,
    offset: Optional[int] = None,
    score_mod: Optional[_trace.ScoreMod] = None,
    aux_tensors: Optional[Sequence[Any]] = None,
    deterministic: bool = False,
    **unknown: Any,
) -> Any:
    """Computes attention over a sequence whose rows are cut over the devices of a mesh axis. It is called within
    `jax.shard_map` with each device's rows or, with `mesh`, outside of it with whole arrays. It can be jitted, and
    differentiated once in reverse mode.

    The result is that of `flashattn.jax.attention` over the whole sequence: masks and score_mod count positions and
    keys of the whole sequence, and so do the tensors of a mask, which each device has whole. With "ring", only rows
    travel that some device may see at a distance, as far as this is known while JAX traces: a traced tensor of a mask
    may have any elements. The backward pass keeps this device's q, k, v, o and lse, and the keys travel again.

    Args:
      q, k, v: a device's rows: `[B, Hq, rows, D]`, `[B, Hkv, rows, D]` and `[B, Hkv, rows, Dv]`. With `mesh`, the rows
        of all devices, one device after another: `x[:, :, shards.order]` of a sequence x.
      axis_name: the mesh axis over which the rows are cut. All of its devices have as many rows.
      mesh: with whole arrays, the mesh. The function then calls itself within `jax.shard_map` over all of its axes.
      batch_axis, head_axis: with `mesh`, the axes over which the batch and the heads are cut. None: those in the type
        of q, if any; otherwise each device has all of them.
      shards: which rows each device has: "contiguous", "zigzag" or "striped" (`flashattn.Shards`), or the Shards
        themselves.
      k_shards: the same for k and v, if it differs.
      length: the number of rows of the whole sequence, which is checked.
      scheme: how keys get to the queries. "ring": each device computes with the keys of one device at a time, while
        those of the next one travel. "gather": each device first gets all keys. "heads": rows are exchanged for heads,
        so each device has all rows of some heads.
      mask, scale, softcap, sink_logits, align, return_lse, deterministic: as in `flashattn.jax.attention`.
      offset: the position of the first query of the sequence, an int; replaces the position that `align` implies.
      layout: "bhsd", "bshd", or "thd" with cu_seqlens.
      cu_seqlens: `[S+1]`, integers, also traced ones: the starts of packed sequences among the rows of the whole
        sequence, for queries and keys. Masks count from the first row of each packed sequence.
      score_mod, aux_tensors: as in `flashattn.jax.attention`. The function adds up to two auxiliary tensors, so there
        can be at most 2 with "ring" if score_mod reads positions or keys, and at most 3 with "gather" and "heads".

    Returns:
      o, `[B, Hq, rows, Dv]`, or (o, lse) with lse `[B, Hq, rows]`, f32. For a row that sees no key, o is 0 and lse is
      -inf.

    Raises:
      ArgumentError: an argument is invalid, or devices would have different numbers of rows.
      UnsupportedError: a mask or a combination of arguments that this function does not support.
      The errors of `flashattn.jax.attention`.
    """
    if unknown:
        _features.check_keywords("context_parallel", unknown, context_parallel.__kwdefaults__ or {})
    if scheme not in SCHEMES:
        raise ArgumentError(f"expected scheme {', '.join(SCHEMES)} but got {scheme!r}")
    _module.check_options(mask, align, layout)
    ranks = _count_devices(axis_name, mesh)
    tensors = {name: _as_rows(name, x) for name, x in (("q", q), ("k", k), ("v", v))}
    packed = layout == "thd"
    if packed:
        if cu_seqlens is None:
            raise ArgumentError("expected cu_seqlens with layout thd but got None")
        tensors = {name: x[None] if x.ndim == 3 else x for name, x in tensors.items()}
        layout = "bshd"
    of_q, of_k = _resolve_shards(tensors, layout, ranks, mesh is not None, shards, k_shards, length)
    call = _Call(axis_name, ranks, of_q, of_k, scheme, mask, _position(of_q, of_k, align, offset))._pack(cu_seqlens)
    chosen = AttentionOptions(
        align="top_left", layout=layout, softcap=_features.check_options(softcap), deterministic=bool(deterministic)
    )
    scale = None if scale is None else _module.check_factor("scale", scale)
    options = _calls.Options(chosen, scale, None)
    if sink_logits is not None:
        tensors["sink_logits"] = as_array("sink_logits", _features.normalize({"sink_logits": sink_logits})[1][0])
    run, inputs = call.prepare(options, tensors, score_mod, aux_tensors, cu_seqlens)
    if mesh is None:
        o, lse = run(inputs)
    else:
        axes = _find_axes(axis_name, batch_axis, head_axis, inputs["q"], layout)
        _check_counted(axes, score_mod, aux_tensors)
        o, lse = _shard(run, mesh, axes, layout, inputs)
    if packed:
        o, lse = o[0], lse[0]
    return (o, lse) if return_lse else o


def _as_rows(name: str, x: Any) -> Any:
    rows = as_array(name, x)
    element = _tensors.parse_element(rows.dtype)
    if element in _tensors.NARROW:
        raise UnsupportedError(f"expected {name!r} of 16 or 32 bits but got {element}")
    return rows


def _count_devices(axis_name: Any, mesh: Any) -> int:
    """Returns the number of devices of a mesh axis."""
    if not isinstance(axis_name, str):
        raise ArgumentError(f"expected axis_name to be the name of a mesh axis but got {show(axis_name)}")
    if mesh is None:
        try:
            return int(jax.lax.axis_size(axis_name))
        except NameError:
            raise ArgumentError(
                f"expected axis_name of a jax.shard_map around the call, or mesh=, but got {axis_name!r}"
            ) from None
    if not isinstance(mesh, (DeviceMesh, AbstractMesh)):
        raise ArgumentError(f"expected mesh to be a mesh of jax but got {type(mesh).__name__}")
    if axis_name not in mesh.shape:
        raise ArgumentError(f"expected axis_name {' or '.join(mesh.axis_names)} of the mesh but got {axis_name!r}")
    return int(mesh.shape[axis_name])


def _resolve_shards(
    tensors: Mapping[str, Any], layout: str, ranks: int, is_whole: bool, shards: Any, k_shards: Any, length: Any
) -> Tuple[Shards, Shards]:
    """Returns the shards of queries and keys. Each array has the rows of a device or, if it `is_whole`, of all."""
    axis = 2 if layout == "bhsd" else 1
    counts = {}
    for name, x in tensors.items():
        if x.ndim != 4:
            raise ArgumentError(f"expected {name!r} of rank 4 but got rank {x.ndim}")
        if is_whole and x.shape[axis] % ranks:
            raise ArgumentError(
                f"expected a number of rows of {name!r} that is a multiple of {ranks}, the number of devices, but got "
                f"{x.shape[axis]}; pad them"
            )
        counts[name] = x.shape[axis] // (ranks if is_whole else 1)
    of_q = resolve(shards, ranks, counts["q"], length)
    is_same = k_shards is None and counts["k"] == counts["q"]
    of_k = of_q if is_same else resolve(k_shards or shards, ranks, counts["k"], None, "k")
    for name, held in (("q", of_q), ("k", of_k), ("v", of_k)):
        found = sorted({held.count(rank) for rank in range(ranks)})
        if len(found) > 1:
            raise ArgumentError(
                f"expected as many rows of {name!r} on all devices, which run one program, but got shards of "
                f"{found[0]} to {found[-1]}; pad them"
            )
        if counts[name] != found[0]:
            raise ArgumentError(
                f"expected {found[0]} rows of {name!r} on each device, as in its shards, but got {counts[name]}"
            )
    return of_q, of_k


def _position(of_q: Shards, of_k: Shards, align: str, offset: Any) -> int:
    """Returns the position of the first query of the sequence."""
    if offset is not None:
        return _features.check_scalar("offset", offset)
    return of_k.length - of_q.length if align == "bottom_right" else 0


#: The input with the first row of packed sequences and the end of the last one.
_ENDS = "ends"
_Inputs = Dict[str, Any]
_Run = Callable[[_Inputs], Tuple[Any, Any]]


class _Call(NamedTuple):
    """The checked arguments of a call."""

    axis_name: str
    ranks: int
    q_shards: Shards
    k_shards: Shards
    scheme: str
    mask: Optional[Mask]
    offset: int

    def _pack(self, cu_seqlens: Any) -> "_Call":
        """Returns the call with a mask that hides the pairs of different packed sequences."""
        nq, nk, mask = self.q_shards.length, self.k_shards.length, self.mask
        if mask is not None:
            _symbols.check_square(mask._of_rows, nq, nk)
        if cu_seqlens is None:
            return self
        if nq != nk:
            raise ArgumentError(f"expected as many keys as queries with cu_seqlens but got {nk} keys and {nq} queries")
        for part in mask._of_rows if mask is not None else ():
            raise ArgumentError(f"expected no cu_seqlens with the mask {part} but got one")
        if isinstance(cu_seqlens, jax.core.Tracer):
            return self._replace(mask=_mask_of_traced(mask, cu_seqlens, nk))
        return self._replace(mask=mask_of_packed(mask, read_starts(cu_seqlens, nk), nk))

    def prepare(
        self, options: _calls.Options, tensors: _Inputs, score_mod: Any, aux_tensors: Any, cu_seqlens: Any
    ) -> Tuple[_Run, _Inputs]:
        """Returns a function that computes o and lse from arrays within shard_map, and the arrays."""
        call = self._replace(mask=_read(self.mask))
        symbols = () if call.mask is None else _symbols.operands_of(call.mask._symbols, tensors["q"])
        numbers = _numbers_of(symbols, tensors, options.chosen.layout, self.q_shards.length, self.k_shards.length)
        text, aux = _aux.prepare(score_mod, aux_tensors)
        reads = text is not None and any(text.count(x) > 1 for x in ("%position", "%key"))
        if reads and cu_seqlens is not None:
            raise UnsupportedError("expected a score_mod that reads no positions with cu_seqlens but got one that does")
        inputs = {**tensors, **{name: as_array(name, x) for name, x in {**numbers, **aux}.items()}}
        if cu_seqlens is not None and "sink_logits" in inputs:
            inputs[_ENDS] = jnp.asarray(cu_seqlens)[jnp.array([0, -1])]
        if self.scheme == "heads":
            sizes = tuple(tensors[name].shape[1 if options.chosen.layout == "bhsd" else 2] for name in "qk")
            _check_exchange(self.ranks, *sizes)
            count = len(aux_tensors or ())
            moved = None if score_mod is None else _with_numbers(score_mod, 1, count, ("head",))
            return self._within(functools.partial(_exchange_heads, call, options, moved, count)), inputs
        gathers = self.scheme == "gather"
        problem = Problem(self.q_shards, self.k_shards, call.mask, self.offset)
        local = _context.localize(problem, gathers)
        lines: Tuple[Tuple[str, str], ...] = ()
        if reads:
            text, lines = self._on_lines(score_mod, aux_tensors, gathers)
        options = options._replace(chosen=options.chosen._replace(score_mod=text))
        stages = _context.make_stages(problem, self.scheme)
        spec = _context.Spec(
            self.axis_name, self.q_shards, self.k_shards, self.offset, local, stages, options, lines
        )
        return self._within(functools.partial(_attend, spec)), inputs

    def _within(self, attend: Callable[[_Inputs, Any], Tuple[Any, Any]]) -> _Run:
        """Returns a function to run within shard_map, which passes the rank to `attend`."""

        def run(inputs: _Inputs) -> Tuple[Any, Any]:
            rank = jax.lax.axis_index(self.axis_name)
            o, lse = attend({name: x for name, x in inputs.items() if name != _ENDS}, rank)
            if _ENDS in inputs:
                # Sink logits are part of sequences, and so not of rows outside of them.
                rows, ends = _context.rows_of(self.q_shards, rank), inputs[_ENDS]
                lse = jnp.where((rows >= ends[0]) & (rows < ends[1]), lse, -jnp.inf)
            return o, lse

        return run

    def _on_lines(self, score_mod: Any, aux_tensors: Any, gathers: bool) -> Tuple[Any, Tuple[Tuple[str, str], ...]]:
        """Returns the text of a score_mod that counts the rows of a device, and what its further tensors are."""
        steps = []
        for name, held in (("q", self.q_shards), *((("k", self.k_shards),) if not gathers else ())):
            step = _context.step_of(held)
            if step is None:
                raise UnsupportedError(
                    f"expected shards of {name!r} with one segment of one step on each device with a score_mod that "
                    "reads positions but got others; use shards contiguous or striped, or scheme='heads'"
                )
            steps.append(step)
        count, roles = len(aux_tensors or ()), ("q_line", "k_first")[: len(steps)]
        function = _with_numbers(score_mod, steps[0], count, tuple(roles), *steps[1:])
        text, kept = _aux.prepare(function, _with_placeholders(aux_tensors, len(roles)))
        names = zip(_trace.AUX[count:], roles)
        return text, tuple((name, what) for name, what in names if name in kept)


def _read(mask: Optional[Mask]) -> Optional[Mask]:
    """Returns a mask whose tensors are arrays of NumPy, unless they are traced."""
    if mask is None or not mask._symbols:
        return mask
    return Mask(str(mask), symbols=tuple(
        (name, x if type(x) is int or isinstance(x, jax.core.Tracer) else _to_numpy(x)) for name, x in mask._symbols
    ))  # fmt: skip


def _mask_of_traced(mask: Optional[Mask], cu_seqlens: Any, length: int) -> Mask:
    """Returns the mask of packed sequences whose starts are traced."""
    if cu_seqlens.ndim != 1 or cu_seqlens.dtype.kind not in "iu" or cu_seqlens.shape[0] < 2:
        raise ArgumentError(
            f"expected cu_seqlens to be at least 2 integers in one dimension but got {cu_seqlens.dtype} of shape "
            f"{list(cu_seqlens.shape)}"
        )
    packed = mask_of_packed(mask, numpy.array([0, length]), length)
    own = () if mask is None else tuple(name for name, _ in mask._symbols)
    starts, rows = cu_seqlens.astype(jnp.int32), jnp.arange(length, dtype=jnp.int32)
    index = jnp.searchsorted(starts, rows, side="right") - 1
    is_in = (index >= 0) & (index < len(starts) - 1)
    index = jnp.where(is_in, index, 0)
    ends = iter((jnp.where(is_in, starts[index], 0), jnp.where(is_in, starts[index + 1], 0)))
    return Mask(str(packed), symbols=tuple((name, x if name in own else next(ends)) for name, x in packed._symbols))


def _numbers_of(
    symbols: _symbols.Symbols, tensors: Mapping[str, Any], layout: str, nq: int, nk: int
) -> Dict[str, Any]:
    """Returns the tensors of a mask with all dimensions of their clause. Raises ArgumentError."""
    names = [name for name, _ in symbols]
    roles, at = _features.roles_with(names), 1 if layout == "bhsd" else 2
    sizes = {"N": nq, "K": nk, "H": tensors["q"].shape[at], "G": tensors["k"].shape[at], "B": tensors["q"].shape[0]}
    found = {}
    for name, x in symbols:
        dims = roles[name].dims
        shape = _symbols.extend(x.shape, dims, 1)
        for dim, size in zip(dims, shape):
            if size != sizes[dim] and (size != 1 or dim in "NK"):
                what = {"N": "rows", "K": "rows", "H": "query heads", "G": "key/value heads", "B": "sequences"}[dim]
                raise ArgumentError(f"expected {name!r} with a number for each of {sizes[dim]} {what} but got {size}")
        found[name] = x.reshape(shape)
    return found


def _with_placeholders(aux_tensors: Any, count: int) -> Tuple[Any, ...]:
    """Returns auxiliary tensors and `count` numbers, whose types are those of the numbers of a device."""
    given = tuple(aux_tensors or ())
    if len(given) + count > len(_trace.AUX):
        raise UnsupportedError(
            f"expected at most {len(_trace.AUX) - count} aux_tensors with this score_mod in context_parallel but got "
            f"{len(given)}"
        )
    return (*given, *(numpy.zeros((), numpy.int32) for _ in range(count)))


@functools.lru_cache(maxsize=256)
def _with_numbers(
    function: Callable[..., Any], q_step: int, count: int, roles: Tuple[str, ...], k_step: int = 1
) -> Callable[..., Any]:
    """Returns a score_mod that counts the rows, or the heads, of a device. Its auxiliary tensors after the first
    `count` are the numbers `roles`: the first query, the first key or the first head."""

    def score_mod(score: Any, b: Any, h: Any, p: Any, k: Any, *aux: Any) -> Any:
        given: Sequence[Any] = aux[:count]
        numbers = {role: x[()] for role, x in zip(roles, aux[count:])}
        if "q_line" in numbers:
            p = p * q_step + numbers["q_line"]
        if "k_first" in numbers:
            k = k * k_step + numbers["k_first"]
        if "head" in numbers:
            own, h = h, h + numbers["head"]
            given = [OfHeads(x, h, own) for x in given]
        return function(score, b, h, p, k, *given)

    return score_mod


def _attend(spec: _context.Spec, inputs: _Inputs, rank: Any) -> Tuple[Any, Any]:
    for name, x in inputs.items():
        spec_of = _shards.split_by(x)
        if any(spec_of):
            raise UnsupportedError(
                f"expected {name!r} that no other axis shards within jax.shard_map but got {spec_of}; name all axes of "
                "the mesh in jax.shard_map, or pass mesh="
            )
    return _context.attend(spec, {**inputs, "rank": rank})


def _check_exchange(ranks: int, heads: int, kv_heads: int) -> None:
    if heads % ranks or heads % math.lcm(kv_heads, ranks):
        raise UnsupportedError(
            f"expected heads that {ranks} devices can exchange for rows but got {heads} query heads and {kv_heads} "
            "key/value heads; use scheme='ring'"
        )


def _exchange_heads(
    call: _Call, options: _calls.Options, score_mod: Any, aux_count: int, inputs: _Inputs, rank: Any
) -> Tuple[Any, Any]:
    """Computes a call on some heads of all rows."""
    chosen, size = options.chosen, call.ranks
    axis, dim = (2, 1) if chosen.layout == "bhsd" else (1, 2)
    inputs = _shards.unify({**inputs, "rank": rank})
    rank, heads, kv_heads = inputs["rank"], inputs["q"].shape[dim], inputs["k"].shape[dim]
    shared = math.lcm(kv_heads, size)

    def to_heads(x: Any, held: Shards) -> Any:
        x = jax.lax.all_to_all(x, call.axis_name, split_axis=dim, concat_axis=axis, tiled=True)
        return _context.in_order(x, held, axis)

    def to_rows(x: Any, row_axis: int, head_axis: int) -> Any:
        x = _context.by_rank(x, call.q_shards, row_axis)
        return jax.lax.all_to_all(x, call.axis_name, split_axis=row_axis, concat_axis=head_axis, tiled=True)

    def cut(x: Any, at: int, count: int) -> Any:
        """Returns the elements of this device's heads."""
        if x.shape[at] == 1 and count != 1:
            return x
        x = jnp.repeat(x, count // x.shape[at], at)
        return jax.lax.dynamic_slice_in_dim(x, rank * (count // size), count // size, at)

    k, v = (jnp.repeat(inputs[name], shared // kv_heads, dim) for name in "kv")
    found: Dict[str, Any] = {}
    if call.mask is not None:
        symbols: List[Tuple[str, Any]] = []
        for name, _ in call.mask._symbols:
            x = inputs[name]
            if x.ndim > 1:
                x = cut(x, 1, heads if name.startswith("per_query") else shared)
            symbols.append((name, x))
        found["mask"] = Mask(str(call.mask), symbols=tuple(symbols))
    if "sink_logits" in inputs:
        found["sink_logits"] = cut(inputs["sink_logits"], 0, heads)
    if score_mod is not None:
        found["score_mod"] = score_mod
        found["aux_tensors"] = _aux_of_heads(score_mod, aux_count, inputs, cut, heads, size)
    o, lse = attention(
        to_heads(inputs["q"], call.q_shards), to_heads(k, call.k_shards), to_heads(v, call.k_shards),
        scale=options.scale, layout=chosen.layout, return_lse=True, softcap=chosen.softcap, offset=call.offset,
        deterministic=chosen.deterministic, **found,
    )  # fmt: skip
    return to_rows(o, axis, dim), to_rows(lse, 2, 1)


def _aux_of_heads(
    score_mod: Any, count: int, inputs: _Inputs, cut: Callable[..., Any], heads: int, size: int
) -> Tuple[Any, ...]:
    """Returns the auxiliary tensors of this device's heads, and the number of the first one."""
    # A tensor that the score_mod does not read is not among the inputs.
    given = [inputs.get(name, numpy.zeros((), numpy.float32)) for name in _trace.AUX[:count]]
    text, _ = _aux.prepare(score_mod, _with_placeholders(given, 1))
    for name, load in _aux.loads_of(text).items():
        if "H" in load.dims and name in inputs:
            at = _trace.AUX.index(name)
            given[at] = cut(given[at], load.dims.index("H"), heads)
    return (*given, inputs["rank"] * jnp.int32(heads // size))


class _Axes(NamedTuple):
    """The mesh axes over which dimensions of whole arrays are cut."""

    rows: str
    batch: Any
    heads: Any


def _find_axes(rows: str, batch: Any, heads: Any, q: Any, layout: str) -> _Axes:
    found = dict(zip("BHND" if layout == "bhsd" else "BNHD", _shards.split_by(q)))
    axes = _Axes(rows, batch or found.get("B"), heads or found.get("H"))
    used = [name for axis in axes for name in _shards.names_of(axis)]
    if len(set(used)) < len(used):
        raise ArgumentError(f"expected different axes of rows, batch and heads but got {', '.join(used)}")
    for name in _shards.names_of(found.get("D")):
        raise UnsupportedError(f"expected 'q' with whole rows but got rows that the axis {name!r} shards")
    return axes


def _check_counted(axes: _Axes, score_mod: Any, aux_tensors: Any) -> None:
    """Refuses a score_mod that would count the batch or the heads of its own device."""
    text, _ = _aux.prepare(score_mod, aux_tensors)
    for word, axis, what in (("%batch", axes.batch, "batch"), ("%head", axes.heads, "head")):
        if axis is not None and text is not None and text.count(word) > 1:
            raise UnsupportedError(
                f"expected a score_mod that does not read the {what} where the axis {axis!r} shards it but got one "
                "that does"
            )


def _shard(run: _Run, mesh: Any, axes: _Axes, layout: str, inputs: _Inputs) -> Tuple[Any, Any]:
    """Runs a function of a device's arrays on all devices."""
    roles = _features.roles_with(inputs)
    letters = {"B": axes.batch, "H": axes.heads, "G": axes.heads}
    specs = {}
    for name, x in inputs.items():
        dims = roles[name].dims_in(layout) if name in roles else "?" * x.ndim
        is_cut = name in ("q", "k", "v")
        of_dims = {**letters, "N": axes.rows, "K": axes.rows} if is_cut else letters
        specs[name] = PartitionSpec(*(of_dims.get(dim) if n > 1 or is_cut else None for dim, n in zip(dims, x.shape)))
        for dim, n, axis in zip(dims, x.shape, specs[name]):
            count = math.prod(mesh.shape[one] for one in _shards.names_of(axis))
            if n % count:
                raise ArgumentError(
                    f"expected sizes of {name!r} that the axis {axis!r} of {count} devices divides but got "
                    f"{list(x.shape)}"
                )
    if AxisType.Explicit in getattr(mesh, "axis_types", ()):
        inputs = {name: jax.reshard(x, NamedSharding(mesh, specs[name])) for name, x in inputs.items()}
    of_lse = PartitionSpec(axes.batch, axes.heads, axes.rows)
    of_o = of_lse if layout == "bhsd" else PartitionSpec(axes.batch, axes.rows, axes.heads)
    made: Tuple[Any, Any] = jax.shard_map(run, mesh=mesh, in_specs=(specs,), out_specs=(of_o, of_lse))(inputs)
    return made

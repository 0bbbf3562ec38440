"""Arrays that lie on a mesh: each device computes its own batches and heads."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Mapping, Set, Tuple

import jax
from jax.sharding import NamedSharding, PartitionSpec

from .. import _library


def _varying_axes(x: Any) -> Any:
    """The axes of a mesh that an array within `jax.shard_map` varies over."""
    aval = jax.typeof(x)
    kind = getattr(aval, "manual_axis_type", None)
    return getattr(aval, "vma", frozenset()) if kind is None else kind.varying


def unify(inputs: Mapping[str, Any]) -> Dict[str, Any]:
    """The inputs, each varying over the axes of a mesh that any of them does; gradients of those that did
    not are sums over it then."""
    axes = frozenset().union(*map(_varying_axes, inputs.values()))
    unified = {}
    for name, x in inputs.items():
        missing = tuple(sorted(axes - _varying_axes(x)))
        unified[name] = jax.lax.pcast(x, missing, to="varying") if missing else x
    return unified


def names_of(axis: Any) -> Tuple[str, ...]:
    """The names in a part of a PartitionSpec."""
    if axis is None:
        return ()
    return axis if isinstance(axis, tuple) else (axis,)


def split_by(x: Any) -> Any:
    """What the type of an array says that its dimensions are split by."""
    return jax.typeof(x).sharding.spec


def on_each(
    call: Callable[[Dict[str, Any]], Any],
    mesh: Any,
    inputs: Mapping[str, Any],
    specs: Mapping[str, PartitionSpec],
    outputs: Any,
) -> Any:
    """`call` of the part of the inputs that each device has by `specs`, on all of them at once; what it
    gives lies by the specs in `outputs`. What lies otherwise is brought together first."""
    inputs = {name: jax.reshard(x, NamedSharding(mesh, specs[name])) for name, x in inputs.items()}
    used: Set[str] = {name for spec in specs.values() for axis in spec for name in names_of(axis)}
    if not used:
        return call(inputs)
    return jax.shard_map(
        lambda inputs: call(unify(inputs)),
        mesh=mesh, in_specs=(dict(specs),), out_specs=outputs, axis_names=used,
    )(inputs)  # fmt: skip


def attend(
    call: Callable[[Dict[str, Any]], Any],
    inputs: Mapping[str, Any],
    layout: str,
    outputs: Tuple[str, ...],
    counts_heads: bool,
) -> Any:
    """`call`, an attention of `inputs` that gives `outputs`, on each device where types say that batches or
    heads are split. With `counts_heads` nothing is: a score_mod would count those of a device."""
    roles = {role.name: role for role in _library.get().roles("attention")}
    dims = {name: role.dims_in(layout) for name, role in roles.items()}
    split = [x for x in inputs.values() if any(split_by(x))]
    if not split or any(x.ndim != len(dims[name]) for name, x in inputs.items()):
        return call(unify(inputs))  # which refuses another rank
    mesh = jax.typeof(split[0]).sharding.mesh
    axes: Dict[str, Any] = {}  # by the letter of what a dimension counts
    if not counts_heads:
        found = dict(zip(dims["q"], split_by(inputs["q"])))
        shared = dict(zip(dims["k"], inputs["k"].shape))["G"]
        axes["B"] = found["B"]
        if shared % math.prod(mesh.shape[name] for name in names_of(found["H"])) == 0:
            axes["H"] = axes["G"] = found["H"]
    specs = {
        # What is broadcast is whole everywhere.
        name: PartitionSpec(*(axes.get(dim) if n > 1 else None for dim, n in zip(dims[name], x.shape)))
        for name, x in inputs.items()
    }  # fmt: skip
    whole = {name: PartitionSpec(*map(axes.get, dims[name])) for name in outputs}
    return on_each(call, mesh, inputs, specs, whole)

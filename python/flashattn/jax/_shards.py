"""Arrays that are sharded over a mesh: each device computes its own batch elements and heads."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Mapping, Optional, Set, Tuple

import jax
from jax.sharding import NamedSharding, PartitionSpec

from .. import _features


def _varying_axes(x: Any) -> Any:
    """Returns the mesh axes over which an array within `jax.shard_map` varies."""
    aval = jax.typeof(x)
    kind = getattr(aval, "manual_axis_type", None)
    return getattr(aval, "vma", frozenset()) if kind is None else kind.varying


def unify(inputs: Mapping[str, Any]) -> Dict[str, Any]:
    """Casts every input to vary over all mesh axes over which any input varies. The gradient of an input
    that is cast becomes a sum over the added axes."""
    axes = frozenset().union(*map(_varying_axes, inputs.values()))
    unified = {}
    for name, x in inputs.items():
        missing = tuple(sorted(axes - _varying_axes(x)))
        unified[name] = jax.lax.pcast(x, missing, to="varying") if missing else x
    return unified


def names_of(axis: Any) -> Tuple[str, ...]:
    """Returns the axis names in one entry of a PartitionSpec."""
    if axis is None:
        return ()
    return axis if isinstance(axis, tuple) else (axis,)


def split_by(x: Any) -> Any:
    """Returns the PartitionSpec in the type of an array."""
    return jax.typeof(x).sharding.spec


def on_each(
    call: Callable[[Dict[str, Any]], Any],
    mesh: Any,
    inputs: Mapping[str, Any],
    specs: Mapping[str, PartitionSpec],
    outputs: Any,
) -> Any:
    """Runs `call` on each device's shards of the inputs, as `specs` define them, on all devices at once. The
    outputs are sharded by the specs in `outputs`. Inputs with other shardings are resharded first."""
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
    score_mod: Optional[str],
) -> Any:
    """Runs `call`, an attention from `inputs` to `outputs`, on each device if the array types shard the
    batch or the heads. With the text of a `score_mod`, the inputs are gathered instead, because a score_mod
    would count from 0 on each device."""
    roles = _features.roles_with(inputs, score_mod=score_mod)
    dims = {name: role.dims_in(layout) for name, role in roles.items()}
    split = [x for x in inputs.values() if any(split_by(x))]
    if not split or any(x.ndim != len(dims[name]) for name, x in inputs.items()):
        return call(unify(inputs))  # which reports a wrong rank
    mesh = jax.typeof(split[0]).sharding.mesh
    axes: Dict[str, Any] = {}  # mesh axes, by the letter of a dimension
    if score_mod is None:
        found = dict(zip(dims["q"], split_by(inputs["q"])))
        shared = dict(zip(dims["k"], inputs["k"].shape))["G"]
        axes["B"] = found.get("B")  # packed rows have none
        if shared % math.prod(mesh.shape[name] for name in names_of(found["H"])) == 0:
            axes["H"] = axes["G"] = found["H"]
    specs = {
        # Broadcast dimensions are replicated.
        name: PartitionSpec(*(axes.get(dim) if n > 1 else None for dim, n in zip(dims[name], x.shape)))
        for name, x in inputs.items()
    }  # fmt: skip
    whole = {name: PartitionSpec(*map(axes.get, dims[name])) for name in outputs}
    return on_each(call, mesh, inputs, specs, whole)

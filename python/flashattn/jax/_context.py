"""Context parallelism in JAX: the stages of a call, and what a device computes in each of them.

All devices run one program, in which the rank of a device is a traced number. So the mask of a stage is one text for
all ranks (`flashattn._coordinates`), and the numbers in it are elements of tables that the rank selects. Which rows
travel is constant: the rows that some rank needs at a distance travel from all ranks that have them.
"""

from __future__ import annotations

import functools
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import jax
import jax.numpy as jnp
import numpy

from .. import _context, _coordinates, _symbols
from .._shards import Shards
from .._sight import Problem, Sight
from .._trace import AUX
from ..errors import UnsupportedError
from ..masks import Mask
from . import _calls, _shards

_UNKNOWN = (1 << 31) - 1


class Local(NamedTuple):
    """A mask in the coordinates of a device's rows. What a number is, `_number_of` says."""

    mask: Optional[str]
    numbers: Tuple[Tuple[str, str], ...]  #: what each operand of the mask is
    offset: str  #: what the position of the first query is


class Stage(NamedTuple):
    """An attention between all queries and some keys of each device."""

    distance: Optional[int]  #: the keys are those of the rank at this distance; None: of all ranks, in order
    rows: Tuple[int, int]  #: first and end of the keys among the rows of their rank
    pairs: Tuple[Tuple[int, int], ...]  #: the ranks (source, target) between which keys travel


class Spec(NamedTuple):
    """Everything on which a call depends except arrays."""

    axis_name: str
    q_shards: Shards
    k_shards: Shards
    offset: int  #: the position of query 0
    local: Local
    stages: Tuple[Stage, ...]
    options: _calls.Options
    lines: Tuple[Tuple[str, str], ...]  #: what each auxiliary tensor is that the call adds to those of a score_mod

    @property
    def layout(self) -> str:
        return self.options.chosen.layout

    @property
    def axis(self) -> int:
        """The dimension of rows."""
        return 2 if self.layout == "bhsd" else 1


def step_of(shards: Shards) -> Optional[int]:
    """Returns the step between the rows of a rank if the rows of each rank are one segment with the same step."""
    steps = {held[0].step if len(held) == 1 else None for held in shards.segments}
    return steps.pop() if len(steps) == 1 else None


def localize(problem: Problem, gathers: bool) -> Local:
    """Returns the mask of a problem in the coordinates of the rows of any rank. `gathers`: the keys are all rows in
    order. Raises UnsupportedError for a mask with too many tensors, or of another form."""
    mask, q_step = problem.mask, step_of(problem.q_shards)
    k_step = 1 if gathers else step_of(problem.k_shards)
    if mask is None:
        return Local(None, (), "zero")
    if q_step == k_step == 1 and _coordinates.is_invariant(mask):
        return Local(str(mask), (), "q_first" if gathers else "difference")
    added = {
        "per_sequence": (q_step not in (None, 1)) + (k_step is not None and not gathers),
        "per_query": int(q_step is None),
        "per_key": int(k_step is None),
    }
    own = [name for name, _ in mask._symbols]
    names, new = _coordinates.with_names(own, added)
    numbers, words = dict.fromkeys(own, "given"), {}

    def word_for(clause: str, what: str) -> str:
        name = new[clause].pop(0)
        numbers[name] = what
        return _coordinates.word_of(name)

    if q_step is None:
        words["p"] = word_for("per_query", "q_rows")
    elif q_step != 1:
        words["p"] = f"{q_step} * p + {word_for('per_sequence', 'q_first')}"
    if k_step is None:
        words["k"] = word_for("per_key", "k_rows")
    elif not gathers:
        words["k"] = f"{k_step} * k + {word_for('per_sequence', 'k_first')}"
    if _coordinates.reads_lengths(mask):
        words["nq"], words["nk"] = str(problem.q_shards.length), str(problem.k_shards.length)
    text = _coordinates.rewrite(mask, words, names) if words else str(mask)
    return Local(text, tuple((name, numbers[name]) for name in names), "q_first" if q_step == 1 else "zero")


def make_stages(problem: Problem, scheme: str) -> Tuple[Stage, ...]:
    """Returns the stages of a call. "ring" has one for each distance at which some rank needs keys."""
    if scheme == "gather":
        return (Stage(None, (0, problem.k_shards.count(0)), ()),)
    mask = problem.mask
    if mask is None or not mask._symbols:
        return _cached_ring(problem)
    # The bounds of a traced tensor are those of its type.
    symbols = tuple((name, _extremes_of(name, x) if isinstance(x, jax.core.Tracer) else x) for name, x in mask._symbols)
    return _make_ring(problem._replace(mask=Mask(str(mask), symbols=symbols)))


def _extremes_of(name: str, x: Any) -> Any:
    each = numpy.array([-_UNKNOWN, _UNKNOWN], numpy.int32)
    return each if name.startswith("per_sequence") else numpy.broadcast_to(each[:, None], (2, x.shape[-1]))


def _make_ring(problem: Problem) -> Tuple[Stage, ...]:
    sight, ranks = Sight(problem), problem.q_shards.ranks
    stages: List[Stage] = []
    for distance in range(ranks):
        of_targets = [_context.needed(sight, rank, (rank - distance) % ranks) for rank in range(ranks)]
        pieces = [piece for needed in of_targets for piece in needed]
        if pieces:
            rows = min(piece.start for piece in pieces), max(piece.end for piece in pieces)
            pairs = [((rank - distance) % ranks, rank) for rank, needed in enumerate(of_targets) if needed]
            stages.append(Stage(distance, rows, tuple(pairs) if distance else ()))
    return tuple(stages)


_cached_ring = functools.lru_cache(maxsize=64)(_make_ring)


def rows_of(shards: Shards, rank: Any) -> Any:
    """Returns the rows that a rank holds, where `rank` is traced."""
    forms = {tuple((segment.count, segment.step) for segment in held) for held in shards.segments}
    if len(forms) > 1:
        return _table([shards.rows(rank) for rank in range(shards.ranks)])[rank]
    firsts = _table([[segment.first for segment in held] for held in shards.segments])[rank]
    form = forms.pop()
    parts = [firsts[at] + step * jnp.arange(count, dtype=jnp.int32) for at, (count, step) in enumerate(form)]
    return jnp.concatenate(parts) if parts else jnp.zeros(0, jnp.int32)


def _table(values: Any) -> Any:
    return jnp.asarray(numpy.asarray(values, numpy.int32))


def _number_of(spec: Spec, stage: Stage, rank: Any, what: str) -> Any:
    """Returns a number that depends on the rank: the position of the first query, the first key, the positions of all
    queries, and so on."""
    if what == "zero":
        return jnp.int32(0)
    if what == "q_rows":
        return rows_of(spec.q_shards, rank) + spec.offset
    if what == "q_first":
        return _table([held[0].first for held in spec.q_shards.segments])[rank] + spec.offset
    if what == "difference":
        return _number_of(spec, stage, rank, "q_first") - _number_of(spec, stage, rank, "k_first")
    if what == "q_line":  # the position of the query at which the kernel's p is 0
        step = step_of(spec.q_shards) or 1
        return _number_of(spec, stage, rank, "q_first") - step * _number_of(spec, stage, rank, spec.local.offset)
    assert stage.distance is not None
    source = (rank - stage.distance) % spec.k_shards.ranks
    if what == "k_rows":
        return rows_of(spec.k_shards, source)[slice(*stage.rows)]
    assert what == "k_first"
    first = _table([held[0].first for held in spec.k_shards.segments])[source]
    return first + (step_of(spec.k_shards) or 1) * stage.rows[0]


def _taken(spec: Spec, stage: Stage, rank: Any, name: str, x: Any) -> Any:
    """Returns the elements of a mask's tensor for the rows of a stage."""
    clause = _symbols.clause_of(name)
    if clause == "per_sequence" or (clause == "per_key" and stage.distance is None):
        return x
    side = "q" if clause == "per_query" else "k"
    shards = spec.q_shards if side == "q" else spec.k_shards
    count = shards.count(0) if side == "q" else stage.rows[1] - stage.rows[0]
    if step_of(shards) == 1:
        first = _number_of(spec, stage, rank, f"{side}_first") - (spec.offset if side == "q" else 0)
        return jax.lax.dynamic_slice_in_dim(x, first, count, -1)
    rows = _number_of(spec, stage, rank, f"{side}_rows") - (spec.offset if side == "q" else 0)
    return jnp.take(x, rows, axis=-1, mode="clip")


def _operands_of(spec: Spec, stage: Stage, inputs: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the operands of a stage beside q, k and v. Numbers of a mask have all dimensions of their clause."""
    rank = inputs["rank"]
    found = {name: inputs[name] for name in AUX if name in inputs}
    for name, what in spec.local.numbers:
        if what == "given":
            found[name] = _taken(spec, stage, rank, name, inputs[name])
        else:
            number = _number_of(spec, stage, rank, what)
            found[name] = number.reshape(1) if number.ndim == 0 else number.reshape(1, 1, -1)
    for name, what in spec.lines:
        found[name] = _number_of(spec, stage, rank, what)
    if spec.local.offset != "zero":
        offset = _number_of(spec, stage, rank, spec.local.offset)
        found["offsets"] = jnp.broadcast_to(offset, inputs["q"].shape[:1])
    return found


def _call(
    spec: Spec, primitive: Any, op: str, given: Mapping[str, Any], outputs: Tuple[str, ...], gradients: Tuple[str, ...]
) -> Dict[str, Any]:
    mask = None if spec.local.mask is None else Mask(spec.local.mask)
    options = spec.options._replace(chosen=spec.options.chosen._replace(mask=mask, gradients=gradients))
    return _calls._bind(primitive, op, _shards.unify(given), outputs, options)


def _after(x: Any, done: Any) -> Any:
    """Returns `x`, which is not available before `done`. Otherwise XLA may receive the keys of all stages at once."""
    return x if done is None else jax.lax.optimization_barrier((x, done))[0]


def _receive(spec: Spec, stage: Stage, both: Any) -> Tuple[Any, Any]:
    """Returns the keys and values of a stage. Ranks that need none get zeros, which the mask hides."""

    def travel(x: Any) -> Any:
        x = jax.lax.slice_in_dim(x, *stage.rows, axis=spec.axis)
        if stage.distance is None:
            x = jax.lax.all_gather(x, spec.axis_name, axis=spec.axis, tiled=True)
            return in_order(x, spec.k_shards, spec.axis)
        return jax.lax.ppermute(x, spec.axis_name, stage.pairs) if stage.distance else x

    k, v = map(travel, both)
    return k, v


def in_order(x: Any, shards: Shards, axis: int) -> Any:
    """Returns the rows of all ranks, one rank after another, in the order of the sequence."""
    order = shards.order
    return x if _is_sorted(order) else jnp.take(x, numpy.argsort(order), axis=axis)


def by_rank(x: Any, shards: Shards, axis: int) -> Any:
    """Undoes `in_order`."""
    return x if _is_sorted(shards.order) else jnp.take(x, shards.order, axis=axis)


def _is_sorted(order: Any) -> bool:
    return bool((order[1:] > order[:-1]).all())


def _return(spec: Spec, stage: Stage, x: Any) -> Any:
    """Returns what the ranks have computed for this rank's keys of a stage, in f32."""
    if stage.distance is None:
        x = by_rank(x.astype(jnp.float32), spec.k_shards, spec.axis)
        return jax.lax.psum_scatter(x, spec.axis_name, scatter_dimension=spec.axis, tiled=True)
    if stage.distance:
        x = jax.lax.ppermute(x, spec.axis_name, [(target, source) for source, target in stage.pairs])
    padding = [(0, 0)] * x.ndim
    padding[spec.axis] = stage.rows[0], spec.k_shards.count(0) - stage.rows[1]
    return jnp.pad(x.astype(jnp.float32), padding)


def as_rows(numbers: Any, layout: str) -> Any:
    """Returns numbers `[B, H, N]` in a shape that broadcasts to o."""
    return numbers[..., None] if layout == "bhsd" else jnp.swapaxes(numbers, 1, 2)[..., None]


def _merge(spec: Spec, o: Any, lse: Any, new_o: Any, new_lse: Any) -> Tuple[Any, Any]:
    """Returns the attention over the keys of both parts. Where neither sees a key, o is 0 and lse is -inf."""
    share = jnp.where(new_lse == -jnp.inf, 0.0, jax.nn.sigmoid(new_lse - lse))
    return o + (new_o.astype(jnp.float32) - o) * as_rows(share, spec.layout), jnp.logaddexp(lse, new_lse)


def _forward(spec: Spec, inputs: Mapping[str, Any]) -> Dict[str, Any]:
    q, both = inputs["q"], (inputs["k"], inputs["v"])
    heads = q.shape[3 - spec.axis]
    o = jnp.zeros((*q.shape[:-1], both[1].shape[-1]), q.dtype)
    lse = jnp.full((q.shape[0], heads, q.shape[spec.axis]), -jnp.inf, jnp.float32)
    done = following = None
    for at, stage in enumerate(spec.stages):
        k, v = _receive(spec, stage, both) if following is None else following
        if at + 1 < len(spec.stages):
            # The next keys travel during this stage.
            following = _receive(spec, spec.stages[at + 1], _after(both, done))
        given = {"q": q, "k": k, "v": v, **_operands_of(spec, stage, inputs)}
        found = _call(spec, _calls._attention_p, "attention", given, ("o", "lse"), ())
        if done is None:
            o, lse = found["o"], found["lse"]
        else:
            o, lse = _merge(spec, o.astype(jnp.float32), lse, found["o"], found["lse"])
        done = o, lse
    if "sink_logits" in inputs:
        total = jnp.logaddexp(lse, inputs["sink_logits"].astype(jnp.float32)[:, None])
        share = jnp.where(lse == -jnp.inf, 0.0, jnp.exp(lse - total))
        o, lse = o.astype(jnp.float32) * as_rows(share, spec.layout), total
    unified = _shards.unify({**inputs, "o": o.astype(q.dtype), "lse": lse})
    return {name: unified[name] for name in ("o", "lse")}


def _sink_gradient(spec: Spec, sinks: Any, made: Mapping[str, Any], d_o: Any, d_lse: Any) -> Any:
    """Returns the gradient of the sink logits from this rank's rows."""
    delta = (made["o"].astype(jnp.float32) * d_o.astype(jnp.float32)).sum(-1)
    delta = delta if spec.layout == "bhsd" else jnp.swapaxes(delta, 1, 2)
    logits, lse = sinks.astype(jnp.float32)[:, None], made["lse"]
    share = jnp.where(lse == -jnp.inf, 0.0, jnp.exp(logits - lse))
    return (share * (-delta if d_lse is None else d_lse - delta)).sum((0, 2)).astype(sinks.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(spec: Spec, inputs: Mapping[str, Any]) -> Dict[str, Any]:
    return _forward(spec, inputs)


def _attend_forward(spec: Spec, inputs: Mapping[str, Any]) -> Tuple[Dict[str, Any], Any]:
    values = {name: leaf.value for name, leaf in inputs.items()}
    for name in AUX:
        if name in inputs and inputs[name].perturbed:
            raise UnsupportedError(
                f"expected aux_tensors without gradients but got {name!r} with one; apply jax.lax.stop_gradient to it"
            )
    wants_sinks = {"sink_logits": ()} if "sink_logits" in inputs and inputs["sink_logits"].perturbed else {}
    made = _forward(spec, values)
    return made, (values, made, wants_sinks)


def _attend_backward(spec: Spec, kept: Any, cotangents: Any) -> Any:
    inputs, made, wants_sinks = kept
    d_o, d_lse = (None if _calls._is_zero(cotangents[name]) else cotangents[name] for name in ("o", "lse"))
    d_o = jnp.zeros_like(made["o"]) if d_o is None else d_o
    fixed = {"q": inputs["q"], **made, "d_o": d_o, **({} if d_lse is None else {"d_lse": d_lse})}
    both = inputs["k"], inputs["v"]
    sums = {name: jnp.zeros(inputs[name].shape, jnp.float32) for name in "qkv"}
    done = following = None
    names = ("dq", "dk", "dv")
    for at, stage in enumerate(spec.stages):
        k, v = _receive(spec, stage, both) if following is None else following
        if at + 1 < len(spec.stages):
            following = _receive(spec, spec.stages[at + 1], _after(both, done))
        given = {**fixed, "k": k, "v": v, **_operands_of(spec, stage, inputs)}
        found = _call(spec, _calls._backward_p, "attention_backward", given, names, names)
        done = found
        sums["q"] = sums["q"] + found["dq"].astype(jnp.float32)
        for name in "kv":
            sums[name] = sums[name] + _return(spec, stage, found[f"d{name}"])
    gradients: Dict[str, Any] = dict.fromkeys(inputs)
    gradients.update((name, x.astype(inputs[name].dtype)) for name, x in sums.items())
    if wants_sinks:
        gradients["sink_logits"] = _sink_gradient(spec, inputs["sink_logits"], made, d_o, d_lse)
    given = {name: x for name, x in gradients.items() if x is not None}
    unified = _shards.unify({**given, "like": made["o"]})
    return ({name: unified.get(name) for name in inputs},)


_attend.defvjp(_attend_forward, _attend_backward, symbolic_zeros=True)
#: Outside jit, `jax.shard_map` supports jitted functions, but not such a custom_vjp.
_jitted = jax.jit(_attend, static_argnums=0, inline=True)


def attend(spec: Spec, inputs: Mapping[str, Any]) -> Tuple[Any, Any]:
    """Returns this device's rows of o and lse. `inputs` are its rows of q, k and v, whole tensors of the mask,
    sink_logits and auxiliary tensors, and its rank."""
    made = _jitted(spec, _shards.unify(inputs))
    return made["o"], made["lse"]

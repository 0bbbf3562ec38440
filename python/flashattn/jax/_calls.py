"""Attention and its backward pass as JAX primitives, `flashattn_attention` and
`flashattn_attention_backward`, with the rules to trace, batch and lower them, and to refuse further
derivatives.

Each primitive is lowered to one custom call of XLA's foreign function interface (FFI). The attributes of
the call define the computation; the first attribute is the text of the MLIR module. Shapes are checked
when JAX traces, the module when JAX lowers for a platform. The kernel is compiled when XLA instantiates
the program or, on a GPU, runs the call for the first time.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import jax
import jax.extend
import jax.numpy as jnp
import numpy
from jax.interpreters import ad, batching, mlir
from jax.sharding import PartitionSpec

from .. import _aux, _features, _kernel, _library, _module, _plans, _scales, _symbols, _tensors
from .._checks import model_chip
from .._library import DEVICE_CPU, SCALES
from .._options import AttentionOptions
from .._trace import AUX
from ..errors import UnsupportedError
from . import _shards

_TARGET = "flashattn"
#: Inputs whose first dimension is the batch, and inputs that broadcast.
_ROWS = ("q", "k", "v", "o", "lse", "d_o", "d_lse", "kv_len", "q_len", "leftpad_k", "offsets")
_PAIRS = ("bias", "attn_mask", "k_scale", "v_scale")
_DTYPES = {"f16": jnp.float16, "bf16": jnp.bfloat16, "f32": jnp.float32}


class Options(NamedTuple):
    """The options that are constant at compile time, and the numbers that are attributes of the XLA call."""

    chosen: AttentionOptions  #: without the schedule in the backward pass
    scale: Optional[float]
    offset: Optional[int]


class _Call(NamedTuple):
    """The parameters of a primitive."""

    op: str
    names: Tuple[str, ...]  #: the inputs, in the order of the function's arguments
    outputs: Tuple[str, ...]
    options: Options


def _view(name: str, aval: Any, device: Union[int, str]) -> _tensors.View:
    """Returns the view of a JAX array that is not allocated yet: dense, and aligned like all XLA buffers."""
    if not all(isinstance(size, int) for size in aval.shape):
        raise UnsupportedError(
            f"expected static sizes of {name!r} but got {list(aval.shape)}; export with numbers as sizes"
        )
    shape = tuple(aval.shape)
    strides = _tensors._dense_strides(shape)
    return _tensors.View(0, shape, strides, _tensors.parse_element(aval.dtype), device)


def _plan(
    call: _Call, avals: Sequence[Any], device: Union[int, str]
) -> Tuple[_plans.Call, Dict[str, _plans.Output]]:
    """Checks the call on `device` (rule R1). Returns the call and its outputs."""
    options = call.options.chosen
    device = options.model or device
    views = {name: _view(name, aval, device) for name, aval in zip(call.names, avals)}
    optional = {*(role.name for role in _features.roles(call.op)), *_symbols.NAMES, *AUX}
    tensors = {name: view for name, view in views.items() if name not in optional}
    operands: Dict[str, Any] = {name: view for name, view in views.items() if name in optional}
    operands["offset"] = call.options.offset
    checked = _plans.check_call(call.op, tensors, operands, options)
    outputs = {}
    for name in call.outputs:
        output = _plans.output_of(checked, name, None)
        if name == "d_bias":
            bias = views["bias"]
            output = output._replace(shape=bias.shape, element=bias.element)
        view = _tensors.View(
            0, output.shape, _tensors._dense_strides(output.shape), output.element, device
        )
        outputs[name] = output._replace(tensor=view)
    return checked, outputs


def _abstract(q: Any, *rest: Any, call: _Call) -> List[Any]:
    """Returns the abstract outputs, for any platform. They vary over the same mesh axes as q."""
    _, outputs = _plan(call, (q, *rest), DEVICE_CPU)
    return [
        q.update(
            shape=output.shape,
            dtype=jnp.dtype(_DTYPES[output.element]),
            weak_type=False,
            sharding=q.sharding.update(spec=PartitionSpec(*[None] * len(output.shape))),
        )
        for output in outputs.values()
    ]


@functools.lru_cache(maxsize=4096)
def _compiled(primitive: Any, call: _Call) -> Any:
    return jax.jit(functools.partial(primitive.bind, call=call))


def _refuse_derivative(primals: Any, tangents: Any, *, call: _Call) -> Any:
    raise UnsupportedError(
        "expected attention to be differentiated once, in reverse mode, but got another derivative; use "
        "jax.nn.dot_product_attention"
    )


def _batch(primitive: Any, args: Any, dims: Any, *, call: _Call) -> Any:
    """The vmap rule: folds the mapped dimension into the batch. The calls run one by one if an operand
    without a batch dimension (sink logits) is mapped, if sequences are packed, if keys are in pages, if a
    score_mod reads the batch, or if gradients are sums over the batch."""
    batched = [name for name, dim in zip(call.names, dims) if dim is not None]
    moved = {
        name: arg if dim is None else jnp.moveaxis(arg, dim, 0)
        for name, arg, dim in zip(call.names, args, dims)
    }
    rule = functools.partial(_batch_first, primitive, call, batched)
    split = [moved[name] for name in batched if _shards.split_by(moved[name])[0]]
    if not split:
        found = rule(moved)
    else:
        mesh = jax.typeof(split[0]).sharding.mesh
        spec, whole = PartitionSpec(_shards.split_by(split[0])[0]), PartitionSpec()
        specs = {name: spec if name in batched else whole for name in moved}
        found = _shards.on_each(rule, mesh, moved, specs, [spec] * len(call.outputs))
    return found, [0] * len(found)


def _batch_first(
    primitive: Any, call: _Call, batched: Sequence[str], moved: Mapping[str, Any]
) -> List[Any]:
    """Runs the calls. The mapped dimension is the first dimension of the `batched` inputs and of all outputs."""
    are_sums = any(name in _module.GRADIENTS for name in call.outputs)
    reads_batch = _aux.reads_batch(call.options.chosen.score_mod)
    shares = any(name in _module.STARTS or name == "page_table" for name in call.names)
    if are_sums or shares or reads_batch or not set(batched) <= {*_ROWS, *_PAIRS, *_symbols.NAMES}:

        def one(mapped: Mapping[str, Any]) -> Any:
            given = {**moved, **mapped}
            return primitive.bind(*(given[name] for name in call.names), call=call)

        return list(jax.lax.map(one, {name: moved[name] for name in batched}))
    size = next(moved[name].shape[0] for name in batched)
    batch = moved["q"].shape[1 if "q" in batched else 0]
    folded = []
    for name in call.names:
        is_symbol = name in _symbols.NAMES
        if name not in _ROWS and name not in _PAIRS and not is_symbol:
            folded.append(moved[name])  # one element per head, shared by all calls
            continue
        x = moved[name] if name in batched else moved[name][None]
        is_same = x.shape[0] == 1 and name not in batched  # for all calls
        if (name in _PAIRS and x.shape[:2] == (1, 1)) or (is_symbol and is_same and x.shape[1] == 1):
            folded.append(x[0])
            continue
        x = jnp.broadcast_to(x, (size, batch, *x.shape[2:]))
        folded.append(x.reshape(size * batch, *x.shape[2:]))
    return [x.reshape(size, batch, *x.shape[1:]) for x in primitive.bind(*folded, call=call)]


def _lower(device: int, context: Any, *operands: Any, call: _Call) -> Any:
    """Emits the XLA custom call for the platform of `device`: the CPU or the first GPU."""
    options, library = call.options, _library.get()
    checked, outputs = _plan(call, context.avals_in, device)
    problem = _plans.problem_of(checked, _plans.check_outputs(checked, outputs), options.chosen)
    text = _module.make_module(problem._replace(schedule=None))
    model = model_chip(options.chosen.model)
    if model or device == DEVICE_CPU or _kernel._has_cuda():
        library.check(
            text, chip=model, device=_library.DEVICE_MODEL if model else device,
            schedule=problem.schedule, tuned=True,
        )  # fmt: skip
    attributes: Dict[str, Any] = {
        "module": text,
        "schedule": problem.schedule or "",
        "model": model or "",
        "version": library.version(),
        "scale": numpy.float32(problem.d**-0.5 if options.scale is None else options.scale),
    }
    if options.offset is not None:
        attributes["offset"] = numpy.int64(options.offset)
    return jax.ffi.ffi_lowering(_TARGET)(context, *operands, **attributes)


def _refuse_platform(context: Any, *operands: Any, call: _Call) -> Any:
    found = ", ".join(context.module_context.platforms)
    raise UnsupportedError(f"expected the platform cpu or cuda but got {found}")


def _lower_on_cuda(context: Any, *operands: Any, call: _Call) -> Any:
    model = call.options.chosen.model
    if model is not None:
        raise UnsupportedError(
            f"expected the platform cpu for {model} but got cuda; select cpu by "
            "jax.default_device"
        )
    return _lower(0, context, *operands, call=call)


def _make_primitive(name: str) -> Any:
    primitive = jax.extend.core.Primitive(name)
    primitive.multiple_results = True
    primitive.def_abstract_eval(_abstract)
    primitive.def_impl(lambda *args, call: _compiled(primitive, call)(*args))
    ad.primitive_jvps[primitive] = _refuse_derivative
    batching.primitive_batchers[primitive] = functools.partial(_batch, primitive)
    mlir.register_lowering(primitive, _refuse_platform)
    mlir.register_lowering(primitive, functools.partial(_lower, DEVICE_CPU), platform="cpu")
    mlir.register_lowering(primitive, _lower_on_cuda, platform="cuda")
    return primitive


_attention_p = _make_primitive("flashattn_attention")
_backward_p = _make_primitive("flashattn_attention_backward")


def _register() -> None:
    """Registers the library's functions as XLA FFI handlers. Raises LibraryError, and the error of an XLA
    with another version of the FFI."""
    lib = _library.get().lib
    for platform, function in (("cpu", lib.flashattnXLACallCPU), ("CUDA", lib.flashattnXLACallCUDA)):
        capsule = jax.ffi.pycapsule(ctypes.cast(function, ctypes.c_void_p).value)
        stages = {"execute": capsule}
        if platform == "cpu":  # the device is known before the call, so that XLA can compile early
            stages["instantiate"] = capsule
        jax.ffi.register_ffi_target(_TARGET, stages, platform=platform)


_register()


def _bind(
    primitive: Any, op: str, given: Mapping[str, Any], outputs: Sequence[str], options: Options
) -> Dict[str, Any]:
    # Optional inputs are last.
    roles = sorted(_library.get().roles(op), key=lambda role: role.is_optional)
    order = (*(role.name for role in roles), *_symbols.NAMES, *AUX)
    names = tuple(name for name in order if name in given)
    call = _Call(op, names, tuple(outputs), options)
    return dict(zip(outputs, primitive.bind(*(given[name] for name in names), call=call)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def attend(
    options: Options, outputs: Tuple[str, ...], inputs: Mapping[str, Any]
) -> Dict[str, Any]:
    """Computes `outputs`, o and optionally lse, from `inputs`: q, k, v and the operands by name. Operands
    that broadcast to the scores have four dimensions."""
    return _bind(_attention_p, "attention", inputs, outputs, options)


def _attend_forward(
    options: Options, outputs: Tuple[str, ...], inputs: Mapping[str, Any]
) -> Tuple[Dict[str, Any], Any]:
    """Returns the outputs and the residuals of the backward pass. The names of the requested operand
    gradients are keys of a dictionary, because JAX treats keys as static structure."""
    values = {name: leaf.value for name, leaf in inputs.items()}
    for name in AUX:
        if name in inputs and inputs[name].perturbed:
            raise UnsupportedError(
                f"expected aux_tensors without gradients but got {name!r} with one; apply jax.lax.stop_gradient to it"
            )
    for name in ("k", "v", *SCALES):
        is_narrow = name in SCALES or _tensors.parse_element(values[name].dtype) in _tensors.NARROW
        if name in inputs and is_narrow and inputs[name].perturbed:
            raise UnsupportedError(
                f"expected no gradient of {name!r} of {_tensors.parse_element(values[name].dtype)} but got an input "
                "that requires one; apply jax.lax.stop_gradient to it"
            )
    for name in _module.PLACES:
        if name in inputs:
            raise UnsupportedError(
                f"expected no gradients with {name} but got an input that requires one; "
                "apply jax.lax.stop_gradient to it"
            )
    sources = {"d_bias": "bias", "d_sink_logits": "sink_logits"}
    wanted = {
        name: () for name, source in sources.items()
        if source in inputs and inputs[source].perturbed
    }  # fmt: skip
    made = _bind(_attention_p, "attention", values, ("o", "lse"), options)
    return {name: made[name] for name in outputs}, (values, made, wanted)


def _is_zero(cotangent: Any) -> bool:
    return isinstance(cotangent, jax.custom_derivatives.SymbolicZero)


def _attend_backward(
    options: Options, outputs: Tuple[str, ...], kept: Any, cotangents: Any
) -> Any:
    values, made, wanted = kept
    d_o, d_lse = cotangents["o"], cotangents.get("lse")
    tensors = {name: values[name] for name in ("q", "k", "v")}
    tensors.update(o=made["o"], lse=made["lse"])
    for name, scale in (("k", "k_scale"), ("v", "v_scale")):
        if values[name].dtype != values["q"].dtype:
            tensors[name] = _scales.dequantize(
                values[name], values.get(scale), values["q"], options.chosen.layout, values.get("cu_seqlens_k")
            )
    tensors["d_o"] = jnp.zeros_like(made["o"]) if _is_zero(d_o) else d_o
    operands = {name: x for name, x in values.items() if name not in tensors and name not in SCALES}
    if d_lse is not None and not _is_zero(d_lse):
        operands["d_lse"] = d_lse
    gradients = ("dq", "dk", "dv", *wanted)
    found = _bind(
        _backward_p,
        "attention_backward",
        _shards.unify({**tensors, **operands}),
        gradients,
        options._replace(chosen=options.chosen._replace(schedule=None, gradients=gradients)),
    )
    narrow = [name for name in "kv" if values[name].dtype != values["q"].dtype]
    return ({
        name: None if name in narrow else found.get(f"d{name}", found.get(f"d_{name}")) for name in values
    },)


attend.defvjp(_attend_forward, _attend_backward, symbolic_zeros=True)
#: `attend` for callers: outside jit, `jax.shard_map` supports jitted functions, but not such a custom_vjp.
attend_jitted = jax.jit(attend, static_argnums=(0, 1), inline=True)

"""The plans of `context_parallel` with tensors of a device, and the keys by which later calls find them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Set, Tuple

import numpy
import torch
import torch.distributed as dist
from torch import Tensor

from .. import _aux, _balance, _context, _symbols, _trace
from .._context import KV_LEN, Launch, Plan, Taken
from .._reference import _to_numpy
from .._shards import Segment, Shards
from .._sight import Problem
from ..masks import Mask
from ._messages import Range, check_same

#: The operands of a call that are tensors, in the order of the operator's list.
OPERANDS = ("bias", "attn_mask", "sink_logits", "kv_len", *_trace.AUX)
_MAX_PLANS = 16
_MAX_COPIES = 64


class Spec(NamedTuple):
    """Everything on which a call depends except tensors, and the key of its plans."""

    group: str  #: the name of the process group; "" if no keys travel
    scheme: str
    q_shards: Shards
    k_shards: Shards
    mask: Optional[str]  #: the text of the mask
    offset: int
    moves: bool  #: whether kv_len moves positions
    scale: Optional[float]
    layout: str
    softcap: Optional[float]
    score_mod: Optional[Callable[..., Any]]
    aux_count: int
    reads_positions: bool
    deterministic: bool

    @property
    def axis(self) -> int:
        """The dimension of rows."""
        return 2 if self.layout == "bhsd" else 1


class Step(NamedTuple):
    """A launch with its mask as tensors of the device."""

    launch: Launch
    mask: Optional[Mask]
    columns: Any  #: for operands with a column for each key: a slice, or the indices of the columns


class Built(NamedTuple):
    plan: Plan
    stages: Tuple[Tuple[Step, ...], ...]
    scheme: str
    orders: Tuple[Optional[Tensor], ...]  #: `Stage.order` of each stage
    kept: Tuple[Any, ...]  #: the tensors that were read to make the plan, whose memory must not be reused
    forward: Tuple[Tuple[Step, ...], ...]  #: `stages` of the forward pass, with launches cut at the ends of `merged`
    merged: Tuple[Range, ...]  #: the rows whose results are merged from several launches


_plans: "OrderedDict[Any, Built]" = OrderedDict()


def identity(x: Any) -> Any:
    """Returns a key of the contents of a mask's tensor; None if there is none. For a tensor on a GPU, which the host
    reads only to make a plan, the key changes with each in-place operation of torch."""
    if type(x) is int:
        return x
    if isinstance(x, numpy.ndarray) and x.base is None and not x.flags.writeable:
        return id(x)  # cannot change; whoever keeps the key keeps the array
    if isinstance(x, Tensor) and x.device.type != "cpu":
        if x.is_inference():
            return None
        return x.data_ptr(), tuple(x.shape), x.stride(), x.dtype, x.device, x._version
    array = numpy.ascontiguousarray(x.detach().numpy() if isinstance(x, Tensor) else x)
    return array.shape, array.dtype.str, hashlib.blake2b(array).digest()


#: Copies of arrays on devices, with the arrays.
_copies: "OrderedDict[Any, Tuple[Any, Tensor]]" = OrderedDict()


def on_device(x: Any, device: torch.device) -> Tensor:
    """Returns a mask's tensor, or its copy on a device, which is made once."""
    if isinstance(x, Tensor) and x.device == device:
        return x
    if isinstance(x, Tensor) and x.device.type != "cpu":
        return x.to(device)
    key = identity(x), device
    found = _copies.get(key)
    if found is None:
        with torch.inference_mode(False):
            found = _copies[key] = x, torch.tensor(numpy.asarray(x), device=device)
        while len(_copies) > _MAX_COPIES:
            _copies.popitem(last=False)
    else:
        _copies.move_to_end(key)
    return found[1]


def find_plan(
    spec: Spec, numbers: Sequence[Any], q: Tensor, k: Tensor, v: Tensor, operands: Dict[str, Tensor]
) -> Built:
    device, has_lengths, sizes = q.device, "kv_len" in operands, sizes_of(q, k, v, spec.axis)
    identities = tuple(map(identity, numbers))
    of_sizes = sizes if spec.scheme == "auto" else None
    key = None if None in identities else (spec._replace(scale=None), identities, device, has_lengths, of_sizes)
    built = None if key is None else _plans.get(key)
    if built is None:
        if spec.group:
            check_arguments(group_of(spec.group), spec, numbers, (q, k, v), operands)
        built = _build(spec, numbers, device, has_lengths, sizes)
        if key is not None:
            _plans[key] = built
            while len(_plans) > _MAX_PLANS:
                _plans.popitem(last=False)
    else:
        _plans.move_to_end(key)
    return built


#: For each group, by name, the group and digests of what its ranks have compared.
_compared: Dict[str, Tuple[Any, Set[bytes]]] = {}


def check_arguments(
    group: Any, spec: Spec, numbers: Sequence[Any], rows: Tuple[Tensor, Tensor, Tensor], operands: Dict[str, Tensor]
) -> None:
    """Raises ArgumentError on every rank of a group if the arguments of a call differ between them. `rows` are q, k and
    v.

    The ranks compare arguments when they make a plan for contents that are new to the group, so a call with a plan
    costs nothing. Ranks with equal arguments do so in the same call, whichever plans each of them has dropped since:
    what is new depends only on contents of the group's earlier calls, and only on those by which plans are found."""
    if dist.get_world_size(group) == 1:
        return
    sizes = sizes_of(*rows, spec.axis)
    arrays = [numpy.ascontiguousarray(_to_numpy(x), numpy.int64) for x in numbers]
    contents = [(x.shape, hashlib.blake2b(x).hexdigest()) for x in arrays]
    known_by = (
        spec._replace(group="", scale=None, score_mod=None), spec.score_mod is None, contents, "kv_len" in operands,
        sizes if spec.scheme == "auto" else None,
    )  # fmt: skip
    digest = hashlib.blake2b(repr(known_by).encode(), digest_size=16).digest()
    found = _compared.get(group.group_name)
    if found is None or found[0] is not group:
        found = _compared[group.group_name] = group, set()
    if digest in found[1]:
        return
    device = rows[0].device
    if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
        fields = _fields_of(spec, operands)
        fields.update({"q, k or v": (rows[0].dtype, sizes), "mask": (spec.mask, contents)})
        with torch.inference_mode(False), torch.no_grad():
            check_same(group, {name: str(x) for name, x in fields.items()}, device)
    found[1].add(digest)


def _fields_of(spec: Spec, operands: Dict[str, Tensor]) -> Dict[str, Any]:
    """Returns what all ranks must agree on, by the names of arguments."""
    aux = tuple(operands[name] for name in _trace.AUX[: spec.aux_count])
    return {
        "layout": spec.layout, "scheme": spec.scheme, "rows, shards or length": spec.q_shards.text,
        "k_shards": spec.k_shards.text if spec.k_shards != spec.q_shards else "", "scale": spec.scale,
        "offset or align": (spec.offset, spec.moves), "softcap": spec.softcap,
        "score_mod": _aux.prepare(spec.score_mod, aux or None)[0],
        "optional tensors": sorted(name for name in OPERANDS if name in operands),
    }  # fmt: skip


def _problem_of(spec: Spec, numbers: Sequence[Any], has_lengths: bool) -> Problem:
    mask = None
    if spec.mask is not None:
        mask = Mask(spec.mask, symbols=tuple(zip(_symbols.names_in(spec.mask), numbers)))
    return Problem(
        spec.q_shards, spec.k_shards, mask, spec.offset, has_lengths, spec.moves, spec.reads_positions
    )  # fmt: skip


def rates_of(device: torch.device) -> _balance.Rates:
    return _balance.RATES.get(device.type, _balance.RATES["cuda"])


def sizes_of(q: Tensor, k: Tensor, v: Tensor, axis: int) -> _balance.Sizes:
    heads = 3 - axis
    return _balance.Sizes(q.shape[0], q.shape[heads], k.shape[heads], q.shape[-1], v.shape[-1], q.element_size())


def _build(
    spec: Spec, numbers: Sequence[Any], device: torch.device, has_lengths: bool, sizes: _balance.Sizes
) -> Built:
    rank = dist.get_rank(group_of(spec.group)) if spec.group else 0
    with torch.inference_mode(False), torch.no_grad():
        problem = _problem_of(spec, numbers, has_lengths)
        scheme = spec.scheme
        if scheme == "auto":
            times = _balance.estimate(problem, sizes, rates_of(device))
            scheme = min(_context.SCHEMES, key=lambda name: times[name])
        plan = _context.make_plan(problem, scheme, rank)
        stages = tuple(_make_steps(stage.launches, device) for stage in plan.stages)
        rows = spec.q_shards.count(rank)
        merged = tuple(_context.merged_rows(plan, rows))
        forward = stages
        if merged and merged != ((0, rows),):
            cut = ([part for x in stage.launches for part in _context.cut_launch(x, merged)] for stage in plan.stages)
            forward = tuple(_make_steps(launches, device) for launches in cut)
    orders = tuple(None if x.order is None else torch.from_numpy(x.order).to(device) for x in plan.stages)
    return Built(plan, stages, scheme, orders, tuple(numbers), forward, merged)


def _make_steps(launches: Sequence[Launch], device: torch.device) -> Tuple[Step, ...]:
    return tuple(Step(launch, _mask_of(launch, device), _columns_of(launch, device)) for launch in launches)


def _mask_of(launch: Launch, device: torch.device) -> Optional[Mask]:
    """Returns the mask of a launch. Instead of the lengths kv_len it has the word KV_LEN."""
    if launch.mask is None:
        return None
    return Mask(launch.mask, symbols=tuple((name, _take(x, device)) for name, x in launch.numbers))


def _take(number: Any, device: torch.device) -> Any:
    if type(number) is int or number is KV_LEN:
        return number
    if isinstance(number, Taken):
        tensor = torch.as_tensor(number.tensor, device=device)
        found = _select(tensor, -1, number.segments)
    else:
        found = torch.as_tensor(number, device=device)
    # A plan is found by the contents of tensors on the CPU, whose memory may have other contents then.
    return found.to(torch.int32, copy=device.type == "cpu").contiguous()


def _select(tensor: Tensor, dim: int, segments: Sequence[Segment]) -> Tensor:
    """Returns the elements of a tensor along a dimension; a view if they follow one another."""
    if len(segments) == 1 and segments[0].step == 1:
        return tensor.narrow(dim, segments[0].first, segments[0].count)
    parts = [torch.from_numpy(segment.rows()) for segment in segments]
    return tensor.index_select(dim, torch.cat(parts).to(tensor.device))


def _columns_of(launch: Launch, device: torch.device) -> Any:
    if len(launch.segments) == 1:
        segment = launch.segments[0]
        return slice(segment.first, segment.last + 1, segment.step)
    return torch.cat([torch.from_numpy(segment.rows()) for segment in launch.segments]).to(device)


def group_of(name: str) -> Any:
    if not name:
        return None  # all keys are this rank's own
    return dist.distributed_c10d._resolve_process_group(name)

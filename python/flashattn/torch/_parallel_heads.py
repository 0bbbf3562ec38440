"""The exchange of heads for rows, by which each rank of a row of the mesh computes some heads of all rows."""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from .. import _aux, _trace
from .._coordinates import OfHeads
from .._shards import Shards
from .._sight import Problem
from ..errors import UnsupportedError
from ..masks import Mask
from ._context_plans import Spec, check_arguments, identity, sizes_of
from ._messages import guard, peers_of


class _Exchange(NamedTuple):
    """The exchange of heads for rows among the ranks of a group."""

    group: Any
    layout: str
    counts: Tuple[int, ...]  #: the rows of each rank
    order: Optional[Tensor]  #: the order of all rows in the sequence; None if they are in order

    def to_heads(self, x: Tensor) -> Tensor:
        """Returns all rows of this rank's heads."""
        size = len(self.counts)
        x = self._by_head(x)
        shape = x.shape[0] // size, x.shape[1], x.shape[3]
        counts = [math.prod(shape) * count for count in self.counts]
        found = self._exchange(x, counts, [x.numel() // size] * size)
        parts = [
            part.view(*shape[:2], count, shape[2]) for part, count in zip(found.split(counts), self.counts)
        ]
        rows = torch.cat(parts, 2)
        return self._by_row(rows if self.order is None else rows.index_select(2, self.order))

    def to_rows(self, x: Tensor, own: int) -> Tensor:
        """Returns all heads of this rank's rows, of which there are `own`."""
        size = len(self.counts)
        x = self._by_head(x)
        if self.order is not None:
            x = torch.empty_like(x).index_copy(2, self.order, x)
        shape = x.shape[0], x.shape[1], own, x.shape[3]
        parts = [part.reshape(-1) for part in x.split(self.counts, 2)]
        counts = [math.prod(shape)] * size
        found = self._exchange(torch.cat(parts), counts, [part.numel() for part in parts])
        return self._by_row(torch.cat([part.view(shape) for part in found.split(counts)], 0))

    def _exchange(self, x: Tensor, received: Sequence[int], sent: Sequence[int]) -> Tensor:
        return _AllToAll.apply(x.reshape(-1), list(received), list(sent), self.group)  # type: ignore[no-any-return]

    def _by_head(self, x: Tensor) -> Tensor:
        return x.permute((1, 0, 2, 3) if self.layout == "bhsd" else (2, 0, 1, 3))

    def _by_row(self, x: Tensor) -> Tensor:
        return x.permute((1, 0, 2, 3) if self.layout == "bhsd" else (1, 2, 0, 3))


class _AllToAll(torch.autograd.Function):
    """Sends parts of a tensor to all ranks. The gradients travel back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, received: List[int], sent: List[int], group: Any) -> Tensor:
        ctx.counts, ctx.group = (sent, received), group
        found = x.new_empty(sum(received))
        step = "the exchange of heads"
        guard(lambda: dist.all_to_all_single(found, x, received, sent, group=group), step, peers_of(group))
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _AllToAll.apply(gradient.contiguous(), *ctx.counts, ctx.group), None, None, None


def _make_exchange(group: Any, layout: str, shards: Shards, first: int, device: torch.device) -> _Exchange:
    """Returns the exchange among the ranks from `first` on of the shards."""
    ranks = range(first, first + dist.get_world_size(group))
    rows = torch.cat([torch.from_numpy(shards.rows(rank)) for rank in ranks])
    order = torch.argsort(rows)
    is_sorted = bool((order[1:] > order[:-1]).all())
    return _Exchange(group, layout, tuple(map(shards.count, ranks)), None if is_sorted else order.to(device))


@functools.lru_cache(maxsize=256)
def _from_head(function: Callable[..., Any], first: int) -> Callable[..., Any]:
    """Returns a score_mod that counts heads from `first` on."""

    def score_mod(score: Any, b: Any, h: Any, p: Any, k: Any, *aux: Any) -> Any:
        moved = h + first
        return function(score, b, moved, p, k, *(OfHeads(x, moved, h) for x in aux))

    return score_mod


def exchange_heads(
    call: Any, q: Tensor, k: Tensor, v: Tensor, given: Dict[str, Tensor], problem: Problem, scheme: str
) -> Tuple[Tensor, Tensor]:
    """Runs a call on some heads of all rows that a row of the mesh holds."""
    for name in ("bias", "attn_mask"):
        if name in given:
            raise UnsupportedError(f"expected no {name} where heads are exchanged for rows but got one")
    group, axis = call.groups.heads, 2 if call.layout == "bhsd" else 1
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    heads, kv_heads = q.shape[3 - axis], k.shape[3 - axis]
    shared = math.lcm(kv_heads, size)
    if not shared or heads % shared:
        raise UnsupportedError(
            f"expected heads that {size} ranks can exchange for rows but got {heads} query heads and {kv_heads} "
            "key/value heads; use scheme='ring'"
        )
    spec = call._spec(problem, call.scheme, None, sum(name in given for name in _trace.AUX))
    _check_once(group, spec, problem.mask, (q, k, v), given)
    if shared != kv_heads:
        k, v = (x.repeat_interleave(shared // kv_heads, 3 - axis) for x in (k, v))
    first_rank = call.groups.rank - rank
    exchanges = [
        _make_exchange(group, call.layout, shards, first_rank, q.device) for shards in (call.q_shards, call.k_shards)
    ]
    own_rows = q.shape[axis]
    q, k, v = exchanges[0].to_heads(q), exchanges[1].to_heads(k), exchanges[1].to_heads(v)
    own = slice(rank * heads // size, (rank + 1) * heads // size)
    of_kv = [head * kv_heads // shared for head in range(rank * shared // size, (rank + 1) * shared // size)]
    if call.score_mod is not None:
        call = call._replace(score_mod=_from_head(call.score_mod, own.start))
        for name, load in _aux.loads_of(_aux.prepare(call.score_mod, call.aux_tensors)[0]).items():
            if "H" in load.dims:
                given[name] = given[name].narrow(load.dims.index("H"), own.start, heads // size)
    if "sink_logits" in given:
        given["sink_logits"] = given["sink_logits"][own]
    problem = problem._replace(
        q_shards=call.q_shards.grouped(size), k_shards=call.k_shards.grouped(size),
        mask=_cut_heads(problem.mask, own, of_kv),
    )  # fmt: skip
    o, lse = call.attend(q, k, v, given, problem, scheme, call.groups.keys)
    o = exchanges[0].to_rows(o, own_rows)
    lse = exchanges[0]._replace(layout="bhsd").to_rows(lse.unsqueeze(-1), own_rows).squeeze(-1)
    return o, lse


#: Arguments of exchanges of heads that the ranks have compared, with the masks, whose memory must not be reused.
_checked: "OrderedDict[Any, Optional[Mask]]" = OrderedDict()


def _check_once(
    group: Any, spec: Spec, mask: Optional[Mask], rows: Tuple[Tensor, Tensor, Tensor], given: Dict[str, Tensor]
) -> None:
    """Runs `check_arguments`, unless a recent call had the same arguments."""
    numbers = () if mask is None else tuple(x for _, x in mask._symbols)
    identities = tuple(map(identity, numbers))
    sizes = sizes_of(*rows, spec.axis)
    key = group.group_name, spec._replace(scale=None), identities, sizes, rows[0].dtype, tuple(given)
    if key in _checked and None not in identities:
        _checked.move_to_end(key)
        return
    check_arguments(group, spec, numbers, rows, given)
    _checked[key] = mask
    while len(_checked) > 64:
        _checked.popitem(last=False)


def _cut_heads(mask: Optional[Mask], heads: slice, kv_heads: Sequence[int]) -> Optional[Mask]:
    """Returns a mask with the tensors of some heads."""
    if mask is None or not mask._symbols:
        return mask
    found = []
    for name, x in mask._symbols:
        if len(getattr(x, "shape", ())) == 3 and x.shape[1] > 1:
            x = x[:, heads] if name.startswith("per_query") else x[:, list(kv_heads)]
        found.append((name, x))
    return Mask(str(mask), symbols=tuple(found))

"""The backward pass of `context_parallel` on the rows of one rank. Keys travel as in the forward pass, and their
gradients travel back to the ranks that hold them."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .._backward import attention_backward
from ._context import Keys, Wires, options_of, sent_rows
from ._context_plans import Built, Spec, Step, find_plan
from ._messages import Range, narrow


class _Sums:
    """Gradients of a rank's own rows, to which several launches and other ranks add. Two parts are added in the type of
    the rows, as the sum is rounded once anyway, and more in f32."""

    def __init__(self, like: Tensor, parts: int, is_assigned: bool):
        self.like = like
        dtype = like.dtype if parts <= 2 else torch.float32
        make = torch.empty if is_assigned else torch.zeros
        self.sum = make(like.shape, dtype=dtype, device=like.device)

    def total(self) -> Tensor:
        return self.sum.to(self.like.dtype)


#: The query heads and the key heads of a part of a stage.
_Heads = Tuple[slice, slice]
_ALL = slice(None), slice(None)


def _cut(x: Tensor, heads: slice, dim: int) -> Tensor:
    return x if heads == slice(None) else x[:, heads] if dim == 1 else x[:, :, heads]


class _Pass:
    """A backward pass: its inputs, and the gradients as far as they are computed."""

    def __init__(
        self, spec: Spec, built: Built, inputs: Tuple[Tensor, ...], d_lse: Optional[Tensor],
        operands: Dict[str, Tensor], needs_bias: bool,
    ):  # fmt: skip
        self.spec, self.built, self.operands = spec, built, operands
        self.q, self.k, self.v, self.o, self.lse, self.d_o = inputs
        self.d_lse = d_lse
        self.d_bias = torch.zeros_like(operands["bias"], dtype=torch.float32) if needs_bias else None
        # The own keys' launch assigns gradients if it has all rows. Others add to them.
        axis, first = spec.axis, built.stages[0]
        own = first[0].launch if len(first) == 1 and built.scheme == "ring" else None
        self.has_all_rows = own is not None and own.rows == (0, self.q.shape[axis])
        self.has_all_keys = own is not None and own.keys == (0, self.k.shape[axis])
        of_q = sum(bool(steps) for steps in built.stages)
        of_k = len(first) + sum(bool(sent) for sent in built.plan.sends)
        self.dq = _Sums(self.q, of_q, self.has_all_rows)
        self.dk, self.dv = (_Sums(x, of_k, self.has_all_keys) for x in (self.k, self.v))

    def split_heads(self) -> Tuple[_Heads, Optional[_Heads]]:
        """Returns the two parts of the first stage, or one if it cannot be cut: nothing travels, or an operand counts
        heads."""
        plan, dim = self.built.plan, 3 - self.spec.axis
        heads, group = self.k.shape[dim], self.q.shape[dim] // max(1, self.k.shape[dim])
        travels = any(piece.source != plan.rank for stage in plan.stages[1:] for piece in stage.pieces)
        travels = travels or any(plan.sends[1:])
        counts_heads = self.spec.score_mod is not None or {"bias", "attn_mask"} & set(self.operands) or any(
            isinstance(x, Tensor) and x.ndim > 2
            for steps in self.built.stages for step in steps if step.mask is not None for _, x in step.mask._symbols
        )  # fmt: skip
        if heads < 2 or not travels or counts_heads:
            return _ALL, None
        half = heads // 2
        return (slice(0, half * group), slice(0, half)), (slice(half * group, None), slice(half, None))

    def defer(self, heads: _Heads) -> None:
        """Prepares gradients of heads whose own keys come last, to which other stages add before."""
        dim, stages = 3 - self.spec.axis, self.built.stages
        if self.has_all_rows and any(stages[1:]):
            _cut(self.dq.sum, heads[0], dim).zero_()
        if self.has_all_keys and len(stages) > 2:
            for sums in (self.dk, self.dv):
                _cut(sums.sum, heads[1], dim).zero_()

    def run_own(self, k: Tensor, v: Tensor, heads: _Heads, is_late: bool = False) -> None:
        """Runs the first stage of a ring, whose keys are this rank's own, for some heads. `is_late`: `defer` was called
        for these heads, and other stages have run since."""
        if is_late:
            self.has_all_rows = self.has_all_rows and not any(self.built.stages[1:])
            self.has_all_keys = self.has_all_keys and len(self.built.stages) <= 2
        if self.has_all_keys:
            self._run(0, k, v, heads, [_cut(x.sum, heads[1], 3 - self.spec.axis) for x in (self.dk, self.dv)])
        else:
            self._add_own(0, self._run(0, k, v, heads, None), heads)

    def run(self, at: int, k: Tensor, v: Tensor) -> Sequence[Tensor]:
        """Returns the gradients of the keys of a stage, in the order of its pieces."""
        found = self._run(at, k, v, _ALL, None)
        order = self.built.orders[at]
        if order is not None:
            found = [torch.empty_like(x).index_copy_(self.spec.axis, order, x) for x in found]
        self._add_own(at, found, _ALL)
        return found

    def _add_own(self, at: int, found: Sequence[Tensor], heads: _Heads) -> None:
        """Adds the gradients of a stage's keys that are this rank's own."""
        plan, axis, first = self.built.plan, self.spec.axis, 0
        for piece in plan.stages[at].pieces:
            count = piece.end - piece.start
            if piece.source == plan.rank:
                for sums, part in zip((self.dk, self.dv), found):
                    own = _cut(sums.sum, heads[1], 3 - axis)
                    narrow(own, axis, (piece.start, piece.end)).add_(part.narrow(axis, first, count))
            first += count

    def _run(
        self, at: int, k: Tensor, v: Tensor, heads: _Heads, targets: Optional[Sequence[Tensor]]
    ) -> Sequence[Tensor]:
        """Runs the launches of a stage for some heads. Adds gradients of queries and bias, and assigns those of keys
        and values to `targets`, or returns them."""
        axis, dim, steps = self.spec.axis, 3 - self.spec.axis, self.built.stages[at]
        k, v = _cut(k, heads[1], dim), _cut(v, heads[1], dim)
        q, o, d_o = (_cut(x, heads[0], dim) for x in (self.q, self.o, self.d_o))
        of_rows = [_cut(x, heads[0], 1) for x in (self.lse, self.d_lse) if x is not None]
        dq = _cut(self.dq.sum, heads[0], dim)
        sums: Optional[Sequence[Tensor]] = targets
        if len(steps) != 1 or steps[0].launch.keys != (0, k.shape[axis]):
            sums = [torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (k, v)]
        for step in steps:
            rows, of_keys = step.launch[:2]
            options = options_of(self.spec, step, self.operands, rows)
            lse, *d_lse = (narrow(x, 2, rows).contiguous() for x in of_rows)
            inputs = [narrow(q, axis, rows), *(narrow(x, axis, of_keys) for x in (k, v)), narrow(o, axis, rows), lse]
            is_new, is_only = at == 0 and self.has_all_rows, len(steps) == 1
            parts = [None, None] if sums is None else [narrow(x, axis, of_keys) for x in sums]
            goals = [narrow(dq, axis, rows) if is_new else None, *(parts if is_only else (None, None))]
            outs = [
                goal if goal is not None and goal.dtype == x.dtype else x.new_empty(x.shape)
                for goal, x in zip(goals, inputs)
            ]
            if self.d_bias is not None:
                options["return_d_bias"] = True
                outs.append(torch.empty_like(options["bias"], memory_format=torch.contiguous_format))
            attention_backward(
                *inputs, narrow(d_o, axis, rows), d_lse=d_lse[0] if d_lse else None, out=tuple(outs),
                deterministic=self.spec.deterministic, **options,
            )  # fmt: skip
            if not is_new:
                narrow(dq, axis, rows).add_(outs[0])
            elif outs[0] is not goals[0]:
                narrow(dq, axis, rows).copy_(outs[0])
            if self.d_bias is not None:
                _add_pairs(self.d_bias, step, rows, outs[3])
            if sums is None:
                return outs[1:3]
            for part, out in zip(parts, outs[1:3]):
                if part is not None and out is not part:
                    part.copy_(out) if is_only else part.add_(out)
        return sums if sums is not None else [torch.zeros_like(x) for x in (k, v)]


def backward(
    spec: Spec, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, d_o: Tensor, d_lse: Optional[Tensor],
    operands: Dict[str, Tensor], numbers: Sequence[Any], needs_bias: bool,
) -> Tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:  # fmt: skip
    """Returns the gradients of this rank's q, k, v and bias."""
    operands = {"q": q, **operands}
    built = find_plan(spec, numbers, q, k, v, operands)
    wires = Wires(spec, built, k, v)
    work = _Pass(spec, built, (q, k, v, o, lse, d_o), d_lse, operands, needs_bias)
    # The own keys' launches come in two parts: the second one runs while the last gradients travel.
    now, later = work.split_heads() if built.scheme == "ring" else (_ALL, None)
    if later is not None:
        work.defer(later)
    current = Keys(spec, wires, built, 0, k, v, ", backward")
    returning: Optional[_Returned] = None
    own_keys: Tuple[Tensor, Tensor] = (k, v)
    for at in range(len(built.stages)):
        following = None
        if at + 1 < len(built.stages):
            following = Keys(spec, wires, built, at + 1, k, v, ", backward")
        keys, values = current.get()
        if at == 0 and built.scheme == "ring":
            own_keys = keys, values
            work.run_own(keys, values, now)
            found: Sequence[Tensor] = ()
        else:
            found = work.run(at, keys, values)
        current.release()
        if returning is not None:
            returning.add(work)
        returning = _Returned(wires, work, at, found)
        if following is not None:
            current = following
    if later is not None:
        work.run_own(*own_keys, later, is_late=True)
    if returning is not None:
        returning.add(work)
    wires.finish()
    d_bias = None if work.d_bias is None else work.d_bias.to(operands["bias"].dtype)
    return work.dq.total(), work.dk.total(), work.dv.total(), d_bias


def _add_pairs(d_bias: Tensor, step: Step, rows: Range, part: Tensor) -> None:
    own = d_bias
    if own.ndim > 1 and own.shape[-2] != 1:
        own = narrow(own, own.ndim - 2, rows)
    if own.ndim == 0 or own.shape[-1] == 1:
        own.add_(part)
    elif isinstance(step.columns, slice):
        own[..., step.columns].add_(part)
    else:
        own.index_add_(-1, step.columns, part.to(own.dtype))


class _Returned:
    """Gradients of keys on their way to the ranks that hold the keys."""

    def __init__(self, wires: Wires, work: _Pass, at: int, found: Sequence[Tensor]):
        plan, spec = work.built.plan, work.spec
        stage, likes = plan.stages[at], (work.k, work.v)
        self._exchange = wires.exchange("gradients", at, f"step {at + 1} of {len(plan.stages)}, gradients of keys")
        ranges: Dict[int, List[Range]] = {}
        first = 0
        for piece in stage.pieces:
            count = piece.end - piece.start
            if piece.source != plan.rank:
                ranges.setdefault(piece.source, []).append((first, first + count))
            first += count
        if ranges:
            parts = [x.to(like.dtype) for x, like in zip(found, likes)]
            for source, of_source in ranges.items():
                self._exchange.send(parts, of_source, source)
        self._received = [
            (own, self._exchange.receive(likes, sum(end - start for start, end in own), target))
            for target, own in sent_rows(plan, at).items()
        ]
        self._axis = spec.axis
        self._exchange.start()

    def add(self, work: _Pass) -> None:
        """Waits for the messages, and adds what other ranks computed."""
        self._exchange.wait()
        for ranges, both in self._received:
            first = 0
            for start, end in ranges:
                for sums, part in zip((work.dk, work.dv), both):
                    narrow(sums.sum, self._axis, (start, end)).add_(part.narrow(self._axis, first, end - start))
                first += end - start
        self._exchange.release()


def sink_gradient(
    spec: Spec, o: Tensor, lse: Tensor, d_o: Tensor, d_lse: Optional[Tensor], sink_logits: Tensor
) -> Tensor:
    """Returns the gradient of the sink logits from this rank's rows."""
    delta = (o.float() * d_o.float()).sum(-1)
    if spec.layout != "bhsd":
        delta = delta.transpose(1, 2)
    share = torch.exp(sink_logits.float().view(1, -1, 1) - lse).nan_to_num_(0.0)
    change = -delta if d_lse is None else d_lse - delta
    return (share * change).sum((0, 2)).to(sink_logits.dtype)

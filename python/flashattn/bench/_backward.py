"""The backward pass that `python -m flashattn bench --backward` times: gradients of q, k, v and a bias."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Tuple

import numpy

from .. import _reference
from . import _features
from ._features import mask_of

#: Operations relative to the forward pass, which has two products. The backward pass has five.
FLOPS = 2.5

Makers = Dict[str, Callable[[], Callable[[], Any]]]


def with_gradients(shapes: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Returns the shapes that occur in training, which have more than one query."""
    return [shape for shape in shapes if shape["Nq"] > 1]


class Backward:
    """The backward pass of one shape, with its inputs."""

    def __init__(self, backend: Any, shape: Dict[str, Any], q: Any, k: Any, v: Any):
        from .. import attention

        self.backend, self.shape, self.inputs = backend, shape, (q, k, v)
        self.options = _features.options_of(shape, backend.bias, backend.attn_mask)
        self.options.update(mask=mask_of(shape), dtype=backend.dtype_of(shape))
        self.o, self.lse = attention(q, k, v, return_lse=True, **self.options)
        self.do = backend.gradient(shape)

    def makers(self, ours: str) -> Makers:
        """Returns a function for each implementation that builds its call, which computes the gradients of q,
        k, v and the bias."""
        peers = self.backend.gradient_peers(self.shape, *self.inputs, self.do)
        return {ours: self.ours, **peers}

    def ours(self) -> Callable[[], Any]:
        from .. import attention_backward

        tensors = (*self.inputs, self.o, self.lse, self.do)
        has_bias = self.backend.bias is not None
        return lambda: attention_backward(*tensors, return_d_bias=has_bias, **self.options)

    def check(self, found: Tuple[Any, ...]) -> None:
        """Compares rows of up to four heads with float64. Raises ValueError if an error exceeds its bound."""
        heads = self.shape["B"] * self.shape["Hq"]
        for index in sorted({n * (heads - 1) // 3 for n in range(4)}):
            b, h = divmod(index, self.shape["Hq"])
            self._check_queries(found, b, h)
            self._check_keys(found, b, h // self._group)

    @property
    def _group(self) -> int:
        return self.shape["Hq"] // self.shape["Hkv"]

    def _check_queries(self, found: Tuple[Any, ...], b: int, h: int) -> None:
        rows, keys = _features.sample(self.shape["Nq"], 256), numpy.arange(self.shape["Nk"])
        exact, naive = (self._head(b, h, rows, keys, kind) for kind in (numpy.float64, "low"))
        self._compare("dq", self._rows(found[0], b, h)[rows], exact.dq, naive.dq, b, h)
        if self.backend.bias is not None:
            batches = range(self.shape["B"])
            exact, naive = (
                sum(self._head(n, h, rows, keys, kind).d_scores for n in batches)
                for kind in (numpy.float64, "low")
            )
            self._compare("d_bias", self._rows(found[3], 0, h)[rows], exact, naive, 0, h)

    def _check_keys(self, found: Tuple[Any, ...], b: int, kv_head: int) -> None:
        rows, keys = numpy.arange(self.shape["Nq"]), _features.sample(self.shape["Nk"], 64)
        heads = range(kv_head * self._group, (kv_head + 1) * self._group)
        exact, naive = (
            [self._head(b, h, rows, keys, kind) for h in heads] for kind in (numpy.float64, "low")
        )
        for name, gradient in (("dk", found[1]), ("dv", found[2])):
            sums = (sum(getattr(part, name) for part in parts) for parts in (exact, naive))
            self._compare(name, self._rows(gradient, b, kv_head)[keys], *sums, b, kv_head)

    def _rows(self, x: Any, b: int, h: int) -> numpy.ndarray:
        return self.backend.head(x, b, h, self.shape)

    def _head(
        self, b: int, h: int, rows: numpy.ndarray, keys: numpy.ndarray, kind: Any
    ) -> _reference.HeadGradients:
        """Returns the contribution of a query head to the gradients, for some queries and keys. Kind "low"
        computes in float32 and rounds the operands of products."""
        shape, kv_head = self.shape, h // self._group
        round_to = _reference.rounder(shape["dtype"]) if kind == "low" else None
        kind = numpy.float32 if kind == "low" else kind
        q, o, do = (
            self._rows(x, b, h)[rows].astype(kind) for x in (self.inputs[0], self.o, self.do)
        )
        k, v = (self._rows(x, b, kv_head)[keys].astype(kind) for x in self.inputs[1:])
        nq, nk = shape["Nq"], shape["Nk"]
        seen = _reference.visible(mask_of(shape), rows[:, None] + nk - nq, keys[None, :], nq, nk)
        if self.backend.attn_mask is not None:
            seen = seen & _features.make_attn_mask(shape)[0, 0][rows][:, keys]
        features = _features.reference_of(
            shape, h, rows, lambda h: self._rows(self.backend.bias, 0, h), keys
        )
        lse = self.backend.numbers(self.lse[b, h])[rows].astype(kind)
        scale = 1 / math.sqrt(shape["D"])
        return _reference.head_gradients(
            q, k, v, do, lse, (do * o).sum(axis=1), seen, scale, round_to, **features
        )

    def _compare(self, name: str, found: Any, exact: Any, naive: Any, b: int, h: int) -> None:
        element = self.shape["dtype"]
        naive = _reference.rounder(element)(naive)
        wrong = _reference.explain_gradient(found, exact, naive, element)
        if wrong:
            raise ValueError(f"{name} of batch {b}, head {h}: {wrong}")


def numpy_peer(backend: Any, shape: Dict[str, Any], q: Any, k: Any, v: Any, do: Any) -> Any:
    """Returns a call that computes the gradients with matrices of all pairs. P and delta are computed once,
    before the call."""
    group = shape["Hq"] // shape["Hkv"]
    x, y, z, upper = (backend.float32(t, shape) for t in (q, k, v, do))
    y, z = (numpy.repeat(t, group, axis=1) for t in (y, z))
    scale = numpy.float32(1 / math.sqrt(shape["D"]))
    weights = backend.numpy_weights(shape)(x, y)
    delta = ((weights @ z) * upper).sum(axis=-1, keepdims=True)

    def call() -> Tuple[Any, ...]:
        scores = upper @ z.swapaxes(-1, -2)
        scores -= delta
        scores *= weights
        scores *= scale
        sums = scores.swapaxes(-1, -2) @ x, weights.swapaxes(-1, -2) @ upper
        dk, dv = (t.reshape(t.shape[0], -1, group, *t.shape[2:]).sum(axis=2) for t in sums)
        return scores @ y, dk, dv

    return call


def autograd_call(torch: Any, o: Any, leaves: Tuple[Any, ...], do: Any) -> Callable[[], Any]:
    """Returns the backward pass of a graph that is kept for further calls."""
    return lambda: torch.autograd.grad(o, leaves, do, retain_graph=True)

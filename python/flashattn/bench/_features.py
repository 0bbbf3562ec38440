"""The features that `python -m flashattn bench --features` times on one shape: softcap, bias, ALiBi, attn_mask."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

import numpy

from .. import masks, math

SOFTCAP = 50.0
DOCUMENTS = 8
FEATURES = ("softcap", "bias", "alibi", "attn_mask")


def mask_of(shape: Dict[str, Any]) -> Optional[masks.Mask]:
    if shape["mask"] == "none":
        return None
    if shape["mask"] == "causal":
        return masks.causal
    near = masks.window(left=shape["window"] - 1, right=0)
    return near if shape["mask"] == "window" else near | masks.sink(shape["sinks"]) & masks.causal


def with_features(shapes: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Returns the grouped-query shape of a large model once for each feature."""
    (shape,) = (shape for shape in shapes if shape["name"] == "llama3-gqa")
    shapes = [dict(shape, name=f"llama3-{name}", feature=name) for name in FEATURES]
    # The attn_mask replaces the mask. It shows the pairs of documents of equal length, which are diagonal blocks.
    shapes[FEATURES.index("attn_mask")].update(mask="none", documents=DOCUMENTS)
    return shapes


def alibi(heads: int) -> Callable[..., Any]:
    """Returns a score_mod of ALiBi, whose slopes decrease by the same factor from head to head."""
    step = -8.0 / heads
    return lambda score, b, h, p, k: score + math.exp2((h + 1) * step) * (k - p)


def make_bias(shape: Dict[str, Any], make: Callable[..., Any]) -> Any:
    """Returns `make(batch, heads, queries, keys)` for a shape with a bias, and None otherwise."""
    if shape.get("feature") != "bias":
        return None
    return make(1, shape["Hq"], shape["Nq"], shape["Nk"])


def make_attn_mask(shape: Dict[str, Any]) -> Any:
    """Returns the attn_mask `[1, 1, Nq, Nk]`, true for a query and a key of the same document; None for a shape
    without an attn_mask."""
    if shape.get("feature") != "attn_mask":
        return None
    query, key = (numpy.arange(shape[n]) // document_of(shape) for n in ("Nq", "Nk"))
    return (query[:, None] == key[None, :])[None, None]


def document_of(shape: Dict[str, Any]) -> int:
    """Returns the length of a document."""
    return -(-shape["Nk"] // shape["documents"])


def options_of(shape: Dict[str, Any], bias: Any, attn_mask: Any) -> Dict[str, Any]:
    """Returns the arguments of `flashattn.attention` for the shape's feature."""
    return {
        None: {},
        "softcap": {"softcap": SOFTCAP},
        "bias": {"bias": bias},
        "attn_mask": {"attn_mask": attn_mask},
        "alibi": {"score_mod": alibi(shape["Hq"])},
    }[shape.get("feature")]


def sample(size: int, count: int) -> numpy.ndarray:
    """Returns `count` or more of the numbers below `size`, with the first and the last."""
    return numpy.unique(numpy.append(numpy.arange(0, size, max(1, size // count)), size - 1))


def reference_of(
    shape: Dict[str, Any],
    h: int,
    rows: numpy.ndarray,
    bias_head: Callable[[int], numpy.ndarray],
    keys: numpy.ndarray,
) -> Dict[str, Any]:
    """Returns the arguments of `_reference.shape_scores` for head h, some of its rows and some keys."""
    feature = shape.get("feature")
    if feature == "softcap":
        return {"softcap": SOFTCAP}
    if feature == "bias":
        return {"bias": bias_head(h)[rows][:, keys]}
    if feature == "alibi":
        positions = rows[:, None] + shape["Nk"] - shape["Nq"]
        modify = alibi(shape["Hq"])
        return {"modify": lambda scores: modify(scores, 0, h, positions, keys[None, :])}
    return {}


def flex_score_mod(torch: Any, shape: Dict[str, Any], bias: Any) -> Any:
    """Returns the feature as a score_mod of FlexAttention, a function of query and key indices."""
    step, offset = -8.0 / shape["Hq"], shape["Nk"] - shape["Nq"]
    return {
        None: None,
        "attn_mask": None,
        "softcap": lambda score, b, h, q, k: SOFTCAP * torch.tanh(score / SOFTCAP),
        "bias": lambda score, b, h, q, k: score + bias[0, h, q, k],
        "alibi": lambda score, b, h, q, k: score + torch.exp2((h + 1) * step) * (k - q - offset),
    }[shape.get("feature")]

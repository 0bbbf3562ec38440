"""Modules of one kernel each, as the Python package writes them, for scripts that compare pipelines.

Needs neither NumPy nor the compiler's library.
"""

import importlib
import json
import pathlib
import sys
import types

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "python" / "flashattn"


def import_package(*names):
    """Modules of the package without its __init__, which needs the whole of it."""
    package = types.ModuleType("flashattn")
    package.__path__ = [str(PACKAGE)]
    sys.modules["flashattn"] = package
    try:
        import numpy  # noqa: F401
    except ImportError:
        # Only the benchmark's tensors are made with it.
        sys.modules["numpy"] = types.ModuleType("numpy")
    sys.dont_write_bytecode = True
    return [importlib.import_module(f"flashattn.{name}") for name in names]


_features, _module, _trace, masks, math = import_package(
    "bench._features", "_module", "_trace", "masks", "math"
)

MASKS = {
    "none": None,
    "causal": masks.causal,
    "window": masks.window(left=1023, right=0),
    "band": masks.window(left=100, right=77),
    "window sinks": masks.window(left=1023, right=0) | masks.sink(4) & masks.causal,
    "narrow sinks": masks.window(left=127, right=0) | masks.sink(4) & masks.causal,
    "prefix": masks.causal | masks.sink(100),
    "set": masks.affine_set("(p, k)[nq, nk] : (k - 128 >= 0)"),
    "strided set": masks.affine_set("(p, k)[nq, nk] : (p - k >= 0, (p - k) mod 4 == 0)"),
    "blocks": masks.affine_set("(p, k)[nq, nk] : (p floordiv 64 - k floordiv 64 == 0)"),
    "chunks": masks.affine_set("(p, k)[nq, nk] : (k - 512 * (p floordiv 512) >= 0, p - k >= 0)"),
    "disjoint": masks.affine_set("(p, k)[nq, nk] : (99 - k >= 0)")
    | masks.affine_set("(p, k)[nq, nk] : (k - 400 >= 0, 699 - k >= 0)")
    | masks.affine_set("(p, k)[nq, nk] : (k - nk + 50 >= 0)"),
    "nothing": masks.Mask("#flashattn.any_of<[]>"),
}


def attn_mask_operand(broadcast=(True, True, False, False), aligned=True):
    return _module.Operand("attn_mask", "i1", "BHNK", broadcast, aligned)


def bias_operand(element, broadcast=(True, False, False, False), aligned=True):
    return _module.Operand("bias", element, "BHNK", broadcast, aligned)


def take_operands(fields):
    """The operands among the fields, in the order of the op."""
    numbers = {
        "sink_logits": ("f32", "H"), "kv_len": ("i32", "B"), "offset": ("index", ""),
        "d_sink_logits": ("f32", "H"),
    }  # fmt: skip
    for name in ("bias", "attn_mask", "sink_logits", "kv_len", "offset", "d_bias", "d_sink_logits"):
        operand = fields.pop(name, None)
        if operand is not None:
            yield _module.Operand(name, *numbers[name]) if operand is True else operand


def shape_modules():
    """Every shape and feature of the benchmark, as `flashattn.attention` compiles it on a GPU."""
    shapes = json.loads((PACKAGE / "bench" / "shapes.json").read_text())
    for shape in shapes + _features.with_features(shapes):
        queries = _module.few_queries(shape["Nq"], is_cpu=False)
        operand = {
            "bias": _module.Operand(
                "bias", shape["dtype"], "BHNK", (True, False, False, False), has_aligned_rows=True
            ),
            "attn_mask": _module.Operand(
                "attn_mask", "i1", "BHNK", (True, True, False, False), has_aligned_rows=True
            ),
        }.get(shape.get("feature"))
        options = _features.options_of(shape, None, None)
        score_mod = options.get("score_mod")
        problem = _module.Problem(
            shape["dtype"], shape["D"], shape["D"], _features.mask_of(shape),
            heads=_module.grouped_heads(shape["Hq"], shape["Hkv"], queries, is_cpu=False),
            queries=queries, operands=(operand,) if operand else (),
            softcap=options.get("softcap"), score_mod=score_mod and _trace.text_of(score_mod),
        )  # fmt: skip
        yield f"shape {shape['name']}", _module.make_module(_module.canonicalize(problem, is_cpu=False))


def problems():
    """Names and fields of problems that no shape of the benchmark has."""
    for element in ("f16", "bf16", "f32"):
        for d in (16, 32, 40, 64, 80, 96, 128, 192, 256):
            yield f"{element} D={d}", dict(element=element, d=d, dv=d, mask=masks.causal)
    for d, dv in ((64, 128), (192, 128), (40, 24), (16, 256)):
        yield f"f16 D={d} Dv={dv}", dict(d=d, dv=dv, lse=True)
    for name, mask in MASKS.items():
        yield f"mask {name}", dict(d=64, dv=64, mask=mask, lse=True)
        yield f"mask {name} f32", dict(element="f32", mask=mask)
        yield f"mask {name} bf16 D=128", dict(element="bf16", d=128, dv=128, mask=mask)
    for rows in _module.ROWS:
        for layout in _module.LAYOUTS:
            fields = dict(rows=rows, layout=layout, lse=True)
            yield f"rows {rows} {layout}", dict(fields, mask=masks.causal)
            yield f"rows {rows} {layout} f32 D=40", dict(fields, element="f32", d=40, dv=40)
    yield "align top_left", dict(mask=masks.causal, align="top_left")
    for group in (2, 4, 8):
        for name in ("none", "causal", "narrow sinks", "window sinks"):
            for layout in _module.LAYOUTS:
                yield f"group {group} {name} {layout}", dict(
                    element="bf16", heads=(64, 64 // group), mask=MASKS[name], layout=layout, lse=True
                )
    for queries in (1, 3, 7, 16):
        for d in (64, 128, 192, 256):
            fields = dict(element="bf16", d=d, dv=d, heads=(32, 8), queries=queries, kv_len=True)
            yield f"decode {queries} D={d}", dict(fields, lse=queries != 7, mask=masks.causal)
    decode = dict(d=128, dv=128, queries=1)
    yield "decode group unknown", dict(decode)
    yield "decode f32", dict(decode, element="f32", lse=True)
    yield "decode bshd", dict(decode, layout="bshd", heads=(8, 2), lse=True)
    yield "decode sinks", dict(decode, heads=(8, 2), sink_logits=True, mask=MASKS["narrow sinks"])
    yield "decode attn_mask", dict(decode, attn_mask=attn_mask_operand((False, True, False, False)))
    yield "decode bias", dict(decode, bias=bias_operand("f16"), offset=True)
    plus = lambda score, b, h, p, k: score - 0.5 * math.abs(p - k) + math.sin(p % 7) * (b + h)
    for element in ("f16", "bf16", "f32"):
        for mask in ("none", "causal", "window sinks"):
            fields = dict(element=element, mask=MASKS[mask])
            for name, feature in {
                "softcap": dict(softcap=30.0),
                "sinks": dict(sink_logits=True, lse=True),
                "kv_len": dict(kv_len=True),
                "offset": dict(offset=True),
                "bias": dict(bias=bias_operand(element)),
                "bias strided": dict(bias=bias_operand("f32", (False,) * 4, False)),
                "bias of keys": dict(bias=bias_operand(element, (True, False, True, False))),
                "bias of heads": dict(bias=bias_operand("f32", (True, False, True, True))),
                "attn_mask": dict(attn_mask=attn_mask_operand()),
                "attn_mask of keys": dict(attn_mask=attn_mask_operand((False, True, True, False), False)),
                "attn_mask of heads": dict(attn_mask=attn_mask_operand((False, False, False, False))),
                "score_mod": dict(score_mod=_trace.text_of(plus)),
            }.items():
                yield f"{name} {element} {mask}", dict(fields, **feature)
    yield "everything", dict(
        mask=MASKS["window"], softcap=20.0, bias=bias_operand("f16"), attn_mask=attn_mask_operand(),
        sink_logits=True, kv_len=True, offset=True, score_mod=_trace.text_of(plus), lse=True,
        heads=(8, 2), layout="bshd",
    )  # fmt: skip


def problem_modules():
    for name, fields in problems():
        fields = {"element": "f16", "d": 64, "dv": 64, **fields}
        operands = tuple(take_operands(fields))
        yield name, _module.make_module(_module.Problem(**fields, operands=operands))
    # A scale that is compiled in.
    for element in ("f16", "bf16", "f32"):
        text = _module.make_module(_module.Problem(element, 64, 64, masks.causal))
        assert "scale(%scale)" in text
        yield f"scale {element}", text.replace("scale(%scale)", "scale(0.3)")


def gradient_modules():
    """Gradients: tiles of every width and mask, and what else scores may have."""
    found = {
        f"{element} D={d} {mask}": dict(element=element, d=d, dv=d, mask=MASKS[mask])
        for element in ("f16", "bf16", "f32")
        for d in (64, 128, 256)
        for mask in ("none", "causal", "window sinks")
    }
    found["f16 D=192 Dv=128"] = dict(d=192, dv=128)
    found["f16 D=40"] = dict(d=40, dv=40, mask=masks.causal)
    slope = lambda score, b, h, p, k: score - 0.5 * math.abs(p - k) + math.sin(score)
    for name, feature in {
        "group": dict(heads=(32, 8), mask=MASKS["narrow sinks"]),
        "bshd": dict(layout="bshd"),
        "strided": dict(rows="strided"),
        "softcap": dict(softcap=30.0),
        "sinks": dict(sink_logits=True, d_sink_logits=True),
        "kv_len": dict(kv_len=True),
        "offset": dict(offset=True, mask=masks.causal),
        "bias": dict(bias=bias_operand("f16"), d_bias=bias_operand("f16")._replace(name="d_bias")),
        "attn_mask": dict(attn_mask=attn_mask_operand()),
        "score_mod": dict(score_mod=_trace.text_of(slope)),
        "deterministic": dict(deterministic=True, mask=masks.causal),
    }.items():
        found[name] = feature
        found[f"{name} D=128"] = dict(feature, d=128, dv=128)
    for name, fields in found.items():
        fields = {"element": "f16", "d": 64, "dv": 64, **fields}
        operands = tuple(take_operands(fields))
        yield f"gradients {name}", _module.make_module(
            _module.Problem(**fields, operands=operands, op="attention_backward")
        )


def pinned_modules():
    """Schedules that the compiler does not choose itself for these."""
    tiles = "tile_m = 64, tile_n = 64, stages = {}, dot_type = f16, "
    warps = "mapping = mma_sync<warps = 4>"
    hopper = (
        "mapping = hopper<consumers = {}, along = {}, registers = {}, producer_registers = 32, rescale_threshold = {}, "
        "l2_head_group = {}, blocks_per_sm = {}>"
    )
    schedules = {
        "one stage": tiles.format(1) + warps,
        "two stages": tiles.format(2) + warps,
        "parts": tiles.format(2) + "splits = 4, " + warps,
        "packed": tiles.format(2) + "pack = 8, " + hopper.format(1, "query_tile", 128, 1, 1, 3),
        "consumers of heads": tiles.format(3) + hopper.format(2, "head", 216, 4, 4, 1),
        "consumers of queries": tiles.format(2) + hopper.format(3, "query_tile", 160, 1, 8, 1),
    }
    for name, schedule in schedules.items():
        for mask in ("none", "causal", "narrow sinks"):
            yield f"pinned {name} {mask}", _module.make_module(
                _module.Problem("f16", 64, 64, MASKS[mask], heads=(32, 4), lse=True, schedule=schedule)
            )


def static_modules():
    """Lengths that are known, on tensors; few of them leave a whole tile."""
    for name, mask in MASKS.items():
        for queries, keys in ((512, 1024), (300, 300), (64, 80), (1, 4096)):
            q, k = f"tensor<2x8x{queries}x64xf16>", f"tensor<2x2x{keys}x64xf16>"
            clause = f"mask({mask}) " if mask is not None else ""
            yield f"static {queries}x{keys} {name}", (
                f"func.func @attention(%q: {q}, %k: {k}, %v: {k}, %o: {q}) -> {q} {{\n"
                f"  %r = flashattn.attention {clause}ins(%q, %k, %v : {q}, {k}, {k})\n"
                f"      outs(%o : {q}) -> {q}\n"
                f"  return %r : {q}\n"
                f"}}\n"
            )


def project_modules():
    """The projection behind attention, alone and after it."""
    for element, layout in (("f16", "bhsd"), ("bf16", "bshd"), ("f32", "bhsd")):
        for d, e in ((64, 256), (24, 37)):
            o = f"memref<?x?x?x{d}x{element}>"
            w, p = f"memref<?x{d}x{e}x{element}>", f"memref<?x?x{e}xf32>"
            project = (
                f"  flashattn.project layout({layout}) ins(%o, %w : {o}, {w}) outs(%p : {p})\n"
            )
            yield f"project {element} {layout} {d}x{e}", (
                f"func.func @project(%o: {o}, %w: {w}, %p: {p}) {{\n{project}  return\n}}\n"
            )
            yield f"attention and project {element} {layout} {d}x{e}", (
                f"func.func @both(%q: {o}, %o: {o}, %w: {w}, %p: {p}) {{\n"
                f"  flashattn.attention layout({layout}) ins(%q, %q, %q : {o}, {o}, {o}) outs(%o : {o})\n"
                f"{project}  return\n}}\n"
            )


def modules():
    """Names and texts of all."""
    found = {}
    for source in (
        shape_modules, problem_modules, gradient_modules, pinned_modules, static_modules,
        project_modules,
    ):  # fmt: skip
        for name, text in source():
            assert name not in found, name
            found[name] = text
    return found

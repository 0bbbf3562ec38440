# flashattn.jax.context_parallel on four devices against flashattn.jax.attention on one: values and gradients of random
# calls, over schemes, shards, masks, heads, packed sequences and operands; which rows travel; what is refused.
# REQUIRES: python-package, jax
# RUN: env JAX_PLATFORMS=cpu %flashattn_python %s

import functools
import os
import random
import unittest

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import AxisType, Mesh, PartitionSpec

import flashattn
import flashattn.jax as fj
from flashattn import ArgumentError, KeywordError, Shards, UnsupportedError
from flashattn import affine_set, causal, documents, prefix, sink, window

COUNT = int(os.environ.get("FLASHATTN_TEST_COUNT", "10"))
SEED = int(os.environ.get("FLASHATTN_TEST_SEED", "3"))
N, D = 32, 8
LINE = Mesh(numpy.array(jax.devices()[:4]), ("seq",))
BY_ROWS = PartitionSpec(None, None, "seq")
CHUNKS = Shards(N, [[(8, 3), (20, 5)], [(0, 8)], [(25, 7), (19, 1)], [(11, 8)]])
PREFIX = numpy.array([3, 20], numpy.int32)


def make(seed, *shape, dtype=jnp.float32):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), dtype)


def by_position(score, b, h, p, k):
    return score - 0.125 * h * (p - k) + 0.01 * b


def by_slope(score, b, h, p, k, slopes):
    return score + slopes[h] * (k - 0.5 * p)


def by_head(score, b, h, p, k, slopes):
    return score * (1.0 + 0.25 * h) + slopes[h]


def numbers(seed, *shape):
    return numpy.random.default_rng(seed).integers(-2, N + 2, shape).astype(numpy.int32)


MASKS = {
    "none": lambda h, g: None,
    "causal": lambda h, g: causal,
    "window": lambda h, g: window(5, 0),
    "two-sided": lambda h, g: window(3, 4),
    "sinks": lambda h, g: window(5, 0) | sink(2) & causal,
    "documents": lambda h, g: documents(starts=[0, 5, 19], length=N, causal=True),
    "prefix": lambda h, g: prefix(PREFIX) | causal,
    "lengths": lambda h, g: affine_set(
        "(a, b)[m, n] : (a floordiv 4 - b floordiv 4 >= 0, n - 2 - b >= 0, a - b + m >= 0)"
    ),
    "numbers": lambda h, g: affine_set(
        "(p, k)[nq, nk, s, u, w] : (p + s - w >= 0, k - u >= 0)", per_sequence=[PREFIX],
        per_query=[numbers(1, 2, h, N)], per_key=[numbers(2, 2, g, N)],
    ),
}  # fmt: skip


class Case:
    """One random call. Whole tensors are in the order of the sequence."""

    def __init__(self, rng, number):
        self.scheme = ("ring", "ring", "gather", "ring", "heads")[number % 5]
        self.heads = rng.choice([(4, 2), (4, 4), (4, 1)])
        self.shards = rng.choice(["contiguous", "zigzag", "striped", CHUNKS])
        self.mask = list(MASKS)[number % len(MASKS)]
        self.dtype = rng.choice([jnp.float32, jnp.float32, jnp.bfloat16])
        self.layout = rng.choice(["bhsd", "bshd"])
        self.is_traced = rng.random() < 0.4  # the tensors of the mask
        self.uses_mesh = rng.random() < 0.4
        self.options, self.operands, self.packed = {}, {}, None
        if rng.random() < 0.25:
            self.options["softcap"] = 3.0
        if rng.random() < 0.4:
            self.operands["sink_logits"] = make(9, self.heads[0])
        may_pack = self.mask in ("none", "causal", "window", "sinks", "two-sided")
        if may_pack and rng.random() < 0.4:
            self.packed = numpy.array([0, 3, 3, 21, 30], numpy.int32)
        elif rng.random() < 0.5:
            is_line = self.scheme == "heads" or self.shards in ("contiguous", "striped")
            self.options["score_mod"] = rng.choice([by_head, *([by_position, by_slope] if is_line else [])])
            if self.options["score_mod"] is not by_position:
                self.options["aux_tensors"] = (make(8, self.heads[0]) * 0.1,)
        if self.packed is None and self.mask != "documents" and rng.random() < 0.3:
            self.options["offset"] = rng.randrange(-3, 9)

    def __repr__(self):
        return str(vars(self))

    @property
    def axis(self):
        return 2 if self.layout == "bhsd" else 1

    def arrays(self):
        batch, (heads, kv_heads) = 1 if self.packed is not None else 2, self.heads
        shapes = [(batch, h, N, D) for h in (heads, kv_heads, kv_heads, heads)]
        q, k, v, d_o = (make(at, *shape, dtype=self.dtype) for at, shape in enumerate(shapes))
        if self.layout == "bshd":
            q, k, v, d_o = (jnp.swapaxes(x, 1, 2) for x in (q, k, v, d_o))
        return {"q": q, "k": k, "v": v, **self.operands}, (d_o, make(5, batch, heads, N))

    def differentiate(self, call, arrays, weights, symbols):
        def loss(arrays):
            o, lse = call(arrays, symbols)
            shown = jnp.where(jnp.isinf(lse), 0.0, lse)
            return (o.astype(jnp.float32) * weights[0]).sum() + (shown * weights[1]).sum(), (o, lse)

        (_, (o, lse)), gradients = jax.value_and_grad(loss, has_aux=True)(arrays)
        return {"o": o, "lse": lse, **{f"d{name}": x for name, x in gradients.items()}}

    def make_mask(self, symbols):
        mask = MASKS[self.mask](*self.heads)
        if not symbols:
            return mask
        return flashattn.Mask(str(mask), symbols=tuple(zip((name for name, _ in mask._symbols), symbols)))

    def single(self, arrays, symbols):
        options = {**self.options, "mask": self.make_mask(symbols), "layout": self.layout, "return_lse": True}
        if self.packed is not None:
            options.update(cu_seqlens_q=self.packed, cu_seqlens_k=self.packed)
        return fj.attention(**arrays, **options)

    def parallel(self, arrays, symbols):
        order = (self.shards if isinstance(self.shards, Shards) else getattr(Shards, self.shards)(N, 4)).order
        back = numpy.argsort(order)
        cut = {name: jnp.take(x, order, self.axis) if name in "qkv" else x for name, x in arrays.items()}
        packed = self.packed
        if packed is not None and self.is_traced:
            symbols, packed = (), jnp.asarray(packed) + 0 * symbols[0]
        given = {
            "axis_name": "seq", "shards": self.shards, "scheme": self.scheme, "layout": self.layout, "return_lse": True,
            **self.options,
        }  # fmt: skip

        def call(arrays, symbols, packed):
            return fj.context_parallel(**arrays, mask=self.make_mask(symbols), cu_seqlens=packed, **given)

        if self.uses_mesh:
            given["mesh"] = LINE
            o, lse = call(cut, symbols, packed)
        else:
            if not self.is_traced:
                inner, traced = functools.partial(call, symbols=(), packed=packed), ()
            else:
                inner, traced = call, (symbols, packed)
            whole = PartitionSpec()
            rows = BY_ROWS if self.layout == "bhsd" else PartitionSpec(None, "seq")
            specs = {name: rows if name in "qkv" else whole for name in cut}
            mapped = jax.shard_map(
                inner, mesh=LINE, in_specs=(specs, *(jax.tree.map(lambda _: whole, x) for x in traced)),
                out_specs=(rows, BY_ROWS),
            )  # fmt: skip
            o, lse = mapped(cut, *traced)
        return jnp.take(o, back, self.axis), jnp.take(lse, back, 2)

    def run(self, call, arrays, weights):
        mask = MASKS[self.mask](*self.heads)
        symbols = tuple(jnp.asarray(x) for _, x in mask._symbols) if mask is not None and self.is_traced else ()
        if self.packed is not None and self.is_traced:
            symbols = (jnp.zeros((), jnp.int32),) if call == self.parallel else ()
        return jax.jit(functools.partial(self.differentiate, call))(arrays, weights, symbols)


def permutes_of(jaxpr):
    """The shapes of the arrays that ppermute sends anywhere in a program."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "ppermute":
            found += [x.aval.shape for x in equation.invars]
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += permutes_of(inner)
    return found


class ContextTest(unittest.TestCase):
    def near(self, found, wanted, limit, message):
        self.assertEqual(set(found), set(wanted))
        for name, x in found.items():
            one, other = (numpy.asarray(y, numpy.float32) for y in (x, wanted[name]))
            self.assertFalse(numpy.isnan(one).any(), (name, message))
            numpy.testing.assert_array_equal(numpy.isinf(one), numpy.isinf(other), err_msg=f"{name}, {message}")
            one, other = (numpy.where(numpy.isinf(y), 0, y) for y in (one, other))
            self.assertLessEqual(abs(one - other).max(), limit * max(1.0, abs(other).max()), (name, message))

    def test_random_calls(self):
        rng = random.Random(SEED)
        for number in range(COUNT):
            case = Case(rng, number)
            with self.subTest(number=number, case=repr(case)):
                arrays, weights = case.arrays()
                limit = 2e-5 if case.dtype == jnp.float32 else 3e-2
                wanted = case.run(case.single, arrays, weights)
                self.near(case.run(case.parallel, arrays, weights), wanted, limit, repr(case))

    def test_lengths_that_differ(self):
        """Fewer queries than keys, which are the last ones; a mesh whose other axes cut the batch and the heads; a call
        that is not jitted."""
        mesh = Mesh(numpy.array(jax.devices()[:4]).reshape(2, 2), ("data", "seq"))
        q, k, v = make(1, 2, 4, 8, D), make(2, 2, 2, N, D), make(3, 2, 2, N, D)
        for options in ({"mask": causal}, {"mask": window(9, 0), "align": "top_left", "scale": 0.3}):
            for axes in ({"batch_axis": "data"}, {"head_axis": "data"}, {}):
                found = fj.context_parallel(q, k, v, axis_name="seq", mesh=mesh, return_lse=True, **axes, **options)
                wanted = fj.attention(q, k, v, return_lse=True, **options)
                self.near(*({"o": o, "lse": lse} for o, lse in (found, wanted)), 2e-5, axes)

    def test_packed_layout(self):
        starts = jnp.array([0, 5, 20, N], jnp.int32)
        q, k, v = make(1, N, 4, D), make(2, N, 2, D), make(3, N, 2, D)
        wanted = fj.attention(q, k, v, layout="thd", mask=causal, cu_seqlens_q=starts, cu_seqlens_k=starts)
        call = functools.partial(fj.context_parallel, axis_name="seq", layout="thd", mask=causal)
        rows = PartitionSpec("seq")
        specs = (rows,) * 3 + (PartitionSpec(),)
        inside = jax.shard_map(
            lambda *x: call(*x[:3], cu_seqlens=x[3]), mesh=LINE, in_specs=specs, out_specs=rows
        )
        outside = functools.partial(call, cu_seqlens=starts, mesh=LINE)
        for o in (jax.jit(inside)(q, k, v, starts), jax.jit(outside)(q, k, v)):
            self.assertEqual(o.shape, q.shape)
            numpy.testing.assert_allclose(o, wanted, atol=1e-5)

    def test_types_with_shardings(self):
        mesh = jax.make_mesh((2, 2), ("data", "seq"), (AxisType.Explicit,) * 2)
        q, k, v = make(1, 2, 4, 8, D), make(2, 2, 2, 8, D), make(3, 2, 2, 8, D)
        spec = PartitionSpec("data", None, "seq")
        with jax.set_mesh(mesh):
            given = [jax.device_put(x, spec) for x in (q, k, v)]
            found = fj.context_parallel(*given, axis_name="seq", mesh=mesh, mask=causal)
            self.assertEqual(jax.typeof(found).sharding.spec, PartitionSpec("data", None, "seq", None))
        numpy.testing.assert_allclose(found, fj.attention(q, k, v, mask=causal), atol=1e-5)

    def permutes(self, call, *given):
        mapped = jax.shard_map(
            call, mesh=LINE, in_specs=(BY_ROWS,) * 3 + (PartitionSpec(),) * (len(given) - 3), out_specs=BY_ROWS
        )
        slope = jax.grad(lambda *x: mapped(*x).sum(), argnums=(0, 1, 2))
        return permutes_of(jax.make_jaxpr(slope)(*given).jaxpr)

    def test_which_rows_travel(self):
        q, k, v = make(1, 2, 4, N, D), make(2, 2, 2, N, D), make(3, 2, 2, N, D)
        call = functools.partial(fj.context_parallel, axis_name="seq")
        # k and v in both passes, and their gradients.
        self.assertEqual(self.permutes(functools.partial(call, mask=window(2, 0)), q, k, v), [(2, 2, 2, D)] * 6)
        # Causally, keys travel three times, though not to the ranks before them.
        self.assertEqual(self.permutes(functools.partial(call, mask=causal), q, k, v), [(2, 2, 8, D)] * 18)
        own = documents(starts=[0, 8, 16, 24], length=N)
        self.assertEqual(self.permutes(functools.partial(call, mask=own), q, k, v), [])
        # Nothing is known of a traced tensor, but the other sets of the mask hide pairs.
        hidden = window(2, 0) & affine_set("(p, k)[nq, nk, n] : (n - 1 - k >= 0)", per_sequence=[PREFIX])
        text, names = str(hidden), [name for name, _ in hidden._symbols]

        def traced(q, k, v, lengths):
            return call(q, k, v, mask=flashattn.Mask(text, symbols=((names[0], lengths),)))

        self.assertEqual(self.permutes(traced, q, k, v, PREFIX), [(2, 2, 2, D)] * 6)
        unknown = self.permutes(lambda *x: call(*x[:3], mask=prefix(x[3])), q, k, v, PREFIX)
        self.assertEqual(unknown, [(2, 2, 8, D)] * 18)

    def test_residuals(self):
        """The backward pass keeps the rows of a device, not those that it receives."""
        q, k, v = make(1, 2, 4, N, D), make(2, 2, 2, N, D), make(3, 2, 2, N, D)
        for scheme in ("ring", "gather"):
            call = jax.shard_map(
                functools.partial(fj.context_parallel, axis_name="seq", mask=causal, scheme=scheme), mesh=LINE,
                in_specs=(BY_ROWS,) * 3, out_specs=BY_ROWS,
            )  # fmt: skip
            _, pull = jax.vjp(call, q, k, v)
            kept = sum(x.size for x in jax.tree.leaves(pull) if jnp.issubdtype(x.dtype, jnp.floating))
            self.assertEqual(kept, q.size * 2 + k.size + v.size + 2 * 4 * N)

    def test_errors(self):
        q, k, v = make(1, 2, 4, N, D), make(2, 2, 2, N, D), make(3, 2, 2, N, D)
        uneven = Shards(N, [[(0, 9)], [(9, 7)], [(16, 8)], [(24, 8)]])
        columns = affine_set("(p, k)[nq, nk, u] : (u - k >= 0)", per_query=[numbers(1, 8)])
        for options, kind, message in (
            ({"mesh": None}, ArgumentError, "expected axis_name of a jax.shard_map .*, or mesh=, but got 'seq'"),
            ({"axis_name": "x"}, ArgumentError, "expected axis_name seq of the mesh but got 'x'"),
            ({"shards": "zig"}, ArgumentError, "expected shards contiguous, zigzag, striped or .* but got 'zig'"),
            ({"shards": uneven}, ArgumentError, "expected as many rows of 'q' on all .* but got shards of 7 to 9"),
            ({"length": 30}, ArgumentError, "expected as many rows of 'q' on all devices.* but got shards of 6 to 8"),
            ({"scheme": "tree"}, ArgumentError, "expected scheme ring, gather, heads but got 'tree'"),
            ({"mask": columns}, ArgumentError, "expected 'per_query0' with a number for each of 32 rows but got 8"),
            ({"shards": "zigzag", "score_mod": by_position}, UnsupportedError, "shards of 'q' with one segment"),
            ({"score_mod": by_position, "cu_seqlens": [0, 5]}, UnsupportedError, "reads no positions with cu_seqlens"),
            ({"score_mod": lambda s, b, h, p, k, *a: s + p, "aux_tensors": [numpy.ones(())] * 3}, UnsupportedError,
             "expected at most 2 aux_tensors .* but got 3"),
            ({"cu_seqlens": [0, 40]}, ArgumentError, "expected cu_seqlens from 0 to 32 that do not decrease"),
            ({"q": q[:, :2], "scheme": "heads"}, UnsupportedError, "expected heads that 4 devices .* 2 query heads"),
            ({"q": q[:, :, :30]}, ArgumentError, "expected a number of rows of 'q' that is a multiple of 4"),
            ({"offset": numpy.zeros(2, numpy.int32)}, ArgumentError, "expected an integer offset but got"),
            ({"bias": q}, KeywordError, "got an unexpected keyword argument 'bias'"),
            ({"v": v[:, :, :8]}, ArgumentError, "expected 8 rows of 'v' on each device, as in its shards, but got 2"),
        ):  # fmt: skip
            with self.subTest(message=message), self.assertRaisesRegex(kind, message):
                fj.context_parallel(**{"q": q, "k": k, "v": v, "axis_name": "seq", "mesh": LINE, **options})
        call = functools.partial(fj.context_parallel, axis_name="seq", mesh=LINE)
        with self.assertRaisesRegex(UnsupportedError, "expected attention to be differentiated once"):
            jax.hessian(lambda q: call(q, k, v).sum())(q)


if __name__ == "__main__":
    unittest.main()

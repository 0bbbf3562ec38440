# flashattn.jax in what jax makes of programs: vmap, shard_map over two devices, pmap, checkpointing, scans,
# exported programs and the cache of compiled ones; each against calls of the package on NumPy.
# REQUIRES: python-package, jax
# RUN: env JAX_PLATFORMS=cpu %flashattn_python %s

import os
import subprocess
import sys
import tempfile
import threading
import unittest

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, PartitionSpec

import flashattn
import flashattn.jax as fj


def make(seed, *shape):
    return numpy.random.default_rng(seed).standard_normal(shape).astype(numpy.float32)


def near(found, wanted):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        numpy.testing.assert_allclose(x, y, rtol=3e-5, atol=3e-5)


def arrays(*leading, heads=(4, 2), lengths=(7, 19)):
    """q, k, v, and the gradients of o and of lse."""
    (h, g), (n, m) = heads, lengths
    return (
        make(1, *leading, h, n, 16), make(2, *leading, g, m, 16), make(3, *leading, g, m, 24),
        make(4, *leading, h, n, 24), make(5, *leading, h, n),
    )  # fmt: skip


def plain(q, k, v, do, d_lse=None, **options):
    """o, lse, dq, dk, dv and the gradients of operands, without jax."""
    o, lse = flashattn.attention(q, k, v, return_lse=True, **options)
    wanted = {f"return_d_{name}": name in options for name in ("bias", "sink_logits")}
    return o, lse, *flashattn.attention_backward(
        q, k, v, o, lse, do, d_lse=d_lse, **wanted, **options
    )


def traced(q, k, v, do, d_lse, **options):
    """The same through `flashattn.jax.attention`."""
    given = {name: options.pop(name) for name in ("bias", "sink_logits") if name in options}

    def call(q, k, v, given):
        return fj.attention(q, k, v, return_lse=True, **given, **options)

    out, pull = jax.vjp(call, q, k, v, given)
    return *out, *jax.tree.leaves(pull((do, d_lse)))


class FeatureTest(unittest.TestCase):
    def test_features(self):
        attn_mask = numpy.random.default_rng(6).random((7, 19)) > 0.3
        mask = flashattn.window(left=5, right=0) | flashattn.sink(2) & flashattn.causal
        for options in (
            {"mask": mask, "softcap": 3.0, "deterministic": True},
            {"mask": flashattn.causal, "align": "top_left", "bias": make(7, 4, 1, 19), "scale": 0.3},
            {"attn_mask": attn_mask, "sink_logits": make(8, 4), "bias": make(9, 7, 19)},
            {"kv_len": [19, 4], "mask": flashattn.causal},
            {"kv_len": numpy.array([3, 19]), "offset": 3, "mask": flashattn.causal},
            {"score_mod": lambda score, b, h, p, k: score - 0.1 * abs(p - k)},
        ):
            known = {name: x for name, x in options.items() if name != "deterministic"}
            with self.subTest(options=list(options)):
                near(traced(*arrays(2), **options), plain(*arrays(2), **known))
        q, k, v, *_ = arrays(2)
        near(fj.attention(q, k, v, schedule={"tile_m": 16, "tile_n": 16}), flashattn.attention(q, k, v))

    def test_layout_and_types(self):
        q, k, v, *_ = arrays(2)
        swapped = [numpy.swapaxes(x, 1, 2) for x in (q, k, v)]
        o, lse = fj.attention(*swapped, layout="bshd", return_lse=True)
        near((numpy.swapaxes(o, 1, 2), lse), flashattn.attention(q, k, v, return_lse=True))
        half = [jnp.asarray(x, jnp.bfloat16) for x in (q, k, v)]
        found = jax.eval_shape(lambda *x: fj.attention(*x, return_lse=True), *half)
        self.assertEqual([(x.shape, x.dtype.name) for x in found],
                         [((2, 4, 7, 24), "bfloat16"), ((2, 4, 7), "float32")])  # fmt: skip
        self.assertEqual(fj.attention(*half).dtype, jnp.bfloat16)

    def test_residual_and_one_batch(self):
        q, k, v = (numpy.swapaxes(x[0], 0, 1) for x in arrays(1)[:3])
        o, lse = fj.dot_product_attention(q, k, v, is_causal=True, return_residual=True)
        wanted = jax.nn.dot_product_attention(
            q, k, v[..., :16], is_causal=True, return_residual=True
        )
        near((o[..., :16], lse), wanted)
        slope = jax.grad(lambda q: fj.dot_product_attention(q, k, v, return_residual=True)[1].sum())
        self.assertEqual(float(abs(slope(q)).max()), 0)

    def test_empty(self):
        for batch, n, m in ((0, 7, 19), (2, 0, 19), (2, 7, 0)):
            q, k, v = make(1, batch, 4, n, 16), make(2, batch, 2, m, 16), make(3, batch, 2, m, 16)
            found = jax.value_and_grad(lambda *x: fj.attention(*x).sum(), argnums=(0, 1, 2))(q, k, v)
            self.assertEqual([float(abs(x).sum()) for x in jax.tree.leaves(found)], [0] * 4)

    def test_model_of_a_gpu(self):
        for n, dtype in ((40, numpy.float16), (3, numpy.float16)):  # the second in parts
            q, k, v = (make(i, 1, h, m, 32).astype(dtype) for i, h, m in ((1, 2, n), (2, 1, 72), (3, 1, 72)))  # fmt: skip
            with jax.default_device(jax.devices("cpu")[0]):
                found = fj.attention(q, k, v, mask=flashattn.causal, device="model:sm_80")
            wanted = flashattn.attention(q, k, v, mask=flashattn.causal)
            numpy.testing.assert_allclose(found, wanted, atol=2e-3)

        def slope(device, *given):
            call = lambda *x: fj.attention(*x, device=device).astype(jnp.float32).sum()  # noqa: E731
            return jax.grad(call, argnums=(0, 1, 2))(*given)

        with jax.default_device(jax.devices("cpu")[0]):
            for x, y in zip(slope("model:sm_90a", q, k, v), slope(None, q, k, v)):
                numpy.testing.assert_allclose(x, y, atol=4e-3)


class MapTest(unittest.TestCase):
    def test_vmap(self):
        q, k, v, do, d_lse = arrays(3, 2)
        bias, few, lengths = make(6, 3, 1, 4, 1, 19), make(7, 7, 19), numpy.array([[19, 4]] * 3, numpy.int32)  # fmt: skip
        # What is mapped, beside q and do and d_lse, which are.
        for mapped, options in (
            ((0, 0, {}), {}),
            ((0, None, {"bias": None}), {"bias": few}),
            ((None, 0, {"kv_len": 0}), {"kv_len": lengths}),
            ((None, None, {"bias": 0, "kv_len": None}), {"bias": bias, "kv_len": lengths[0]}),
            ((0, 0, {"sink_logits": 0}), {"sink_logits": make(8, 3, 4)}),
            ((0, 0, {"sink_logits": None}), {"sink_logits": make(8, 4)}),
            ((0, 0, {"attn_mask": 0}), {"attn_mask": make(9, 3, 2, 1, 1, 19) > -1}),
        ):
            in_k, in_v, in_options = mapped
            given = q, k if in_k == 0 else k[0], v if in_v == 0 else v[0], do, d_lse
            axes = (0, in_k, in_v, 0, 0, in_options)
            with self.subTest(mapped=mapped):
                found = jax.jit(jax.vmap(lambda *x: traced(*x[:5], **x[5]), axes))(*given, options)
                each = []
                for i in range(3):
                    at = [x[i] if axis == 0 else x for x, axis in zip(given, axes)]
                    rest = {n: x[i] if in_options[n] == 0 else x for n, x in options.items()}
                    each.append(plain(*at, **rest))
                near(found, [numpy.stack(x) for x in zip(*each)])
        batched = jax.vmap(jax.vmap(lambda q: fj.attention(q, k[0], v[0])), in_axes=1)
        found = batched(numpy.stack([q, q + 1]))
        self.assertEqual(found.shape, (3, 2, 2, 4, 7, 24))
        near(found[2, 1], flashattn.attention(q[2] + 1, k[0], v[0]))

    @unittest.skipIf(len(jax.devices()) < 2, "needs two devices")
    def test_shard_map(self):
        mesh = Mesh(numpy.array(jax.devices()[:2]), ("x",))
        split, whole = PartitionSpec("x"), PartitionSpec()
        given, sinks = arrays(4), make(6, 4)
        wanted = plain(*given, sink_logits=sinks, mask=flashattn.causal)

        def loss(q, k, v, do, d_lse, sinks):
            o, lse = fj.attention(
                q, k, v, sink_logits=sinks, mask=flashattn.causal, return_lse=True
            )
            return jax.lax.psum((o * do).sum() + (lse * d_lse).sum(), "x")

        specs = (split,) * 5 + (whole,)
        total = jax.shard_map(loss, mesh=mesh, in_specs=specs, out_specs=whole)
        near(jax.jit(jax.grad(total, argnums=(0, 1, 2, 5)))(*given, sinks), wanted[2:])
        by_heads = PartitionSpec(None, "x")
        call = jax.shard_map(
            lambda *x: fj.attention(*x, mask=flashattn.causal, return_lse=True),
            mesh=mesh, in_specs=by_heads, out_specs=by_heads, check_vma=False,
        )  # fmt: skip
        exact = flashattn.attention(*given[:3], mask=flashattn.causal, return_lse=True)
        for run in (jax.jit(call), call):
            near(run(*given[:3]), exact)
        # Without jit, with gradients and with an operand that is whole on each device.
        near(jax.grad(total, argnums=(0, 1, 2, 5))(*given, sinks), wanted[2:])
        rows = jax.shard_map(
            fj.dot_product_attention, mesh=mesh, in_specs=(split, split, split), out_specs=split
        )
        swapped = [numpy.swapaxes(x, 1, 2) for x in given[:3]]
        near(rows(*swapped), jax.jit(rows)(*swapped))

    @unittest.skipIf(len(jax.devices()) < 2, "needs two devices")
    def test_pmap(self):
        given = arrays(2, 1)
        found = jax.pmap(traced)(*given)
        near(found, [numpy.stack(x) for x in zip(*(plain(*(y[i] for y in given)) for i in (0, 1)))])

    @unittest.skipIf(len(jax.devices()) < 2, "needs two devices")
    def test_sharded_arrays(self):
        """Where types say how arrays lie, each device computes its own and nothing is gathered; where
        XLA alone knows, the numbers are the same."""
        q, k, v, do, _ = arrays(4)
        operands = make(6, 4), make(7, 1, 4, 7, 19), numpy.array([19, 4, 7, 1], numpy.int32)
        wanted = plain(
            q, k, v, do, sink_logits=operands[0], bias=operands[1], kv_len=operands[2]
        )

        def loss(q, k, v, sinks, bias, lengths):
            o, lse = fj.attention(
                q, k, v, sink_logits=sinks, bias=bias, kv_len=lengths, return_lse=True
            )
            return (o * do).sum(), (o, lse)

        call = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 4, 3), has_aux=True))
        batch, heads, whole = PartitionSpec("x"), PartitionSpec(None, "x"), PartitionSpec()
        mesh = jax.make_mesh((2,), ("x",))
        with jax.set_mesh(mesh):
            for spec, of_keys, gathers in (
                (batch, batch, False), (heads, heads, False), (heads, whole, True),
                (PartitionSpec(None, None, None, "x"), batch, True), (whole, heads, True),
            ):  # fmt: skip
                with self.subTest(q=spec, k=of_keys):
                    given = (
                        jax.device_put(q, spec), *(jax.device_put(x, of_keys) for x in (k, v)), *operands,
                    )  # fmt: skip
                    (_, values), slopes = call(*given)
                    near((*values, *slopes), wanted)
                    self.assertEqual(jax.typeof(slopes[0]).sharding, jax.typeof(given[0]).sharding)
                    text = call.lower(*given).compile().as_text()
                    self.assertEqual("all-gather" in text, gathers)
            with self.assertRaisesRegex(flashattn.ArgumentError, "expected 'k' of rank 4 but got rank 3"):
                fj.attention(given[0], jax.device_put(k[0], batch), v)
            x = jax.device_put(q, batch)  # heads and batches are counted across devices
            slope = lambda score, b, h, p, k: score + b + h * k  # noqa: E731
            near(fj.attention(x, k, v, score_mod=slope), flashattn.attention(q, k, v, score_mod=slope))
            mapped = jax.jit(jax.vmap(lambda *x: fj.attention(*x, sink_logits=operands[0]), (0, None, None)))
            q, few = make(8, 4, 2, 4, 7, 16), (k[:2], v[:2])
            for spec in (batch, heads):  # what is mapped, and the batch
                x = jax.device_put(q, spec)
                each = [flashattn.attention(y, *few, sink_logits=operands[0]) for y in q]
                near(mapped(x, *few), numpy.stack(each))
                slope = jax.grad(lambda x: mapped(x, *few).sum())
                near(slope(x), slope(q))
                self.assertNotIn("all-gather", mapped.lower(x, *few).compile().as_text())
        q = arrays(4)[0]
        automatic = Mesh(numpy.array(jax.devices()[:2]), ("x",))
        given = [jax.device_put(x, jax.NamedSharding(automatic, batch)) for x in (q, k, v)]
        (_, values), slopes = call(*given, *operands)
        near((*values, *slopes), wanted)

    def test_threads(self):
        given = arrays(2)
        wanted = plain(*given)
        found = [None] * 4

        def work(i):
            # Several kinds, each of which the first thread compiles.
            found[i] = [jax.jit(traced)(*given) for _ in range(10)]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for each in found:
            near(each, [wanted] * 10)


class ProgramTest(unittest.TestCase):
    def test_scan_and_checkpoint(self):
        q, k, v, *_ = arrays(2)
        k, v = numpy.repeat(k, 2, 1), numpy.repeat(v[..., :16], 2, 1)

        def layers(call):
            def step(x, _):
                return x + call(x, k, v), None

            return lambda x: jax.lax.scan(step, x, length=3)[0].sum()

        wanted = jax.grad(layers(lambda q, k, v: jnp.einsum(
            "bhnm,bhmd->bhnd", jax.nn.softmax(jnp.einsum("bhnd,bhmd->bhnm", q, k) / 4), v)))(q)  # fmt: skip
        for call in (fj.attention, jax.checkpoint(fj.attention)):
            near(jax.jit(jax.grad(layers(call)))(q), wanted)

    def test_gradients_that_nobody_asks_for(self):
        q, k, v, *_ = arrays(2)
        bias = make(6, 4, 7, 19)

        def loss(q, bias):
            return fj.attention(q, k, v, bias=bias).sum()

        text = str(jax.make_jaxpr(jax.grad(loss))(q, bias))
        self.assertNotIn("d_bias", text)
        self.assertIn("d_bias", str(jax.make_jaxpr(jax.grad(loss, argnums=1))(q, bias)))

    def test_decoding(self):
        """A cache that grows is one program: its length is an array."""
        q, k, v, *_ = arrays(2, lengths=(1, 19))
        step = jax.jit(lambda n: fj.attention(q, k, v, mask=flashattn.causal, kv_len=n))
        for length in (1, 8, 19):
            near(step(jnp.full(2, length, jnp.int32)), flashattn.attention(q, k[:, :, :length], v[:, :, :length]))  # fmt: skip
        self.assertEqual(step._cache_size(), 1)

    def test_export(self):
        q, k, v, *_ = arrays(2)
        call = jax.jit(lambda *x: fj.attention(*x, mask=flashattn.causal))
        allowed = [jax.export.DisabledSafetyCheck.custom_call("flashattn")]
        given = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k, v)]
        stored = jax.export.export(call, platforms=("cpu", "cuda"), disabled_checks=allowed)(*given)
        # The GPU's text has more in it: its rows are promised to be aligned.
        self.assertEqual(stored.mlir_module().count("func.func @attention"), 2)
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "program"), "wb") as file:
                file.write(stored.serialize())
            numpy.savez(os.path.join(folder, "given"), q, k, v, call(q, k, v))
            self.in_other_process(
                "import jax, numpy, flashattn.jax",
                f"program = jax.export.deserialize(open({folder!r} + '/program', 'rb').read())",
                f"*given, wanted = numpy.load({folder!r} + '/given.npz').values()",
                "numpy.testing.assert_array_equal(program.call(*given), wanted)",
            )

    def in_other_process(self, *lines, **variables):
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True,
            env={**os.environ, **variables},
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_compiled_programs_on_disk(self):
        """One that another process has compiled says itself what its kernels are."""
        lines = (
            "import jax, numpy, flashattn.jax",
            "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)",
            "jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)",
            "q = numpy.linspace(-1, 1, 2 * 3 * 16, dtype=numpy.float32).reshape(1, 2, 3, 16)",
            "o = jax.jit(lambda q: flashattn.jax.attention(q, q, q))(q)",
            "print(o.sum().hex() if hasattr(o.sum(), 'hex') else float(o.sum()).hex())",
        )
        with tempfile.TemporaryDirectory() as folder:
            first = self.in_other_process(*lines, JAX_COMPILATION_CACHE_DIR=folder)
            self.assertTrue(os.listdir(folder))
            second = self.in_other_process(*lines, JAX_COMPILATION_CACHE_DIR=folder)
        self.assertEqual(first, second)

    def test_kernels_that_are_kept(self):
        """Beyond the limit the oldest goes, and its next call is right again."""
        lines = (
            "import jax, numpy, flashattn, flashattn.jax as fj",
            "from flashattn import _library",
            "q = numpy.linspace(-1, 1, 2 * 5 * 16, dtype=numpy.float32).reshape(1, 2, 5, 16)",
            "count = _library.get().lib.flashattnXLAGetKernelCount",
            "calls = [jax.jit(lambda q, n=n: fj.attention(q, q, q, mask=flashattn.window(left=n))) for n in range(4)]",
            "for n in (0, 1, 2, 3, 0, 3, 1):",
            "    wanted = flashattn.attention(q, q, q, mask=flashattn.window(left=n))",
            "    numpy.testing.assert_allclose(calls[n](q), wanted, atol=1e-6)",
            "    assert count() <= 2, count()",
            "print(count())",
        )
        self.assertEqual(self.in_other_process(*lines, FLASHATTN_CACHE_KERNELS="2").strip(), "2")


if __name__ == "__main__":
    unittest.main()

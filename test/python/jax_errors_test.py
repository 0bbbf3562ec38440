# What flashattn.jax refuses, and where: as JAX traces, as it lowers for a platform, as it differentiates.
# REQUIRES: python-package, jax
# RUN: env JAX_PLATFORMS=cpu %flashattn_python %s

import os
import subprocess
import sys
import unittest

import jax
import jax.numpy as jnp
import numpy

import flashattn.jax as fj
from flashattn import (
    ArgumentError,
    KeywordError,
    TraceError,
    UnsupportedError,
    _library,
    _module,
    attention,
)

Q = numpy.zeros((2, 4, 5, 16), numpy.float32)
K = numpy.zeros((2, 2, 9, 16), numpy.float32)
#: Of `dot_product_attention`.
T = numpy.zeros((2, 5, 4, 16), numpy.float32)


class ErrorTest(unittest.TestCase):
    def refuse(self, call, cases):
        for given, options, kind, message in cases:
            with self.subTest(message=message):
                with self.assertRaisesRegex(kind, message):
                    call(*given, **options)
                with self.assertRaisesRegex(kind, message):  # traced, nothing is run
                    jax.eval_shape(lambda q: call(q, *given[1:], **options), given[0])

    def test_calls_of_stored_programs(self):
        """The text of a module that a program of XLA brings holds one attention, and nothing else."""
        text = _module.make_module(_module.Problem("f32", Q.shape[-1], Q.shape[-1]))
        attributes = {
            "schedule": "", "model": "", "version": _library.get().version(), "scale": numpy.float32(0.25),
        }  # fmt: skip
        call = jax.ffi.ffi_call("flashattn", jax.ShapeDtypeStruct(Q.shape, jnp.float32))
        numpy.testing.assert_allclose(
            call(Q, K, K, module=text, **attributes), fj.attention(Q, K, K, scale=0.25), atol=1e-6
        )
        for changed, message in (
            ({"module": text + "llvm.func @system(!llvm.ptr) -> i32"}, "Dialect `llvm' not found"),
            ({"module": text + text.replace("@attention", "@other", 1)}, "expected one function around"),
            ({"module": text, "schedule": "tile_m = 8>) {} llvm.func @f()"}, "tile_m"),
        ):
            with self.assertRaisesRegex(Exception, message):
                jax.block_until_ready(call(Q, K, K, **{**attributes, **changed}))

    def test_arguments(self):
        self.refuse(fj.attention, (
            ((Q, K[..., :8], K), {}, ArgumentError, "expected head dimension of 'k' to be 16 as in 'q' but got 8"),
            ((Q, K, K[:, :, :3]), {}, ArgumentError, "expected key length of 'v' to be 9 as in 'k' but got 3"),
            ((Q, K[:1], K), {}, ArgumentError, "expected batch size of 'k' to be 2 as in 'q' but got 1"),
            ((Q[:, :3], K, K), {}, ArgumentError, "a multiple of the key/value head count, 2, but got 3"),
            ((Q[0], K, K), {}, ArgumentError, "expected 'q' of rank 4 but got rank 3"),
            ((Q, K.astype(numpy.float16), K), {}, ArgumentError,
             "expected 'k' with element type f32 as in 'q', f8E4M3FN, f8E5M2 or i8 but got f16"),
            ((Q.astype(numpy.int32), K, K), {}, UnsupportedError, "f32, f8E4M3FN or f8E5M2 but got i32"),
            ((Q, K, K), {"bias": numpy.zeros((3, 9), numpy.float32)}, ArgumentError, "expected query length of 'bias' to be 1 or 5 but got 3"),
            ((Q, K, K), {"bias": numpy.zeros((1,) * 5, numpy.float32)}, ArgumentError, "expected 'bias' of rank 4 at most but got rank 5"),
            ((Q, K, K), {"attn_mask": numpy.zeros((5, 9), numpy.float32)}, ArgumentError, "expected 'attn_mask' with element type bool but got f32"),
            ((Q, K, K), {"sink_logits": numpy.zeros(3, numpy.float32)}, ArgumentError, "expected head count of 'sink_logits' to be 4 as in 'q' but got 3"),
            ((Q, K, K), {"kv_len": numpy.zeros(3, numpy.int32)}, ArgumentError, "expected batch size of 'kv_len' to be 2 as in 'q' but got 3"),
            ((Q, K, K), {"mask": numpy.ones((5, 9), bool)}, ArgumentError, "expected mask to be a flashattn mask or None but got ndarray; attn_mask= takes"),
            ((Q, K, K), {"scale": -1.0}, ArgumentError, "expected a finite positive scale but got -1.0"),
            ((Q, K, K), {"softcap": 0}, ArgumentError, "expected a finite positive softcap but got 0.0"),
            ((Q, K, K), {"align": "middle"}, ArgumentError, "expected align top_left or bottom_right but got 'middle'"),
            ((Q, K, K), {"layout": "bnth"}, ArgumentError, "expected layout bhsd, bshd or thd but got 'bnth'"),
            ((Q, K, K), {"device": "gpu"}, ArgumentError, "expected device to be None or 'model:sm_XX' but got 'gpu'"),
            ((Q, K, K), {"is_causal": True}, KeywordError, "unexpected keyword argument 'is_causal'; expected mask=flashattn.causal"),
            ((Q, K, K), {"dropout_rate": 0.1}, KeywordError, "unexpected keyword argument 'dropout_rate'"),
            ((Q, K, K), {"score_mod": lambda s, b, h, p, k: s if s > 0 else 0}, TraceError, "expected"),
            ((Q, K, K), {"schedule": [7]}, ArgumentError, r"expected schedule to be a mapping of numbers and texts, a text or None but got \[7\]"),
            ((Q, None, K), {}, ArgumentError, "expected 'k' to be an array of jax or numpy but got NoneType"),
            ((Q, "keys", K), {}, ArgumentError, "expected 'k' to be an array of jax or numpy but got str"),
        ))  # fmt: skip
        with self.assertRaisesRegex(ArgumentError, "expected 'q' to be an array of jax .* but got list"):
            fj.attention([[1], [1, 2]], K, K)

    def test_jax_nn(self):
        key = T[:, :, :2]
        self.refuse(fj.dot_product_attention, (
            ((T, key, key), {"implementation": "cudnn"}, ArgumentError, "expected implementation None but got 'cudnn'; jax.nn"),
            ((T, key, key), {"mask": numpy.zeros((1, 1, 5, 5), numpy.float32)}, ArgumentError, "expected a Boolean mask but got float32; bias= takes numbers"),
            ((T, key, key), {"bias": numpy.zeros((1, 1, 5, 5), bool)}, ArgumentError, "expected a numeric bias but got bool; mask= takes Booleans"),
            ((T, key, key), {"query_seq_lengths": numpy.zeros(3, numpy.int32)}, ArgumentError, r"expected query_seq_lengths of shape \[2\] and type int32 but got \[3\] and int32"),
            ((T, key, key), {"key_value_seq_lengths": numpy.zeros(2, numpy.float32)}, ArgumentError, r"expected key_value_seq_lengths of shape \[2\] and type int32 but got \[2\] and float32"),
            ((T, key, key), {"local_window_size": (1, 2, 3)}, ArgumentError, r"expected local_window_size to be one or two integers but got \(1, 2, 3\)"),
            ((T, key, key), {"local_window_size": -1}, ArgumentError, "expected left between 0 and 2147483648 but got -1"),
            ((T, key, key), {"local_window_size": 1.5}, ArgumentError, "expected an integer left but got 1.5"),
            ((T[0, 0], key, key), {}, ArgumentError, "expected 'query' of rank 3 or 4 but got rank 2"),
            ((T, T[:, :, :3], T[:, :, :3]), {}, ArgumentError, "a multiple of the key/value head count, 3, but got 4"),
            ((T, key, None), {}, ArgumentError, "expected 'value' to be an array of jax or numpy but got NoneType"),
            ((T, key, key), {"dropout_rate": 0.1}, TypeError, "unexpected keyword argument 'dropout_rate'"),
        ))  # fmt: skip

    def test_numbers_that_are_traced(self):
        for name in ("scale", "softcap", "offset"):
            with self.assertRaisesRegex(ArgumentError, f"expected .*{name}.* but got .*Tracer"):
                jax.jit(lambda x, name=name: fj.attention(Q, K, K, **{name: x}))(3)

    def test_lowering(self):
        """What the compiler refuses comes where a program is lowered, before anything runs."""
        call = jax.jit(lambda q, k: fj.attention(q, k, k, device="model:sm_80"))
        with self.assertRaisesRegex(UnsupportedError, "expected D to be a multiple of 8 up to 256 but got 12"):
            call.lower(Q[..., :12], K[..., :12])
        with self.assertRaisesRegex(ArgumentError, "expected schedule to be a mapping"):
            jax.jit(lambda q: fj.attention(q, K, K, schedule=7)).lower(Q)
        allowed = [jax.export.DisabledSafetyCheck.custom_call("flashattn")]

        def export(platform, *given, **options):
            call = jax.jit(lambda *x: fj.attention(*x, **options))
            jax.export.export(call, platforms=[platform], disabled_checks=allowed)(*given)

        with self.assertRaisesRegex(UnsupportedError, "expected the platform cpu or cuda but got tpu"):
            export("tpu", Q, K, K)
        with self.assertRaisesRegex(UnsupportedError, "expected the platform cpu for model:sm_80 but got cuda"):
            export("cuda", Q, K, K, device="model:sm_80")
        shape = jax.export.symbolic_shape("b, 4, 5, 16")
        with self.assertRaisesRegex(UnsupportedError, "expected static sizes of 'q' but got"):
            export("cpu", jax.ShapeDtypeStruct(shape, jnp.float32), K, K)

    def test_derivatives(self):
        def loss(q):
            return fj.attention(q, K, K).sum()

        with self.assertRaisesRegex(TypeError, "forward-mode"):
            jax.jvp(loss, (Q,), (Q,))
        for call in (jax.grad(lambda q: jax.grad(loss)(q).sum()), jax.hessian(loss)):
            with self.assertRaisesRegex((TypeError, UnsupportedError), "differentiated once|forward-mode"):
                call(Q)

    def test_traced_by_the_package_for_arrays(self):
        for transform in (jax.jit, jax.grad, jax.vmap):
            with self.assertRaisesRegex(ArgumentError, "got a JAX tracer; use flashattn.jax"):
                transform(lambda q: attention(q, K, K))(Q)

    def test_environment(self):
        call = "import flashattn.jax as fj, numpy as np; x = np.ones((1, 1, 1, 8), np.float32); fj.attention(x, x, x)"
        for variable, value, message in (
            ("LIBRARY", "/nowhere/libFlashAttnC.so", "LibraryError: expected libFlashAttnC.so in /nowhere"),
            ("CACHE_KERNELS", "many", "warning: expected FLASHATTN_CACHE_KERNELS to be a number of at least 1 but got 'many'; 256 is used"),
            ("CACHE_KERNELS", "0", "warning: expected FLASHATTN_CACHE_KERNELS to be a number of at least 1 but got '0'; 256 is used"),
        ):  # fmt: skip
            done = subprocess.run(
                [sys.executable, "-c", call], capture_output=True, text=True,
                env={**os.environ, f"FLASHATTN_{variable}": value},
            )  # fmt: skip
            self.assertIn(message, done.stderr)

    def test_doubles(self):
        with jax.enable_x64(True):
            x = jnp.zeros((1, 1, 3, 16), jnp.float64)
            for call in (fj.attention, fj.dot_product_attention):
                with self.assertRaisesRegex(
                    UnsupportedError, "expected 'q' with element type f16, bf16, f32, f8E4M3FN or f8E5M2 but got float64"
                ):
                    call(x, x, x)


if __name__ == "__main__":
    unittest.main()

# Kernels are compiled once for every length and stride, whichever thread asks; a repeated call is
# cheap.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import ctypes
import os
import subprocess
import sys
import threading
import time
import types
import unittest
import unittest.mock
import weakref

import flashattn
import numpy
from flashattn import _cache, _library, _module, _tensors, causal, sink, window

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
import stand_in_torch

# The time of the interpreter and the library on the smallest problem, microseconds. The bound on a quiet
# machine is a tenth of this; what the test must notice is a call that compiles or checks anew.
LIMIT = 150


def ones(*shape, dtype=numpy.float32):
    return numpy.ones(shape, dtype)


class CacheTest(unittest.TestCase):
    def setUp(self):
        _cache.cache.clear()
        stand_in_torch.forget_plans()

    def test_one_kernel_for_all_lengths_and_heads(self):
        for b, hq, hkv, nq, nk in (
            (1, 1, 1, 5, 1),
            (2, 4, 2, 17, 33),
            (1, 6, 1, 64, 3),
            (3, 2, 2, 5, 100),
        ):
            o = flashattn.attention(ones(b, hq, nq, 16), ones(b, hkv, nk, 16), ones(b, hkv, nk, 16))
            numpy.testing.assert_allclose(o, 1, rtol=1e-6)
        # With many queries, no schedule of the CPU depends on how many heads share a key/value head.
        self.assertEqual(len(_cache.cache.kernels), 1)
        self.assertEqual(len(_cache.cache.plans), 4)

    def test_a_kernel_for_each_number_of_few_queries(self):
        k = ones(1, 2, 33, 16)
        for queries, kernels in ((1, 1), (2, 2), (1, 2), (4, 3), (5, 4), (6, 4)):
            flashattn.attention(ones(1, 4, queries, 16), k, k)
            self.assertEqual(len(_cache.cache.kernels), kernels)

    def test_few_queries_of_heads_that_share_keys_are_one_tile(self):
        generator = numpy.random.default_rng(4)
        for heads, kv_heads, queries, tile in (
            (8, 2, 1, "tile_m = 4, .*, pack = 4"),
            (6, 2, 3, "tile_m = 16, .*, pack = 4"),
            (4, 4, 1, "tile_m = 2, .* = f32, splits = 64"),
        ):
            _cache.cache.clear()
            q, k = (
                generator.standard_normal((2, h, n, 16), numpy.float32)
                for h, n in ((heads, queries), (kv_heads, 77))
            )
            o = flashattn.attention(q, k, k, mask=causal)
            self.assertRegex(next(iter(_cache.cache.kernels.values())).schedule, tile)
            repeated = k.repeat(heads // kv_heads, axis=1)
            expected = flashattn.attention(q, repeated, repeated, mask=causal)
            numpy.testing.assert_allclose(o, expected, rtol=1e-4, atol=1e-6)

    def test_heads_that_a_kernel_states(self):
        stated = _module.grouped_heads
        # On a GPU those of groups, and of few queries all: which rows of a tile these are follows from them.
        for heads, queries, on_gpu, on_cpu in (
            ((8, 2), 1, True, True),
            ((8, 2), None, True, False),
            ((4, 4), 1, True, False),
            ((4, 4), None, False, False),
            ((2, 4), 1, False, False),
            ((0, 0), 1, False, False),
        ):
            for is_cpu, expected in ((False, on_gpu), (True, on_cpu)):
                with self.subTest(heads=heads, queries=queries, is_cpu=is_cpu):
                    self.assertEqual(stated(*heads, queries, is_cpu), heads if expected else None)

    def test_problems_that_serve_more_calls(self):
        given = _module.Problem("bf16", 64, 64, causal, heads=(8, 2))
        for changes, is_cpu, becomes in (
            ({}, False, {"heads": None}),
            ({"mask": None}, False, {"heads": None}),
            # What may count on heads: bands, keeps, gradients, few queries, who chose a schedule.
            ({"mask": window(left=9, right=0)}, False, {}),
            ({"operands": (_module.Operand("attn_mask", "i1", "BHNK"),)}, False, {}),
            ({"op": "attention_backward"}, False, {}),
            ({"queries": 2}, False, {}),
            ({"schedule": "tile_m = 64, pack = 2"}, False, {}),
            ({}, True, {}),
            # The last query sees all keys.
            ({"queries": 1}, False, {"mask": None}),
            ({"queries": 1}, True, {"mask": None}),
            ({"queries": 1, "align": "top_left"}, False, {}),
            ({"queries": 1, "operands": (_module.Operand("offset", "index", ""),)}, False, {}),
            ({"queries": 1, "mask": window(left=9, right=0)}, False, {}),
        ):
            with self.subTest(changes=changes, is_cpu=is_cpu):
                problem = given._replace(**changes)
                self.assertEqual(_module.canonicalize(problem, is_cpu), problem._replace(**becomes))

    def test_each_field_of_a_problem_is_another_kernel(self):
        """In the text that is compiled and in what finds the kernel; the table has every field."""
        bias = _module.Operand("bias", "f32", "BHNK", (True, True, False, False))
        fields = {
            "element": "bf16", "d": 32, "dv": 32, "mask": causal, "align": "top_left", "layout": "bshd", "lse": True,
            "schedule": "tile_m = 64", "rows": "strided", "heads": (4, 2), "softcap": 2.0, "operands": (bias,),
            "score_mod": "^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index): flashattn.yield %s : f32",
            "queries": 3, "op": "attention_backward", "deterministic": True, "page_size": 8,
            "invariant": True, "o_element": "f32", "k_element": "i8", "v_element": "f8E4M3FN",
        }  # fmt: skip
        self.assertEqual(tuple(fields), _module.Problem._fields)
        base = _module.Problem("f16", 16, 16)
        backward = base._replace(op="attention_backward")
        paged = base._replace(operands=(_module.Operand("page_table", "i32", "BT"),))
        bases = {"deterministic": backward, "page_size": paged}
        problems = [base] + [bases.get(name, base)._replace(**{name: value}) for name, value in fields.items()]
        # And each field of an operand.
        for name, value in (("name", "attn_mask"), ("element", "f16"), ("dims", "BHN"), ("broadcast", (False,) * 4)):
            problems.append(base._replace(operands=(bias._replace(**{name: value}),)))
        with unittest.mock.patch.object(_module, "_check"):  # not all of them are allowed
            texts = [_module.make_module(problem) for problem in problems]
        self.assertEqual(len(set(texts)), len(problems))
        kernels = _cache.Cache()
        for number, problem in enumerate(problems):
            for device in (0, 1, "model:sm_80"):
                made = types.SimpleNamespace(_size=0, _used=0)
                with unittest.mock.patch.object(kernels, "_shrink"):
                    self.assertIs(kernels.find(problem, device, lambda: made), made, problem)
        self.assertEqual(len(kernels.kernels), 3 * len(problems))

    def test_one_kernel_for_all_strides(self):
        for pad in (0, 1, 5, 16):
            q = ones(2, 2, 8 + pad, 16)[:, :, :8]
            flashattn.attention(q, q, q)
        self.assertEqual(len(_cache.cache.kernels), 1 if pad == 0 else 2)  # dense, and strided

    def test_one_kernel_for_all_scales(self):
        generator = numpy.random.default_rng(3)
        q, k, v = (generator.standard_normal((1, 2, 9, 16), numpy.float32) for _ in range(3))
        before = flashattn.cache_info().compiled
        for scale in [None, *numpy.geomspace(1e-18, 1e18, 1000)]:
            o = flashattn.attention(q, k, v, scale=scale)
            if scale is None or 1e-3 < scale < 10:
                scores = q @ k.swapaxes(2, 3) * numpy.float64(0.25 if scale is None else scale)
                weights = numpy.exp(scores - scores.max(-1, keepdims=True))
                expected = weights / weights.sum(-1, keepdims=True) @ v
                numpy.testing.assert_allclose(o, expected, rtol=0, atol=2e-5)
                self.assertTrue(numpy.isfinite(o).all())
        self.assertEqual(flashattn.cache_info().compiled, before + 1)
        self.assertEqual(len(_cache.cache.plans), 1)
        # The range is the verifier's, checked at every call.
        for bad in (0, 1e-19, 1e19, float("nan"), "1", None.__class__):
            with self.assertRaises(flashattn.ArgumentError):
                flashattn.attention(q, k, v, scale=bad)

    def test_a_kernel_for_each_choice(self):
        q = ones(1, 1, 4, 16)
        half = q.astype(numpy.float16)
        calls = (
            lambda: flashattn.attention(q, q, q),
            lambda: flashattn.attention(q, q, q, mask=causal),
            lambda: flashattn.attention(q, q, q, mask=sink(1)),
            lambda: flashattn.attention(q, q, q, align="top_left"),
            lambda: flashattn.attention(q, q, q, layout="bshd"),
            lambda: flashattn.attention(q, q, q, return_lse=True),
            lambda: flashattn.attention(q, q, q, schedule={"tile_m": 8, "tile_n": 16}),
            lambda: flashattn.attention(half, half, half),
            lambda: flashattn.attention(q, q, ones(1, 1, 4, 32)),
        )
        for count, call in enumerate(calls, 1):
            call()
            call()
            self.assertEqual(len(_cache.cache.kernels), count)

    def test_eight_threads_compile_once_and_agree(self):
        generator = numpy.random.default_rng(0)
        q = generator.standard_normal((2, 4, 40, 16), numpy.float32)
        library = _library.get()
        compiled, original = [], library.compile

        def counted(text, **options):
            compiled.append(text)
            return original(text, **options)

        results, start = [], threading.Barrier(8)

        def work():
            start.wait()
            results.extend(flashattn.attention(q, q, q, mask=causal) for _ in range(50))

        library.compile = counted
        try:
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            del library.compile
        self.assertEqual(len(compiled), 1)
        self.assertEqual(len(results), 400)
        for result in results:
            numpy.testing.assert_array_equal(result, results[0])

    def test_a_failure_is_not_kept(self):
        q = ones(1, 1, 4, 16)
        for _ in range(2):
            with self.assertRaises(flashattn.ArgumentError):
                flashattn.attention(q, q, q, mask=flashattn.Mask("#flashattn.sink<-1>"))
        self.assertEqual(len(_cache.cache.kernels), 0)
        flashattn.attention(q, q, q)

    def test_tensors_compared_in_c(self):
        """Plans that C finds give what the others do, wherever the tensors lie."""
        kind = stand_in_torch.install(self, exchange=True)
        generator = numpy.random.default_rng(1)

        def make(array):
            strides = tuple(stride // 4 for stride in array.strides)
            return kind(array.shape, array.ctypes.data, "torch.float32", -1, strides, array)

        def read(tensor):
            floats = (ctypes.c_float * int(numpy.prod(tensor.shape))).from_address(tensor.at)
            return numpy.array(floats).reshape(tensor.shape)

        for turn in range(6):
            # The stride of the one batch is nobody's business.
            q, k, v = (
                generator.standard_normal((1, n, h, 16), numpy.float32).transpose(0, 2, 1, 3)
                for n, h in ((5, 4), (9, 2), (9, 2))
            )
            if turn % 2:
                q = numpy.ascontiguousarray(q)
            expected = flashattn.attention(q, k, v, mask=causal, return_lse=True)
            given = make(ones(1, 4, 5, 16)), make(ones(1, 4, 5))
            del stand_in_torch.described[:]
            tensors = make(q), make(k), make(v)
            found = flashattn.attention(*tensors, mask=causal, return_lse=True)
            flashattn.attention(*tensors, mask=causal, return_lse=True, out=given)
            for pair in (found, given):
                for tensor, array in zip(pair, expected):
                    numpy.testing.assert_array_equal(read(tensor), array)
        self.assertIn(given[1], stand_in_torch.described)

    def test_plans_do_not_pile_up(self):
        original, _cache.MAX_PLANS = _cache.MAX_PLANS, 8
        try:
            for n in range(1, 40):
                q = ones(1, 1, n, 16)
                flashattn.attention(q, q, q)
                self.assertLessEqual(len(_cache.cache.plans), 8)
        finally:
            _cache.MAX_PLANS = original

    def test_no_memory_is_kept(self):
        q = ones(1, 2, 64, 16)
        flashattn.attention(q, q, q, return_lse=True)

        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        for _ in range(500):
            flashattn.attention(q, q, q, return_lse=True)
        before = resident()
        for _ in range(10000):
            flashattn.attention(q, q, q, return_lse=True)
        self.assertLess(resident() - before, 4 << 20)

    def test_a_call_is_cheap(self):
        q, o, lse = ones(1, 1, 1, 16), ones(1, 1, 1, 16), ones(1, 1, 1)
        kernel = flashattn.compile(head_dim=16, dtype="f32", chip="cpu")
        for name, options in (
            ("plain", {}),
            ("scale", {"scale": 0.5}),
            ("mask and lse", {"mask": causal, "return_lse": True}),
            ("out", {"out": o}),
            ("out and lse", {"out": (o, lse), "return_lse": True}),
            ("bias and attn_mask", {"bias": ones(1, 1), "attn_mask": ones(1, 1, dtype=bool)}),
            ("lengths and offset", {"kv_len": ones(1, dtype=numpy.int32), "offset": 0, "out": o}),
            ("sinks", {"sink_logits": ones(1)}),
            ("launch", None),
        ):
            call = lambda: flashattn.attention(q, q, q, **options)  # noqa: E731
            if options is None:
                call = lambda: kernel.launch(q, q, q, o)  # noqa: E731
            call()
            times = []
            for _ in range(1000):
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
            median = sorted(times)[len(times) // 2] * 1e6
            print(f"{name}: {median:.1f} us a call")
            self.assertLess(median, LIMIT)

    def test_every_kind_of_call_finds_its_plan(self):
        """Nothing is checked anew in Python."""
        q, o, lse = ones(1, 2, 3, 16), ones(1, 2, 3, 16), ones(1, 2, 3)
        kernel = flashattn.compile(head_dim=16, dtype="f32", chip="cpu")
        biased = flashattn.compile(
            head_dim=16, dtype="f32", chip="cpu", bias=("f32", (1, 1, None, None))
        )
        calls = [
            lambda: flashattn.attention(q, q, q, out=o),
            lambda: flashattn.attention(q, q, q, out=(o, lse), return_lse=True),
            lambda: flashattn.attention(q, q, q, out=[o, lse], return_lse=True),
            lambda: flashattn.attention(q, q, q, bias=ones(3, 3), offset=7),
            lambda: flashattn.attention(q, q, q, attn_mask=ones(3, 3, dtype=bool), out=o),
            lambda: flashattn.attention(q, q, q, kv_len=[3], sink_logits=[0.5, 1.5]),
            lambda: flashattn.attention(q, q, q, softcap=4, scale=2),
            lambda: kernel.launch(q, q, q, o),
            lambda: kernel.launch(q, q, q, o, scale=3),
            lambda: biased.launch(q, q, q, o, bias=ones(3, 3)),
        ]
        for call in calls:
            call()
        checked, original = [], _tensors.view
        _tensors.view = lambda *given: checked.append(given) or original(*given)
        try:
            for call in calls:
                call()
        finally:
            _tensors.view = original
        self.assertEqual(checked, [])
        # Whether an output may be written is asked at every call.
        o.flags.writeable = False
        for call in (calls[0], calls[7]):
            with self.assertRaisesRegex(flashattn.ArgumentError, "'o' to be writable"):
                call()


class LimitsTest(unittest.TestCase):
    """The kernels that are kept, which all tests of a process share."""

    def setUp(self):
        self.limits = flashattn.cache_info()[2:4]
        _cache.cache.clear()

    def tearDown(self):
        flashattn.set_cache_limits(kernels=self.limits[0], bytes=self.limits[1])

    def call(self, sinks):
        q = ones(1, 1, 4, 16)
        return flashattn.attention(q, q, q, mask=sink(sinks))

    def kept(self):
        return [str(problem.mask) for problem, _ in _cache.cache.kernels]

    def test_least_recently_used_first(self):
        flashattn.set_cache_limits(kernels=3)
        for sinks in (1, 2, 3):
            self.call(sinks)
        self.call(1)  # by its plan
        dropped = flashattn.cache_info().dropped
        self.call(4)
        self.assertEqual(sorted(self.kept()), [str(sink(n)) for n in (1, 3, 4)])
        self.assertEqual(flashattn.cache_info().dropped, dropped + 1)
        # Its plan went with it: a call compiles anew.
        self.assertEqual(len(_cache.cache.plans), 3)
        compiled = flashattn.cache_info().compiled
        self.call(2)
        self.assertEqual(flashattn.cache_info().compiled, compiled + 1)
        self.assertEqual(sorted(self.kept()), [str(sink(n)) for n in (1, 2, 4)])

    def test_dropped_kernels_are_released_without_the_lock(self):
        flashattn.set_cache_limits(kernels=1)
        self.call(1)
        (kernel,) = _cache.cache.kernels.values()
        held = []
        weakref.finalize(kernel, lambda: held.append(_cache.cache._lock.locked()))
        del kernel
        self.call(2)
        self.assertEqual(held, [False])

    def test_bytes_of_code(self):
        self.call(1)
        each = flashattn.cache_info().bytes
        self.assertGreater(each, 10_000)
        flashattn.set_cache_limits(bytes=each * 5 // 2)
        for sinks in range(2, 6):
            self.call(sinks)
            info = flashattn.cache_info()
            self.assertLessEqual(info.bytes, info.max_bytes)
        self.assertEqual(sorted(self.kept()), [str(sink(n)) for n in (4, 5)])
        # The last one stays whatever it takes.
        flashattn.set_cache_limits(bytes=1)
        self.assertEqual(self.kept(), [])
        self.call(7)
        self.call(7)
        self.assertEqual(self.kept(), [str(sink(7))])

    def test_who_holds_a_kernel_keeps_it(self):
        flashattn.set_cache_limits(kernels=1)
        freed, original = [], _library.get().free
        library = _library.get()
        library.free = lambda handle: freed.append(handle) or original(handle)
        try:
            self.call(1)
            (kernel,) = _cache.cache.kernels.values()
            self.call(2)
            self.assertEqual(freed, [])
            self.assertIn("sink<1>", kernel.mlir)
            q, o = ones(1, 1, 4, 16), ones(1, 1, 4, 16)
            kernel.launch(q, q, q, o)
            del kernel
            self.assertEqual(len(freed), 1)
        finally:
            del library.free

    def test_threads_that_drop_each_others_kernels(self):
        flashattn.set_cache_limits(kernels=2)
        failures = []

        def work(number):
            generator = numpy.random.default_rng(number)
            q = generator.standard_normal((1, 1, 6, 16), numpy.float32)
            try:
                for turn in range(12):
                    sinks = 1 + (number + turn) % 4
                    o = flashattn.attention(q, q, q, mask=sink(sinks))
                    scores = (q @ q.swapaxes(2, 3) / 4)[..., :sinks]
                    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
                    expected = weights / weights.sum(-1, keepdims=True) @ q[:, :, :sinks]
                    numpy.testing.assert_allclose(o, expected, atol=1e-5)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertLessEqual(len(_cache.cache.kernels), 2)
        kept = {id(kernel) for kernel in _cache.cache.kernels.values()}
        self.assertTrue({id(plan.kernel) for plan in _cache.cache.plans.values()} <= kept)

    def test_refused_limits(self):
        for options, message in (
            ({"kernels": 0}, "expected kernels to be an integer of at least 1 but got 0"),
            ({"bytes": 1.5}, "expected bytes to be an integer of at least 1 but got 1.5"),
            ({"kernels": True}, "expected kernels to be an integer of at least 1 but got True"),
        ):
            with self.assertRaisesRegex(flashattn.ArgumentError, message):
                flashattn.set_cache_limits(**options)

    def test_limits_of_the_environment(self):
        script = "import flashattn; print(flashattn.cache_info()[2:4])"
        warning = "expected FLASHATTN_CACHE_KERNELS to be a number of at least 1 but got {!r}; 256 is used"
        for value, expected, warns in (
            ("7", "(7, 268435456)", False),
            ("", "(256, 268435456)", False),
            ("many", "(256, 268435456)", True),
            ("0", "(256, 268435456)", True),
            ("1e3", "(256, 268435456)", True),
        ):
            done = subprocess.run(
                [sys.executable, "-c", script],
                env={**os.environ, "FLASHATTN_CACHE_KERNELS": value},
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.stdout.strip(), expected, done.stderr)
            self.assertEqual(warning.format(value) in done.stderr, warns, done.stderr)


if __name__ == "__main__":
    unittest.main()

# Tensors of torch on the CPU: attention takes part in torch's autograd.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s
# Calls are measured with the code that users run.
# RUN: env FLASHATTN_OPTIMIZE_CPU=1 %flashattn_python %s AutogradTest.test_a_call_is_cheap

import math
import os
import time
import timeit
import unittest

import torch
import flashattn.torch  # noqa: F401  # what records calls that have a plan
from flashattn import (
    UnsupportedError,
    _cache,
    attention,
    attention_backward,
    causal,
    window,
)
from flashattn import math as fm
from flashattn._options import OPERANDS
from flashattn.torch import _ops
from torch.nn.functional import scaled_dot_product_attention


def bend(score, b, h, p, k):
    return score * fm.sigmoid(score) - 0.1 * (p - k)


def plain(q, k, v, seen, bias=None, sink_logits=None, score_mod=None, softcap=None):
    """o and lse by torch's own operations."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if score_mod:
        p, key = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
        scores = score_mod(scores, 0, 0, p + k.shape[2] - q.shape[2], key)
    if bias is not None:
        scores = scores + bias
    scores = scores.masked_fill(~seen, -torch.inf)
    lse = scores.logsumexp(-1)
    if sink_logits is not None:
        lse = torch.logaddexp(lse, sink_logits[None, :, None].expand(lse.shape))
    return torch.exp(scores - lse[..., None]) @ v, lse


class AutogradTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(31)

    def inputs(self, dtype=torch.float32, hkv=2, nq=20, nk=33):
        make = lambda h, n: torch.randn(2, h, n, 16, dtype=dtype, requires_grad=True)  # noqa: E731
        return make(4, nq), make(hkv, nk), make(hkv, nk)

    def compare(self, loss, leaves, rtol=1e-5, **options):
        """Gradients of the same loss through attention and through torch's own operations."""
        q, k, v = leaves[:3]
        position = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
        key = torch.arange(k.shape[2])[None]
        seen = key <= position if options.get("mask") is causal else key > -1
        mask = options.pop("mask", None)
        result = loss(*attention(q, k, v, mask=mask, return_lse=True, **options))
        found = torch.autograd.grad(result, leaves, materialize_grads=True)
        exact = [x.detach().double().requires_grad_() for x in leaves]
        given = dict(options)
        for name, leaf in zip([n for n in ("bias", "sink_logits") if n in options], exact[3:]):
            given[name] = leaf
        result = loss(*plain(*exact[:3], seen, **given))
        wanted = torch.autograd.grad(result, exact, materialize_grads=True)
        for mine, other, leaf in zip(found, wanted, leaves):
            self.assertEqual((mine.dtype, mine.shape), (leaf.dtype, leaf.shape))
            difference = (mine.double() - other).norm()
            self.assertLessEqual(float(difference), rtol * float(other.norm()) + 1e-6)

    def test_gradients(self):
        weigh = torch.randn(2, 4, 20, 16)
        only_o = lambda o, lse: (o * weigh).sum()  # noqa: E731
        both = lambda o, lse: (o * weigh).sum() + lse.square().sum()  # noqa: E731
        for options in (
            {},
            {"mask": causal},
            {"softcap": 3.0},
            {"score_mod": bend, "mask": causal},
        ):
            for loss in (only_o, both, lambda o, lse: lse.sum(), lambda o, lse: o.sum()):
                with self.subTest(**options):
                    self.compare(loss, self.inputs(), **options)

    def test_types(self):
        weigh = torch.randn(2, 4, 20, 16)
        for dtype, rtol in ((torch.float16, 1e-3), (torch.bfloat16, 8e-3)):
            self.compare(
                lambda o, lse: (o.float() * weigh).sum(), self.inputs(dtype), rtol, mask=causal
            )

    def test_operands_that_require_gradients(self):
        weigh = torch.randn(2, 4, 20, 16)
        loss = lambda o, lse: (o * weigh).sum() + lse.square().sum()  # noqa: E731
        leaves = self.inputs()
        bias = torch.randn(4, 1, 33, requires_grad=True)
        sinks = torch.randn(4, requires_grad=True)
        self.compare(loss, (*leaves, bias), bias=bias, mask=causal)
        self.compare(loss, (*leaves, sinks), sink_logits=sinks, mask=causal)
        self.compare(loss, (*leaves, bias, sinks), bias=bias, sink_logits=sinks)
        # Expanded by torch: its own backward sums what repeats.
        narrow = torch.randn(1, 1, 20, 33, requires_grad=True)
        wide = attention(*leaves, bias=narrow.expand(2, 4, 20, 33))
        once = attention(*leaves, bias=narrow)
        first, second = (torch.autograd.grad((o * weigh).sum(), narrow)[0] for o in (wide, once))
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)

    def test_only_what_is_asked_for(self):
        q, k, v = (x.detach() for x in self.inputs())
        sinks = torch.randn(4, requires_grad=True)
        o = attention(q, k, v, sink_logits=sinks)
        (found,) = torch.autograd.grad(o.sum(), sinks)
        self.assertEqual(found.shape, (4,))
        v.requires_grad_()
        o = attention(q, k, v, bias=torch.zeros(20, 33))
        o.sum().backward()
        self.assertIsNone(q.grad)
        self.assertEqual(v.grad.shape, v.shape)
        with torch.no_grad():
            self.assertFalse(attention(q, k, v).requires_grad)
        self.assertFalse(attention(q, k, v.detach()).requires_grad)
        self.assertFalse(attention(q, k, v.detach(), return_lse=True)[1].requires_grad)

    def test_as_torch_has_it(self):
        q, k, v = self.inputs(hkv=4, nk=20)
        mine = torch.autograd.grad(attention(q, k, v, mask=causal).sum(), (q, k, v))
        other = torch.autograd.grad(
            scaled_dot_product_attention(q, k, v, is_causal=True).sum(), (q, k, v)
        )
        for found, wanted in zip(mine, other):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)

    def test_parameters_views_and_layout(self):
        wide = torch.nn.Parameter(torch.randn(2, 20, 3, 4, 16))
        q, k, v = wide.unbind(2)
        o = attention(q, k, v, layout="bshd", mask=window(left=5, right=0))
        o.transpose(1, 2).square().sum().backward()
        self.assertEqual(wide.grad.shape, wide.shape)
        swapped = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]
        attention(*swapped, mask=window(left=5, right=0)).square().sum().backward()
        for index, x in enumerate(swapped):
            torch.testing.assert_close(
                wide.grad[:, :, index].transpose(1, 2), x.grad, rtol=1e-5, atol=1e-5
            )

    def test_the_same_graph_twice(self):
        q, k, v = self.inputs()
        o = attention(q, k, v)
        do = torch.randn_like(o)
        first, second = (torch.autograd.grad(o, (q, k, v), do, retain_graph=True) for _ in range(2))
        for mine, other in zip(first, second):
            torch.testing.assert_close(mine, other, rtol=0, atol=0)
        lse = attention(q, k, v, return_lse=True)[1]
        with torch.no_grad():
            direct = attention_backward(q, k, v, o, lse, do)
        for mine, other in zip(first, direct):
            torch.testing.assert_close(mine, other, rtol=0, atol=0)

    def test_inputs_that_are_copied(self):
        """Each call of the function copies them: a plan for the copies does not read the tensors themselves."""
        q, k, v = (x.detach() for x in self.inputs())
        o, lse = attention(q, k, v, return_lse=True)
        bias = torch.ones(()).expand(4, 20, 33)
        for name, do, options in (
            ("expanded", torch.ones(()).expand(o.shape), {}),
            ("transposed", torch.randn_like(o.mT.contiguous()).mT, {}),
            ("operand", torch.randn_like(o), {"bias": bias, "return_d_bias": True}),
            ("lengths", torch.randn_like(o), {"kv_len": torch.tensor([30, 33])}),
        ):
            with self.subTest(name):
                dense = dict(options)
                if "bias" in options:
                    dense["bias"] = bias.contiguous()
                if "kv_len" in options:
                    dense["kv_len"] = options["kv_len"].int()
                wanted = attention_backward(q, k, v, o, lse, do.contiguous(), **dense)
                for _ in range(3):
                    found = attention_backward(q, k, v, o, lse, do, **options)
                    for one, other in zip(found, wanted):
                        torch.testing.assert_close(one, other)

    def test_gradients_by_a_plan_cost_a_look(self):
        """What has a plan goes by it alone; what somebody else has to see, or what has none, in full."""
        weigh = torch.randn(2, 4, 20, 16)
        in_full = _ops._backward
        self.addCleanup(setattr, _ops, "_backward", in_full)
        calls = []

        def count(*inputs, **options):
            calls.append(options)
            return in_full(*inputs, **options)

        _ops._backward = count
        _cache.cache.clear()
        leaves = self.inputs()
        results = []
        for times in (1, 2, 3):  # the first call of attention and the first of gradients make plans
            o = attention(*leaves, mask=causal, scale=0.3)
            results.append(torch.autograd.grad(o, leaves, weigh, retain_graph=True))
            self.assertEqual(len(calls), 1, f"call {times}")
        for other in results[1:]:
            self.assertTrue(all(map(torch.equal, results[0], other)))
        q = leaves[0]
        alone = torch.autograd.grad(o, q, weigh, retain_graph=True)[0]
        self.assertTrue(torch.equal(results[0][0], alone))
        self.assertEqual(len(calls), 1)
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        torch.autograd.grad(o, leaves, weigh, retain_graph=True)
        self.assertEqual([options["deterministic"] for options in calls], [False, True])
        with self.assertRaisesRegex(UnsupportedError, "differentiated once"):
            torch.autograd.grad(torch.autograd.grad(o, q, weigh, create_graph=True)[0].sum(), q)

    def test_gradients_of_the_operator_itself(self):
        """Torch hands over the options that are not as by default, in its own order."""
        weigh = torch.randn(2, 4, 20, 16)
        for options in (
            {}, {"softcap": 5.0}, {"scale": 0.2, "align": "top_left", "mask": str(causal)},
            {"mask": str(causal), "scale": 0.3},
        ):  # fmt: skip
            with self.subTest(**options):
                _cache.cache.clear()
                leaves = self.inputs()
                given = {**options, "mask": causal} if "mask" in options else options
                results = []
                for call in (
                    lambda: torch.ops.flashattn.attention(*leaves, *[None] * len(OPERANDS), **options)[0],
                    lambda: torch.ops.flashattn.attention(*leaves, *[None] * len(OPERANDS), **options)[0],
                    lambda: attention(*leaves, **given),
                ):
                    results.append(torch.autograd.grad((call() * weigh).sum(), leaves))
                for other in results[1:]:
                    self.assertTrue(all(map(torch.equal, results[0], other)))

    @unittest.skipIf(os.environ.get("FLASHATTN_OPTIMIZE_CPU") == "0", "code that LLVM has not optimized")
    def test_a_call_is_cheap(self):
        """In microseconds, or where the machine is slow in calls of torch's own attention."""
        threads = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, threads)
        torch.set_num_threads(1)
        plain = [torch.randn(1, 1, 1, 16) for _ in range(3)]
        leaves = [x.clone().requires_grad_() for x in plain]
        bias, sinks = torch.randn(1, 1, requires_grad=True), torch.randn(1)

        def measure(calls, best):
            """The least microseconds of each call, seen in turns: a machine's speed changes from one second to the next."""
            for which, call in enumerate(calls):
                seconds = timeit.timeit(call, timer=time.thread_time, number=100)
                best[which] = min(best[which], seconds * 1e4)

        for name, bound, times, tensors, options in (
            ("no gradients", 15, 2.5, plain, {}),
            ("no gradients, lse", 15, 2.5, plain, {"return_lse": True}),
            ("autograd", 30, 4, leaves, {}),
            ("autograd, lse", 30, 4, leaves, {"return_lse": True, "scale": 0.5}),
            ("autograd, operands", 60, 8, leaves, {"bias": bias, "sink_logits": sinks}),
            ("leaves under no_grad", 15, 2.5, leaves, None),
        ):
            with self.subTest(name), torch.set_grad_enabled(options is not None):
                calls = (
                    lambda: attention(*tensors, mask=causal, **(options or {})),  # noqa: B023
                    lambda: scaled_dot_product_attention(*tensors, is_causal=True),  # noqa: B023
                )
                best = [math.inf, math.inf]
                for turn in range(400):
                    measure(calls, best)
                    if turn >= 20 and best[0] < max(bound, times * best[1]):
                        break
                print(f"{name}: {best[0]:.1f} us a call, torch's own {best[1]:.1f}")
                self.assertLess(best[0], max(bound, times * best[1]))

    def test_what_a_plan_computed_is_recorded(self):
        weigh = torch.randn(2, 4, 20, 16)
        bias = torch.randn(20, 33, requires_grad=True)
        sinks = torch.randn(4, requires_grad=True)
        lengths = torch.tensor([30, 33], dtype=torch.int32)
        for options in (
            {"mask": causal, "scale": 0.3, "softcap": 5.0, "offset": 2},
            {"bias": bias, "sink_logits": sinks, "kv_len": lengths, "return_lse": True},
            {"bias": bias, "layout": "bshd"},
        ):
            q, k, v = leaves = self.inputs()
            if options.get("layout"):
                q, k, v = (x.transpose(1, 2) for x in leaves)
            wanted = [*leaves, *(x for x in options.values() if x is bias or x is sinks)]
            results = []
            for times in (1, 2):  # the first call makes the plan
                if times == 1:
                    _cache.cache.clear()
                found = attention(q, k, v, **options)
                o = found[0] if options.get("return_lse") else found
                o = o.transpose(1, 2) if options.get("layout") else o
                results.append((o, *torch.autograd.grad((o * weigh).sum(), wanted)))
            for first, second in zip(*results):
                self.assertTrue(torch.equal(first, second))

    def test_refusals(self):
        q, k, v = self.inputs()
        with self.assertRaisesRegex(
            UnsupportedError, "expected no out in a call that torch records, .* but got one"
        ):
            attention(q, k, v, out=torch.empty_like(q))
        o, lse = attention(q, k, v, return_lse=True)
        with self.assertRaisesRegex(
            UnsupportedError, "expected tensors without gradients but got 'q' with requires_grad"
        ):
            attention_backward(q, k, v, o, lse, o)
        (dq,) = torch.autograd.grad(o.square().sum(), q, create_graph=True)
        with self.assertRaisesRegex(
            UnsupportedError, "expected attention to be differentiated once but got a second"
        ):
            dq.sum().backward()
        with torch.no_grad():
            o.zero_()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            o.sum().backward()


if __name__ == "__main__":
    unittest.main()

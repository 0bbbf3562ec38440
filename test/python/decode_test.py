# flashattn.torch.decode: numbers against float64, what is written into caches, and what torch asks of an
# operator that changes its inputs.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import io
import itertools
import unittest

import numpy
import torch
from flashattn import _reference, attention, causal, sink, window
from flashattn import torch as ft
from torch._dynamo.testing import CompileCounterWithBackend

op = torch.ops.flashattn.decode
ELEMENTS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def inputs(count, dtype=torch.float32, batch=3, hq=4, hkv=2, capacity=24, layout="bhsd"):
    """q, the caches and the new k and v; values are wider than keys."""
    shapes = [(hq, count, 16), (hkv, capacity, 16), (hkv, capacity, 24), (hkv, count, 16), (hkv, count, 24)]
    made = [torch.randn(batch, *shape).to(dtype) for shape in shapes]
    return [x.transpose(1, 2).contiguous() if layout == "bshd" else x for x in made]


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


class DecodeTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)
        torch._dynamo.reset()

    def check(self, element, q, k, v, lengths, found, lse, mask, scale, sinks=None, softcap=None):
        """Each head against the definition in float64; `[B, H, rows, D]`."""
        group = q.shape[1] // k.shape[1]
        q, k, v, found = (x.float().numpy() for x in (q, k, v, found))
        errors, sizes = [], []
        for b, h in itertools.product(range(q.shape[0]), range(q.shape[1])):
            n = int(lengths[b])
            keys, values = k[b, h // group, :n], v[b, h // group, :n]
            positions = numpy.arange(q.shape[2])[:, None] + n - q.shape[2]
            seen = _reference.visible(mask, positions, numpy.arange(n)[None], q.shape[2], n)
            rest = {"sink": float(sinks[h])} if sinks is not None else {}
            head = q[b, h], keys, values
            error, bound = _reference.check_head(
                found[b, h], *head, seen, scale, element, softcap=softcap, **rest
            )
            self.assertLessEqual(error, bound)
            double = (x.astype(numpy.float64) for x in head)
            exact, log_sum = _reference.attention_head(*double, seen, scale, softcap=softcap, **rest)
            numpy.testing.assert_allclose(lse[b, h], log_sum, rtol=1e-5, atol=1e-5)
            errors.append(numpy.linalg.norm(found[b, h] - exact))
            sizes.append(numpy.linalg.norm(exact))
        norm = numpy.linalg.norm(errors) / numpy.linalg.norm(sizes)
        self.assertLessEqual(norm, _reference.FROBENIUS[element])

    def test_numbers(self):
        lengths = torch.tensor([5, 24, 17])
        sinks = torch.randn(4)
        rolling = window(left=3, right=0) | sink(2) & causal
        for (element, dtype), count, layout, options in itertools.product(
            ELEMENTS.items(),
            (1, 4),
            ("bhsd", "bshd"),
            ({"mask": causal}, {"mask": window(left=5, right=0), "scale": 0.3}, {"mask": None, "softcap": 2.0},
             {"mask": rolling, "sink_logits": sinks}),
        ):  # fmt: skip
            with self.subTest(element=element, count=count, layout=layout, **options):
                q, k_cache, v_cache, k, v = inputs(count, dtype, layout=layout)
                heads_first = (lambda x: x.transpose(1, 2)) if layout == "bshd" else (lambda x: x)
                wanted = []
                for cache, new in ((k_cache, k), (v_cache, v)):
                    wanted.append(cache.clone())
                    for b, n in enumerate(lengths):
                        heads_first(wanted[-1])[b, :, n - count : n] = heads_first(new)[b]
                        # What lies past the keys has no effect.
                        for one in (cache, wanted[-1]):
                            heads_first(one)[b, :, n:] = torch.nan
                o, lse = ft.decode(
                    q, k_cache, v_cache, lengths, k, v, layout=layout, return_lse=True, **options
                )
                for cache, other in zip((k_cache, v_cache), wanted):
                    self.assertTrue(torch.equal(cache.nan_to_num(9), other.nan_to_num(9)))
                rows = (heads_first(x) for x in (q, k_cache, v_cache))
                self.check(
                    element, *rows, lengths, heads_first(o), lse, options["mask"],
                    options.get("scale", 0.25), options.get("sink_logits"), options.get("softcap"),
                )  # fmt: skip
                again = ft.decode(q, k_cache, v_cache, lengths.int(), layout=layout, **options)
                self.assertTrue(torch.equal(again, o))

    def test_step_by_step(self):
        """Tokens one by one, and four at once behind them, give what all give at once."""
        q, k_cache, v_cache, k, v = inputs(13, hq=2, hkv=1)
        wanted = attention(q, k, v, mask=causal)
        lengths = torch.zeros(3, dtype=torch.int32)
        for part in (1, 1, 4, 1, 4, 2):
            at = slice(int(lengths[0]), int(lengths[0]) + part)
            lengths += part
            o = ft.decode(q[:, :, at], k_cache, v_cache, lengths, k[:, :, at], v[:, :, at])
            close(o, wanted[:, :, at])

    def test_caches_of_any_strides(self):
        q, k_cache, v_cache, k, v = inputs(2)
        lengths = torch.tensor([2, 9, 24])
        wanted = ft.decode(q, k_cache.clone(), v_cache.clone(), lengths, k, v)
        both = torch.cat([k_cache, v_cache], -1).transpose(0, 2).contiguous().transpose(0, 2)
        parts = both[..., :16], both[..., 16:]
        self.assertTrue(torch.equal(ft.decode(q, *parts, lengths, k.mT.contiguous().mT, v), wanted))
        self.assertTrue(torch.equal(both[1, :, 7:9, :16], k[1]))

    def test_rows_that_see_nothing(self):
        q, k_cache, v_cache, *_ = inputs(4)
        lengths = torch.tensor([0, 2, 24])
        o, lse = ft.decode(q, k_cache, v_cache, lengths, return_lse=True)
        self.assertEqual(int((lse == -torch.inf).sum()), 4 * (4 + 2))
        self.assertFalse(o[0].any() or o[1, :, :2].any())
        empty = ft.decode(q[:0], k_cache[:0], v_cache[:0], lengths[:0])
        self.assertEqual(empty.shape, (0, 4, 4, 24))

    def test_opcheck(self):
        sinks, lengths = torch.randn(4), torch.tensor([5, 24, 17])
        for count, layout, kind in ((1, "bhsd", torch.int32), (4, "bshd", torch.int64)):
            q, k_cache, v_cache, k, v = inputs(count, layout=layout)
            given = (q, k_cache, v_cache, lengths.to(kind), sinks if count == 1 else None)
            options = {"mask": "#flashattn.causal", "layout": layout}
            torch.library.opcheck(op.default, given, options)
            torch.library.opcheck(op.append, (*given, k, v), options)

    def test_changes_are_told(self):
        """A graph that kept a cache learns that it has changed, whichever way the call takes."""
        q, k_cache, v_cache, k, v = inputs(1)
        lengths = torch.tensor([5, 24, 17])
        weight = torch.ones(1, requires_grad=True)
        for call in (
            lambda: ft.decode(q, k_cache, v_cache, lengths, k, v),
            lambda: op.append(q, k_cache, v_cache, lengths, None, k, v),
        ):
            with torch.no_grad():
                ft.decode(q, k_cache, v_cache, lengths)
            loss = (k_cache * weight).sum()
            with torch.no_grad():
                call()
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                loss.backward()
        with torch.inference_mode():
            call()

    def test_compiles_once(self):
        """For all lengths and capacities, and for new keys computed in the same graph."""

        def step(x, k_cache, v_cache, lengths, weight):
            lengths += x.shape[2]
            k, v = x[:, :2] @ weight, x[:, 2:] * 2
            o, lse = ft.decode(
                x + 1, k_cache, v_cache, lengths, k, v, mask=window(left=6, right=0), softcap=4.0,
                return_lse=True,
            )  # fmt: skip
            return o * 2 + lse[..., None], k_cache[:, 0, 0]

        for count in (1, 3):
            torch._dynamo.reset()
            counter, counts = CompileCounterWithBackend("aot_eager"), []
            compiled = torch.compile(step, backend=counter, fullgraph=True, dynamic=True)
            weight = torch.randn(16, 16)
            for capacity in (24, 40, 31):
                caches = [torch.randn(3, 2, capacity, 16) for _ in range(2)]
                others = [x.clone() for x in caches]
                lengths, same = (torch.tensor([0, 9, 4]) for _ in range(2))
                for _ in range(3):
                    x = torch.randn(3, 4, count, 16)
                    with torch.no_grad():
                        close(compiled(x, *caches, lengths, weight), step(x, *others, same, weight))
                    for cache, other in zip(caches, others):
                        close(cache, other)
                    counts.append(counter.frame_count)
            self.assertEqual(set(counts), {1})

    def test_export(self):
        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("k_cache", torch.zeros(3, 2, 24, 16))
                self.register_buffer("v_cache", torch.zeros(3, 2, 24, 24))

            def forward(self, q, lengths, k, v):
                return ft.decode(q, self.k_cache, self.v_cache, lengths, k, v)

        q, _, _, k, v = inputs(2)
        lengths = torch.tensor([2, 9, 24])
        n = torch.export.Dim("n", min=1, max=16)
        program = torch.export.export(Layer(), (q, lengths, k, v), dynamic_shapes=({2: n}, None, {2: n}, {2: n}))
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        buffer.seek(0)
        again, plain = torch.export.load(buffer).module(), Layer()
        for count in (2, 5, 3):
            q, _, _, k, v = inputs(count)
            lengths = torch.randint(count, 25, (3,))
            close(again(q, lengths, k, v), plain(q, lengths, k, v))
            self.assertTrue(torch.equal(again.k_cache, plain.k_cache))

    def test_meta_and_autocast(self):
        q, k_cache, v_cache, k, v = (x.to("meta") for x in inputs(2, layout="bshd"))
        lengths = torch.empty(3, dtype=torch.int32, device="meta")
        o, lse = ft.decode(q, k_cache, v_cache, lengths, k, v, layout="bshd", return_lse=True)
        self.assertEqual((o.shape, lse.shape, o.device.type), ((3, 2, 4, 24), (3, 4, 2), "meta"))
        given = inputs(2)
        lengths = torch.tensor([5, 24, 17])
        with torch.autocast("cpu", torch.bfloat16):
            # The type is that of the caches, which stay what they are.
            o = ft.decode(*given[:3], lengths, *given[3:])
        self.assertEqual(o.dtype, torch.float32)
        self.assertTrue(torch.equal(o, ft.decode(*given[:3], lengths)))


if __name__ == "__main__":
    unittest.main()

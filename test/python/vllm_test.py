# The backend of vLLM, with stand-ins of vLLM's classes: what it supports, prompts and steps of decoding against
# dense attention in float64, padding, and refusals. Inputs/serve_vllm.py serves models with vLLM itself.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import contextlib
import os
import subprocess
import sys
import types
import unittest
import warnings
from pathlib import Path
from unittest import mock

import torch
from flashattn import ArgumentError, UnsupportedError
from flashattn import vllm as plugin

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "Inputs"))
import stand_in_vllm as vllm  # noqa: E402

vllm.install()
from flashattn.vllm import _backend  # noqa: E402

HEADS, KV_HEADS, DIM, BLOCKS = 4, 2, 16, 40


def scattered(size, order, dtype=torch.float32):
    """A KV cache as vLLM makes it: `[blocks, Hkv, size, 2 * D]`, with the strides of one of its layouts."""
    fill = 0x7F if dtype == torch.uint8 else torch.nan  # of float8, a NaN too
    if order == "LBNHC":
        return torch.full((BLOCKS, size, KV_HEADS, 2 * DIM), fill, dtype=dtype).transpose(1, 2)
    if order == "BLHNC":  # the layers of a block side by side
        return torch.full((BLOCKS, 3, KV_HEADS, size, 2 * DIM), fill, dtype=dtype)[:, 1]
    return torch.full((BLOCKS, KV_HEADS, size, 2 * DIM), fill, dtype=dtype)


def dense(q, k, v, window=None, softcap=None, slopes=None, sinks=None):
    """Attention of the last queries `[n, Hq, D]` over `[j, Hkv, D]`, in float64."""
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 0) for x in (k, v))
    scores = q @ k.mT * DIM**-0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    position = torch.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None]
    distance = position - torch.arange(k.shape[1])
    if slopes is not None:
        scores = scores - torch.tensor(slopes).double()[:, None, None] * distance
    hidden = (distance < 0) | (distance >= (window or 1 << 30))
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, q.shape[1], 1)], -1)
    weights = scores.softmax(-1)[..., : k.shape[1]]
    return (weights @ v).transpose(0, 1)


class Engine:
    """Requests with their keys so far, their blocks and a layer."""

    def __init__(self, size=16, order="LBNHC", dtype=torch.float32, columns=6, kind="auto", scales=None, **options):
        torch.manual_seed(1)
        self.size, self.options, self.dtype, self.kind, self.scales = size, options, dtype, kind, scales
        # vLLM makes caches of 8 bits of bytes.
        self.cache = scattered(size, order, dtype if kind == "auto" else torch.uint8)
        extra = {"sinks": options["sinks"]} if "sinks" in options else {}
        self.layer = _backend.FlashAttnImpl(
            HEADS, DIM, DIM**-0.5, KV_HEADS, options.get("slopes"), options.get("window"), kind,
            options.get("softcap"), **extra,
        )  # fmt: skip
        self.builder = _backend.FlashAttnMetadataBuilder(None, ["layer"], None, torch.device("cpu"))
        self.free = torch.randperm(BLOCKS).tolist()
        self.columns, self.blocks, self.keys, self.values = columns, {}, {}, {}

    def step(self, new, padding=0, more_rows=0, max_query_len=None):
        """Runs attention for some requests, each with a number of new tokens, and some that are padding."""
        slots, qs, ks, vs, lengths, starts = [], [], [], [], [], [0]
        table = torch.full((len(new) + padding, self.columns), -1, dtype=torch.int32)
        for row, (request, count) in enumerate(new.items()):
            q, k, v = (torch.randn(count, h, DIM).to(self.dtype) for h in (HEADS, KV_HEADS, KV_HEADS))
            before = self.keys.get(request, k[:0])
            self.keys[request] = torch.cat([before, self.rounded(k, "_k_scale")])
            values = self.rounded(v, "_v_scale")
            self.values[request] = torch.cat([self.values.get(request, values[:0]), values])
            blocks = self.blocks.setdefault(request, [])
            length = len(self.keys[request])
            while len(blocks) * self.size < length:
                blocks.append(self.free.pop())
            table[row, : len(blocks)] = torch.tensor(blocks)
            slots += [blocks[j // self.size] * self.size + j % self.size for j in range(len(before), length)]
            for rows, one in ((qs, q), (ks, k), (vs, v)):
                rows.append(one)
            lengths.append(length)
            starts.append(starts[-1] + count)
        # vLLM's rows go on after those of the requests: in a CUDA graph, and as padding of linear layers.
        rows = starts[-1] + padding + more_rows
        q, k, v = (torch.cat([*x, torch.full((rows - starts[-1], *x[0].shape[1:]), 9.0).to(self.dtype)])
                   for x in (qs, ks, vs))  # fmt: skip
        starts = torch.tensor(starts + [starts[-1]] * padding, dtype=torch.int32)
        given = vllm.CommonAttentionMetadata(
            query_start_loc=starts, query_start_loc_cpu=starts,
            seq_lens=torch.tensor(lengths + [0] * padding, dtype=torch.int32), num_reqs=len(new) + padding,
            num_actual_tokens=rows - more_rows, max_query_len=max_query_len or max(new.values()),
            max_seq_len=max(lengths), block_table_tensor=table,
            slot_mapping=torch.tensor(slots + [-1] * padding),
        )  # fmt: skip
        metadata = self.builder.build(0, given)
        before = self.cache.clone()
        self.layer.do_kv_cache_update(self.scales, k, v, self.cache, metadata.slot_mapping)
        written = (before.nan_to_num(77.0) != self.cache.nan_to_num(77.0)).any(-1).any(1).sum()
        assert written == len(slots), (written, len(slots))
        out = torch.full_like(q, torch.nan)
        found = self.layer.forward(self.scales, q, k, v, self.cache, metadata, out)
        assert found is out
        tolerance = 2e-2 if self.dtype == torch.bfloat16 else 2e-5
        for row, request in enumerate(new):
            own = slice(int(starts[row]), int(starts[row + 1]))
            wanted = dense(qs[row], self.keys[request], self.values[request], **self.options)
            torch.testing.assert_close(out[own].double(), wanted, atol=tolerance, rtol=tolerance)
        # Rows of padding are 0, or stay as they are if max_query_len says that there is one kernel alone.
        padded = out[int(starts[-1]) : rows - more_rows]
        assert (padded == 0).all() or (padded.isnan().all() and metadata.max_query_len <= 16)
        return metadata

    def rounded(self, x, name):
        """What the cache holds of new rows."""
        dtype = {"auto": None, "fp8_e5m2": torch.float8_e5m2}.get(self.kind, torch.float8_e4m3fn)
        if dtype is None:
            return x
        scale = getattr(self.scales, name).reshape(1, -1, 1)
        return (x / scale).clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype).float() * scale


class VllmTest(unittest.TestCase):
    def test_steps(self):
        for options in (
            {}, {"window": 7}, {"softcap": 2.0}, {"slopes": [0.5, 0.25, 0.125, 0.0625]},
            {"sinks": torch.tensor([0.0, 3.0, -1.0, 2.0], dtype=torch.bfloat16)},
            {"window": 20, "softcap": 5.0, "sinks": torch.zeros(HEADS)},
        ):  # fmt: skip
            with self.subTest(options):
                engine = Engine(**options)
                self.assertFalse(engine.step({"a": 40, "b": 3, "c": 1}).is_decode)
                self.assertTrue(engine.step({"a": 1, "b": 1, "c": 1}).is_decode)
                engine.layer.process_weights_after_loading(torch.float32)
                self.assertFalse(engine.step({"b": 1, "d": 21, "a": 5}).is_decode)
                self.assertTrue(engine.step({"d": 1, "a": 1}).is_decode)

    def test_layouts_and_sizes(self):
        for order in ("LBNHC", "LBHNC", "BLHNC"):
            for size, columns in ((16, 6), (64, 1), (12, 9)):
                with self.subTest(order=order, size=size):
                    engine = Engine(size, order, columns=columns)
                    engine.step({"a": 30, "b": 2})
                    engine.step({"a": 1, "b": 1})
        engine = Engine(dtype=torch.bfloat16)
        engine.step({"a": 30, "b": 2})
        engine.step({"a": 1, "b": 1})

    def test_caches_of_8_bits(self):
        for kind, order in (("fp8", "LBNHC"), ("fp8_e4m3", "LBHNC"), ("fp8_e5m2", "BLHNC")):
            for k_scale, v_scale in ((torch.tensor(0.5), torch.tensor(0.01)), (torch.rand(KV_HEADS), torch.ones(1))):
                with self.subTest(kind=kind, k_scale=k_scale):
                    scales = types.SimpleNamespace(_k_scale=k_scale, _v_scale=v_scale)
                    engine = Engine(kind=kind, scales=scales, order=order)
                    engine.step({"a": 30, "b": 2})
                    engine.step({"a": 1, "b": 1})
                    engine.step({"a": 1, "b": 5}, padding=1)

    def test_padding(self):
        engine = Engine()
        engine.step({"a": 9, "b": 2}, padding=2, more_rows=3)
        self.assertTrue(engine.step({"a": 1, "b": 1}, padding=2).is_decode)
        self.assertFalse(engine.step({"a": 1, "b": 1}, padding=1, more_rows=1, max_query_len=4).is_decode)

    def test_loads_weights_again(self):
        sinks = torch.zeros(HEADS, dtype=torch.bfloat16)
        engine = Engine(sinks=sinks)
        engine.layer.process_weights_after_loading(torch.float32)
        place = engine.layer._sink_logits.data_ptr()
        sinks.fill_(4.0)
        engine.layer.process_weights_after_loading(torch.float32)
        self.assertEqual(engine.layer._sink_logits.data_ptr(), place)
        engine.step({"a": 9})

    def test_memory_is_measured(self):
        out = torch.ones(3, HEADS, DIM)
        found = Engine().layer.forward(None, out, out, out, torch.tensor([]), None, out)
        self.assertEqual(found.abs().max(), 0)

    def test_tables_are_replaced(self):
        engine = Engine()
        metadata = engine.step({"a": 9})
        table, slots = torch.zeros(1, 2, dtype=torch.int32), torch.zeros(9)
        other = engine.builder.update_block_table(metadata, table, slots)
        self.assertIs(other.block_table, table)
        self.assertIs(other.slot_mapping, slots)
        self.assertIs(other.seq_lens, metadata.seq_lens)
        self.assertIsNot(metadata.block_table, table)

    def test_cuda_writes_with_one_kernel_of_vllm(self):
        """On a GPU, vLLM's own kernel writes the rows."""
        calls = []
        ops = types.ModuleType("vllm._custom_ops")
        ops.reshape_and_cache_flash = lambda *arguments: calls.append(arguments)
        with mock.patch.dict(sys.modules, {"vllm._custom_ops": ops}):
            layer = types.SimpleNamespace(_k_scale="k", _v_scale="v")
            rows = types.SimpleNamespace(is_cuda=True)
            cache = scattered(16, "LBNHC")
            Engine().layer.do_kv_cache_update(layer, rows, rows, cache, "slots")
        ((key, value, keys, values, slots, kind, k_scale, v_scale),) = calls
        self.assertEqual((key, value, slots, kind, k_scale, v_scale), (rows, rows, "slots", "auto", "k", "v"))
        self.assertEqual(keys.shape, (BLOCKS, 16, KV_HEADS, DIM))
        self.assertEqual(values.data_ptr() - keys.data_ptr(), 4 * DIM)

    def test_decode_context_parallelism(self):
        """Keys are dealt to ranks in turns. Each rank computes the heads of all ranks, and gets its own merged."""
        heads = 2  # of a rank
        cases = (2, 1, None, False), (2, 4, 9, True), (3, 2, None, True), (4, 1, 5, False)
        for ranks, run, window, has_sinks in cases:
            with self.subTest(ranks=ranks, run=run, window=window):
                self.check_ranks(ranks, run, window, torch.randn(ranks * heads) if has_sinks else None, heads)

    def check_ranks(self, ranks, run, window, sinks, heads):
        config = vllm.VllmConfig(vllm.ParallelConfig(ranks, run))
        torch.manual_seed(4)
        layers, builders, caches, keys, values = [], [], [], {}, {}
        for rank in range(ranks):
            group = types.SimpleNamespace(rank_in_group=rank, world_size=ranks)
            with mock.patch.dict(vllm.current, config=config, dcp_group=group), mock.patch.object(
                vllm.AttentionImpl, "dcp_world_size", ranks, create=True
            ):
                own = {} if sinks is None else {"sinks": sinks[rank * heads : (rank + 1) * heads]}
                layers.append(_backend.FlashAttnImpl(heads, DIM, DIM**-0.5, 1, None, window, "auto", **own))
                builders.append(_backend.FlashAttnMetadataBuilder(None, ["layer"], config, torch.device("cpu")))
            caches.append(torch.full((12, 1, 8, 2 * DIM), torch.nan))
        for new in ((21, 5), (1, 1), (1, 6)):  # a prompt each, a step of decoding, and both in a batch
            before = [len(keys.get(request, ())) for request in range(2)]
            q = torch.randn(sum(new), ranks * heads, DIM)
            k, v = torch.randn(2, sum(new), 1, DIM)
            starts = torch.tensor([0, new[0], sum(new)], dtype=torch.int32)
            for request, (first, end) in enumerate(zip(starts.tolist(), starts.tolist()[1:])):
                keys[request] = torch.cat([keys.get(request, k[:0]), k[first:end]])
                values[request] = torch.cat([values.get(request, v[:0]), v[first:end]])
            tables = torch.arange(12, dtype=torch.int32).view(2, 6)
            parts, outputs = [], []
            for is_last in (False, True):
                for rank in range(ranks):
                    slots = []
                    for request in range(2):
                        for j in range(before[request], before[request] + new[request]):
                            at = j // (run * ranks) * run + j % run
                            is_own = j // run % ranks == rank
                            slots.append(int(tables[request, at // 8]) * 8 + at % 8 if is_own else -1)
                    given = vllm.CommonAttentionMetadata(
                        query_start_loc=starts, query_start_loc_cpu=starts, num_reqs=2, num_actual_tokens=sum(new),
                        seq_lens=torch.tensor([len(keys[0]), len(keys[1])], dtype=torch.int32), max_query_len=max(new),
                        max_seq_len=40, block_table_tensor=tables, slot_mapping=torch.tensor(slots),
                    )  # fmt: skip

                    def all_gather(x, dim):
                        whole = sinks if x.ndim == 1 else q[:, None] if x.ndim == 4 else q
                        torch.testing.assert_close(x, whole.narrow(dim, rank * heads, heads))
                        return whole

                    def merge(o, lse, group):
                        if not is_last:
                            parts.append((o, lse))
                            return o[:, :heads]
                        both = torch.stack([x for _, x in parts])
                        share = (both - both.logsumexp(0)).exp().nan_to_num(0.0)
                        whole = sum(o * one[..., None] for (o, _), one in zip(parts, share))
                        return whole[:, rank * heads : (rank + 1) * heads]

                    group = types.SimpleNamespace(rank_in_group=rank, world_size=ranks, all_gather=all_gather)
                    with mock.patch.dict(vllm.current, dcp_group=group, merge=merge):
                        metadata = builders[rank].build(0, given)
                        layers[rank].do_kv_cache_update(None, k, v, caches[rank], metadata.slot_mapping)
                        own = q[:, rank * heads : (rank + 1) * heads].clone()
                        out = torch.full_like(own, torch.nan)
                        layers[rank].forward(None, own, k, v, caches[rank], metadata, out)
                    if is_last:
                        outputs.append(out)
            found = torch.cat(outputs, 1)
            for request in range(2):
                own = slice(int(starts[request]), int(starts[request + 1]))
                for head in range(ranks * heads):  # one key head: as many heads as dense() knows
                    rows = q[own, head : head + 1].expand(-1, HEADS, -1)
                    both = (x[request].expand(-1, KV_HEADS, -1) for x in (keys, values))
                    extra = None if sinks is None else sinks[head].expand(HEADS)
                    wanted = dense(rows, *both, window=window, sinks=extra)[:, 0]
                    torch.testing.assert_close(found[own, head].double(), wanted, atol=2e-5, rtol=2e-5)

    def test_decode_context_parallelism_is_refused(self):
        config = vllm.VllmConfig(vllm.ParallelConfig(2, 1))
        group = types.SimpleNamespace(rank_in_group=0, world_size=2)
        with mock.patch.dict(vllm.current, config=config, dcp_group=group), mock.patch.object(
            vllm.AttentionImpl, "dcp_world_size", 2, create=True
        ):
            with self.assertRaisesRegex(UnsupportedError, "expected no alibi_slopes with decode context parallelism"):
                _backend.FlashAttnImpl(2, DIM, 1.0, 1, [0.5, 0.25])
            with self.assertRaisesRegex(UnsupportedError, "expected 1 key/value head on each rank .* but got 2"):
                _backend.FlashAttnImpl(2, DIM, 1.0, 2)

    def test_what_is_supported(self):
        backend = _backend.FlashAttnBackend
        self.assertEqual(backend.get_name(), "CUSTOM")
        self.assertIs(backend.get_impl_cls(), _backend.FlashAttnImpl)
        self.assertIs(backend.get_builder_cls(), _backend.FlashAttnMetadataBuilder)
        self.assertIs(_backend.FlashAttnMetadataBuilder._cudagraph_support, vllm.AttentionCGSupport.ALWAYS)
        self.assertTrue(backend.supports_sink() and backend.supports_sliding_window())
        self.assertFalse(backend.forward_includes_kv_cache_update)
        self.assertTrue(backend.supports_kv_cache_dtype("bfloat16"))
        self.assertTrue(backend.supports_kv_cache_dtype("fp8"))
        self.assertFalse(backend.supports_kv_cache_dtype("nvfp4"))
        self.assertTrue(backend.supports_head_size(100))
        capabilities = [types.SimpleNamespace(major=major) for major in (7, 8, 9)]
        with mock.patch.object(vllm.platform, "kind", "cuda"):
            self.assertEqual([backend.supports_head_size(size) for size in (80, 100, 256, 512)],
                             [True, False, True, False])  # fmt: skip
            self.assertEqual([backend.supports_compute_capability(one) for one in capabilities], [False, True, True])
        with mock.patch.object(vllm.platform, "kind", "rocm"):
            self.assertFalse(backend.supports_compute_capability(capabilities[2]))

    def test_refusals(self):
        def impl(*rest, **options):
            return _backend.FlashAttnImpl(4, 16, 0.25, 2, None, None, *rest, **options)

        with self.assertRaisesRegex(UnsupportedError, "expected kv_cache_dtype .* or 'fp8_e5m2' but got 'fp8_inc'"):
            impl("fp8_inc")
        with self.assertRaisesRegex(UnsupportedError, "expected attn_type 'decoder' but got 'encoder_only'"):
            impl("auto", None, vllm.AttentionType.ENCODER_ONLY)
        with self.assertRaisesRegex(UnsupportedError, "no further options of attention but got chunk_lookback"):
            impl(chunk_lookback=3, q_heads=None)
        with self.assertRaisesRegex(ArgumentError, r"expected sinks of shape \[4\] but got \[2\]"):
            impl(sinks=torch.zeros(2))
        with self.assertRaisesRegex(UnsupportedError, "expected no scale of a quantized output but got one"):
            impl().forward(None, None, None, None, None, None, None, output_scale=torch.ones(()))
        builder = _backend.FlashAttnMetadataBuilder(None, [], None, None)
        with self.assertRaisesRegex(UnsupportedError, "expected causal attention but got causal=False"):
            builder.build(0, types.SimpleNamespace(causal=False))


class RegisterTest(unittest.TestCase):
    def setUp(self):
        vllm._PATHS.clear()
        self.members = vllm.AttentionBackendEnum

    def test_places(self):
        with mock.patch.dict(os.environ, FLASHATTN_VLLM_BACKEND=""):
            plugin.register()
            plugin.register()
        self.assertEqual(vllm._PATHS, {self.members.CUSTOM: plugin.PATH})
        with mock.patch.dict(os.environ, FLASHATTN_VLLM_BACKEND="CPU_ATTN"):
            plugin.register()
        self.assertEqual(vllm._PATHS[self.members.CPU_ATTN], plugin.PATH)
        module, _, name = plugin.PATH.rpartition(".")
        self.assertIs(getattr(sys.modules[module], name), _backend.FlashAttnBackend)

    def test_wrong_names(self):
        message = "expected FLASHATTN_VLLM_BACKEND to be a backend of vLLM but got 'GPU'; CUSTOM is used"
        with mock.patch.dict(os.environ, FLASHATTN_VLLM_BACKEND="GPU"), self.assertWarnsRegex(UserWarning, message):
            plugin.register()
        self.assertEqual(list(vllm._PATHS), [self.members.CUSTOM])
        with self.assertRaisesRegex(UnsupportedError, "expected a backend of vLLM, such as CUSTOM, but got 'GPU'"):
            plugin.register("GPU")

    def test_another_package_stays(self):
        vllm._PATHS[self.members.CUSTOM] = "other.Backend"
        with self.assertWarnsRegex(UserWarning, "expected the backend CUSTOM of vLLM to be free but got other.Backend"):
            plugin.register("CUSTOM")
        self.assertEqual(vllm._PATHS, {self.members.CUSTOM: "other.Backend"})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plugin.register("FLASH_ATTN")
        self.assertEqual(vllm._PATHS[self.members.FLASH_ATTN], plugin.PATH)

    def test_other_versions(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(sys.modules))
            vllm.install("0.9.1", has_layouts=False)
            with self.assertRaisesRegex(UnsupportedError, "expected vllm 0.32 or later but got 0.9.1"):
                plugin.register()
            sys.modules["vllm"] = None
            with self.assertRaisesRegex(UnsupportedError, "expected the package vllm, .* but found none"):
                plugin.register()

    def test_imports_neither_vllm_nor_torch(self):
        text = "import sys, flashattn.vllm; print([name for name in ('torch', 'vllm') if name in sys.modules])"
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "[]")


if __name__ == "__main__":
    unittest.main()

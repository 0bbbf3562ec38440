"""The implementations that the benchmark and the tuner time, and the timer of each device."""

from __future__ import annotations

import atexit
import functools
import math
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy

from .. import _library, _reference, _signals
from . import _backward, _features, _peers, _power, _read
from ._features import mask_of

OURS = "ours"


class Timer:
    """Times calls by the clock of the host."""

    def synchronize(self) -> None:
        pass

    def time(self, call: Callable[[], Any], repeats: int) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - start) * 1e3 / repeats

    def mark(self) -> Callable[[], Any]:
        """Returns a function that waits for all earlier calls."""
        return self.synchronize

    def repeat(self, call: Callable[[], Any], count: int) -> Callable[[], Any]:
        """Returns a function that makes `count` calls."""

        def batch() -> None:
            for _ in range(count):
                call()

        return batch


class CUDATimer(Timer):
    def __init__(self, torch):
        self.torch = torch

    def repeat(self, call: Callable[[], Any], count: int) -> Callable[[], Any]:
        """Captures the calls into a CUDA graph, because the host may be slower than the kernels. Returns a
        function that replays the graph, or that makes the calls if they cannot be captured."""
        batch, graph = super().repeat(call, count), self.torch.cuda.CUDAGraph()
        try:
            with self.torch.cuda.graph(graph):
                batch()
        except RuntimeError:  # the capture failed
            self.synchronize()
            return batch
        replay: Callable[[], Any] = graph.replay
        return replay

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def time(self, call: Callable[[], Any], repeats: int) -> float:
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        self.torch.cuda.synchronize()
        return begin.elapsed_time(end) / repeats

    def mark(self) -> Callable[[], Any]:
        event = self.torch.cuda.Event()
        event.record()
        return event.synchronize


def makers_of(backend, shape, q, k, v, backward=None) -> _backward.Makers:
    """Returns a function for each implementation, ours first, that builds its call: the forward pass, or
    the backward pass if `backward` is given."""
    if backward:
        return backward.makers(OURS)
    return {OURS: lambda: backend.ours(shape, q, k, v), **backend.peers(shape, q, k, v)}


def read_gbs(backend, rounds: int, ms: float) -> float:
    """Returns the GB/s at which the device reads a buffer that is larger than its caches."""
    times = interleave(backend.readers(backend.read_size), backend.timer, rounds, ms).values()
    return backend.read_size / min(map(statistics.median, times)) / 1e6


def interleave(
    calls: Dict[str, Callable[[], Any]], timer: Timer, rounds: int, ms: float
) -> Dict[str, List[float]]:
    """Times every call in each round, in a new random order. Returns the milliseconds per call of each round,
    in ascending order."""
    repeats = {}
    for name, call in calls.items():
        call()
        timer.synchronize()
        repeats[name] = max(1, int(ms / max(timer.time(call, 1), 1e-3)))
    times: Dict[str, List[float]] = {name: [] for name in calls}
    order = list(calls)
    chooser = random.Random(0)
    for _ in range(rounds):
        chooser.shuffle(order)
        for name in order:
            times[name].append(timer.time(calls[name], repeats[name]))
    return {name: sorted(values) for name, values in times.items()}


class CPUBackend:
    """The CPU, with NumPy arrays."""

    name = "cpu"
    peer_names = ("numpy", "torch")
    read_size = 1 << 28  #: bytes
    ordinal = _library.DEVICE_CPU

    def __init__(self):
        self.timer, self.bias, self.attn_mask = Timer(), None, None
        self.device = _library.get().device(_library.DEVICE_CPU).name
        try:
            import torch
        except ImportError:
            torch = None
        self.torch = torch

    def describe(self) -> Dict[str, Any]:
        threads = _library.get().device(_library.DEVICE_CPU).compute_units
        found = {"device": self.device, "threads": threads, "numpy": numpy.__version__}
        if self.torch:
            found["torch"] = self.torch.__version__
        return found

    def matmul_tflops(self, rounds: int, ms: float) -> float:
        n = 512
        x = numpy.random.default_rng(0).standard_normal((n, n), numpy.float32)
        times = interleave({"matmul": lambda: x @ x}, self.timer, rounds, ms)["matmul"]
        return 2 * n**3 / statistics.median(times) / 1e9

    def readers(self, size: int) -> Dict[str, Callable[[], Any]]:
        """Returns reductions that read `size` bytes and write almost none."""
        x = numpy.ones(size // 4, numpy.float32)
        found: Dict[str, Callable[[], Any]] = {"read: max": x.max}
        if self.torch:
            found["read: sum"] = self.torch.from_numpy(x).sum
        return found

    matmul_name = "512^3 f32, numpy"

    @staticmethod
    def make(generator, shape, heads, length):
        x = generator.standard_normal((shape["B"], heads, length, shape["D"]), numpy.float32)
        if shape["dtype"] == "f32":
            return x
        return x.astype(numpy.float16) if shape["dtype"] == "f16" else _reference.bf16_from_f32(x)

    def tensors(self, shape):
        generator = numpy.random.default_rng(0)
        make = functools.partial(self.make, generator, shape)
        self.bias = _features.make_bias(
            shape,
            lambda b, h, n, m: _reference.bf16_from_f32(
                generator.standard_normal((b, h, n, m), numpy.float32)
            ),
        )
        self.attn_mask = _features.make_attn_mask(shape)
        return (
            make(shape["Hq"], shape["Nq"]),
            make(shape["Hkv"], shape["Nk"]),
            make(shape["Hkv"], shape["Nk"]),
        )

    def float32(self, x, shape) -> numpy.ndarray:
        return _reference.f32_from_bf16(x) if shape["dtype"] == "bf16" else x.astype(numpy.float32)

    def ours(self, shape, q, k, v) -> Callable[[], Any]:
        from .. import attention

        mask, dtype = mask_of(shape), self.dtype_of(shape)
        options = _features.options_of(shape, self.bias, self.attn_mask)
        return lambda: attention(q, k, v, mask=mask, dtype=dtype, **options)

    def dtype_of(self, shape):
        """Returns the argument which states that uint16 arrays hold the bits of bf16."""
        return "bf16" if shape["dtype"] == "bf16" else None

    def gradient(self, shape):
        """Returns dO with random values."""
        generator = numpy.random.default_rng(1)
        return self.make(generator, shape, shape["Hq"], shape["Nq"])

    def gradient_peers(self, shape, q, k, v, do) -> _backward.Makers:
        if shape.get("feature"):
            return {}
        found = {"numpy": lambda: _backward.numpy_peer(self, shape, q, k, v, do)}
        if self.torch:
            found["torch"] = lambda: self.torch_gradient_peer(shape, q, k, v, do)
        return found

    def peers(self, shape, q, k, v) -> Dict[str, Callable[[], Callable[[], Any]]]:
        if shape.get("feature"):
            return {}
        return {
            "numpy": lambda: self.numpy_peer(shape, q, k, v),
            **({"torch": lambda: self.torch_peer(shape, q, k, v)} if self.torch else {}),
        }

    def numpy_peer(self, shape, q, k, v):
        group = shape["Hq"] // shape["Hkv"]
        x, y, z = (self.float32(t, shape) for t in (q, k, v))
        y, z = (numpy.repeat(t, group, axis=1) for t in (y, z))
        weigh = self.numpy_weights(shape)
        return lambda: weigh(x, y) @ z

    def numpy_weights(self, shape):
        """Returns a function that computes P for all pairs as one matrix."""
        nq, nk = shape["Nq"], shape["Nk"]
        rows, keys = numpy.arange(nq)[:, None] + nk - nq, numpy.arange(nk)[None, :]
        hidden = ~_reference.visible(mask_of(shape), rows, keys, nq, nk)
        scale = numpy.float32(1 / math.sqrt(shape["D"]))

        def weigh(x, y):
            scores = x @ y.swapaxes(-1, -2)
            scores *= scale
            scores[..., hidden] = -numpy.inf
            scores -= scores.max(axis=-1, keepdims=True)
            numpy.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            return scores

        return weigh

    def torch_peer(self, shape, q, k, v):
        call, x, y, z = self._torch_attention(shape, q, k, v)
        return lambda: call(x, y, z)

    def torch_gradient_peer(self, shape, q, k, v, do):
        call, *leaves = self._torch_attention(shape, q, k, v)
        leaves = tuple(x.requires_grad_() for x in leaves)
        upper = self.torch.from_numpy(self.float32(do, shape)).to(leaves[0].dtype)
        return _backward.autograd_call(self.torch, call(*leaves), leaves, upper)

    def _torch_attention(self, shape, q, k, v):
        """Returns PyTorch's scaled_dot_product_attention, and q, k and v with a K/V head for each query head."""
        torch = self.torch
        if shape["mask"] not in ("none", "causal") or shape["Nq"] not in (1, shape["Nk"]):
            raise ValueError("torch supports this mask only as a matrix")
        kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[shape["dtype"]]
        x, y, z = (torch.from_numpy(self.float32(t, shape)).to(kind) for t in (q, k, v))
        group = shape["Hq"] // shape["Hkv"]
        y, z = (t.repeat_interleave(group, 1) for t in (y, z))
        call = torch.nn.functional.scaled_dot_product_attention
        return functools.partial(call, is_causal=shape["mask"] == "causal"), x, y, z

    @staticmethod
    def numbers(x) -> numpy.ndarray:
        """Returns an f32 tensor as a NumPy array."""
        return x

    def head(self, x, b, h, shape) -> numpy.ndarray:
        return self.float32(numpy.ascontiguousarray(x[b, h]), shape)

    def empty_out(self, q):
        return numpy.empty_like(q)

    def release(self) -> None:
        self.bias = self.attn_mask = None


class CUDABackend:
    """A CUDA device, with PyTorch tensors."""

    name = "cuda"
    peer_names = ("cudnn", "fa2", "fa3", "fa4", "efficient", "flex")
    read_size = 1 << 30  #: bytes
    matmul_name = "8192^3 bf16"

    def __init__(self, torch):
        self.torch = torch
        self.timer, self.bias, self.attn_mask = CUDATimer(torch), None, None
        self.ordinal = torch.cuda.current_device()
        self.read_kernel: Optional[_read.ReadKernel] = None
        self.types = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}

    def describe(self) -> Dict[str, Any]:
        found = _library.get().device(self.ordinal)
        driver = found.driver_version
        return {
            "device": self.torch.cuda.get_device_name(),
            "chip": found.chip,
            "driver": f"CUDA {driver // 1000}.{driver % 1000 // 10}",
            "driver_version": _driver_version(),
            "torch": self.torch.__version__,
            "cudnn": self.torch.backends.cudnn.version(),
        }

    def bus_id(self) -> str:
        """Returns the PCI bus id of the GPU."""
        return _power.bus_id(self.ordinal)

    def matmul_tflops(self, rounds: int, ms: float) -> float:
        x = self.torch.randn(8192, 8192, device="cuda", dtype=self.torch.bfloat16)
        y = self.torch.randn_like(x)
        times = interleave({"matmul": lambda: x @ y}, self.timer, rounds, ms)["matmul"]
        return 2 * 8192**3 / statistics.median(times) / 1e9

    def readers(self, size: int) -> Dict[str, Callable[[], Any]]:
        """Returns kernels that read `size` bytes, rounded up to whole blocks, and write almost none."""
        if self.read_kernel is None:
            self.torch.cuda.synchronize()  # makes the device's context current
            self.read_kernel = _read.ReadKernel()
        blocks = -(-size // _read.BLOCK_BYTES)
        x = self.torch.randn(blocks, _read.BLOCK_BYTES // 4, device="cuda")
        stream = self.torch.cuda.current_stream().cuda_stream
        launch = self.read_kernel.launch
        return {
            "read: loads": lambda: launch(x.data_ptr(), 4 * x.numel(), stream),
            "read: sum": x.sum,
        }

    def make(self, shape, heads, length):
        size = (shape["B"], heads, length, shape["D"])
        return self.torch.randn(size, device="cuda", dtype=self.types[shape["dtype"]])

    def tensors(self, shape):
        self.torch.manual_seed(0)
        make = functools.partial(self.make, shape)
        self.bias = _features.make_bias(
            shape,
            lambda *size: self.torch.randn(size, device="cuda", dtype=self.types[shape["dtype"]]),
        )
        attn_mask = _features.make_attn_mask(shape)
        self.attn_mask = None if attn_mask is None else self.torch.from_numpy(attn_mask).cuda()
        return (
            make(shape["Hq"], shape["Nq"]),
            make(shape["Hkv"], shape["Nk"]),
            make(shape["Hkv"], shape["Nk"]),
        )

    def ours(self, shape, q, k, v) -> Callable[[], Any]:
        from .. import attention

        mask = mask_of(shape)
        options = _features.options_of(shape, self.bias, self.attn_mask)
        return lambda: attention(q, k, v, mask=mask, **options)

    def peers(self, shape, q, k, v) -> _backward.Makers:
        """Returns the peers in PyTorch, and FlashAttention-3 and -4."""
        return {
            **self.torch_peers(shape, q, k, v),
            **_peers.forward_makers(shape, q, k, v),
        }

    def torch_peers(self, shape, q, k, v) -> _backward.Makers:
        from torch.nn.attention import SDPBackend

        found: _backward.Makers = {}
        if shape["mask"] in ("none", "causal") and not shape.get("feature"):
            found["cudnn"] = lambda: self.sdpa_peer(SDPBackend.CUDNN_ATTENTION, shape, q, k, v)
            found["fa2"] = lambda: self.sdpa_peer(SDPBackend.FLASH_ATTENTION, shape, q, k, v)
        if shape.get("feature") == "attn_mask":
            found["cudnn"] = lambda: self.sdpa_peer(SDPBackend.CUDNN_ATTENTION, shape, q, k, v)
            found["efficient"] = lambda: self.sdpa_peer(
                SDPBackend.EFFICIENT_ATTENTION, shape, q, k, v
            )
        if shape["Nq"] > 1:
            found["flex"] = lambda: self.flex_peer(shape, q, k, v)
        return found

    def sdpa_peer(self, backend, shape, q, k, v):
        from torch.nn.attention import sdpa_kernel

        call = self.torch.nn.functional.scaled_dot_product_attention
        options = {
            "is_causal": shape["mask"] == "causal",
            "enable_gqa": shape["Hq"] != shape["Hkv"],
        }
        if self.attn_mask is not None:
            # Not every backend supports both enable_gqa and attn_mask.
            k, v = (x.repeat_interleave(shape["Hq"] // shape["Hkv"], 1) for x in (k, v))
            options = {"attn_mask": self.attn_mask}

        def run():
            with sdpa_kernel([backend]):
                return call(q, k, v, **options)

        return run

    def flex_peer(self, shape, q, k, v):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        offset, near, sinks = (
            shape["Nk"] - shape["Nq"],
            shape.get("window", 0),
            shape.get("sinks", 0),
        )
        rule = {
            "none": None,
            "causal": lambda b, h, q, k: q + offset >= k,
            "window": lambda b, h, q, k: (q + offset >= k) & (q + offset - k < near),
            "sink": lambda b, h, q, k: (q + offset >= k) & ((q + offset - k < near) | (k < sinks)),
        }[shape["mask"]]
        if shape.get("feature") == "attn_mask":
            length = _features.document_of(shape)
            rule = lambda b, h, q, k: q // length == k // length  # noqa: E731
        block_mask = rule and create_block_mask(
            rule, None, None, shape["Nq"], shape["Nk"], device="cuda"
        )
        compiled = self.torch.compile(flex_attention, dynamic=False)
        grouped = shape["Hq"] != shape["Hkv"]
        score_mod = _features.flex_score_mod(self.torch, shape, self.bias)
        return lambda: compiled(
            q, k, v, score_mod=score_mod, block_mask=block_mask, enable_gqa=grouped
        )

    @staticmethod
    def dtype_of(shape):
        """Returns None, because bf16 is a dtype of PyTorch."""
        return None

    @staticmethod
    def numbers(x) -> numpy.ndarray:
        """Returns an f32 tensor as a NumPy array."""
        return x.cpu().numpy()

    def gradient(self, shape):
        """Returns dO with random values."""
        return self.make(shape, shape["Hq"], shape["Nq"])

    def gradient_peers(self, shape, q, k, v, do) -> _backward.Makers:
        """Returns the backward passes of the peers in PyTorch, through autograd, and of FlashAttention-3 and -4."""
        leaves = tuple(x.detach().requires_grad_() for x in (q, k, v))
        if self.bias is not None:
            self.bias = self.bias.detach().requires_grad_()
            leaves = (*leaves, self.bias)
        call = functools.partial(_backward.autograd_call, self.torch, leaves=leaves, do=do)
        forward = self.torch_peers(shape, *leaves[:3])
        found = {name: lambda make=make: call(make()()) for name, make in forward.items()}
        return {
            **found,
            **_peers.gradient_makers(self.torch, shape, q, k, v, do),
        }

    def head(self, x, b, h, shape) -> numpy.ndarray:
        return x[b, h].detach().float().cpu().numpy()

    def empty_out(self, q):
        return self.torch.empty_like(q)

    def release(self) -> None:
        self.bias = self.attn_mask = None
        self.torch._dynamo.reset()
        self.torch.cuda.empty_cache()
        forget_compiled_kernels()


def forget_compiled_kernels() -> None:
    """Disables the disk caches of the library and the driver, and sets an empty cache folder for the peers, so
    that the first call of each shape compiles."""
    os.environ["FLASHATTN_CACHE"] = "off"
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    folder = tempfile.mkdtemp(prefix="shape-", dir=_cache_folder())
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        os.environ[name] = os.path.join(folder, name.lower())


@functools.lru_cache(maxsize=None)
def _cache_folder() -> str:
    folder = _signals.temporary_folder("bench")
    atexit.register(folder.cleanup)
    return folder.name


def _driver_version() -> str:
    try:
        text = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except OSError:
        return "unknown"
    return next((word for word in text.split() if word[:1].isdigit() and "." in word), text)

"""Measurements of `python -m flashattn bench --sustained`: the speed of calls that run for seconds, and their
clock, power and energy, read from NVML, the driver's management library."""

from __future__ import annotations

import ctypes
import random
import statistics
import time
from collections import deque
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import _environment

LIBRARY = "libnvidia-ml.so.1"
#: Constants of nvml.h: an nvmlReturn_t, an nvmlClockType_t, and the size of a PCI bus id's text.
NOT_SUPPORTED = 3
CLOCK_SM = 1
BUS_ID_SIZE = 32
#: Milliseconds of the calls in a batch. NVML is read once per batch.
BATCH_MS = 25.0
#: Duration of the lead-in, in which power and clock settle, as a fraction of the measured time.
LEAD_IN = 0.25
#: Turns of each implementation.
TURNS = 3


class PowerError(Exception):
    """The reason why power cannot be read."""


class Meter:
    """Reads clock and power of the GPU at a PCI bus id. Raises PowerError if NVML is missing or fails."""

    def __init__(self, bus_id: str):
        try:
            self.nvml = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise PowerError(
                f"expected NVML ({LIBRARY}) for --sustained but got: {error}"
            ) from None
        self._call("nvmlInit_v2")
        self.device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.encode(), ctypes.byref(self.device))
        self.start()
        self.sample()  # fails now instead of after the lead-in

    def _call(self, name: str, *arguments: Any, may_lack: bool = False) -> bool:
        """Calls a function of NVML. Returns False if the function is not supported and `may_lack` is set. Raises
        PowerError for any other failure."""
        try:
            code = getattr(self.nvml, name)(*arguments)
        except AttributeError:
            code = NOT_SUPPORTED
        if code == 0:
            return True
        if may_lack and code == NOT_SUPPORTED:
            return False
        explain = getattr(self.nvml, "nvmlErrorString", None)
        text = "no such function"
        if explain is not None:
            explain.restype = ctypes.c_char_p
            text = (explain(code) or b"?").decode(errors="replace")
        raise PowerError(f"expected {name} of NVML to succeed but got error {code}: {text}")

    def _energy(self) -> Optional[float]:
        """Returns the joules since the driver was loaded; None if the GPU has no energy counter."""
        millijoules = ctypes.c_ulonglong()
        name = "nvmlDeviceGetTotalEnergyConsumption"
        found = self._call(name, self.device, ctypes.byref(millijoules), may_lack=True)
        return millijoules.value / 1e3 if found else None

    def start(self) -> None:
        """Discards the samples and starts a measurement."""
        self.clocks: List[int] = []
        self.powers: List[float] = []
        #: (seconds, joules) of each sample in which the energy counter had changed.
        self.steps: List[Tuple[float, float]] = []
        self.since = time.perf_counter()

    def sample(self) -> None:
        """Records the current clock, power and energy."""
        clock, milliwatts = ctypes.c_uint(), ctypes.c_uint()
        self._call("nvmlDeviceGetClockInfo", self.device, CLOCK_SM, ctypes.byref(clock))
        self._call("nvmlDeviceGetPowerUsage", self.device, ctypes.byref(milliwatts))
        self.clocks.append(clock.value)
        self.powers.append(milliwatts.value / 1e3)
        joules = self._energy()
        if joules is not None and (not self.steps or joules != self.steps[-1][1]):
            self.steps.append((time.perf_counter(), joules))

    def stop(self) -> Dict[str, float]:
        """Returns the "seconds" since the start, the mean "watts" and the median "mhz" of the multiprocessors."""
        seconds = time.perf_counter() - self.since
        watts = statistics.mean(self.powers)
        # The energy counter changes every few tens of milliseconds, and is exact at these moments. The first
        # sample is not at such a moment.
        if len(self.steps) > 2:
            (begin, low), (end, high) = self.steps[1], self.steps[-1]
            watts = (high - low) / (end - begin)
        return {"seconds": seconds, "watts": watts, "mhz": statistics.median(self.clocks)}

    def close(self) -> None:
        self._call("nvmlShutdown")


def bus_id(ordinal: int) -> str:
    """Returns the PCI bus id of the driver's device `ordinal`. Ordinals of the driver, unlike those of NVML,
    depend on CUDA_VISIBLE_DEVICES."""
    text = ctypes.create_string_buffer(BUS_ID_SIZE)
    try:
        driver = ctypes.CDLL(_environment.variable("FLASHATTN_CUDA_DRIVER") or "libcuda.so.1")
        code = driver.cuDeviceGetPCIBusId(text, BUS_ID_SIZE, ordinal)
    except OSError as error:
        raise PowerError(f"expected the CUDA driver for --sustained but got: {error}") from None
    if code:
        raise PowerError(f"expected the PCI bus id of device {ordinal} but got CUDA error {code}")
    return text.value.decode()


def sustain(
    batch: Callable[[], Any], repeats: int, timer: Any, seconds: float, meter: Meter
) -> Dict[str, float]:
    """Runs batches of `repeats` calls without a pause, during a lead-in and then for `seconds`. Returns the
    result of `Meter.stop`, and the "ms" per call."""
    pending: deque = deque()

    def keep_busy(duration: float) -> int:
        """Returns the number of calls. One batch is queued behind the batch that runs."""
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < duration:
            batch()
            done += repeats
            pending.append(timer.mark())
            meter.sample()
            if len(pending) > 1:
                pending.popleft()()
        while pending:
            pending.popleft()()
        return done

    keep_busy(LEAD_IN * seconds)
    meter.start()
    done = keep_busy(seconds)
    found = meter.stop()
    return {**found, "ms": found["seconds"] * 1e3 / done}


def sustain_all(
    calls: Dict[str, Callable[[], Any]],
    timer: Any,
    call_ms: Dict[str, float],
    seconds: float,
    meter: Meter,
    flops: float,
) -> Dict[str, Dict[str, float]]:
    """Runs each of the calls for `TURNS` turns, in an order that is drawn once. Returns the medians of the results
    of `sustain`, with "tflops" per second and "joules_per_tflop". `call_ms` is the approximate time of each call."""
    generator = random.Random(len(calls))
    repeats = {name: max(1, int(BATCH_MS / call_ms[name])) for name in calls}
    batches = {name: timer.repeat(call, repeats[name]) for name, call in calls.items()}
    turns: Dict[str, List[Dict[str, float]]] = {name: [] for name in calls}
    # The first turn starts on an idle GPU and is discarded.
    order = generator.sample(list(calls), len(calls))
    for name in [order[0], *order, *(n for _ in range(TURNS - 1) for n in order)]:
        turns[name].append(sustain(batches[name], repeats[name], timer, seconds, meter))
    del turns[order[0]][0]
    found = {}
    for name, several in turns.items():
        one = {key: statistics.median(turn[key] for turn in several) for key in several[0]}
        one["tflops"] = flops / one["ms"] / 1e9
        one["joules_per_tflop"] = one["watts"] / one["tflops"]
        found[name] = one
    return found

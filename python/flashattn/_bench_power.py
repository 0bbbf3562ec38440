"""What `python -m flashattn bench --sustained` measures: the speed of calls that go on for seconds, and the
clock, the power and the energy that NVML, the driver's management library, says they take."""

from __future__ import annotations

import ctypes
import random
import statistics
import time
from collections import deque
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _environment

LIBRARY = "libnvidia-ml.so.1"
#: Of nvml.h: nvmlReturn_t, nvmlClockType_t and the size of a PCI bus id's text.
NOT_SUPPORTED = 3
CLOCK_SM = 1
BUS_ID_SIZE = 32
#: Milliseconds of the calls that are queued together; between two such batches the card is asked.
BATCH_MS = 25.0
#: The part of the asked time that goes before what is measured, for power and clock to settle.
LEAD_IN = 0.25
#: How often each implementation has its turn.
TURNS = 3


class PowerError(Exception):
    """Why there is no power to read."""


class Meter:
    """The clock and power of the card at a PCI bus id; PowerError where NVML is missing or refuses."""

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
        self.sample()  # refused now rather than after seconds

    def _call(self, name: str, *arguments: Any, may_lack: bool = False) -> bool:
        """Whether the card has what the function asks, which is an error but with `may_lack`."""
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
        """Joules since the driver was loaded; None where the card does not count them."""
        millijoules = ctypes.c_ulonglong()
        name = "nvmlDeviceGetTotalEnergyConsumption"
        found = self._call(name, self.device, ctypes.byref(millijoules), may_lack=True)
        return millijoules.value / 1e3 if found else None

    def start(self) -> None:
        """Forgets the samples so far."""
        self.clocks: List[int] = []
        self.powers: List[float] = []
        #: (seconds, joules) where the count of energy was seen to change.
        self.steps: List[Tuple[float, float]] = []
        self.since = time.perf_counter()

    def sample(self) -> None:
        """Notes the clock, the power and the energy of this moment."""
        clock, milliwatts = ctypes.c_uint(), ctypes.c_uint()
        self._call("nvmlDeviceGetClockInfo", self.device, CLOCK_SM, ctypes.byref(clock))
        self._call("nvmlDeviceGetPowerUsage", self.device, ctypes.byref(milliwatts))
        self.clocks.append(clock.value)
        self.powers.append(milliwatts.value / 1e3)
        joules = self._energy()
        if joules is not None and (not self.steps or joules != self.steps[-1][1]):
            self.steps.append((time.perf_counter(), joules))

    def stop(self) -> Dict[str, float]:
        """Since the start: "seconds", the mean "watts" and the median "mhz" of the multiprocessors."""
        seconds = time.perf_counter() - self.since
        watts = statistics.mean(self.powers)
        # The count goes up in steps some tens of milliseconds apart: from step to step it is exact. The first
        # sample is none.
        if len(self.steps) > 2:
            (begin, low), (end, high) = self.steps[1], self.steps[-1]
            watts = (high - low) / (end - begin)
        return {"seconds": seconds, "watts": watts, "mhz": statistics.median(self.clocks)}

    def close(self) -> None:
        self._call("nvmlShutdown")


def bus_id(ordinal: int) -> str:
    """The PCI bus id of the driver's device `ordinal`, whose numbers, unlike NVML's, follow
    CUDA_VISIBLE_DEVICES."""
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
    """Batches of `repeats` calls without a pause for `seconds` after a lead-in: what `Meter.stop` gives, and
    "ms" of a call."""
    pending: deque = deque()

    def keep_busy(duration: float) -> int:
        """How many calls; one batch waits behind the one that runs."""
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
    """Each of the calls `TURNS` times, in turns, whose order is drawn once: medians of what `sustain` gives, with
    "tflops" a second and joules a TFLOP. `call_ms` is about what a call takes."""
    generator = random.Random(len(calls))
    repeats = {name: max(1, int(BATCH_MS / call_ms[name])) for name in calls}
    batches = {name: timer.repeat(call, repeats[name]) for name, call in calls.items()}
    turns: Dict[str, List[Dict[str, float]]] = {name: [] for name in calls}
    # The first turn is nobody's: of a card that was idle.
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

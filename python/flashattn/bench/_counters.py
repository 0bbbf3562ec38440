"""Counters of `python -m flashattn bench --counters`: the utilization of a GPU's units during a call. Nsight
Compute (ncu) reads the counters in a separate process, which runs this module as its main program."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from .. import _signals

#: Metrics by the name of the column: percent of the unit's peak, over the whole time of a kernel.
#: The tensor pipe executes both wgmma and mma.sync. XU computes the exponentials.
METRICS = {
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "XU": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
    "DRAM": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
}
DURATION = "gpu__time_duration.sum"
#: Microseconds per unit of time, by the names that versions of ncu print.
UNITS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}
#: The kernel of torch.cuda._sleep, which is launched before the kernels of each implementation.
MARKER = "spin_kernel"
TIMEOUT = 600  # seconds for one shape

Counters = Dict[str, Any]


class CountersError(Exception):
    """The reason why there are no counters. `is_final` means that no other shape will have counters."""

    def __init__(self, message: str, is_final: bool = False):
        super().__init__(message)
        self.is_final = is_final


class Profiler:
    """Runs ncu. Raises CountersError if ncu is not on PATH."""

    def __init__(self) -> None:
        self.ncu = shutil.which("ncu")
        if not self.ncu:
            raise CountersError(
                "expected ncu, of Nsight Compute, on PATH for --counters but found none", True
            )
        #: The metrics without those that ncu has reported as unknown for this chip.
        self.metrics = dict(METRICS)

    def count(
        self, shape: Dict[str, Any], names: List[str], is_backward: bool
    ) -> Dict[str, Counters]:
        """Returns the counters of one call of each of the implementations `names`. The counters are a
        percentage for each column, averaged over the call's kernels by their time, or None; "us", the time of
        all kernels; and "kernels", the result of `parse` for each kernel. Raises CountersError."""
        task = json.dumps({"shape": shape, "names": names, "backward": is_backward})
        while True:
            log = self._run([sys.executable, "-m", "flashattn.bench._counters", task])
            unknown = [name for name in self.metrics if self._is_unknown(name, log)]
            if not unknown:
                break
            for name in unknown:
                del self.metrics[name]
        return split(parse(log), names)

    def _is_unknown(self, name: str, log: str) -> bool:
        base = re.escape(self.metrics[name].partition(".")[0])
        return re.search(rf"Failed to find metric\b.*{base}\b", log) is not None

    def _run(self, command: List[str]) -> str:
        """Returns ncu's log of the kernels that the command launches while its profiler is on."""
        with _signals.temporary_folder("ncu") as folder:
            path = Path(folder, "log")
            options = [
                "--csv", "--print-units", "base", "--log-file", str(path), "--profile-from-start", "off",
                # No clock control and no cache flush, as in a round of the benchmark.
                "--clock-control", "none", "--cache-control", "none",
                "--metrics", ",".join([DURATION, *self.metrics.values()]),
            ]  # fmt: skip
            try:
                done = subprocess.run(
                    [str(self.ncu), *options, *command],
                    capture_output=True, text=True, errors="replace", timeout=TIMEOUT,
                )  # fmt: skip
            except OSError as error:
                raise CountersError(f"cannot run ncu: {error}", True) from None
            except subprocess.TimeoutExpired:
                raise CountersError(
                    f"expected ncu to end within {TIMEOUT} s but it did not"
                ) from None
            log = path.read_text(errors="replace") if path.exists() else done.stdout
        if "ERR_NVGPUCTRPERM" in log + done.stdout + done.stderr:
            raise CountersError(
                "expected the right to read the GPU's counters but got ERR_NVGPUCTRPERM: run as root, or have an "
                "administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0",
                True,
            )
        if done.returncode and "Failed to find metric" not in log:
            raise CountersError(
                f"ncu ended with status {done.returncode}: {_reason(log, done.stdout + done.stderr)}"
            )
        return log


def _reason(log: str, output: str) -> str:
    """Returns the last error of ncu, or else the program's last line, or else the last warning of ncu."""
    told = [line for line in log.splitlines() if line.startswith(("==ERROR==", "==WARNING=="))]
    # The program's output explains more than ncu's message that the program failed.
    errors = [line for line in told if "ERROR" in line and "The application returned" not in line]
    lines = [line for line in output.splitlines() if line.strip()]
    return (errors or lines or told or ["it said nothing"])[-1].strip()


def parse(log: str) -> List[Dict[str, Any]]:
    """Returns the kernels in ncu's CSV, in order: "name", "us" and, for each column, a percentage or None.
    Raises CountersError if there are no kernels."""
    lines = log.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    kernels: Dict[str, Dict[str, Any]] = {}
    columns = {metric: column for column, metric in METRICS.items()}
    for row in csv.DictReader(line for line in lines[start:] if line.startswith('"')):
        kernel = kernels.setdefault(
            row["ID"], {"name": row.get("Kernel Name") or "?", "us": None, **dict.fromkeys(METRICS)}
        )
        metric, value = row.get("Metric Name"), _number(row.get("Metric Value"))
        if metric == DURATION and value is not None:
            kernel["us"] = value * UNITS.get(row.get("Metric Unit") or "ns", 1e-3)
        elif metric in columns:
            kernel[columns[metric]] = value
    if not kernels:
        raise CountersError(f"expected kernels in ncu's output but found none: {_reason(log, '')}")
    return list(kernels.values())


def _number(text: Optional[str]) -> Optional[float]:
    """Returns the number in the text; None if the text is not a number, such as "n/a"."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def split(kernels: List[Dict[str, Any]], names: List[str]) -> Dict[str, Counters]:
    """Splits the kernels at the markers and returns the counters of each of `names`. Raises CountersError if
    there is not one marker for each name, or if an implementation has no kernels or a kernel has no time."""
    parts: List[List[Dict[str, Any]]] = []
    for kernel in kernels:
        if MARKER in kernel["name"]:
            parts.append([])
        elif parts:
            parts[-1].append(kernel)
    if len(parts) != len(names):
        raise CountersError(
            f"expected the kernels of {len(names)} calls in ncu's output but found those of {len(parts)}"
        )
    return {name: average(name, part) for name, part in zip(names, parts)}


def average(name: str, kernels: List[Dict[str, Any]]) -> Counters:
    """Returns the counters of a call of `name` that launched `kernels`."""
    if not kernels:
        raise CountersError(f"expected kernels of {name} in ncu's output but found none")
    untimed = [kernel["name"] for kernel in kernels if not kernel["us"]]
    if untimed:
        raise CountersError(f"expected {DURATION} of {untimed[0]} in ncu's output but found none")
    total = sum(kernel["us"] for kernel in kernels)
    found: Counters = {"us": total, "kernels": kernels}
    for column in METRICS:
        values = [kernel[column] for kernel in kernels]
        # An average needs the metric of every kernel.
        found[column] = (
            None
            if None in values
            else sum(value * kernel["us"] for value, kernel in zip(values, kernels)) / total
        )
    return found


def run_marked(backend: Any, task: Dict[str, Any]) -> None:
    """Runs one call of each implementation after a marker, with the profiler on. Two earlier calls compile and
    warm up."""
    from . import _backends, _backward

    shape = task["shape"]
    q, k, v = backend.tensors(shape)
    backward = _backward.Backward(backend, shape, q, k, v) if task["backward"] else None
    makers = _backends.makers_of(backend, shape, q, k, v, backward)
    cuda = backend.torch.cuda
    for name in task["names"]:
        call = makers[name]()
        for _ in range(2):
            call()
        cuda.synchronize()
        cuda.profiler.start()
        cuda._sleep(1)
        call()
        cuda.synchronize()
        cuda.profiler.stop()


def main(arguments: List[str]) -> int:
    import torch

    from ._backends import CUDABackend

    run_marked(CUDABackend(torch), json.loads(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

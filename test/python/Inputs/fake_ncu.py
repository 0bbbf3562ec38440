"""A stand-in for Nsight Compute: writes what ncu says of the implementations that its program was asked to
run, without running it. FAKE_NCU says what goes wrong; FAKE_NCU_CALLS names a file for the arguments."""

import csv
import json
import os
import sys

COLUMNS = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
           "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value"]  # fmt: skip

arguments, mode = sys.argv[1:], os.environ.get("FAKE_NCU", "")
option = lambda name: arguments[arguments.index(name) + 1]  # noqa: E731
metrics, task = option("--metrics").split(","), json.loads(arguments[-1])
with open(os.environ["FAKE_NCU_CALLS"], "a") as calls:
    calls.write(json.dumps(arguments) + "\n")


def kernels():
    """(name, nanoseconds, percentages) in the order of their launches."""
    for number, name in enumerate(task["names"]):
        if not (mode == "marker" and number == 0):
            yield "at::cuda::<unnamed>::spin_kernel(long)", 1500, [0] * 5
        if mode == "empty" and number == 0:
            continue
        yield f"{name}_prepare", 1_000, [0, 10, 20, 90, 60]
        yield f"{name}_main", 3_000 + 1_000 * number, [80, 30, 40, 10, 20]


def value_of(metric, nanoseconds, percentages):
    if metric == "gpu__time_duration.sum":
        return "n/a" if mode == "untimed" else f"{nanoseconds:,}"
    units = ("tensor", "xu", "issue", "dram", "lts")
    place = next(n for n, unit in enumerate(units) if unit in metric)
    return "n/a" if mode == "lacking" and units[place] == "xu" else f"{percentages[place]:.2f}"


status = 0
with open(option("--log-file"), "w") as log:
    print("==PROF== Connected to process 42 (python)", file=log)
    unknown = [metric for metric in metrics if mode == "unknown" and metric.startswith("lts__")]
    if unknown:
        print(f"==ERROR== Failed to find metric {unknown[0]}", file=log)
        status = 1
    elif mode == "permission":
        print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
              "Counters on the target device 0.", file=log)  # fmt: skip
        status = 1
    elif mode == "library":
        print("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", file=log)
        status = 1
    elif mode == "program":
        print("==ERROR== The application returned an error code (1).", file=log)
        print("Traceback (most recent call last):\nRuntimeError: out of memory", file=sys.stderr)
        status = 1
    elif mode == "none":
        print("==WARNING== No kernels were profiled.", file=log)
    else:
        print("==PROF== Disconnected from process 42", file=log)
        table = csv.writer(log, quoting=csv.QUOTE_ALL, lineterminator="\n")
        table.writerow(COLUMNS)
        for number, (name, nanoseconds, percentages) in enumerate(kernels()):
            for metric in metrics:
                where = [number, 42, "python", "127.0.0.1", name, 1, 7, "(128, 1, 1)", "(132, 1, 1)", 0, "9.0"]
                unit = "ns" if metric == "gpu__time_duration.sum" else "%"
                value = value_of(metric, nanoseconds, percentages)
                table.writerow([*where, "Command line profiler metrics", metric, unit, value])
sys.exit(status)

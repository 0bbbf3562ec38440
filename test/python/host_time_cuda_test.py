# On a GPU with torch: the host's time of a repeated call, whole and in its parts.
# REQUIRES: python-package, cuda, torch
# RUN: %flashattn_python %s
#
# By hand, as cuda_test.py; --strict holds the time to its bounds, which a busy machine may miss.

import argparse
import sys
import time

import torch

import cuda_test
import flashattn.torch
from cuda_test import expect, operands
from flashattn import _cache, _library, _plans, _torch, attention, causal, sink, window

#: Microseconds of the host for a repeated call: plain, with a mask and lse, and what torch records.
HOST_LIMITS = {"plain": 15, "mask and lse": 25, "sdpa": 15, "recorded": 30, "recorded sdpa": 30}

options = argparse.Namespace()


def host_times(calls, count=10_000, batch=500):
    """Median microseconds of the host for each call. They take turns, so that a slow moment of the machine
    falls on all of them, after a warm-up; the device is never far behind."""
    times = {name: [] for name in calls}
    for number in range(count // batch + 1):
        for name, call in calls.items():
            for index in range(batch):
                start = time.perf_counter_ns()
                call()
                spent = time.perf_counter_ns() - start
                if number > 0:
                    times[name].append(spent)
                if index % 100 == 99:
                    torch.cuda.synchronize()
    return {name: sorted(values)[count // 2] / 1e3 for name, values in times.items()}


def host_parts(q, k, v, mask=None, return_lse=False):
    """What a cached call does, step by step."""
    outputs = attention(q, k, v, mask=mask, return_lse=return_lse)
    o, lse = outputs if return_lse else (outputs, None)
    chosen = (mask, "bottom_right", "bhsd", return_lse, None, None, None, None, (), None, True)

    def find():
        # Plans of other shapes may have the same options.
        return _plans.find_torch((q, k, v), chosen, _cache.cache.plans)[0]

    plan = find()
    at = [t.data_ptr() for t in ((q, k, v, o, lse) if return_lse else (q, k, v, o))]
    stream = torch.cuda.current_stream().cuda_stream
    call = plan.launch_head + plan.pack(0, stream, *at, plan.scale_bits)
    expect(plan.launch(call) == 0, "a launch failed")

    def compare():
        return plan.match(plan.match_head + _library.pack_objects(id(q), id(k), id(v), 0, 0))

    look_up = compare if _torch.exchange else find
    expect(look_up(), "the plan is not found")
    parts = {
        "C launch": lambda outputs=outputs: plan.launch(call),  # which it keeps
        "plan look-up": look_up,
        "output o": lambda: torch.empty_like(plan.like[0]),
        "timer": lambda: None,
    }
    if return_lse:
        parts["output lse"] = lambda: torch.empty_like(plan.like[1])
    return parts


def test_host_time():
    q, k, v = operands(b=1, hq=1, hkv=1, nq=16, nk=16)
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], device="cuda")
    mask = window(left=7, right=0) | sink(2) & causal
    rows = [x.clone().requires_grad_() for x in (q, k, v)]
    found = host_times(
        {
            "plain": lambda: attention(q, k, v),
            "sdpa": lambda: flashattn.torch.sdpa(q, k, v),
            "recorded": lambda: attention(*rows),
            "recorded sdpa": lambda: flashattn.torch.sdpa(*rows),
            "plain, out=": lambda: attention(q, k, v, out=o),
            "mask and lse": lambda: attention(q, k, v, mask=mask, return_lse=True),
            "mask and lse, out=": lambda: attention(
                q, k, v, mask=mask, return_lse=True, out=(o, lse)
            ),
        }
    )
    text = ", ".join(f"{name} {value:.1f} us" for name, value in found.items())
    print(f"  host time: {text}", flush=True)
    for name, call_options in (("plain", {}), ("mask and lse", {"mask": mask, "return_lse": True})):
        parts = host_times(host_parts(q, k, v, **call_options))
        rest = found[name] + parts.pop("timer") - sum(parts.values())
        print(
            f"  {name} {found[name]:.1f} us: "
            + ", ".join(
                f"{part} {value:.1f}" for part, value in {**parts, "the rest": rest}.items()
            ),
            flush=True,
        )
    for name, limit in HOST_LIMITS.items():
        expect(
            not options.strict or found[name] <= limit,
            f"{name}: {found[name]:.1f} us exceeds {limit}: {text}",
        )
    over = [name for name, limit in HOST_LIMITS.items() if found[name] > limit]
    return text + (f" (over the bound: {', '.join(over)})" if over else "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strict", action="store_true")
    parser.parse_args(namespace=options)
    if not torch.cuda.is_available():
        sys.exit("error: expected a CUDA device that torch can use but got none")
    return cuda_test.run([test_host_time], only=None)


if __name__ == "__main__":
    sys.exit(main())

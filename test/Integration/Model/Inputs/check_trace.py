"""Prints the roles of a Chrome trace and how many products it shows, after checks of its form.

Usage: check_trace.py FILE.json
"""

import json
import sys

with open(sys.argv[1]) as file:
    events = json.load(file)["traceEvents"]
names = {}
for event in events:
    if event["ph"] == "M":
        names[event["name"], event["pid"], event["tid"]] = event["args"]["name"]
spans = [event for event in events if event["ph"] == "X"]
threads = sorted({(span["pid"], span["tid"]) for span in spans})
for (pid, tid) in threads:
    mine = sorted((s for s in spans if (s["pid"], s["tid"]) == (pid, tid)), key=lambda s: s["ts"])
    for before, after in zip(mine, mine[1:]):
        assert before["ts"] + before["dur"] <= after["ts"], (before, after)
print(names["process_name", 0, 0] + ":", ", ".join(names["thread_name", pid, tid] for pid, tid in threads))
products = [span for span in spans if names["thread_name", span["pid"], span["tid"]] == "products"]
for name in sorted({span["name"] for span in products}):
    print(sum(span["name"] == name for span in products), "spans of", name, "by products")

#!/usr/bin/env python3
"""Prints the counts of lit results files, summed, as one closing line.

    summary.py results.json...

A test that is a file of several counts as one, and what it left out of them as skipped beside it. A file
without results counts as one failure. The exit status is 0 only if tests ran and none failed.
"""

import json
import re
import sys

PASSED = {"PASS", "FLAKYPASS", "XFAIL"}
SKIPPED = {"UNSUPPORTED", "SKIPPED", "EXCLUDED"}
#: The last lines of unittest, and of those of test/python that run without it, in what lit quotes.
LEFT_OUT = re.compile(
    r"^(?:# \| )?(?:(?:OK|FAILED) \((?:\S+=\d+, )*skipped=|\d+ passed, \d+ failed, (?=\d+ skipped$))(\d+)", re.M
)


def read_counts(path):
    """What passed, failed and was skipped."""
    try:
        with open(path, encoding="utf-8") as file:
            tests = json.load(file)["tests"]
            codes = [test["code"] for test in tests]
    except (OSError, ValueError, KeyError) as error:
        print(f"error: no test results: {error}", file=sys.stderr)
        return 0, 1, 0
    passed = sum(code in PASSED for code in codes)
    skipped = sum(code in SKIPPED for code in codes)
    left_out = sum(int(number) for test in tests for number in LEFT_OUT.findall(test.get("output") or ""))
    return passed, len(codes) - passed - skipped, skipped + left_out


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: summary.py results.json...")
    passed, failed, skipped = map(sum, zip(*map(read_counts, sys.argv[1:])))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(0 if passed and not failed else 1)


if __name__ == "__main__":
    main()

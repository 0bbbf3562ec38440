#!/usr/bin/env python3
"""Prints the counts of a lit results file as one closing line.

    summary.py results.json

The exit status is 0 only if a test ran and none failed.
"""

import json
import sys

PASSED = {"PASS", "FLAKYPASS", "XFAIL"}
SKIPPED = {"UNSUPPORTED", "SKIPPED", "EXCLUDED"}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: summary.py results.json")
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            tests = json.load(file)["tests"]
    except (OSError, ValueError, KeyError) as error:
        print(f"error: no test results: {error}", file=sys.stderr)
        tests = []
    passed = sum(test["code"] in PASSED for test in tests)
    skipped = sum(test["code"] in SKIPPED for test in tests)
    failed = len(tests) - passed - skipped
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(0 if passed and not failed else 1)


if __name__ == "__main__":
    main()

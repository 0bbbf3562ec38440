"""Runs a command whose memory has a bound.

    peak_memory.py MEBIBYTES COMMAND...

Fails, and says how much it was, where the command fails or its resident set was ever larger.
"""

import resource
import subprocess
import sys


def main():
    bound, command = int(sys.argv[1]), sys.argv[2:]
    status = subprocess.run(command).returncode
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    if status:
        sys.exit(f"expected exit status 0 but got {status}")
    print(f"peak memory: {peak:.0f} MiB, at most {bound}")
    if peak > bound:
        sys.exit(f"expected at most {bound} MiB but got {peak:.0f}")


if __name__ == "__main__":
    main()

"""What a signal ends leaves no file behind, whether temporary or half of an output.

usage: end_by_signal.py FOLDER MODULE, with flash-compile on PATH
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

FOLDER, MODULE = sys.argv[1:]
temporary, out = os.path.join(FOLDER, "temporary"), os.path.join(FOLDER, "out")
os.makedirs(temporary)
os.makedirs(out)
ptxas, started = os.path.join(FOLDER, "ptxas"), os.path.join(FOLDER, "started")
with open(ptxas, "w") as file:
    file.write(f"#!/bin/sh\n: >'{started}'\nexec tail -f /dev/null\n")
os.chmod(ptxas, 0o700)
process = subprocess.Popen(
    ["flash-compile", MODULE, "--chip=sm_80", "--cubin", "-o", os.path.join(out, "one.o")],
    env={**os.environ, "FLASHATTN_PTXAS": ptxas, "TMPDIR": temporary}, start_new_session=True,
)  # fmt: skip
try:
    end = time.monotonic() + 120
    # A file exists a moment before flash-compile asks for its removal; by the time ptxas runs, it asked for all.
    while not os.path.exists(started) and time.monotonic() < end and process.poll() is None:
        time.sleep(0.02)
    assert len(os.listdir(temporary)) == 3, "expected PTX, machine code and a log of ptxas's"
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) != 0
    assert os.listdir(temporary) == os.listdir(out) == []
finally:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # and ptxas
print("nothing is left")

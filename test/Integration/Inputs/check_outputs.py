"""Every flag that names a file to be written, through symbolic links, FIFOs and full devices.

usage: check_outputs.py FOLDER MODULE KERNEL, with the tools on PATH
"""

import os
import stat
import subprocess
import sys
import threading

FOLDER, MODULE, KERNEL = sys.argv[1:]
RUN = ["flash-run", MODULE, "--function=twice", "--input=4xf32=1"]
COMPILE = ["flash-compile", MODULE, "--function=copy", "--chip=cpu"]
# The command, with {} for the path, and what the file has to hold.
FLAGS = [
    (["flash-opt", MODULE, "-o", "{}"], b"func.func @twice"),
    (["flash-opt", KERNEL, "-flashattn-to-nvvm=chip=sm_80", "--emit=ptx", "-o", "{}"], b".entry"),
    (["flash-run", MODULE, "--function=twice", "--device=cpu", "--emit=llvm", "-o", "{}"], b"define "),
    ([*RUN, "--device=cpu", "--json={}"], b'"pass": true'),
    ([*RUN, "--device=cpu", "--output=@{}"], b"\x93NUMPY"),
    (["flash-run", KERNEL, "--device=model:sm_80", "--model-trace={}"], b"traceEvents"),
    (["flash-run", MODULE, "--function=attend", "--device=cpu", "--tune", "--bench=0.0001", "--schedule=tile_n = 16",
      "--tuned-schedules={}"], b'"cpu/8/8/f32/full'),
    ([*COMPILE, "-o", "{}", f"--header={FOLDER}/any.h"], b"\x7fELF"),
    ([*COMPILE, "-o", f"{FOLDER}/any.o", "--header={}"], b"#ifndef"),
]  # fmt: skip


def run(command, path):
    command = [part.replace("{}", path) for part in command]
    return subprocess.run(command, capture_output=True, text=True, errors="replace")


def at(name):
    return os.path.join(FOLDER, name)


def check(command, what, holds, done=None):
    if not holds:
        sys.exit(f"{' '.join(command)}: {what}\n{done.stderr if done else ''}")


def read(path):
    with open(path, "rb") as file:
        return file.read()


os.makedirs(FOLDER)
for number, (command, content) in enumerate(FLAGS):
    # The file behind a link is replaced, and the link stays; what was there keeps its permissions.
    target, link = at(f"{number}.target"), at(f"{number}.link")
    os.symlink(os.path.basename(target), link)
    for _ in range(2):  # a link to nothing, and to a file
        done = run(command, link)
        check(command, "expected it to write behind a link", done.returncode == 0, done)
        check(command, "expected the link to stay", os.path.islink(link))
        check(command, "expected the content behind the link", content in read(target), done)
        os.chmod(target, 0o640)
        if "--tuned-schedules={}" not in command:
            with open(target, "w") as file:
                file.write("of an earlier run, and longer than what comes " * 10000)
    check(command, "expected the permissions to stay", stat.S_IMODE(os.stat(target).st_mode) == 0o640)
    # What is written to a FIFO is read from it.
    fifo, got = at(f"{number}.fifo"), []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: got.append(read(fifo)))
    reader.start()
    done = run(command, fifo)
    check(command, "expected it to write to a FIFO", done.returncode == 0, done)
    reader.join()
    check(command, "expected the content in the FIFO", content in got[0], done)
    check(command, "expected the FIFO to stay", stat.S_ISFIFO(os.stat(fifo).st_mode))
    # A full device is an error. By way of a link: a fault must not replace the machine's own.
    full = at(f"{number}.full")
    os.symlink("/dev/full", full)
    done = run(command, full)
    check(command, "expected a full device to be an error", done.returncode == 1, done)
    check(command, "expected a reason", f"cannot write '{full}': No space left on device" in done.stderr, done)
    check(command, "expected the device to stay", stat.S_ISCHR(os.stat(full).st_mode))

# What fails leaves what was there, and nothing beside it.
before = sorted(os.listdir(FOLDER))
for command, content in FLAGS[:2]:
    path = at("0.target")
    kept = read(path)
    done = run([*command, "-no-such-pass"], path)
    check(command, "expected a failure", done.returncode != 0)
    check(command, "expected the earlier file to stay", read(path) == kept)
    check(command, "expected no other file", sorted(os.listdir(FOLDER)) == before)
# A device has nothing beside it, so that no header is written there.
os.symlink("/dev/null", at("null"))
done = run([*COMPILE, "-o", "{}"], at("null"))
check(COMPILE, "expected an object without a header", done.returncode == 0, done)
check(COMPILE, "expected no header", not os.path.exists(at("null.h")))
print(len(FLAGS), "flags write through links, FIFOs and devices")

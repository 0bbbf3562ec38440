"""A second user, who tries to own what the first one runs: in a folder that both may write to, he puts
a folder of his own, or a link to one, where the cache shall be, at any moment, and takes away what is
there; it has code under the right keys. `run` counts how often the first user took any of it."""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from flashattn import _library, _module

STRANGER = 12345
ATTENTION = _module.Problem("f32", 16, 16)


def _compile(folder):
    """Whether the code was found."""
    library = _library.get()
    with open(os.devnull, "w") as silence, _redirected(2, silence.fileno()):
        before = library.disk_cache().found
        os.environ["FLASHATTN_CACHE"] = str(folder)
        handle, _ = library.compile(
            _module.make_module(ATTENTION), chip="cpu", device=_library.DEVICE_CPU, schedule=None,
            tuned=False,
        )  # fmt: skip
        after = library.disk_cache().found
    library.free(handle)
    return after > before


@contextlib.contextmanager
def _redirected(number, target):
    kept = os.dup(number)
    os.dup2(target, number)
    yield
    os.dup2(kept, number)
    os.close(kept)


def _attack(parent, own, number):
    """Tries all that it can, for as long as it runs."""
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)
    os.umask(0)
    target, aside = parent / "cache", parent / "aside"
    # One of the kinds is there one moment and gone the next.
    prepared = parent / "prepared"
    if number % 4 == 0:
        prepared.symlink_to(own)
    elif number % 4 == 3:
        prepared.mkdir()
        (prepared / "code").symlink_to(own)
    else:
        shutil.copytree(own, prepared if number % 4 == 1 else prepared / "code")
    while True:
        for step in (
            lambda: os.rename(prepared, target),
            lambda: os.rename(target, prepared),
            # What the first user has made, where nothing keeps it in its place.
            lambda: os.rename(target, f"{aside}-{os.urandom(4).hex()}")
            if os.stat(target).st_uid == 0
            else None,
        ):
            with contextlib.suppress(OSError):
                step()


def run(rounds):
    """How many of the rounds the second user has won; root alone can play both."""
    kept = os.environ.get("FLASHATTN_CACHE")
    won = 0
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        own, parent = Path(root, "own"), Path(root, "shared")
        _compile(own)
        for path in (own, *own.iterdir()):
            os.chown(path, STRANGER, STRANGER)
            path.chmod(0o777)
        for number in range(rounds):
            parent.mkdir()
            # Where the sticky bit is missing he may swap what is not his.
            parent.chmod((0o1777, 0o777)[number % 2])
            child = os.fork()
            if child == 0:
                try:
                    _attack(parent, own, number // 2)
                finally:
                    os._exit(1)
            try:
                # Code that is found is his: nobody else has kept any there.
                won += _compile(parent / "cache" / ("", "", "code", "code")[number // 2 % 4])
            finally:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            shutil.rmtree(parent, ignore_errors=True)
    if kept is None:
        os.environ.pop("FLASHATTN_CACHE", None)
    else:
        os.environ["FLASHATTN_CACHE"] = kept
    return won


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    found = run(rounds)
    print(f"the second user won {found} of {rounds} races")
    sys.exit(found != 0)

# What one process compiles, the next ones read: from a folder of the user's alone, whatever
# happens to its files.
# REQUIRES: python-package, fakecuda
# RUN: env FLASHATTN_CUDA_DRIVER=%fakecuda %flashattn_python %s

import ctypes
import fcntl
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import flashattn
from flashattn import _library, _module, _structs, _tuned

sys.path.insert(0, str(Path(__file__).parent / "Inputs"))
import race  # noqa: E402

# In a process of its own: compiles what its arguments say, and prints what that took and made.
CHILD = """
import json, sys, time, warnings
import numpy, flashattn
from flashattn import _library
library, caught = _library.get(), []
warnings.showwarning = lambda message, *rest: caught.append(str(message))
warnings.simplefilter("always")
begin, kernels = time.process_time(), []
for options in json.loads(sys.argv[1]):
    if "mask" in options:
        options["mask"] = flashattn.affine_set(options["mask"])
    kernels.append(flashattn.compile(**options))
seconds = time.process_time() - begin
# Which are made again where the code was kept.
texts = [kernel.ir("lowered") for kernel in kernels]
q = numpy.linspace(-1, 1, 256, dtype=numpy.float32).reshape(1, 1, 8, 32)
o = flashattn.attention(q, q, q).tolist() if "run" in sys.argv else None
print(json.dumps({
    **library.disk_cache()._asdict(), "seconds": seconds, "texts": texts, "warnings": caught, "o": o,
}))
"""
STRANGER = 12345  # a user
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1  # of Linux
SMALL = {"head_dim": 32, "dtype": "f32", "chip": "cpu"}
OTHER = {**SMALL, "head_dim": 48}
# Holds a lock until it is killed.
HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""
HOPPER = {"head_dim": 64}


class DiskCacheTest(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.folder = self.root / "code"

    def start(self, *kernels, flags=(), limit=None, **environment):
        """What a child printed, and what it wrote to stderr."""
        given = {
            **os.environ, "FLASHATTN_CACHE": str(self.folder), "FLASHATTN_KERNELS": "off", **environment,
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", CHILD, json.dumps(kernels), *flags],
            env={name: value for name, value in given.items() if value is not None},
            capture_output=True,
            text=True,
            preexec_fn=limit,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr

    def counts(self, *kernels, **options):
        """How many kernels a child found and made."""
        found, stderr = self.start(*kernels, **options)
        self.assertEqual(stderr, "")
        return found["found"], found["made"]

    def warns_once(self, pattern, *kernels, **options):
        """The child compiles all the same, and says why nothing is kept, in a line."""
        found, stderr = self.start(*kernels, **options)
        self.assertEqual((found["found"], found["made"]), (0, len(kernels)))
        self.assertRegex(stderr, rf"\Aflashattn: warning: {pattern}\n\Z")
        return found

    def files(self):
        return sorted(path for path in self.folder.iterdir() if re.match("llvmcache-[^.]*$", path.name))

    def test_second_process_does_not_compile(self):
        first, stderr = self.start(SMALL, HOPPER, flags=["run"])
        # A third kernel is that of the call, which is the first one.
        self.assertEqual((stderr, first["found"], first["made"]), ("", 1, 2))
        second, stderr = self.start(SMALL, HOPPER, flags=["run"])
        self.assertEqual((stderr, second["found"], second["made"]), ("", 3, 0))
        self.assertEqual((second["texts"], second["o"]), (first["texts"], first["o"]))
        self.assertLess(second["seconds"], first["seconds"] / 5)
        self.assertEqual((second["folder"], second["files"]), (str(self.folder), 2))
        self.assertEqual(second["bytes"], sum(path.stat().st_size for path in self.files()))

    def test_belongs_to_its_owner_alone(self):
        old = os.umask(0)
        self.addCleanup(os.umask, old)
        self.start(SMALL)
        self.assertEqual(self.folder.stat().st_mode & 0o777, 0o700)
        self.assertEqual([path.stat().st_mode & 0o777 for path in self.files()], [0o600])

    def test_moves_and_stops(self):
        for stop in ("0", "off", "OFF", "no", "False"):
            found, stderr = self.start(SMALL, FLASHATTN_CACHE=stop, XDG_CACHE_HOME=str(self.root))
            self.assertEqual((stderr, found["off_reason"]), ("", f"FLASHATTN_CACHE={stop}"))
            self.assertEqual((found["made"], os.listdir(self.root)), (1, []))
        for variable in (None, "", "1", "ON"):
            found, _ = self.start(SMALL, FLASHATTN_CACHE=variable, XDG_CACHE_HOME=str(self.root))
            self.assertEqual(found["folder"], f"{self.root}/flashattn/code")
        self.assertEqual((found["found"], found["off_reason"]), (1, ""))

    def test_each_field_tells_kernels_apart(self):
        """What is kept is found by all that it is made of: each option of a compilation, changed alone, is another file, and
        none where it is no part of the code."""
        module = """
            func.func @FIRST(%q: memref<?x?x?x16xf32>, %o: memref<?x?x?x16xf32>) {
              flashattn.attention ins(%q, %q, %q : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>, memref<?x?x?x16xf32>)
                outs(%o : memref<?x?x?x16xf32>)
              return
            }"""
        both = module.replace("FIRST", "first") + module.replace("FIRST", "second")
        library = _library.get().lib
        taken = _structs.DiagnosticCallback(lambda *_: None)
        base = {"chip": b"cpu", "function": b"first", "vectorWidth": 8, "useTuned": 0, "device": _library.DEVICE_CPU}
        card = {"chip": b"sm_80", "device": _library.DEVICE_AUTO}
        #: What a field becomes, whether that is another kernel, and of what it is changed where not of `base`.
        fields = {
            "size": ([], False, {}),
            "chip": ([b"sm_86", b"sm_90a"], True, card),
            "device": ([_library.DEVICE_MODEL], True, card),
            "vectorWidth": ([4, 16], True, {}),
            "schedule": ([b"tile_m = 8", b"tile_m = 4"], True, {}),
            "function": ([b"second"], True, {}),
            "diagnostic": ([taken], False, {}),
            "diagnosticUser": ([1], False, {}),
            "useTuned": ([1], True, {}),
            "attentionOnly": ([0], False, {}),
        }
        self.assertEqual(list(fields), [name for name, _ in _structs.CompileOptions._fields_])

        def count(text=both, **changes):
            """How many files there are behind a compilation."""
            options = _structs.CompileOptions()
            self.assertEqual(library.flashattnCompileOptionsInit(ctypes.byref(options)), 0)
            for name, value in {**base, **changes}.items():
                setattr(options, name, value)
            kernel = ctypes.c_void_p()
            text = text.encode()
            given = text, len(text), ctypes.byref(options), ctypes.byref(kernel)
            self.assertEqual(library.flashattnCompile(*given), 0, _library.get()._last_error())
            library.flashattnKernelFree(kernel)
            return len(self.files())

        environment = {"FLASHATTN_CACHE": str(self.folder), "FLASHATTN_KERNELS": "off", "XDG_CACHE_HOME": str(self.root),
                       "FLASHATTN_TUNED": "1"}  # fmt: skip
        with mock.patch.dict(os.environ, environment):
            schedule = _module.format_schedule({"tile_m": 8, "tile_n": 16}, "f32", True)
            _tuned.store("cpu/16/16/f32/full", {"schedule": schedule})
            self.assertEqual((count(), count()), (1, 1))
            for name, (values, is_other, beside) in fields.items():
                with self.subTest(name):
                    files = count(**beside)
                    for value in values:
                        files += is_other
                        for _ in range(2):
                            self.assertEqual(count(**{**beside, name: value}), files)
            # And so is another text, whatever it says.
            files = count()
            self.assertEqual(count(both.replace("second", "third")), files + 1)

    def test_damage_is_compiled_again(self):
        self.start(SMALL)
        (path,) = self.files()
        whole = path.read_bytes()
        middle = len(whole) // 2
        for damaged in (
            b"",
            whole[:7],
            whole[:-1],
            whole + b"\0",
            whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            b"flashattn 0" + whole[11:],
        ):
            path.write_bytes(damaged)
            self.assertEqual(self.counts(SMALL), (0, 1))
            self.assertEqual(path.read_bytes(), whole)
        self.assertEqual(self.counts(SMALL), (1, 0))

    def test_what_cannot_be_written_is_one_warning(self):
        (self.root / "file").write_text("")
        self.warns_once(
            "compiled code is not kept in '.*/file/code': Not a directory",
            SMALL, OTHER, FLASHATTN_CACHE=f"{self.root}/file/code",
        )  # fmt: skip
        # As a full disk: a file of more than a page fails, which leaves nothing behind.
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # noqa: E731
        self.warns_once(
            f"cannot keep compiled code in '{self.folder}': File too large",
            SMALL, OTHER, limit=limit,
        )  # fmt: skip
        self.assertEqual(self.files(), [])
        # The right to write anywhere is not inherited by what root starts then.
        drop = lambda: ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)  # noqa: E731
        self.folder.chmod(0o500)
        self.warns_once(
            f"cannot keep compiled code in '{self.folder}': Permission denied",
            SMALL, OTHER, limit=drop,
        )  # fmt: skip

    def test_folder_of_others_is_left_aside(self):
        self.start(SMALL)
        (path,) = self.files()
        self.folder.chmod(0o777)
        found = self.warns_once(
            f"compiled code is not kept in '{self.folder}': expected a folder that only its owner "
            "may write to but got mode 0777",
            SMALL, OTHER,
        )  # fmt: skip
        self.assertIn("got mode 0777", found["off_reason"])
        self.assertEqual((found["files"], found["bytes"]), (0, 0))
        self.folder.chmod(0o755)
        self.assertEqual(self.counts(SMALL), (1, 0))
        for mode in (0o770, 0o702, 0o1777):
            self.folder.chmod(mode)
            self.warns_once(f"compiled code is not kept in .* but got mode {mode:04o}", SMALL)
        self.folder.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(self.folder, STRANGER, -1)
            self.warns_once(
                f"compiled code is not kept in '{self.folder}': expected a folder of user 0 but got "
                f"one of user {STRANGER}",
                SMALL, OTHER,
            )  # fmt: skip
            os.chown(self.folder, 0, -1)
        self.warns_once(
            f"compiled code is not kept in '{path}': expected a folder but got something else",
            SMALL, FLASHATTN_CACHE=str(path),
        )  # fmt: skip

    def test_files_of_others_are_made_again(self):
        self.start(SMALL)
        (path,) = self.files()
        whole = path.read_bytes()

        def is_made_again(reason):
            found = self.warns_once(f"compiled code in '{path.name}' is not used: {reason}", SMALL)
            self.assertEqual(found["files"], 1)
            self.assertEqual((path.read_bytes(), path.stat().st_mode), (whole, 0o100600))
            self.assertFalse(path.is_symlink())

        for mode in (0o666, 0o620, 0o602):
            path.chmod(mode)
            is_made_again(f"expected a file that only its owner may write to but got mode {mode:04o}")
        path.chmod(0o644)
        self.assertEqual(self.counts(SMALL), (1, 0))
        if os.geteuid() == 0:
            os.chown(path, STRANGER, -1)
            is_made_again(f"expected a file of user 0 but got one of user {STRANGER}")
        aside = self.root / "aside"
        path.rename(aside)
        path.symlink_to(aside)
        is_made_again("expected a file but got a link")
        path.unlink()
        os.mkfifo(path)
        is_made_again("expected a file but got something else")

    def test_folders_above_are_looked_at(self):
        parent = self.root / "parent"
        parent.mkdir()
        self.folder = parent / "deep" / "code"
        for mode in (0o777, 0o775, 0o707):
            parent.chmod(mode)
            self.warns_once(
                f"cannot keep compiled code in '{self.folder}': parent folder '{parent}': expected a folder "
                f"that only its owner may write to, or one with a sticky bit, but got mode {mode:04o}",
                SMALL, OTHER,
            )  # fmt: skip
            self.assertEqual(list(parent.iterdir()), [])
        parent.chmod(0o1777)
        self.assertEqual(self.counts(SMALL), (0, 1))
        self.assertEqual(self.counts(SMALL), (1, 0))
        # Also of a folder that is there.
        parent.chmod(0o777)
        self.warns_once(f"compiled code is not kept in '{self.folder}': parent folder '{parent}': .*", SMALL)
        parent.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(parent, STRANGER, -1)
            self.warns_once(
                f"compiled code is not kept in '{self.folder}': parent folder '{parent}': expected a folder "
                f"of user 0 but got one of user {STRANGER}",
                SMALL,
            )  # fmt: skip

    def test_links_are_resolved(self):
        """What they lead to is looked at, and not what they are."""
        self.start(SMALL)
        link = self.root / "link"
        link.symlink_to(self.folder)
        self.assertEqual(self.counts(SMALL, FLASHATTN_CACHE=str(link)), (1, 0))
        self.folder.chmod(0o777)
        self.warns_once("compiled code is not kept in .*/link': .*", SMALL, FLASHATTN_CACHE=str(link))
        # Nothing is made where a link leads that leads nowhere yet.
        nowhere = self.root / "nowhere"
        link.unlink()
        link.symlink_to(nowhere)
        self.warns_once(
            f"cannot keep compiled code in '{link}': expected a folder but got something else",
            SMALL, FLASHATTN_CACHE=str(link),
        )  # fmt: skip
        self.assertFalse(nowhere.exists())

    @unittest.skipUnless(os.geteuid() == 0, "only root can become a second user")
    def test_nobody_else_gets_in(self):
        self.assertEqual(race.run(24), 0)

    def test_what_killed_processes_left_goes(self):
        self.start(SMALL)
        (path,) = self.files()
        left = [self.folder / f"{'0' * 64}.lock", self.folder / f"{path.name}.12ab.unfinished"]
        for file in left:
            file.write_text("")
        os.utime(left[1], (0, 0))
        young = self.folder / f"{path.name}.34cd.unfinished"
        young.write_text("")
        held = self.folder / f"{'1' * 64}.lock"
        with open(held, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            found, _ = self.start(OTHER)
        self.assertEqual(found["files"], 2)
        self.assertEqual(set(self.folder.iterdir()), {*self.files(), young, held})

    def test_size_is_limited(self):
        found, _ = self.start(SMALL)
        self.assertEqual(found["max_bytes"], 1 << 30)
        size = found["bytes"]
        limit = str(size * 3 // 2)
        self.assertEqual(self.counts(OTHER, FLASHATTN_CACHE_DISK_BYTES=limit), (0, 1))
        self.assertEqual(len(self.files()), 1)
        # The one that nobody had read for longest went.
        self.assertEqual(self.counts(OTHER), (1, 0))
        for bad in ("0", "-1", "many", "1e9"):
            found, stderr = self.start(OTHER, FLASHATTN_CACHE_DISK_BYTES=bad)
            self.assertEqual((found["found"], found["max_bytes"]), (1, 1 << 30))
            self.assertEqual(
                stderr,
                "flashattn: warning: expected FLASHATTN_CACHE_DISK_BYTES to be a number of at least 1 but got "
                f"'{bad}'; 1073741824 is used\n",
            )

    def test_many_processes_compile_once(self):
        with ThreadPoolExecutor(10) as pool:
            done = list(pool.map(lambda _: self.start(SMALL, OTHER), range(10)))
        self.assertEqual([stderr for _, stderr in done], [""] * 10)
        self.assertEqual(sum(found["made"] for found, _ in done), 2)
        self.assertEqual(sum(found["found"] for found, _ in done), 18)
        for found, _ in done:
            self.assertEqual(found["texts"], done[0][0]["texts"])
        # Neither locks nor unfinished files stay.
        names = {path.name for path in self.folder.iterdir()} - {"llvmcache.timestamp"}
        self.assertEqual(names, {path.name for path in self.files()})

    def test_many_threads_compile_once(self):
        library = _library.get()
        before = library.disk_cache()
        with mock.patch.dict(os.environ, FLASHATTN_CACHE=str(self.folder)):
            with ThreadPoolExecutor(6) as pool:
                list(pool.map(lambda n: flashattn.compile(**(SMALL, OTHER)[n % 2]), range(12)))
            after = library.disk_cache()
        self.assertEqual((after.made - before.made, after.found - before.found), (2, 10))

    def lock(self, path):
        """The lock of the code in a file."""
        return self.folder / f"{path.name.split('-', 1)[1]}.lock"

    def waiting(self, pool):
        """A child that by now most likely waits for a lock; if not, it finds the code at once."""
        waiting = pool.submit(self.counts, SMALL)
        time.sleep(2)
        self.assertFalse(waiting.done())
        return waiting

    def test_lock_of_the_dead_is_taken(self):
        self.start(SMALL)
        (kept,) = self.files()
        lock = self.lock(kept)
        kept.unlink()
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, lock], stdout=subprocess.PIPE, text=True)  # fmt: skip
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        self.assertEqual(holder.stdout.readline(), "held\n")
        with ThreadPoolExecutor() as pool:
            waiting = self.waiting(pool)
            begin = time.monotonic()
            holder.kill()
            self.assertEqual(waiting.result(), (0, 1))
        # The wait for a lock that somebody has would be 30 s.
        self.assertLess(time.monotonic() - begin, 15)
        self.assertFalse(lock.exists())
        # One that is not even held.
        kept.unlink()
        lock.write_text("left")
        self.assertEqual(self.counts(SMALL), (0, 1))
        self.assertFalse(lock.exists())

    def test_waits_no_longer_than_for_the_code(self):
        self.start(SMALL)
        (kept,) = self.files()
        aside = self.root / "aside"
        kept.rename(aside)
        # Whoever lives holds the lock, and keeps it when the code is there.
        with ThreadPoolExecutor() as pool, open(self.lock(kept), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            waiting = self.waiting(pool)
            begin = time.monotonic()
            aside.rename(kept)
            self.assertEqual(waiting.result(), (1, 0))
        self.assertLess(time.monotonic() - begin, 15)

    def test_what_differs_is_kept_apart(self):
        kernels = [
            SMALL,
            {**SMALL, "dtype": "f16"},
            {**SMALL, "schedule": "tile_m = 8, tile_n = 32"},
            HOPPER,
            {**HOPPER, "chip": "sm_80"},
            {**HOPPER, "chip": "sm_90"},
        ]
        self.assertEqual(self.counts(*kernels), (0, 6))
        self.assertEqual(self.counts(*kernels), (6, 0))
        # Not the driver, nor whether there is a card: a machine may compile for another one.
        for change in (
            {"FAKE_CUDA_DRIVER_VERSION": "12060"},
            {"FAKE_CUDA_DEVICES": "0"},
            {"FAKE_CUDA_CAPABILITY": "80"},
        ):
            self.assertEqual(self.counts({**HOPPER, "chip": "sm_80"}, **change), (1, 0))

    def test_optimized_code_is_kept_apart(self):
        kernels = SMALL, HOPPER
        self.assertEqual(self.counts(*kernels, FLASHATTN_OPTIMIZE_CPU="0"), (0, 2))
        # What launches a GPU's kernels is optimized always.
        self.assertEqual(self.counts(*kernels, FLASHATTN_OPTIMIZE_CPU="1"), (1, 1))
        self.assertEqual(self.counts(*kernels, FLASHATTN_OPTIMIZE_CPU="1"), (2, 0))
        self.assertEqual(self.counts(*kernels, FLASHATTN_OPTIMIZE_CPU="0"), (2, 0))

    def test_tuned_schedules_count(self):
        cache = {"XDG_CACHE_HOME": str(self.root)}
        self.assertEqual(self.counts(SMALL, **cache), (0, 1))
        path = self.root / "flashattn" / "schedules.json"
        path.parent.mkdir()
        # Those of other kernels do not.
        schedule = "tile_m = 8, tile_n = 32, stages = 1, dot_type = f32, mapping = cpu"
        tuned = {"cpu/48/48/f32/full": {"schedule": schedule, "ms": 1.0}}
        path.write_text(json.dumps({"version": 4, "schedules": tuned}))
        self.assertEqual(self.counts(SMALL, **cache), (1, 0))
        tuned["cpu/32/32/f32/full"] = tuned["cpu/48/48/f32/full"]
        path.write_text(json.dumps({"version": 4, "schedules": tuned}))
        found, _ = self.start(SMALL, **cache)
        self.assertEqual((found["found"], found["made"]), (0, 1))
        # The texts are of that schedule, whatever the file says later.
        path.unlink()
        again, _ = self.start({**SMALL, "schedule": schedule}, **cache)
        self.assertEqual(again["texts"], found["texts"])
        path.write_text(json.dumps({"version": 4, "schedules": tuned}))
        self.assertEqual(self.counts(SMALL, **cache), (1, 0))
        self.assertEqual(self.counts(SMALL, FLASHATTN_TUNED="0", **cache), (1, 0))

    def test_another_build_compiles_for_itself(self):
        self.start(SMALL)
        library = self.root / "libFlashAttnC.so"
        contents = Path(os.environ["FLASHATTN_LIBRARY"]).read_bytes()
        note = b"\4\0\0\0\x14\0\0\0\3\0\0\0GNU\0"
        at = contents.index(note) + len(note)
        library.write_bytes(contents[:at] + bytes([contents[at] ^ 1]) + contents[at + 1 :])
        self.assertEqual(self.counts(SMALL, FLASHATTN_LIBRARY=str(library)), (0, 1))
        self.assertEqual(self.counts(SMALL, FLASHATTN_LIBRARY=str(library)), (1, 0))
        self.assertEqual(self.counts(SMALL), (1, 0))

    def test_warnings_come_again(self):
        hidden = {**SMALL, "mask": "(p, k)[nq, nk] : (k - nk >= 0)"}
        first, _ = self.start(hidden)
        second, _ = self.start(hidden)
        self.assertEqual((first["made"], second["found"]), (1, 1))
        self.assertRegex(" ".join(first["warnings"]), "hides every pair")
        self.assertEqual(second["warnings"], first["warnings"])

    def test_doctor(self):
        self.start(SMALL)

        def doctor(cache):
            done = subprocess.run(
                [sys.executable, "-m", "flashattn", "doctor"],
                env={**os.environ, "FLASHATTN_CACHE": cache},
                capture_output=True,
                text=True,
            )
            return re.search(r"^.* compiled code +(.*)$", done.stdout, re.M).group(0)

        self.assertRegex(
            doctor(str(self.folder)),
            rf"^ok +compiled code +1 kernels in {self.folder}, \d\.\d of at most 1024\.0 MiB$",
        )
        self.assertRegex(
            doctor("off"), r"^note +compiled code +FLASHATTN_CACHE=off; every process compiles again$"
        )
        self.folder.chmod(0o777)
        self.assertRegex(
            doctor(str(self.folder)),
            rf"^note +compiled code +{self.folder}: expected a folder that only its owner may",
        )


if __name__ == "__main__":
    unittest.main()

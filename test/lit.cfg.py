# The main test suite: flash-opt and flash-run on .mlir files, and scripts.

import os
import subprocess
import sys

import lit.formats
import lit.util

config.name = "FlashAttn"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test", ".py", ".c"]
config.excludes = ["Inputs", "Unit", "CMakeLists.txt", "lit.cfg.py", "lit.site.cfg.py", "plant_faults.py", "summary.py"]
config.test_source_root = config.flashattn_test_root
config.test_exec_root = config.flashattn_exec_root

# The project's tools come first, then LLVM's FileCheck, not, count and split-file.
search = [config.flashattn_tools_dir, config.llvm_tools_dir, config.environment["PATH"]]
config.environment["PATH"] = os.pathsep.join(search)
# What a user has tuned must not change what tests see.
config.environment["FLASHATTN_TUNED"] = "0"
# A test runs a kernel for the CPU once or twice, and would spend most of its time on LLVM's passes. The grids of
# numbers, and tests of speed, set this variable to 1: they run the code that users run.
config.environment["FLASHATTN_OPTIMIZE_CPU"] = "0"
# What another test has compiled neither: those of the cache name a folder of their own.
config.environment["FLASHATTN_CACHE"] = "off"
# Threads of torch's that have nothing to do sleep at once: others need the cores, such as the next test's.
config.environment["OMP_WAIT_POLICY"] = "passive"
for name in ("HOME", "FLASHATTN_TEST_GRID", "CUDA_VISIBLE_DEVICES", "CUDA_CACHE_PATH", "LD_LIBRARY_PATH", "NO_COLOR"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

config.substitutions += [
    ("%flashattn_src", config.flashattn_src_root),
    ("%flashattn_lib", config.flashattn_lib_dir),
    ("%fakecuda", config.fakecuda),
    # Interleavings of a kernel on a model. A sanitizer watches the model, and needs one.
    ("%model_seeds", "--model-seeds=%d" % (1 if config.flashattn_sanitize else 2)),
    ("%python", '"%s"' % sys.executable),
    ("%lit", 'env "PYTHONPATH=%s" "%s" -c "from lit.main import main; main()"'
     % (os.path.dirname(os.path.dirname(lit.__file__)), sys.executable)),
]


def has_cuda_device():
    """Asks the driver itself, in a process of its own: a broken one must not take lit along."""
    script = (
        "import ctypes, sys\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "count = ctypes.c_int(0)\n"
        "ok = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0\n"
        "sys.exit(0 if ok and count.value > 0 else 1)\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
        )
        return done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def find_tool(name):
    # FLASHATTN_NVDISASM and the like name a tool that is elsewhere.
    named = os.environ.get("FLASHATTN_" + name.upper().replace("-", "_"))
    if named:
        return named
    # The toolkit's installer does not put itself on PATH.
    path = os.pathsep.join([config.environment["PATH"], "/usr/local/cuda/bin"])
    return lit.util.which(name, path)


if has_cuda_device():
    config.available_features.add("cuda")
for name in ("ptxas", "nvdisasm", "cuobjdump"):
    tool = find_tool(name)
    if tool:
        config.available_features.add(name)
        config.substitutions.append(("%" + name, tool))
        # flash-run looks for them on PATH, behind what is there.
        config.environment["PATH"] += os.pathsep + os.path.dirname(os.path.abspath(tool))
for name in ("cc", "flash-run", "mlir-opt", "mlir-runner", "mlir-translate", "nm", "opt", "pkg-config",
             "readelf"):
    if find_tool(name):
        config.available_features.add(name)
# The programs of test/CAPI, and the library they are linked to.
if find_tool("capi-launch"):
    config.available_features.add("capi")
# A bundle has the tests without the sources.
if os.path.isdir(os.path.join(config.flashattn_src_root, "lib", "Pipelines")):
    config.available_features.add("sources")
if os.path.exists(config.fakecuda):
    config.available_features.add("fakecuda")
if os.path.exists(os.path.join(config.flashattn_lib_dir, "FlashAttnPlugin.so")):
    config.available_features.add("plugin")



def find_numpy_python():
    """A Python with NumPy: lit's own, or the system's, whose packages apt installs."""
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        for modules in (("numpy", "pip", "setuptools", "wheel", "ensurepip"), ("numpy",)):
            # Looked for, not imported: pip and setuptools do not go together in one process.
            script = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, %r)))" % (modules,)
            try:
                done = subprocess.run([python, "-c", script], stderr=subprocess.DEVNULL, timeout=60)
            except (OSError, subprocess.TimeoutExpired):
                break
            if done.returncode == 0:
                return python, len(modules) > 1
    return None, False


def sanitizer_environment():
    """What makes a plain Python load the library of a sanitizer build: the sanitizers' own first, with the
    options that cmake/sanitizers.cpp gives the programs."""
    options = {
        "ASAN_OPTIONS": "detect_leaks=0:allow_user_poisoning=0:detect_container_overflow=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    own = ["%s=%s:%s" % (name, text, os.environ.get(name, "")) for name, text in options.items()]
    return " ".join(["LD_PRELOAD=%s" % config.sanitizer_runtime, *own])


# The Python package needs its library, and for that of a sanitizer build the sanitizers' own.
capi = os.path.join(config.flashattn_lib_dir, "libFlashAttnC.so")
package = os.path.join(config.flashattn_src_root, "python")
if os.path.exists(capi) and os.path.isdir(package):
    numpy_python, makes_wheels = find_numpy_python()
    if numpy_python and config.flashattn_sanitize:
        if os.path.isfile(config.sanitizer_runtime):
            config.available_features.add("sanitized-python")
            config.substitutions.append((
                "%sanitized_python",
                "env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=%s FLASHATTN_LIBRARY=%s %s %s"
                % (package, capi, sanitizer_environment(), numpy_python),
            ))
    elif numpy_python:
        config.available_features.add("python-package")
        cache = os.path.join(config.test_exec_root, "python-cache")
        # A virtual environment of this one would not have its packages, so it makes no wheels.
        front_ends_python = os.environ.get("FLASHATTN_TEST_PYTHON", numpy_python)
        config.substitutions += [
            (
                "%flashattn_python",
                "env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=%s FLASHATTN_LIBRARY=%s FLASHATTN_TUNED=1 XDG_CACHE_HOME=%s %s"
                % (package, capi, cache, front_ends_python),
            ),
            ("%numpy_python", numpy_python),
            ("%front_ends_python", front_ends_python),
        ]
        for module in ("torch", "transformers", "jax", "onnx", "onnxruntime"):
            probe = "import sys; from importlib.util import find_spec; sys.exit(find_spec('%s') is None)" % module
            if subprocess.run([front_ends_python, "-c", probe]).returncode == 0:
                config.available_features.add(module)
        if makes_wheels:
            config.available_features.add("python-wheel")

# A build tree, shared and plain, can be installed and built against; a bundle cannot.
if hasattr(config, "flashattn_obj_root") and not config.flashattn_static:
    if not config.flashattn_sanitize:
        config.available_features.add("package")
    config.substitutions += [
        ("%flashattn_obj", config.flashattn_obj_root),
        ("%mlir_dir", config.mlir_dir),
        ("%cxx", config.cxx),
        ("%cc", config.cc),
    ]
    # A bundle of this build runs on this machine only.
    if os.path.exists(os.path.join(config.flashattn_obj_root, "tools", "bundle", "FileCheck")):
        config.available_features.add("bundle")
        make_bundle = "%s %s/tools/bundle/make_bundle.py --version=%s --build=%s --llvm-tools=%s --shared" % (
            sys.executable,
            config.flashattn_src_root,
            config.flashattn_version,
            config.flashattn_obj_root,
            config.llvm_tools_dir,
        )
        config.substitutions.append(("%make_bundle", make_bundle))

if config.flashattn_sanitize:
    config.available_features.add("asan")
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

# No test may hang the suite. lit can only stop what overstays where it finds psutil.
supported, _ = lit.util.killProcessAndChildrenIsSupported()
if supported and lit_config.maxIndividualTestTime == 0:
    lit_config.maxIndividualTestTime = 900

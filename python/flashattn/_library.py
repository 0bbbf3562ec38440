"""The C library through ctypes, as declared in include/flashattn-c/FlashAttn.h."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type

from . import _structs
from ._texts import encode
from .errors import (
    ArgumentError,
    CompileError,
    DeviceError,
    FlashAttnError,
    LibraryError,
    UnsupportedError,
)

DEVICE_AUTO, DEVICE_CPU, DEVICE_MODEL = -1, -2, -3
#: The letter of the batch dimension of packed rows, whose size is 1.
PACKED = "P"
#: The letters of a pool of pages: the number of its pages, and the number of rows of a page.
POOL, PAGE = "L", "Z"
#: The letter of the dimension of a scale that serves all rows of a sequence, whose size is 1.
ALL_ROWS = "A"
MAX_RANK = 5
LIBRARY_NAME = "libFlashAttnC.so"

ELEMENT_TYPES = {
    "f16": 1, "bf16": 2, "f32": 3, "i1": 5, "i32": 7, "index": 9, "f8E4M3FN": 10, "f8E5M2": 11, "i8": 6,
}  # fmt: skip
#: FlashAttnOperandInfo::likeFirst of the type of the first operand, or f32, and of that type, or one of 8 bits
_LIKE_FIRST_OR_F32, _LIKE_FIRST_OR_NARROW = 2, 3
#: The operands with factors of keys and values (rule F1), and the operands that they scale.
SCALES = {"k_scale": "k", "v_scale": "v"}

_EXCEPTIONS = {
    1: ArgumentError,  # INVALID_ARGUMENT
    2: ArgumentError,  # INVALID_HANDLE
    3: CompileError,  # INVALID_MODULE
    4: UnsupportedError,
    5: CompileError,
    6: DeviceError,
    7: ArgumentError,  # TENSOR
}


def exception_of(status: int) -> Type[FlashAttnError]:
    """Returns the exception class of a FlashAttnStatus other than OK."""
    return _EXCEPTIONS.get(status, FlashAttnError)


_Dims = ctypes.c_int64 * MAX_RANK


class Tensor(ctypes.Structure):
    """A FlashAttnTensor. Strides are in elements."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("sizes", _Dims),
        ("strides", _Dims),
        ("scalar", ctypes.c_int64),
        ("elementType", ctypes.c_int32),
        ("rank", ctypes.c_int32),
    ]


def launch_head(kernel: int, tensors: ctypes.Array, count: int) -> bytes:
    """Returns the first fields of a FlashAttnPackedLaunch. A function of `packers` packs the other fields."""
    return struct.pack("2Pq", kernel, ctypes.addressof(tensors), count)


def packers(count: int) -> Tuple[Callable[..., bytes], Callable[..., bytes]]:
    """Returns two functions that pack the other fields of a FlashAttnPackedLaunch with `count` arguments. The
    first packs 0 (no match), the stream and a word for each argument: an address, or the 64 bits of a scalar.
    The second packs the number of a match and the words after those of q, k and v. A word is 0 if the match
    contains the argument."""
    return struct.Struct(f"{2 + count}P").pack, struct.Struct(f"P32x{count - 3}P").pack


def match_head(exchange: int, tensors: ctypes.Array, device: int, is_aligned: bool) -> bytes:
    """Returns the first fields of a FlashAttnPythonTensors. `pack_objects` packs the other fields."""
    return struct.pack("2P2i", exchange, ctypes.addressof(tensors), device, is_aligned)


#: Packs the other fields of a FlashAttnPythonTensors: the `id` of q, k, v, o and lse.
pack_objects = struct.Struct("5P").pack


class Role(NamedTuple):
    """The role of an operand of an op: a FlashAttnOperandInfo."""

    name: str
    dims: str  #: a letter for each dimension, in layout bhsd; "" for a scalar
    elements: Tuple[str, ...]  #: the allowed types
    like_first: bool  #: whether the type must be that of the first operand
    is_scalar: bool
    is_output: bool
    is_optional: bool
    broadcasts: bool
    follows_layout: bool
    or_f32: bool = False  #: with like_first: whether the type may also be f32
    or_narrow: bool = False  #: with like_first: whether the type may also be one of 8 bits

    @property
    def has_rows(self) -> bool:
        """Whether the last dimension is a row of D or Dv elements, and not heads, queries or keys."""
        return self.dims[-1:] in ("D", "V")

    def dims_in(self, layout: str) -> str:
        """Returns the letters of the dimensions of the caller's tensor. In layout thd, packed rows have no
        batch dimension, but scales have it (`_scales.settle`)."""
        dims = self.dims
        if layout != "bhsd" and self.follows_layout:
            dims = dims[0] + dims[2] + dims[1] + dims[3:]
        return dims[1:] if layout == "thd" and self.is_packed else dims

    @property
    def is_pool(self) -> bool:
        """Whether the rows lie in the pages of a pool (rule P1)."""
        return self.dims[:1] == POOL

    @property
    def is_packed(self) -> bool:
        """Whether the sequences lie one after the other in this operand (rule S1)."""
        return self.dims[:1] == PACKED and self.name not in SCALES


class Device(NamedTuple):
    """A CUDA device, or the CPU."""

    name: str
    chip: str  #: "sm_80", "cpu"
    compute_units: int  #: multiprocessors, or threads of the CPU
    vector_width: int  #: f32 lanes of the CPU's vector registers; 0 for CUDA
    memory_bytes: int  #: 0 for the CPU
    shared_memory_per_block: int  #: bytes; 0 for the CPU
    driver_version: int  #: 1000 * major + 10 * minor; 0 for the CPU
    max_ptx_version: int  #: 10 * major + minor; 0 for the CPU


class DiskCache(NamedTuple):
    """The state of the disk cache and of the archive: a FlashAttnCacheInfo."""

    folder: str  #: empty if there is none
    off_reason: str  #: why the cache is off; empty if it is on
    files: int  #: current number of files
    bytes: int
    max_bytes: int
    found: int  #: compilations of this process that found code in the cache
    made: int  #: compilations of this process that generated code
    archive_file: str  #: the archive of kernels compiled ahead of time; empty if there is none
    archive_off_reason: str  #: why the archive is not used; empty if it was read
    archive_members: int  #: number of members: code of kernels, and cubins
    archive_found: int  #: number of members that this process has found


class KernelInfo(NamedTuple):
    """The properties of a kernel: a FlashAttnKernelInfo."""

    chip: str
    device: int
    is_launchable: bool
    not_launchable_reason: str
    stages: List[str]
    workspace_bytes: int
    tuning_key: str  #: key of tuned schedules: chip, D, Dv, type, shape of the mask
    host_bytes: int  #: host memory of the kernel


def candidates() -> List[Path]:
    """Returns the paths at which the library is searched, in order. FLASHATTN_LIBRARY replaces all of them."""
    named = os.environ.get("FLASHATTN_LIBRARY")
    if named:
        return [Path(named)]
    package = Path(__file__).resolve().parent
    root = package.parent.parent  # root of a bundle, or of a checkout with build trees
    folders = [
        package,
        root / "lib",
        root / "build" / "release" / "lib",
        root / "build" / "bundle" / "lib",
    ]
    return [folder / LIBRARY_NAME for folder in folders]


def find() -> Path:
    """Returns the path of the library. Raises LibraryError, with every path that was tried."""
    places = candidates()
    for place in places:
        if place.is_file():
            return place
    hint = "set FLASHATTN_LIBRARY to its path, or build it with ./build.sh build FlashAttnC"
    if os.environ.get("FLASHATTN_LIBRARY"):
        hint = "set FLASHATTN_LIBRARY to the path of the library, or unset it to use the package's own library"
    raise LibraryError(
        f"expected {LIBRARY_NAME} in {', '.join(map(str, places))} but found none: {hint}"
    )


def _explain_need(error: str) -> str:
    """Returns a hint if the loader's error is about a library of LLVM; empty otherwise."""
    if "libMLIR" not in error and "libLLVM" not in error:
        return ""
    return (
        "; it needs the shared libraries of LLVM and MLIR 22.1 (Debian and apt.llvm.org: libmlir-22, "
        "libllvm22), beside it or where the loader looks; a library from ./build.sh bundle does not need them"
    )


class Library:
    """The functions of the loaded library. Errors are raised as exceptions."""

    #: Whether a module that is more than one function around one attention op is rejected.
    attention_only = True

    def __init__(self, path: Path):
        self.path = path
        try:
            lib = ctypes.CDLL(str(path))
        except OSError as error:
            raise LibraryError(f"cannot load {path}: {error}{_explain_need(str(error))}") from None
        try:
            self._declare(lib)
        except AttributeError as error:
            raise LibraryError(
                f"expected the functions of this version in {path} but got: {error}"
            ) from None
        self.lib = lib
        self._roles: Dict[str, Tuple[Role, ...]] = {}
        # Neither function declares its argument. ctypes passes the bytes of a structure unchanged, which takes
        # a third of the time of converting as many arguments.
        #: int launch(bytes of a FlashAttnPackedLaunch)
        self.launch = lib.flashattnLaunchPacked
        #: int match(bytes of a FlashAttnPythonTensors), called with the GIL held
        self.match = ctypes.PyDLL(str(path)).flashattnMatchPythonTensors

    @staticmethod
    def _declare(lib) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int32
        for name, arguments in (
            ("flashattnGetDeviceCount", [pointer]),
            ("flashattnGetDeviceInfo", [number, pointer]),
            ("flashattnCompileOptionsInit", [pointer]),
            ("flashattnCompile", [ctypes.c_char_p, ctypes.c_size_t, pointer, pointer]),
            ("flashattnCheck", [ctypes.c_char_p, ctypes.c_size_t, pointer]),
            ("flashattnCheckMask", [ctypes.c_char_p]),
            ("flashattnCheckScoreModWithAux", [ctypes.c_char_p, pointer, number]),
            ("flashattnGetOperand", [ctypes.c_char_p, number, pointer]),
            ("flashattnKernelFree", [pointer]),
            ("flashattnKernelGetInfo", [pointer, pointer]),
            ("flashattnKernelGetStage", [pointer, number, pointer]),
            ("flashattnKernelGetText", [pointer, ctypes.c_char_p, pointer, pointer]),
            ("flashattnKernelGetWorkspace", [pointer, pointer, number, pointer]),
            ("flashattnScheduleComplete", [ctypes.c_char_p, number, number, pointer]),
            ("flashattnGetTrials", [pointer, pointer]),
            ("flashattnGetCacheInfo", [pointer]),
            ("flashattnTunedGetPath", [pointer]),
            ("flashattnTunedLoad", [ctypes.c_char_p, pointer]),
            ("flashattnTunedStore", [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p]),
        ):
            function = getattr(lib, name)
            function.argtypes, function.restype = arguments, number
        for name in ("flashattnGetLastError", "flashattnGetVersion"):
            function = getattr(lib, name)
            function.argtypes, function.restype = [], ctypes.c_char_p
        for name in ("flashattnLaunchPacked", "flashattnMatchPythonTensors"):
            getattr(lib, name).restype = number

    def fail(self, status: int) -> None:
        """Raises the exception of a nonzero status."""
        text = self._last_error() or f"the library failed with status {status}"
        raise exception_of(status)(text)

    def _last_error(self) -> str:
        return (self.lib.flashattnGetLastError() or b"").decode(errors="replace")

    def _check(self, status: int) -> None:
        if status:
            self.fail(status)

    def version(self) -> str:
        return self.lib.flashattnGetVersion().decode()

    def device_count(self) -> int:
        """Returns the number of CUDA devices. Raises DeviceError, with the reason, if there is none."""
        count = ctypes.c_int32(0)
        self._check(self.lib.flashattnGetDeviceCount(ctypes.byref(count)))
        return count.value

    def device(self, ordinal: int) -> Device:
        info = _structs.DeviceInfo(size=ctypes.sizeof(_structs.DeviceInfo))
        self._check(self.lib.flashattnGetDeviceInfo(ordinal, ctypes.byref(info)))
        return Device(
            info.name.decode(errors="replace"),
            info.chip.decode(),
            info.computeUnits,
            info.vectorWidth,
            info.memoryBytes,
            info.sharedMemoryPerBlock,
            info.driverVersion,
            info.maxPTXVersion,
        )

    def roles(self, op: str = "attention") -> Tuple[Role, ...]:
        """Returns the roles of the op's operands in order, including optional operands."""
        if op not in self._roles:
            info = _structs.OperandInfo(size=ctypes.sizeof(_structs.OperandInfo), numOperands=1)
            roles: List[Role] = []
            while len(roles) < info.numOperands:
                self._check(
                    self.lib.flashattnGetOperand(encode("op", op), len(roles), ctypes.byref(info))
                )
                types = info.elementTypes
                roles.append(
                    Role(
                        (info.name or b"").decode(),
                        (info.dims or b"").decode(),
                        tuple(name for name, bit in ELEMENT_TYPES.items() if types >> bit & 1),
                        bool(info.likeFirst),
                        info.kind == _structs.SCALAR,
                        info.direction == _structs.OUTPUT,
                        bool(info.isOptional),
                        bool(info.broadcasts),
                        bool(info.followsLayout),
                        info.likeFirst == _LIKE_FIRST_OR_F32,
                        info.likeFirst == _LIKE_FIRST_OR_NARROW,
                    )
                )
            self._roles[op] = tuple(roles)
        return self._roles[op]

    def compile(
        self, mlir: str, *, chip: Optional[str], device: int, schedule: Optional[str], tuned: bool
    ) -> Tuple[int, List[str]]:
        """Compiles a module. Returns the kernel's handle, which `free` frees, and the compiler's warnings."""
        options = self._options(chip, device, schedule, tuned)
        found: List[str] = []

        def take(user, severity, file, line, column, message):
            if severity == _structs.WARNING:
                found.append(message.decode(errors="replace"))

        options.diagnostic = _structs.DiagnosticCallback(take)
        kernel = ctypes.c_void_p()
        text = encode("module", mlir)
        self._check(
            self.lib.flashattnCompile(text, len(text), ctypes.byref(options), ctypes.byref(kernel))
        )
        assert kernel.value is not None
        return kernel.value, found

    def check(
        self, mlir: str, *, chip: Optional[str], device: int, schedule: Optional[str], tuned: bool
    ) -> None:
        """Raises the errors that `compile` finds before code generation."""
        options = self._options(chip, device, schedule, tuned)
        text = encode("module", mlir)
        self._check(self.lib.flashattnCheck(text, len(text), ctypes.byref(options)))

    def _options(
        self, chip: Optional[str], device: int, schedule: Optional[str], tuned: bool
    ) -> _structs.CompileOptions:
        options = _structs.CompileOptions()
        self._check(self.lib.flashattnCompileOptionsInit(ctypes.byref(options)))
        options.chip = encode("chip", chip) if chip else None
        options.device = device
        options.schedule = encode("schedule", schedule) if schedule else None
        options.useTuned = int(tuned)
        options.attentionOnly = int(self.attention_only)
        return options

    def explain_mask(self, text: str) -> str:
        """Returns why the text is not a mask attribute; empty if it is one. Raises ArgumentError."""
        return self._last_error() if self.lib.flashattnCheckMask(encode("mask", text)) else ""

    def explain_score_mod(self, text: str, aux: Sequence[Tuple[str, int]]) -> str:
        """Returns why the text is not the block of a score_mod that reads auxiliary tensors, of these element types
        and ranks; empty if it is one. Raises ArgumentError."""
        tensors = (Tensor * len(aux))()
        for tensor, (element, rank) in zip(tensors, aux):
            tensor.elementType, tensor.rank = ELEMENT_TYPES.get(element, 0), rank
        found = self.lib.flashattnCheckScoreModWithAux(encode("score_mod", text), tensors, len(aux))
        return self._last_error() if found else ""

    def free(self, kernel: int) -> None:
        self._check(self.lib.flashattnKernelFree(kernel))

    def info(self, kernel: int) -> KernelInfo:
        info = _structs.KernelInfo(size=ctypes.sizeof(_structs.KernelInfo))
        self._check(self.lib.flashattnKernelGetInfo(kernel, ctypes.byref(info)))
        stages = []
        for index in range(info.numStages):
            name = ctypes.c_char_p()
            self._check(self.lib.flashattnKernelGetStage(kernel, index, ctypes.byref(name)))
            stages.append((name.value or b"").decode())
        return KernelInfo(
            info.chip.decode(),
            info.device,
            bool(info.isLaunchable),
            (info.notLaunchableReason or b"").decode(),
            stages,
            info.workspaceBytes,
            (info.tuningKey or b"").decode(),
            info.hostBytes,
        )

    def text(self, kernel: int, stage: str) -> str:
        text, length = ctypes.c_void_p(), ctypes.c_size_t()
        status = self.lib.flashattnKernelGetText(
            kernel, encode("stage", stage), ctypes.byref(text), ctypes.byref(length)
        )
        self._check(status)
        return ctypes.string_at(text.value or 0, length.value).decode(errors="replace")

    def workspace(self, kernel: int, tensors: ctypes.Array, count: int) -> int:
        """Returns the bytes that a launch with the first `count` tensors allocates."""
        found = ctypes.c_int64()
        self._check(
            self.lib.flashattnKernelGetWorkspace(kernel, tensors, count, ctypes.byref(found))
        )
        return found.value

    def complete_schedule(self, fields: str, element: str, on_cpu: bool) -> str:
        """Returns the fields of a schedule, with the missing fields completed. Raises ArgumentError."""
        text = ctypes.c_char_p()
        self._check(
            self.lib.flashattnScheduleComplete(
                encode("schedule", fields), ELEMENT_TYPES[element], int(on_cpu), ctypes.byref(text)
            )
        )
        return (text.value or b"").decode()

    def disk_cache(self) -> DiskCache:
        info = _structs.CacheInfo(size=ctypes.sizeof(_structs.CacheInfo))
        self._check(self.lib.flashattnGetCacheInfo(ctypes.byref(info)))
        return DiskCache(
            os.fsdecode(info.folder or b""),
            os.fsdecode(info.offReason or b""),
            info.files,
            info.bytes,
            info.maxBytes,
            info.found,
            info.made,
            os.fsdecode(info.archiveFile or b""),
            os.fsdecode(info.archiveOffReason or b""),
            info.archiveMembers,
            info.archiveFound,
        )

    def tuned_path(self) -> str:
        """Returns the path of the user's file of tuned schedules."""
        text = ctypes.c_char_p()
        self._check(self.lib.flashattnTunedGetPath(ctypes.byref(text)))
        return os.fsdecode(text.value or b"")

    def tuned_load(self, path: Optional[Path]) -> str:
        """Returns the tuned schedules in a file (None: the user's file) as JSON. Raises ArgumentError."""
        text = ctypes.c_char_p()
        self._check(self.lib.flashattnTunedLoad(path and os.fsencode(path), ctypes.byref(text)))
        return (text.value or b"{}").decode()

    def tuned_store(self, path: Optional[Path], key: str, finding: Optional[str]) -> None:
        """Stores a finding, JSON. None only checks that a finding could be stored. Raises ArgumentError."""
        self._check(
            self.lib.flashattnTunedStore(
                path and os.fsencode(path), encode("key", key), finding and encode("finding", finding)
            )
        )

    def trials(
        self,
        chip: str,
        element: str,
        group: int,
        packs: bool,
        gradients: bool,
        **lists: Optional[Sequence[int]],
    ) -> List[str]:
        """Returns the schedules worth timing. `lists`, named as in `_structs.TRIAL_LISTS`, are tried instead of the
        library's; some of them also restrict the trials to schedules with warp specialization."""
        options = _structs.TrialOptions(size=ctypes.sizeof(_structs.TrialOptions), chip=encode("chip", chip))
        options.elementType, options.group, options.packs = ELEMENT_TYPES[element], group, packs
        options.gradients = gradients
        for name, values in lists.items():
            if name not in _structs.TRIAL_LISTS:
                raise ArgumentError(f"expected lists {', '.join(_structs.TRIAL_LISTS)} but got {name}")
            if values:
                array = (ctypes.c_int64 * len(values))(*values)
                setattr(options, name, _structs.Numbers(array, len(values)))
        text = ctypes.c_char_p()
        self._check(self.lib.flashattnGetTrials(ctypes.byref(options), ctypes.byref(text)))
        return (text.value or b"").decode().split("\n")


_lock = threading.Lock()
_loaded: Dict[str, Library] = {}


def get() -> Library:
    """Returns the library, which the first call loads. Raises LibraryError."""
    library = _loaded.get("library")
    if library is None:
        with _lock:
            library = _loaded.get("library")
            if library is None:
                library = _loaded["library"] = Library(find())
    return library

"""The C library through ctypes: what include/flashattn-c/FlashAttn.h declares, and no more."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type

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
MAX_RANK = 4
LIBRARY_NAME = "libFlashAttnC.so"

ELEMENT_TYPES = {"f16": 1, "bf16": 2, "f32": 3, "i1": 5, "i32": 7, "index": 9}

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
    """What stands for a FlashAttnStatus other than OK."""
    return _EXCEPTIONS.get(status, FlashAttnError)


_Dims = ctypes.c_int64 * MAX_RANK


class Tensor(ctypes.Structure):
    """FlashAttnTensor; strides in elements."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("sizes", _Dims),
        ("strides", _Dims),
        ("scalar", ctypes.c_int64),
        ("elementType", ctypes.c_int32),
        ("rank", ctypes.c_int32),
    ]


def launch_head(kernel: int, tensors: ctypes.Array, count: int) -> bytes:
    """A FlashAttnPackedLaunch up to what one of `packers` gives."""
    return struct.pack("2Pq", kernel, ctypes.addressof(tensors), count)


def packers(count: int) -> Tuple[Callable[..., bytes], Callable[..., bytes]]:
    """What gives the rest of a FlashAttnPackedLaunch with `count` arguments: of no match (0), the
    stream and a word for each, its address or the 64 bits of a scalar; and of a match's number and
    the words behind those of q, k and v, 0 for what was matched too."""
    return struct.Struct(f"{2 + count}P").pack, struct.Struct(f"P32x{count - 3}P").pack


def match_head(exchange: int, tensors: ctypes.Array, device: int, is_aligned: bool) -> bytes:
    """A FlashAttnPythonTensors up to what `pack_objects` gives."""
    return struct.pack("2P2i", exchange, ctypes.addressof(tensors), device, is_aligned)


#: The rest of a FlashAttnPythonTensors: the `id` of q, k, v, o and lse.
pack_objects = struct.Struct("5P").pack


#: FlashAttnDiagnosticCallback: user, severity, file, line, column and message.
_DiagnosticCallback = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_char_p,
    ctypes.c_int32,
    ctypes.c_int32,
    ctypes.c_char_p,
)
_WARNING = 2  # FLASHATTN_WARNING


class _DeviceInfo(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char * 256),
        ("chip", ctypes.c_char * 16),
        ("computeUnits", ctypes.c_int32),
        ("vectorWidth", ctypes.c_int32),
        ("memoryBytes", ctypes.c_int64),
        ("sharedMemoryPerBlock", ctypes.c_int64),
        ("driverVersion", ctypes.c_int32),
        ("maxPTXVersion", ctypes.c_int32),
    ]


class _CompileOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("chip", ctypes.c_char_p),
        ("device", ctypes.c_int32),
        ("vectorWidth", ctypes.c_int32),
        ("schedule", ctypes.c_char_p),
        ("function", ctypes.c_char_p),
        ("diagnostic", _DiagnosticCallback),
        ("diagnosticUser", ctypes.c_void_p),
        ("useTuned", ctypes.c_int32),
        ("attentionOnly", ctypes.c_int32),
    ]


class _KernelInfo(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("function", ctypes.c_char_p),
        ("chip", ctypes.c_char_p),
        ("device", ctypes.c_int32),
        ("isLaunchable", ctypes.c_int32),
        ("notLaunchableReason", ctypes.c_char_p),
        ("numArguments", ctypes.c_int32),
        ("numStages", ctypes.c_int32),
        ("workspaceBytes", ctypes.c_int64),
        ("tuningKey", ctypes.c_char_p),
        ("hostBytes", ctypes.c_int64),
    ]


class _CacheInfo(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("folder", ctypes.c_char_p),
        ("offReason", ctypes.c_char_p),
        ("files", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("maxBytes", ctypes.c_int64),
        ("found", ctypes.c_int64),
        ("made", ctypes.c_int64),
        ("archiveFile", ctypes.c_char_p),
        ("archiveOffReason", ctypes.c_char_p),
        ("archiveMembers", ctypes.c_int64),
        ("archiveFound", ctypes.c_int64),
    ]


class _OperandInfo(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("numOperands", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("direction", ctypes.c_int32),
        ("isOptional", ctypes.c_int32),
        ("broadcasts", ctypes.c_int32),
        ("followsLayout", ctypes.c_int32),
        ("elementTypes", ctypes.c_int32),
        ("likeFirst", ctypes.c_int32),
        ("name", ctypes.c_char_p),
        ("dims", ctypes.c_char_p),
    ]


_SCALAR = 1  # FLASHATTN_ARGUMENT_SCALAR
_OUTPUT = 2  # FLASHATTN_OUTPUT


class Role(NamedTuple):
    """What an operand of an op is: FlashAttnOperandInfo."""

    name: str
    dims: str  #: a letter for each dimension, in layout bhsd; "" for a scalar
    elements: Tuple[str, ...]  #: the types that it may have
    like_first: bool  #: of these it has that of the first operand
    is_scalar: bool
    is_output: bool
    is_optional: bool
    broadcasts: bool
    follows_layout: bool

    @property
    def has_rows(self) -> bool:
        """Whether its last dimension is a row that products take; others count heads, queries, keys."""
        return self.dims[-1:] in ("D", "V")

    def dims_in(self, layout: str) -> str:
        if layout == "bhsd" or not self.follows_layout:
            return self.dims
        return self.dims[0] + self.dims[2] + self.dims[1] + self.dims[3:]


class _Numbers(ctypes.Structure):
    _fields_ = [("values", ctypes.POINTER(ctypes.c_int64)), ("count", ctypes.c_size_t)]


#: The lists of FlashAttnTrialOptions, in their order.
TRIAL_LISTS = (
    "tile_m", "tile_n", "warps", "stages", "consumers", "registers", "blocks_per_sm", "pack",
)  # fmt: skip


class _TrialOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("chip", ctypes.c_char_p),
        ("elementType", ctypes.c_int32),
        ("vectorWidth", ctypes.c_int32),
        ("group", ctypes.c_int64),
        ("packs", ctypes.c_int32),
        *((name, _Numbers) for name in TRIAL_LISTS),
        ("gradients", ctypes.c_int32),
    ]


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
    """Where compiled code is kept for later processes: FlashAttnCacheInfo."""

    folder: str  #: empty where there is none
    off_reason: str  #: why nothing is read or kept; empty where it is
    files: int  #: kept now
    bytes: int
    max_bytes: int
    found: int  #: compilations of this process whose code was kept
    made: int  #: compilations of this process that made code
    archive_file: str  #: kernels made ahead; empty where there is none
    archive_off_reason: str  #: why nothing is found in it; empty where it was read
    archive_members: int  #: kernels' code, and machine code of groups of these
    archive_found: int  #: of those, the ones that this process found there


class KernelInfo(NamedTuple):
    """What the library says of a kernel."""

    chip: str
    device: int
    is_launchable: bool
    not_launchable_reason: str
    stages: List[str]
    workspace_bytes: int
    tuning_key: str  #: what tuned schedules are kept by: chip, D, Dv, type, shape of the mask
    host_bytes: int  #: of memory that it keeps


def candidates() -> List[Path]:
    """Where the library is looked for, in order. FLASHATTN_LIBRARY rules out the rest."""
    named = os.environ.get("FLASHATTN_LIBRARY")
    if named:
        return [Path(named)]
    package = Path(__file__).resolve().parent
    root = package.parent.parent  # of a bundle, or of a checkout with its build trees
    folders = [
        package,
        root / "lib",
        root / "build" / "release" / "lib",
        root / "build" / "bundle" / "lib",
    ]
    return [folder / LIBRARY_NAME for folder in folders]


def find() -> Path:
    """The library's file. Raises LibraryError, with every place looked at."""
    places = candidates()
    for place in places:
        if place.is_file():
            return place
    hint = "set FLASHATTN_LIBRARY to its path, or build it with ./build.sh build FlashAttnC"
    if os.environ.get("FLASHATTN_LIBRARY"):
        hint = "this is what FLASHATTN_LIBRARY names; unset it to use the package's own"
    raise LibraryError(
        f"expected {LIBRARY_NAME} in {', '.join(map(str, places))} but found none: {hint}"
    )


def _explain_need(error: str) -> str:
    """What to do where the loader misses a library of LLVM, which it names."""
    if "libMLIR" not in error and "libLLVM" not in error:
        return ""
    return (
        "; it needs the shared libraries of LLVM and MLIR 22.1 (Debian and apt.llvm.org: libmlir-22, "
        "libllvm22), beside it or where the loader looks; one of ./build.sh bundle needs neither"
    )


class Library:
    """The functions of the loaded library, with errors as exceptions."""

    #: A module whose text holds more than one attention is refused.
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
        # Neither declares its argument: the bytes that hold a structure go as they are, which costs
        # a third of what the conversion of as many arguments does.
        #: int launch(bytes of a FlashAttnPackedLaunch)
        self.launch = lib.flashattnLaunchPacked
        #: int match(bytes of a FlashAttnPythonTensors), with the interpreter's lock
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
            ("flashattnCheckScoreMod", [ctypes.c_char_p]),
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
        """Raises the exception of a status that is not 0."""
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
        """Raises DeviceError with the reason that there is none."""
        count = ctypes.c_int32(0)
        self._check(self.lib.flashattnGetDeviceCount(ctypes.byref(count)))
        return count.value

    def device(self, ordinal: int) -> Device:
        info = _DeviceInfo(size=ctypes.sizeof(_DeviceInfo))
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
        """What the op's operands are, in their order, those that may be left out too."""
        if op not in self._roles:
            info = _OperandInfo(size=ctypes.sizeof(_OperandInfo), numOperands=1)
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
                        info.kind == _SCALAR,
                        info.direction == _OUTPUT,
                        bool(info.isOptional),
                        bool(info.broadcasts),
                        bool(info.followsLayout),
                    )
                )
            self._roles[op] = tuple(roles)
        return self._roles[op]

    def compile(
        self, mlir: str, *, chip: Optional[str], device: int, schedule: Optional[str], tuned: bool
    ) -> Tuple[int, List[str]]:
        """A kernel's handle, which `free` takes back, and what the compiler warns of."""
        options = self._options(chip, device, schedule, tuned)
        found: List[str] = []

        def take(user, severity, file, line, column, message):
            if severity == _WARNING:
                found.append(message.decode(errors="replace"))

        options.diagnostic = _DiagnosticCallback(take)
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
        """Raises what `compile` does before it makes code."""
        options = self._options(chip, device, schedule, tuned)
        text = encode("module", mlir)
        self._check(self.lib.flashattnCheck(text, len(text), ctypes.byref(options)))

    def _options(
        self, chip: Optional[str], device: int, schedule: Optional[str], tuned: bool
    ) -> _CompileOptions:
        options = _CompileOptions()
        self._check(self.lib.flashattnCompileOptionsInit(ctypes.byref(options)))
        options.chip = encode("chip", chip) if chip else None
        options.device = device
        options.schedule = encode("schedule", schedule) if schedule else None
        options.useTuned = int(tuned)
        options.attentionOnly = int(self.attention_only)
        return options

    def explain_mask(self, text: str) -> str:
        """Why the text is no mask attribute; empty where it is one. Raises ArgumentError."""
        return self._last_error() if self.lib.flashattnCheckMask(encode("mask", text)) else ""

    def explain_score_mod(self, text: str) -> str:
        """Why the text is no block of a score_mod; empty where it is one. Raises ArgumentError."""
        found = self.lib.flashattnCheckScoreMod(encode("score_mod", text))
        return self._last_error() if found else ""

    def free(self, kernel: int) -> None:
        self._check(self.lib.flashattnKernelFree(kernel))

    def info(self, kernel: int) -> KernelInfo:
        info = _KernelInfo(size=ctypes.sizeof(_KernelInfo))
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
        """Bytes that a launch of the first `count` tensors allocates."""
        found = ctypes.c_int64()
        self._check(
            self.lib.flashattnKernelGetWorkspace(kernel, tensors, count, ctypes.byref(found))
        )
        return found.value

    def complete_schedule(self, fields: str, element: str, on_cpu: bool) -> str:
        """The fields of a schedule with what is left out. Raises ArgumentError."""
        text = ctypes.c_char_p()
        self._check(
            self.lib.flashattnScheduleComplete(
                encode("schedule", fields), ELEMENT_TYPES[element], int(on_cpu), ctypes.byref(text)
            )
        )
        return (text.value or b"").decode()

    def disk_cache(self) -> DiskCache:
        info = _CacheInfo(size=ctypes.sizeof(_CacheInfo))
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
        """Where tuned schedules of this user are kept."""
        text = ctypes.c_char_p()
        self._check(self.lib.flashattnTunedGetPath(ctypes.byref(text)))
        return os.fsdecode(text.value or b"")

    def tuned_load(self, path: Optional[Path]) -> str:
        """All findings of a file, the user's for None, as JSON. Raises ArgumentError."""
        text = ctypes.c_char_p()
        self._check(self.lib.flashattnTunedLoad(path and os.fsencode(path), ctypes.byref(text)))
        return (text.value or b"{}").decode()

    def tuned_store(self, path: Optional[Path], key: str, finding: Optional[str]) -> None:
        """Adds a finding in JSON; for None only checks that it could. Raises ArgumentError."""
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
        """The schedules worth timing. `lists`, of TRIAL_LISTS, narrow or replace what is tried."""
        options = _TrialOptions(size=ctypes.sizeof(_TrialOptions), chip=encode("chip", chip))
        options.elementType, options.group, options.packs = ELEMENT_TYPES[element], group, packs
        options.gradients = gradients
        for name, values in lists.items():
            if name not in TRIAL_LISTS:
                raise ArgumentError(f"expected lists {', '.join(TRIAL_LISTS)} but got {name}")
            if values:
                array = (ctypes.c_int64 * len(values))(*values)
                setattr(options, name, _Numbers(array, len(values)))
        text = ctypes.c_char_p()
        self._check(self.lib.flashattnGetTrials(ctypes.byref(options), ctypes.byref(text)))
        return (text.value or b"").decode().split("\n")


_lock = threading.Lock()
_loaded: Dict[str, Library] = {}


def get() -> Library:
    """The library, loaded at the first call. Raises LibraryError."""
    library = _loaded.get("library")
    if library is None:
        with _lock:
            library = _loaded.get("library")
            if library is None:
                library = _loaded["library"] = Library(find())
    return library

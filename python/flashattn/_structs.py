"""The structures of include/flashattn-c/FlashAttn.h that only `_library` passes. Fields have the names of the
header."""

from __future__ import annotations

import ctypes

#: FlashAttnDiagnosticCallback: user, severity, file, line, column and message.
DiagnosticCallback = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_char_p,
    ctypes.c_int32,
    ctypes.c_int32,
    ctypes.c_char_p,
)
WARNING = 2  # FLASHATTN_WARNING


class DeviceInfo(ctypes.Structure):
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


class CompileOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("chip", ctypes.c_char_p),
        ("device", ctypes.c_int32),
        ("vectorWidth", ctypes.c_int32),
        ("schedule", ctypes.c_char_p),
        ("function", ctypes.c_char_p),
        ("diagnostic", DiagnosticCallback),
        ("diagnosticUser", ctypes.c_void_p),
        ("useTuned", ctypes.c_int32),
        ("attentionOnly", ctypes.c_int32),
    ]


class KernelInfo(ctypes.Structure):
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


class CacheInfo(ctypes.Structure):
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


class OperandInfo(ctypes.Structure):
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
        ("isVariadic", ctypes.c_int32),
    ]


SCALAR = 1  # FLASHATTN_ARGUMENT_SCALAR
OUTPUT = 2  # FLASHATTN_OUTPUT


class Numbers(ctypes.Structure):
    _fields_ = [("values", ctypes.POINTER(ctypes.c_int64)), ("count", ctypes.c_size_t)]


#: The lists of FlashAttnTrialOptions, in their order.
TRIAL_LISTS = (
    "tile_m", "tile_n", "warps", "stages", "consumers", "registers", "blocks_per_sm", "pack",
)  # fmt: skip


class TrialOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("chip", ctypes.c_char_p),
        ("elementType", ctypes.c_int32),
        ("vectorWidth", ctypes.c_int32),
        ("group", ctypes.c_int64),
        ("packs", ctypes.c_int32),
        *((name, Numbers) for name in TRIAL_LISTS),
        ("gradients", ctypes.c_int32),
    ]

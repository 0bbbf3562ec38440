"""The exceptions of this package. `FlashAttnError` is their base class."""


class FlashAttnError(Exception):
    """The base class of every exception of this package. The message states the expected and the actual value."""


class ArgumentError(FlashAttnError, ValueError):
    """An argument is invalid or does not match the others: shape, type, device, layout or name."""


class KeywordError(ArgumentError, TypeError):
    """An unknown keyword argument. The message names the equivalent argument, if there is one."""


class UnsupportedError(FlashAttnError):
    """A valid request that this package does not support."""


class TraceError(FlashAttnError, TypeError):
    """A score_mod or mask_mod uses an operation that cannot be traced. The message names the operation."""


class CompileError(FlashAttnError):
    """The compiler rejected the module. The message is the compiler's diagnostic."""


class LibraryError(FlashAttnError):
    """The C library, or a library that it requires, is missing or has another version."""


class DeviceError(FlashAttnError):
    """The driver or the device is missing, too old or out of memory, or an operation on the device failed."""

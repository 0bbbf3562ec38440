"""What can go wrong, as exceptions under one base."""


class FlashAttnError(Exception):
    """Base of every exception of this package. Its text says what was expected and what was found."""


class ArgumentError(FlashAttnError, ValueError):
    """An argument that does not fit the others: shape, type, device, layout or name."""


class KeywordError(ArgumentError, TypeError):
    """A keyword that a function does not have; the text names what has its meaning here."""


class UnsupportedError(FlashAttnError):
    """A request that is well formed, but that nothing here computes."""


class TraceError(FlashAttnError, TypeError):
    """A score_mod that does something which no operation of a kernel stands for; the text names it."""


class CompileError(FlashAttnError):
    """The compiler refused; the text is its diagnostic."""


class LibraryError(FlashAttnError):
    """The C library, or a library that it needs: not found, or of another version."""


class DeviceError(FlashAttnError):
    """The driver or the device: missing, too old, out of memory, or failed."""

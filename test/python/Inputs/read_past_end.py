"""Hands the library a text without its end, which only a sanitizer notices."""

import ctypes

from flashattn import _library

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
address = libc.malloc(ctypes.c_size_t(4))
ctypes.memmove(address, b"mask", 4)
function = _library.get().lib.flashattnCheckMask
function.argtypes = [ctypes.c_void_p]
function(address)

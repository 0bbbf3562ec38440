"""FlashAttention's functions, with its names and arguments, over `flashattn.attention`::

    from flashattn.flash_attn import flash_attn_func, flash_attn_varlen_func

This package has the functions of FlashAttention-2, and its modules `bert_padding` and
`layers.rotary`. `flashattn.flash_attn_interface` has those of FlashAttention-3, and
`flashattn.flash_attn.cute` those of FlashAttention-4. `install` makes `import flash_attn` find
them, for code that cannot be changed.

What flashattn does not support raises `flashattn.UnsupportedError`, which names the argument.
"""

from ._install import install, uninstall
from .flash_attn_interface import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)

#: The version of FlashAttention-2 whose arguments these are.
__version__ = "2.8.4"

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "install",
    "uninstall",
]

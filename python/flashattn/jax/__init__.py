"""Attention in JAX: `flashattn.jax.dot_product_attention` replaces `jax.nn.dot_product_attention`.

    import flashattn.jax
    o = flashattn.jax.dot_product_attention(query, key, value, is_causal=True)
    o = flashattn.jax.attention(q, k, v, mask=flashattn.causal)

Both can be jitted, differentiated once in reverse mode, mapped by `jax.vmap` and `jax.shard_map`, and
exported. They run where JAX places them, on the CPU or a GPU. XLA calls the kernels through its foreign
function interface, without Python. The package is separate because the rest of flashattn does not need
JAX. Importing it loads the library, and raises LibraryError if the library is missing.
"""

from ._attention import attention
from ._dot_product import dot_product_attention

__all__ = ["attention", "dot_product_attention"]

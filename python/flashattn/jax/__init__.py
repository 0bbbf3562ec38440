"""Attention in JAX: `flashattn.jax.dot_product_attention` in place of `jax.nn`'s.

    import flashattn.jax
    o = flashattn.jax.dot_product_attention(query, key, value, is_causal=True)
    o = flashattn.jax.attention(q, k, v, mask=flashattn.causal)

Both can be jitted, differentiated once in reverse, mapped by `jax.vmap` and `jax.shard_map`, and
exported. They run where JAX puts them, on the CPU or a GPU, as calls of XLA's foreign functions that
go through no Python. A package of its own, for nothing else here needs jax; importing it loads the
library, and raises LibraryError where there is none.
"""

from ._attention import attention
from ._dot_product import dot_product_attention

__all__ = ["attention", "dot_product_attention"]

"""Attention in JAX: `flashattn.jax.dot_product_attention` replaces `jax.nn.dot_product_attention`.

    import flashattn.jax
    o = flashattn.jax.dot_product_attention(query, key, value, is_causal=True)
    o = flashattn.jax.attention(q, k, v, mask=flashattn.causal)

These functions can be jitted, differentiated once in reverse mode, mapped by `jax.vmap` and
`jax.shard_map`, and exported. `context_parallel` computes attention over a sequence whose rows several
devices hold. All functions run on the device that JAX selects, the CPU or a GPU. XLA calls the
kernels through its foreign function interface (FFI), without Python. The package is separate because the
rest of flashattn does not require JAX. Importing it loads the C library, and raises LibraryError if the
library is missing.
"""

from ._attention import attention
from ._dot_product import dot_product_attention
from ._parallel import context_parallel

__all__ = ["attention", "context_parallel", "dot_product_attention"]

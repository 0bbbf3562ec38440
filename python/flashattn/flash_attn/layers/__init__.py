"""The layers of FlashAttention that code outside of it calls."""

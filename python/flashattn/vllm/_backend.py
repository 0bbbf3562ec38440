"""The classes that vLLM imports for its attention. vLLM names them and their methods."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, ClassVar, Dict, List, NamedTuple, Optional

import torch
from torch import Tensor
from vllm.platforms import current_platform
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadata,
    AttentionMetadataBuilder,
    AttentionType,
    MultipleOf,
)

from .._attention import attention
from ..errors import ArgumentError, UnsupportedError
from ..masks import Mask, affine_set, causal, window
from ..torch import append
from . import NAME

#: Types of the KV cache that are those of the model.
_PLAIN = ("auto", "float16", "bfloat16")
#: Types of 8 bits. Their tensors may have the type uint8.
_NARROW = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


class FlashAttnBackend(AttentionBackend):
    """What flashattn supports. vLLM asks before it selects a backend, and reports what is missing."""

    supported_dtypes: ClassVar[List[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[List[str]] = [*_PLAIN, *_NARROW]
    #: `FlashAttnImpl.do_kv_cache_update` writes keys and values, before `forward`.
    forward_includes_kv_cache_update: bool = False

    @staticmethod
    def get_name() -> str:
        return NAME

    @staticmethod
    def get_impl_cls() -> Any:
        return FlashAttnImpl

    @staticmethod
    def get_builder_cls() -> Any:
        return FlashAttnMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> List[Any]:
        return [MultipleOf(8)]  # other sizes work too, but their kernels are slower

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return current_platform.is_cpu() or (head_size % 8 == 0 and 0 < head_size <= 256)

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        return bool(current_platform.is_cuda() and capability.major >= 8)

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True


@dataclasses.dataclass
class FlashAttnMetadata(AttentionMetadata):
    """What the layers of a group share in one step."""

    num_actual_tokens: int  #: without padding
    query_start_loc: Tensor  #: `[B+1]`: the starts of the requests
    seq_lens: Tensor  #: `[B]`: the numbers of keys, including the new ones; 0 for a request that is padding
    block_table: Tensor  #: `[B, P]`
    slot_mapping: Tensor
    is_decode: bool  #: each request has one new token
    max_query_len: int  #: the most new tokens of a request
    #: With decode context parallelism, `[B]`: the numbers of keys that this rank has, and the positions of the first
    #: new tokens. None without.
    local_lens: Optional[Tensor] = None
    offsets: Optional[Tensor] = None


class _Interleaved(NamedTuple):
    """Keys that are dealt to the ranks of a group in turns, `run` at a time."""

    run: int
    ranks: int
    rank: int

    def lengths(self, seq_lens: Tensor) -> Tensor:
        """Returns how many of the first `seq_lens` keys are this rank's."""
        turn = self.run * self.ranks
        whole = torch.div(seq_lens, turn, rounding_mode="floor") * self.run
        return whole + (seq_lens % turn - self.rank * self.run).clamp(0, self.run)

    def mask(self, left: Optional[int]) -> Mask:
        """Returns the causal mask, with at most `left` keys before that of the query if there is a bound."""
        # The index among all keys of this rank's key k. All ranks share a kernel.
        key = f"((k floordiv {self.run}) * {self.run * self.ranks} + (k mod {self.run}) + first)"
        bound = "" if left is None else f", {key} - p + {left} >= 0"
        return affine_set(
            f"(p, k)[nq, nk, first] : (p - {key} >= 0{bound})", per_sequence=[self.rank * self.run]
        )


def _interleaved_of(parallel_config: Any) -> Optional[_Interleaved]:
    """Returns how keys are dealt to the ranks of decode context parallelism; None without it."""
    ranks = int(getattr(parallel_config, "decode_context_parallel_size", 1) or 1)
    if ranks == 1:
        return None
    from vllm.distributed.parallel_state import get_dcp_group

    return _Interleaved(
        int(getattr(parallel_config, "cp_kv_cache_interleave_size", 1) or 1), ranks, get_dcp_group().rank_in_group
    )


class FlashAttnMetadataBuilder(AttentionMetadataBuilder):
    #: The kernels read starts, lengths and tables on the device, so one graph serves all of them.
    _cudagraph_support: ClassVar[Any] = AttentionCGSupport.ALWAYS
    supports_update_block_table: bool = True

    def __init__(self, kv_cache_spec: Any, layer_names: List[str], vllm_config: Any, device: Any) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._interleaved = _interleaved_of(getattr(vllm_config, "parallel_config", None))

    def build(
        self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False
    ) -> FlashAttnMetadata:
        given = common_attn_metadata
        if given.causal is not True:
            raise UnsupportedError(
                f"expected causal attention but got causal={given.causal}; select another attention backend of vLLM"
            )
        # With at most one token each, as many tokens as requests are one for each: padding is at the end, where
        # a request has no keys. A graph for mixed batches is captured with a larger max_query_len.
        is_decode = given.max_query_len == 1 and given.num_actual_tokens == given.num_reqs
        local_lens = offsets = None
        if self._interleaved is not None:
            starts = given.query_start_loc
            local_lens = self._interleaved.lengths(given.seq_lens).to(torch.int32)
            offsets = (given.seq_lens - (starts[1:] - starts[:-1])).to(torch.int32)
        return FlashAttnMetadata(
            num_actual_tokens=given.num_actual_tokens,
            query_start_loc=given.query_start_loc,
            seq_lens=given.seq_lens,
            block_table=given.block_table_tensor,
            slot_mapping=given.slot_mapping,
            is_decode=is_decode,
            max_query_len=given.max_query_len,
            local_lens=local_lens,
            offsets=offsets,
        )

    def update_block_table(
        self, metadata: FlashAttnMetadata, blk_table: Tensor, slot_mapping: Tensor
    ) -> FlashAttnMetadata:
        updated = copy.copy(metadata)
        updated.block_table = blk_table
        updated.slot_mapping = slot_mapping
        return updated


class FlashAttnImpl(AttentionImpl):
    """Attention of one layer."""

    #: vLLM's check for decode context parallelism.
    can_return_lse_for_decode: bool = True

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: Optional[int] = None,
        alibi_slopes: Optional[List[float]] = None,
        sliding_window: Optional[int] = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: Optional[float] = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: Optional[str] = None,
        sinks: Optional[Tensor] = None,
        **others: Any,
    ) -> None:
        if attn_type != AttentionType.DECODER:
            kind = getattr(attn_type, "value", attn_type)
            raise UnsupportedError(f"expected attn_type 'decoder' but got '{kind}'")
        if kv_cache_dtype not in _PLAIN and kv_cache_dtype not in _NARROW:
            names = [f"'{name}'" for name in (*_PLAIN, *_NARROW)]
            raise UnsupportedError(
                f"expected kv_cache_dtype {', '.join(names[:-1])} or {names[-1]} but got '{kv_cache_dtype}'"
            )
        unknown = sorted(name for name, value in others.items() if value is not None)
        if unknown:
            raise UnsupportedError(f"expected no further options of attention but got {', '.join(unknown)}")
        if sinks is not None and sinks.shape != (num_heads,):
            raise ArgumentError(f"expected sinks of shape {[num_heads]} but got {list(sinks.shape)}")
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.attn_type = attn_type
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.sliding_window = sliding_window
        self.sinks = sinks
        self._sink_logits: Optional[Tensor] = None
        self._options: Dict[str, Any] = {
            "scale": self.scale,
            "softcap": logits_soft_cap or None,  # 0 stands for none
            "mask": causal if sliding_window is None else window(left=sliding_window - 1, right=0),
        }
        self._interleaved: Optional[_Interleaved] = None
        if getattr(self, "dcp_world_size", 1) > 1:
            from vllm.config import get_current_vllm_config

            self._interleaved = _interleaved_of(get_current_vllm_config().parallel_config)
        if self._interleaved is not None:
            self._options["mask"] = self._interleaved.mask(None if sliding_window is None else sliding_window - 1)
            if alibi_slopes is not None:
                raise UnsupportedError("expected no alibi_slopes with decode context parallelism but got some")
            if self.num_kv_heads > 1:  # the heads of all ranks then lie in another order than those of their keys
                raise UnsupportedError(
                    "expected 1 key/value head on each rank with decode context parallelism but got "
                    f"{self.num_kv_heads}"
                )
        if alibi_slopes is not None:
            self._options["score_mod"] = _alibi
            self._options["aux_tensors"] = (torch.tensor(alibi_slopes, dtype=torch.float32),)

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        if self.sinks is None:
            return
        logits = self.sinks.detach().to(torch.float32, copy=True)
        if self._sink_logits is None:
            self._sink_logits = logits
        else:
            self._sink_logits.copy_(logits)  # CUDA graphs read the old tensor when weights are loaded again

    def do_kv_cache_update(
        self, layer: Any, key: Tensor, value: Tensor, kv_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """Writes new rows to their slots; -1 skips a row. There may be more rows than slots."""
        if key.is_cuda and kv_cache.shape[-1] == 2 * self.head_size:
            from vllm._custom_ops import reshape_and_cache_flash

            keys, values = self._halves(kv_cache)  # of the type that vLLM gave them
            reshape_and_cache_flash(
                key, value, keys, values, slot_mapping, self.kv_cache_dtype, layer._k_scale, layer._v_scale
            )
        else:
            keys, values = self._pools(kv_cache)
            count = slot_mapping.shape[0]
            append(
                keys, values, key[:count], value[:count], slot_mapping=slot_mapping, layout="thd",
                **self._scales_of(layer),
            )  # fmt: skip

    def forward(
        self,
        layer: Any,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        kv_cache: Tensor,
        attn_metadata: Optional[FlashAttnMetadata],
        output: Tensor,
        output_scale: Optional[Tensor] = None,
        output_block_scale: Optional[Tensor] = None,
    ) -> Tensor:
        """Writes attention of the new rows `[T, Hq, D]` to `output`, `[T, Hq, Dv]`. Rows of padding stay as they
        are. The host reads no tensor on a GPU."""
        if output_scale is not None or output_block_scale is not None:
            raise UnsupportedError("expected no scale of a quantized output but got one")
        if attn_metadata is None:  # vLLM measures memory
            return output.fill_(0)
        keys, values = self._pools(kv_cache)
        count = attn_metadata.num_actual_tokens
        q, out = query[:count], output[:count]
        places: Dict[str, Any] = {
            "kv_len": attn_metadata.seq_lens, "page_table": attn_metadata.block_table, **self._scales_of(layer),
        }  # fmt: skip
        if attn_metadata.is_decode:
            q, out = q.unsqueeze(1), out.unsqueeze(1)
            places["layout"] = "bshd"
        else:
            places["layout"] = "thd"
            places["cu_seqlens_q"] = attn_metadata.query_start_loc
            places["max_seqlen_q"] = max(attn_metadata.max_query_len, 1)
        logits = None
        if self.sinks is not None:
            logits = self.sinks.detach().float() if self._sink_logits is None else self._sink_logits
        if self._interleaved is None:
            attention(q, keys, values, out=out, sink_logits=logits, **places, **self._options)
            return output
        places.update(kv_len=attn_metadata.local_lens, offset=attn_metadata.offsets)
        return self._forward_interleaved(q, keys, values, output[:count], logits, places)

    def _forward_interleaved(
        self, q: Tensor, keys: Tensor, values: Tensor, output: Tensor, logits: Optional[Tensor], places: Dict[str, Any]
    ) -> Tensor:
        """Computes attention of the query heads of all ranks to the keys of this rank, and merges the parts of all
        ranks, each of which gets its own heads."""
        from vllm.distributed.parallel_state import get_dcp_group
        from vllm.v1.attention.ops.common import cp_lse_ag_out_rs

        group, heads = get_dcp_group(), q.ndim - 2
        q = group.all_gather(q.contiguous(), dim=heads)
        if logits is not None:
            # The sinks are in the sum of one rank.
            logits = group.all_gather(logits.contiguous(), dim=0)
            places["sink_logits"] = logits if group.rank_in_group == 0 else None
        o, lse = attention(q, keys, values, return_lse=True, **places, **self._options)
        if o.ndim == 4:  # one new token each
            o, lse = o[:, 0], lse[..., 0]
        else:
            lse = lse.transpose(0, 1)
        output.copy_(cp_lse_ag_out_rs(o.contiguous(), lse.contiguous(), group))
        return output

    def _pools(self, kv_cache: Tensor) -> Any:
        """Returns `_halves` in the type of the cache."""
        dtype = _NARROW.get(self.kv_cache_dtype)
        return self._halves(kv_cache if dtype is None else kv_cache.view(dtype))

    def _scales_of(self, layer: Any) -> Dict[str, Tensor]:
        """Returns the scales of a cache of 8 bits, one for all heads or one for each."""
        if self.kv_cache_dtype not in _NARROW:
            return {}
        return {
            "k_scale": layer._k_scale.float().reshape(1, -1), "v_scale": layer._v_scale.float().reshape(1, -1)
        }  # fmt: skip

    def _halves(self, kv_cache: Tensor) -> Any:
        """Returns the keys and the values in `[pages, Hkv, S, D + Dv]`, which may have any strides, as
        `[pages, S, Hkv, D]` and `[pages, S, Hkv, Dv]`."""
        both = kv_cache.transpose(1, 2)
        return both[..., : self.head_size], both[..., self.head_size :]


def _alibi(score: Any, b: Any, h: Any, p: Any, k: Any, slopes: Any) -> Any:
    return score + slopes[h] * (k - p)  # no query sees a key after it

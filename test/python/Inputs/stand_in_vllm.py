"""As much of vLLM as flashattn.vllm imports, without vLLM: the classes have vLLM's names, fields and parameters.
serve_vllm.py compares them with vLLM's own. `install()` puts them where vLLM has them."""

import dataclasses
import enum
import sys
import types
from typing import Any, Optional


class AttentionType(str, enum.Enum):
    DECODER = "decoder"
    ENCODER = "encoder"
    ENCODER_ONLY = "encoder_only"
    ENCODER_DECODER = "encoder_decoder"


class AttentionCGSupport(enum.Enum):
    ALWAYS = 3
    UNIFORM_BATCH = 2
    UNIFORM_SINGLE_TOKEN_DECODE = 1
    NEVER = 0


@dataclasses.dataclass(frozen=True)
class MultipleOf:
    base: int


@dataclasses.dataclass
class CommonAttentionMetadata:
    query_start_loc: Any
    query_start_loc_cpu: Any
    seq_lens: Any
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    block_table_tensor: Any
    slot_mapping: Any
    causal: Any = True


class AttentionMetadata:
    pass


class AttentionBackend:
    forward_includes_kv_cache_update = True

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        return [MultipleOf(1)]

    @staticmethod
    def get_name():
        raise NotImplementedError

    @staticmethod
    def get_impl_cls():
        raise NotImplementedError

    @staticmethod
    def get_builder_cls():
        raise NotImplementedError

    @classmethod
    def supports_head_size(cls, head_size):
        return True

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype):
        return kv_cache_dtype is None or kv_cache_dtype in cls.supported_kv_cache_dtypes

    @classmethod
    def supports_compute_capability(cls, capability):
        return True

    @classmethod
    def supports_sink(cls):
        return False

    @classmethod
    def supports_sliding_window(cls):
        return False


class AttentionMetadataBuilder:
    _cudagraph_support = AttentionCGSupport.NEVER
    supports_update_block_table = False

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        self.kv_cache_spec, self.layer_names = kv_cache_spec, layer_names
        self.vllm_config, self.device = vllm_config, device

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        raise NotImplementedError

    def update_block_table(self, metadata, blk_table, slot_mapping):
        raise NotImplementedError


class AttentionImpl:
    def forward(
        self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None
    ):
        raise NotImplementedError

    def process_weights_after_loading(self, act_dtype):
        pass


class AttentionBackendEnum(enum.Enum):
    CPU_ATTN = "vllm.v1.attention.backends.cpu_attn.CPUAttentionBackend"
    FLASH_ATTN = "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"
    CUSTOM = None

    def get_path(self, include_classname=True):
        return _PATHS.get(self, self.value)

    def is_overridden(self):
        return self in _PATHS


_PATHS: dict = {}


def register_backend(backend, class_path: Optional[str] = None, is_mamba=False):
    _PATHS[backend] = class_path


class Platform:
    """vLLM's current_platform."""

    kind = "cpu"

    def is_cpu(self):
        return self.kind == "cpu"

    def is_cuda(self):
        return self.kind == "cuda"


platform = Platform()


@dataclasses.dataclass
class ParallelConfig:
    decode_context_parallel_size: int = 1
    cp_kv_cache_interleave_size: int = 1


@dataclasses.dataclass
class VllmConfig:
    parallel_config: ParallelConfig = dataclasses.field(default_factory=ParallelConfig)


#: What the stand-ins of vLLM's functions return: tests set the configuration, the group, and the function that merges.
current: dict = {"config": VllmConfig(), "dcp_group": None, "merge": None}


def get_current_vllm_config():
    return current["config"]


def get_dcp_group():
    return current["dcp_group"]


def cp_lse_ag_out_rs(cp_attn_out, cp_attn_lse, cp_group):
    return current["merge"](cp_attn_out, cp_attn_lse, cp_group)


def install(version: str = "0.32.0", has_layouts: bool = True) -> None:
    """Makes `import vllm` and its modules find the stand-ins."""
    own = dict(globals())
    places = {
        "vllm": {"__version__": version},
        "vllm.platforms": {"current_platform": platform},
        "vllm.v1": {},
        "vllm.v1.attention": {},
        "vllm.config": own,
        "vllm.distributed": {},
        "vllm.distributed.parallel_state": own,
        "vllm.v1.attention.ops": {},
        "vllm.v1.attention.ops.common": own,
        "vllm.v1.attention.backend": own,
        "vllm.v1.attention.backends": {},
        "vllm.v1.attention.backends.registry": own,
        "vllm.v1.kv_cache_layout": {},
    }
    for name, content in places.items():
        module = types.ModuleType(name)
        own_names = ("__name__", "__path__", "__spec__", "__loader__", "__package__")
        vars(module).update({key: value for key, value in content.items() if key not in own_names})
        module.__path__ = []
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
    if not has_layouts:
        sys.modules["vllm.v1.kv_cache_layout"] = None

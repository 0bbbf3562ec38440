"""Serves tiny models with vLLM's engine for the CPU, with its own attention and with flashattn's, and compares the
tokens. Checks also that the stand-ins of vllm_test.py are like vLLM's classes. Needs vLLM 0.32, so the tests do
not run it:

    FLASHATTN_LIBRARY=build/release/lib/libFlashAttnC.so python test/python/Inputs/serve_vllm.py [MODEL...] [ENGINE...]
"""

import dataclasses
import enum
import inspect
import json
import os
import random
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import List

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[2] / "python"
SMALL = dict(
    hidden_size=128, intermediate_size=192, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
    head_dim=32, vocab_size=499, max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
WINDOW = dict(sliding_window=19, layer_types=["sliding_attention", "full_attention"] * 2)
#: The name in transformers, and what the model has beside the sizes.
MODELS = {
    "Llama": {},
    "Mistral": dict(sliding_window=19),
    "Gemma2": dict(WINDOW, query_pre_attn_scalar=32, attn_logit_softcapping=2.0, final_logit_softcapping=30.0),
    "GptOss": dict(WINDOW, num_local_experts=4, num_experts_per_tok=2),
    "Bloom": dict(hidden_size=128, n_layer=3, n_head=4, vocab_size=499, pad_token_id=0, bos_token_id=1, eos_token_id=2),
}
#: Engines: prompts in chunks beside requests that decode, pages of two sizes, few pages, for which requests wait or
#: start again, and drafts of tokens, so that requests decode several at once.
DRAFTS = dict(method="ngram", num_speculative_tokens=3, prompt_lookup_max=3, prompt_lookup_min=1)
ENGINES = {
    "chunks": dict(max_num_batched_tokens=48, max_num_seqs=4, block_size=32),
    "whole": dict(max_num_batched_tokens=1024, max_num_seqs=8, block_size=64),
    "few": dict(max_num_batched_tokens=64, max_num_seqs=8, block_size=32, num_gpu_blocks_override=14),
    "drafts": dict(max_num_batched_tokens=256, max_num_seqs=8, block_size=32, speculative_config=DRAFTS),
}


def save(name: str, folder: str) -> None:
    """Writes a model with random weights that are large enough for attention to matter."""
    import torch
    import transformers

    torch.manual_seed(3)
    sizes = {} if name == "Bloom" else SMALL
    config = getattr(transformers, name + "Config")(**{**sizes, **MODELS[name]})
    model = getattr(transformers, name + "ForCausalLM")(config)
    for key, parameter in model.named_parameters():
        if "sinks" in key:
            parameter.data.uniform_(-1, 3)
        elif name == "Gemma2" and "post_attention_layernorm" in key:
            parameter.data.fill_(8.0)  # embeddings are tied and large, so each token would repeat itself
        elif parameter.ndim > 1:
            parameter.data.normal_(std=0.2)
    model.save_pretrained(folder)


def serve(folder: str, options: dict) -> dict:
    """Returns the tokens that an engine generates, and the layouts of the calls of flashattn.attention."""
    from vllm import LLM, SamplingParams, TokensPrompt

    layouts: dict = {}
    if os.environ["VLLM_PLUGINS"]:
        from flashattn.vllm import _backend

        attention = _backend.attention

        def counted(*arguments, **keywords):
            layouts[keywords["layout"]] = layouts.get(keywords["layout"], 0) + 1
            return attention(*arguments, **keywords)

        _backend.attention = counted
    numbers = random.Random(5)
    common = [numbers.randrange(3, 499) for _ in range(70)]
    prompts = [common[:64] + [numbers.randrange(3, 499) for _ in range(n)] for n in (1, 9)]
    prompts += [[numbers.randrange(3, 499) for _ in range(n)] for n in (1, 2, 31, 32, 33, 90, 140)]
    engine = LLM(
        folder, dtype="float32", skip_tokenizer_init=True, enforce_eager=True, max_model_len=224, seed=0,
        disable_log_stats=True, **options,
    )  # fmt: skip
    sampling = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, detokenize=False, logprobs=1)
    found = engine.generate([TokensPrompt(prompt_token_ids=ids) for ids in prompts], sampling, use_tqdm=False)
    tokens = [list(request.outputs[0].token_ids) for request in found]
    logprobs = [
        [step[token].logprob for step, token in zip(request.outputs[0].logprobs, row)]
        for request, row in zip(found, tokens)
    ]
    return {"tokens": tokens, "logprobs": logprobs, "layouts": layouts}


def install(folder: str) -> None:
    """Writes the part of an installed package that vLLM looks for: its entry points."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    info = Path(folder, "flashattn_mlir-0.1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flashattn-mlir\nVersion: 0.1.0\n")
    lines = [line for group, names in project["entry-points"].items()
             for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))]  # fmt: skip
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def run(*arguments: str, folder: str, plugin: bool) -> dict:
    """Runs this script in another process, which ends with a line of JSON."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([folder, str(PACKAGE)]),
        "VLLM_PLUGINS": "flashattn" if plugin else "",
        "FLASHATTN_VLLM_BACKEND": "CPU_ATTN",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run([sys.executable, __file__, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout[-4000:]}\n{done.stderr[-6000:]}\n{arguments} failed")
    return json.loads(done.stdout.splitlines()[-1])


def compare(name: str, engines: List[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        install(folder)
        model = str(Path(folder, name))
        save(name, model)
        is_same = True
        for engine in engines:
            options = ENGINES[engine]
            arguments = "--serve", model, json.dumps(options)
            wanted = run(*arguments, folder=folder, plugin=False)
            found = run(*arguments, folder=folder, plugin=True)
            rows = [mine == other for mine, other in zip(found["tokens"], wanted["tokens"])]
            largest = max(
                (abs(x - y) for own, other, same in zip(found["logprobs"], wanted["logprobs"], rows) if same
                 for x, y in zip(own, other)), default=float("nan"),
            )  # fmt: skip
            kinds = len({token for row in wanted["tokens"] for token in row})
            print(f"{name} {engine}: {sum(rows)} of {len(rows)} requests have the same tokens ({kinds} different "
                  f"ones), logprobs differ by {largest:.1e}, calls {found['layouts']}", flush=True)  # fmt: skip
            is_same &= all(rows) and set(found["layouts"]) >= {"thd"}
        return is_same


def check_stand_ins() -> None:
    """Compares the stand-ins with vLLM: what they have must be there, with the same parameters and fields."""
    import stand_in_vllm
    from vllm.platforms import interface
    from vllm.v1.attention import backend
    from vllm.v1.attention.backends import registry

    for name, mine in vars(stand_in_vllm).items():
        is_plain = inspect.isclass(mine) or inspect.isfunction(mine)
        if not is_plain or mine.__module__ != stand_in_vllm.__name__ or name == "install":
            continue
        other = next(getattr(module, name) for module in (backend, registry, interface) if hasattr(module, name))
        if inspect.isfunction(mine):
            assert list(inspect.signature(mine).parameters) == list(inspect.signature(other).parameters), name
            continue
        if issubclass(mine, enum.Enum):
            names = set(mine.__members__) - set(other.__members__)
            assert not names, (name, names)
        if dataclasses.is_dataclass(mine):
            fields = [{field.name: field.default for field in dataclasses.fields(one)} for one in (mine, other)]
            wrong = {key for key, value in fields[0].items() if fields[1].get(key, name) != value}
            assert not wrong, (name, wrong)
        for key, value in vars(mine).items():
            is_own = issubclass(mine, enum.Enum) and not inspect.isfunction(value)
            if key.startswith("__") and key != "__init__" or is_own or key in ("_generate_next_value_", "kind"):
                continue
            assert hasattr(other, key), (name, key)
            if inspect.isfunction(inspect.unwrap(getattr(mine, key))) and not dataclasses.is_dataclass(mine):
                parameters = [list(inspect.signature(getattr(one, key)).parameters) for one in (mine, other)]
                assert parameters[0] == parameters[1], (name, key, parameters)
    print("the stand-ins have the fields and parameters of vLLM")


def check_selection() -> None:
    """Asks vLLM's own checks, which it makes on a GPU, what this backend is selected for."""
    from unittest import mock

    import torch
    from vllm.platforms.interface import DeviceCapability

    sys.path.insert(0, str(PACKAGE))
    from flashattn.vllm import _backend

    plain = dict(
        head_size=128, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=16, use_mla=False, has_sink=True,
        use_sparse=False, use_mm_prefix=False, use_per_head_quant_scales=False, attn_type="decoder",
        device_capability=DeviceCapability(9, 0), has_sliding_window=True,
    )  # fmt: skip
    platform = mock.Mock(is_cuda=lambda: True, is_cpu=lambda: False)
    with mock.patch.object(_backend, "current_platform", platform):
        ask = _backend.FlashAttnBackend.validate_configuration
        assert ask(**plain) == [], ask(**plain)
        for options in (
            dict(kv_cache_dtype="fp8"), dict(use_mla=True), dict(use_sparse=True), dict(head_size=512),
            dict(attn_type="encoder_only"), dict(attn_type="encoder_decoder"), dict(use_non_causal=True),
            dict(use_dcp=True), dict(use_pcp=True), dict(use_mm_prefix=True), dict(block_size=12),
            dict(device_capability=DeviceCapability(7, 5)), dict(use_rswa=True), dict(use_batch_invariant=True),
        ):  # fmt: skip
            (reason,) = ask(**{**plain, **options})
            print(f"{options}: {reason}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        print(json.dumps(serve(sys.argv[2], json.loads(sys.argv[3]))))
    else:
        sys.path.insert(0, str(HERE))
        check_stand_ins()
        check_selection()
        models = [name for name in sys.argv[1:] if name in MODELS] or list(MODELS)
        engines = [name for name in sys.argv[1:] if name in ENGINES] or list(ENGINES)
        sys.exit(not all([compare(name, engines) for name in models]))

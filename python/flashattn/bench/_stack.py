"""`python -m flashattn bench --stacks`: times training steps (forward, backward and optimizer) of layers of
transformers' language models, with this attention and with others."""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from typing import Any, Callable, ContextManager, Dict, List, NamedTuple, Optional, Sequence

OURS = "flashattn"
LAYERS = 4
#: Sequences of a batch, and tokens of a sequence on a GPU and on the CPU, which only shows that a stack runs.
BATCH, TOKENS, TOKENS_CPU = 2, 8192, 64
WARM_UP = 3


class Stack(NamedTuple):
    """A model: the class of its configuration, the fields of the configuration, and the peers."""

    config: str
    fields: Dict[str, Any]
    peers: Sequence[str]  #: names of `_ATTENTION`


STACKS = {
    "llama3-8b": Stack(
        "LlamaConfig",
        {
            "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
        ("cudnn", "fa2"),
    ),
    "gemma2-9b": Stack(
        "Gemma2Config",
        {
            "hidden_size": 3584, "intermediate_size": 14336, "num_attention_heads": 16,
            "num_key_value_heads": 8, "head_dim": 256, "sliding_window": 4096,
            "attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 256,
        },
        ("flex",),
    ),
    # As many experts as each token uses: the full cost of a token, without a choice of experts.
    "gpt-oss": Stack(
        "GptOssConfig",
        {
            "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128,
            "num_local_experts": 4, "num_experts_per_tok": 4,
        },
        ("flex",),
    ),
}  # fmt: skip


def choose(names: str) -> List[str]:
    """Returns the stacks that `--stacks` names, or all. Raises SystemExit for an unknown name."""
    chosen = names.split(",") if names else list(STACKS)
    for name in chosen:
        if name not in STACKS:
            raise SystemExit(f"error: expected stacks {', '.join(STACKS)} but got {name}")
    return chosen


def _small(fields: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the fields for the CPU: small sizes, with the same number of query heads per key/value head."""
    heads = fields["num_attention_heads"] // fields["num_key_value_heads"]
    sizes = {"hidden_size": 64, "intermediate_size": 64, "head_dim": 16}
    return {**fields, **sizes, "num_attention_heads": heads, "num_key_value_heads": 1}


def _implementation(torch: Any, name: str) -> ContextManager[Any]:
    """Returns the context in which a step with the attention `name` runs."""
    backends = {"cudnn": "CUDNN_ATTENTION", "fa2": "FLASH_ATTENTION"}
    if name not in backends:
        return contextlib.nullcontext()
    attention = torch.nn.attention
    context: ContextManager[Any] = attention.sdpa_kernel(
        getattr(attention.SDPBackend, backends[name])
    )
    return context


#: The name of each peer's attention in transformers.
_ATTENTION = {"cudnn": "sdpa", "fa2": "sdpa", "flex": "flex_attention"}


class Timer:
    """Builds a stack on a device and times its steps."""

    def __init__(self, name: str, device: str, tokens: Optional[int], compiled: bool):
        import torch
        import transformers

        from .. import hf

        hf.register()
        self.torch, self.is_cuda = torch, device == "cuda"
        stack = STACKS[name]
        fields = stack.fields if self.is_cuda else _small(stack.fields)
        config = getattr(transformers, stack.config)(
            num_hidden_layers=LAYERS, vocab_size=1024, pad_token_id=0, use_cache=False,
            max_position_embeddings=1 << 17, **fields,
        )  # fmt: skip
        torch.manual_seed(0)
        element = torch.bfloat16 if self.is_cuda else torch.float32
        model = transformers.AutoModel.from_config(config, attn_implementation=OURS)
        self.model = model.to(device, element).train()
        if compiled:
            for layer in self.model.layers:
                layer.compile(dynamic=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        shape = (BATCH, tokens or (TOKENS if self.is_cuda else TOKENS_CPU))
        self.tokens = torch.randint(1, 1024, shape, device=device)

    def step(self, name: str) -> float:
        """Runs a step with the attention `name` and returns its milliseconds."""
        self.model.set_attn_implementation(_ATTENTION.get(name, name))
        with _implementation(self.torch, name):
            start = self._now()
            found = self.model(input_ids=self.tokens).last_hidden_state
            found.float().square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            return self._now() - start

    def _now(self) -> float:
        if self.is_cuda:
            self.torch.cuda.synchronize()
        return 1e3 * time.perf_counter()


def measure(
    name: str,
    peers: Sequence[str],
    device: str,
    tokens: Optional[int],
    compiled: bool,
    rounds: int,
    say: Callable[[str], None],
) -> Dict[str, float]:
    """Returns the median milliseconds of a step with each attention. Each round times all of them, in a new
    random order. `say` reports progress."""
    say(f"{name}: making {LAYERS} layers")
    timer = Timer(name, device, tokens, compiled)
    names = [OURS, *peers]
    for each in names:
        say(f"{name}: first steps with {each}")
        for _ in range(WARM_UP):
            timer.step(each)
    times: Dict[str, List[float]] = {each: [] for each in names}
    for number in range(1, rounds + 1):
        say(f"{name}: round {number} of {rounds}")
        for each in random.sample(names, len(names)):
            times[each].append(timer.step(each))
    return {each: statistics.median(values) for each, values in times.items()}


def report(
    names: str,
    peers: Optional[Sequence[str]],
    device: str,
    tokens: Optional[int],
    compiled: bool,
    rounds: int,
    say: Callable[[str], None],
) -> None:
    """Prints a table of the stacks in `names`. `say` reports progress. Raises SystemExit if transformers is not
    installed."""
    beside_of = {
        name: STACKS[name].peers if device == "cuda" else ("eager",) for name in choose(names)
    }
    if peers is not None:
        known = {peer: None for others in beside_of.values() for peer in others}
        for peer in peers:
            if peer not in known:
                raise SystemExit(f"error: expected peers {', '.join(known)} but got {peer}")
        beside_of = {
            name: [peer for peer in others if peer in peers] for name, others in beside_of.items()
        }
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise SystemExit(
            "error: expected transformers for --stacks but it is not installed"
        ) from None
    print("| stack | layers | ms a step | others, ms (times as long) |")
    print("| --- | --- | ---: | --- |")
    for name, others in beside_of.items():
        found = measure(name, others, device, tokens, compiled, rounds, say)
        ours = found.pop(OURS)
        beside = ", ".join(f"{peer} {ms:.1f} ({ms / ours:.3f})" for peer, ms in found.items())
        kind = "compiled" if compiled else "eager"
        print(f"| {name} | {kind} | {ours:.1f} | {beside or '-'} |", flush=True)

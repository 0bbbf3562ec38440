# Models of transformers with attn_implementation="flashattn": logits and gradients against eager in float64,
# generation token for token against the implementation that the model has.
# REQUIRES: python-package, torch, transformers
# RUN: %flashattn_python %s

import copy
import itertools
import types
import unittest

import torch
import transformers
from flashattn import ArgumentError, UnsupportedError, hf
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import masking_utils

SMALL = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, vocab_size=211, max_position_embeddings=256,
    pad_token_id=0, bos_token_id=1, eos_token_id=None, attention_dropout=0.0,
)  # fmt: skip
#: What a model has, and the implementation beside eager that generates its tokens.
MODELS = {
    "Llama": ({}, "sdpa"),
    "Mistral": ({"sliding_window": 9}, "sdpa"),
    "Qwen3": ({}, "sdpa"),
    "Gemma2": (
        {"sliding_window": 9, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 3.0},
        "eager",
    ),
    "Gemma3": (
        {
            "sliding_window": 9,
            "query_pre_attn_scalar": 16,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        "sdpa",
    ),
    "GptOss": (
        {
            "sliding_window": 9,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "experts_implementation": "eager",
        },
        "eager",
    ),
}


def make(name):
    """The model with random weights, and the implementation to compare generation with."""
    torch.manual_seed(3)
    options, other = MODELS[name]
    config = getattr(transformers, name + ("TextConfig" if name == "Gemma3" else "Config"))(
        **{**SMALL, **options}
    )
    model = getattr(transformers, name + "ForCausalLM")(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model, other


def pair(name):
    """The model on flashattn, and the same in float64 on eager attention."""
    model, _ = make(name)
    exact = copy.deepcopy(model).double()
    exact.set_attn_implementation("eager")
    model.set_attn_implementation("flashattn")
    return model, exact


def error(found, wanted):
    return float((found.double() - wanted).norm() / wanted.norm())


class ModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)  # the models are small
        hf.register()
        hf.register()

    def test_prefill(self):
        tokens = torch.randint(1, 211, (2, 33))
        for name in MODELS:
            with self.subTest(model=name), torch.no_grad():
                model, exact = pair(name)
                self.assertLessEqual(error(model(tokens).logits, exact(tokens).logits), 1e-5)
                # Left padding: what stands there is nobody's, and in float64 NaN.
                seen = torch.ones_like(tokens)
                seen[0, :7] = 0
                found = model(tokens, attention_mask=seen).logits[seen.bool()]
                model.set_attn_implementation("eager")
                wanted = model(tokens, attention_mask=seen).logits[seen.bool()]
                self.assertLessEqual(error(found, wanted.double()), 2e-5)

    def test_generation(self):
        tokens = torch.randint(1, 211, (2, 12))
        seen = torch.ones_like(tokens)
        seen[1, :5] = 0
        for name in MODELS:
            model, other = make(name)
            caches = ["dynamic", "static"] + ["quantized"] * (name in ("Llama", "Qwen3"))
            for cache, mask in itertools.product(caches, (torch.ones_like(tokens), seen)):
                with self.subTest(model=name, cache=cache, padded=mask is seen), torch.no_grad():
                    found, wanted = (
                        self.generate(model, which, tokens, mask, cache)
                        for which in ("flashattn", other)
                    )
                    self.assertEqual(found.shape, (2, 76))
                    self.assertTrue(torch.equal(found, wanted))

    def test_compiled_generation(self):
        tokens = torch.randint(1, 211, (2, 12))
        for name in ("Llama", "Gemma3"):
            with self.subTest(model=name), torch.no_grad():
                torch._dynamo.reset()
                model, other = make(name)
                ones = torch.ones_like(tokens)
                wanted = self.generate(model, other, tokens, ones, "static")
                counter = CompileCounterWithBackend("aot_eager")
                model.forward = torch.compile(model.forward, backend=counter, fullgraph=True)
                found = self.generate(model, "flashattn", tokens, ones, "static")
                self.assertTrue(torch.equal(found, wanted))
                # One for the prompt, one for each further token.
                self.assertLessEqual(counter.frame_count, 3)

    def test_packed(self):
        """Sequences one behind the other, which their positions tell apart."""
        first, second = torch.randint(1, 211, (1, 14)), torch.randint(1, 211, (1, 11))
        places = torch.cat([torch.arange(14), torch.arange(11)])[None]
        for name in MODELS:
            with self.subTest(model=name), torch.no_grad():
                model, exact = pair(name)
                packed = torch.cat([first, second], dim=1)
                wanted = torch.cat([exact(first).logits, exact(second).logits], dim=1)
                for use_cache in (False, True):
                    found = model(packed, position_ids=places, use_cache=use_cache).logits
                    self.assertLessEqual(error(found, wanted), 1e-5)

    def test_further_prompts(self):
        """A cache that has seen tokens takes more of them at once."""
        tokens = torch.randint(1, 211, (2, 31))
        for name in MODELS:
            with self.subTest(model=name), torch.no_grad():
                model, _ = make(name)
                model.set_attn_implementation("flashattn")
                wanted = model(tokens).logits
                cache = transformers.DynamicCache(config=model.config)
                parts = [
                    model(part, past_key_values=cache).logits for part in tokens.split([17, 1, 13], 1)
                ]
                self.assertLessEqual(error(torch.cat(parts, 1), wanted.double()), 2e-5)

    def generate(self, model, which, tokens, mask, cache):
        model.set_attn_implementation(which)
        return model.generate(
            tokens, attention_mask=mask, max_new_tokens=64, do_sample=False, disable_compile=True,
            cache_implementation=cache, cache_config={"backend": "fp8"} if cache == "quantized" else None,
        )  # fmt: skip

    def test_gradients(self):
        tokens = torch.randint(1, 211, (2, 20))
        seen = torch.ones_like(tokens)
        seen[0, 15:] = 0
        labels = tokens.masked_fill(seen == 0, -100)
        for name, is_compiled in ((name, name in ("Qwen3", "Gemma2")) for name in MODELS):
            with self.subTest(model=name):
                torch._dynamo.reset()
                model, exact = pair(name)
                eager = copy.deepcopy(model)
                eager.set_attn_implementation("eager")
                for one in (model, eager, exact):
                    call = one
                    if is_compiled and one is model:
                        call = torch.compile(one, backend="aot_eager", fullgraph=True)
                    call(tokens, labels=tokens).loss.backward()
                    if not is_compiled:
                        one(tokens, attention_mask=seen, labels=labels).loss.backward()
                parameters = zip(model.named_parameters(), eager.parameters(), exact.parameters())
                for (where, mine), naive, other in parameters:
                    if other.grad is None or not other.grad.norm():
                        continue
                    bound = 3 * error(naive.grad, other.grad) + 1e-5
                    self.assertLessEqual(error(mine.grad, other.grad), bound, where)

    def test_masks_are_named_where_they_can_be(self):
        causal, window = (
            masking_utils.causal_mask_function,
            masking_utils.sliding_window_causal_mask_function(4),
        )
        chunks = masking_utils.chunked_causal_mask_function(4, torch.zeros(1, dtype=torch.int64))
        ones = torch.ones(1, 8, dtype=torch.bool)
        hole = ones.clone()
        hole[0, 0] = False
        for options, is_named in (
            ({"mask_function": causal}, True),
            ({"mask_function": window, "local_size": 4}, True),
            ({"mask_function": window, "attention_mask": ones}, True),
            ({"mask_function": chunks}, False),
            ({"mask_function": causal, "attention_mask": hole}, False),
            ({"mask_function": causal, "allow_is_causal_skip": False}, False),
            ({"mask_function": causal, "q_offset": torch.tensor(6)}, False),
            ({"mask_function": causal, "q_offset": 3}, False),
            ({"mask_function": masking_utils.bidirectional_mask_function}, False),
            ({"mask_function": masking_utils.bidirectional_mask_function,
              "allow_is_bidirectional_skip": True}, True),
        ):  # fmt: skip
            with self.subTest(options=options):
                found = hf.make_mask(1, 2, 8, **{"q_offset": 6, **options})
                self.assertEqual(found is None, is_named)
                if not is_named:
                    self.assertEqual((found.shape, found.dtype), ((1, 1, 2, 8), torch.bool))

    def test_refusals(self):
        q = torch.randn(1, 2, 3, 16)
        layer = types.SimpleNamespace(is_causal=True)
        for options, kind, message in (
            (
                {"dropout": 0.1},
                ArgumentError,
                "expected attention_dropout 0 but got 0.1; set it to 0",
            ),
            (
                {"output_attentions": True},
                UnsupportedError,
                "expected output_attentions False but got True",
            ),
            ({"cache": object()}, UnsupportedError, "expected cu_seq_lens_q and cu_seq_lens_k with a paged cache"),
        ):
            with self.subTest(message=message), self.assertRaisesRegex(kind, message):
                hf.attend(layer, q, q, q, None, **options)
        bias = torch.randn(1, 1, 3, 3)
        twice = hf.attend(layer, q, q, q, bias, position_bias=bias)[0]
        torch.testing.assert_close(twice, hf.attend(layer, q, q, q, 2 * bias)[0])


if __name__ == "__main__":
    unittest.main()

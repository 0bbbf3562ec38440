# Continuous batching of transformers, generate_batch, with attn_implementation="flashattn": the tokens of
# generate() with eager attention, without masks, and with keys in pages for steps of decoding.
# REQUIRES: python-package, torch, transformers
# RUN: %flashattn_python %s

import logging
import types
import unittest
from unittest import mock

import torch
import transformers
from flashattn import UnsupportedError, hf
from transformers import masking_utils

logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
SMALL = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, vocab_size=211, max_position_embeddings=256,
    pad_token_id=0, bos_token_id=1, eos_token_id=None, attention_dropout=0.0,
)  # fmt: skip
WINDOW = {"sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"]}
MODELS = {
    "Llama": {},
    "Mistral": {"sliding_window": 9},
    "Gemma2": {**WINDOW, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 3.0},
    "GptOss": {**WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "eager"},
}


def make(name):
    torch.manual_seed(3)
    config = getattr(transformers, name + "Config")(**{**SMALL, **MODELS[name]})
    model = getattr(transformers, name + "ForCausalLM")(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(std=0.2)
    return model


def prompts():
    numbers = torch.Generator().manual_seed(7)
    return [torch.randint(3, 211, (n,), generator=numbers).tolist() for n in (5, 70, 1, 16, 17)]


@unittest.skipUnless(hasattr(transformers, "ContinuousBatchingConfig"), "no continuous batching")
class BatchingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        hf.register()
        hf.register()

    def alone(self, model):
        """The tokens of each prompt alone. "paged|eager" has no softcap, so it is no reference."""
        model.set_attn_implementation("eager")
        options = {"max_new_tokens": 24, "do_sample": False}
        return [model.generate(torch.tensor([one]), **options)[0, len(one) :].tolist() for one in prompts()]

    def generate(self, model, **options):
        """The tokens in one batch of at most 48 tokens, so a prompt comes in chunks."""
        model.set_attn_implementation("flashattn")
        batching = transformers.ContinuousBatchingConfig(
            page_size=16, num_blocks=64, max_batch_tokens=48, auto_switch_to_flash=False, **options
        )
        wanted = transformers.GenerationConfig(max_new_tokens=24, do_sample=False, eos_token_id=-1)
        with mock.patch.object(masking_utils, "sdpa_mask", side_effect=AssertionError("a mask")):
            found = model.generate_batch(
                prompts(), generation_config=wanted, continuous_batching_config=batching, progress_bar=False
            )
        self.assertEqual([one.error for one in found.values()], [None] * 5)
        tokens = {tuple(one.prompt_ids): one.generated_tokens for one in found.values()}
        return [tokens[tuple(one)] for one in prompts()]

    def test_tokens(self):
        for name in MODELS:
            with self.subTest(name):
                model = make(name)
                wanted = self.alone(model)
                self.assertEqual({len(row) for row in wanted}, {24})
                with mock.patch.object(hf, "attention", wraps=hf.attention) as calls:
                    self.assertEqual(self.generate(model), wanted)
                # Layers with sliding windows have no tables of pages.
                layouts = {call.kwargs["layout"] for call in calls.mock_calls}
                self.assertEqual(layouts, {"thd", "bshd"} if name == "Llama" else {"thd"})

    def test_pages(self):
        model = make("Llama")
        wanted = self.alone(model)
        for limit in (0, 8):
            with self.subTest(limit), mock.patch.object(hf, "attention", wraps=hf.attention) as calls:
                self.assertEqual(self.generate(model, max_blocks_per_request=limit), wanted)
                tables = [call.kwargs["page_table"] for call in calls.mock_calls if "page_table" in call.kwargs]
                self.assertEqual({table.shape[1] for table in tables}, {limit} if limit else set())

    def test_padding(self):
        """Sequences that are padding have no row and no key."""
        torch.manual_seed(2)
        pools = torch.full((2, 6, 16, 2, 16), torch.nan)
        rows = {"table": torch.tensor([[3, -1], [1, 4], [-1, -1], [-1, -1]], dtype=torch.int32)}
        lengths = torch.tensor([2, 17, 0, 0])
        pools[:, 3, :1], pools[:, 1] = torch.randn(2, 1, 2, 16), torch.randn(2, 16, 2, 16)

        class Cache:
            def update(self, key, value, layer_idx, kwargs):
                kwargs.update(cu_seq_lens_k=kwargs["cu_seq_lens_k"]["full_attention"], k_cache=pools[0],
                              v_cache=pools[1], block_table=kwargs["block_table"][0])  # fmt: skip
                return key, value

        q, k, v = (torch.randn(1, h, 3, 16) for h in (4, 2, 2))
        starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
        layer = types.SimpleNamespace(layer_idx=0, is_causal=True)
        o, _ = hf.attend(layer, q, k, v, None, cache=Cache(), cu_seq_lens_q=torch.arange(5, dtype=torch.int32),
                         cu_seq_lens_k={"full_attention": starts}, block_table=rows["table"][None])  # fmt: skip
        self.assertEqual(o.shape, (1, 3, 4, 16))
        for b, own in enumerate((pools[:, 3, :2], torch.cat([pools[:, 1], pools[:, 4, :1]], 1))):
            self.assertTrue(torch.equal(own[0, -1], k[0, :, b]) and torch.equal(own[1, -1], v[0, :, b]))
            keys, values = (x.transpose(0, 1).repeat_interleave(2, 0) for x in own)
            wanted = torch.nn.functional.scaled_dot_product_attention(q[0, :, b, None], keys, values)
            torch.testing.assert_close(o[0, b], wanted[:, 0], atol=1e-5, rtol=1e-5)
        self.assertEqual(o[0, 2].abs().max(), 0)

    def test_refusal(self):
        layer, x = types.SimpleNamespace(layer_idx=0, is_causal=True), torch.ones(1, 2, 3, 16)
        with self.assertRaisesRegex(UnsupportedError, "expected cu_seq_lens_q and cu_seq_lens_k with a paged cache"):
            hf.attend(layer, x, x, x, None, cache=object())


if __name__ == "__main__":
    unittest.main()

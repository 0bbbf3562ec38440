# Packed and padded batches of transformers with attn_implementation="flashattn": each sequence has the values and
# gradients that it has alone, no mask has a value for each pair, and the host waits equally often for any number
# of layers.
# REQUIRES: python-package, torch, transformers
# RUN: %flashattn_python %s

import contextlib
import copy
import importlib.util
import types
import unittest
from unittest import mock

import hf_test
import torch
import transformers
from flashattn import hf
from hf_test import MODELS, SMALL, error, pair
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import masking_utils

#: What makes the host wait for a device.
WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero")


class Waits(TorchDispatchMode):
    """Counts the calls for which the host would wait for a device."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.name().split(".")[0] in WAITS
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def watch():
    """Yields the list of the keywords of each attention. Forbids masks with a value for each pair."""
    calls = []

    def attention(*rows, **keywords):
        calls.append({name: x for name, x in keywords.items() if x is not None})
        return original(*rows, **keywords)

    original = hf.attention
    others = {name: x for name, x in vars(masking_utils).items() if name != "sdpa_mask"}
    with mock.patch.object(hf, "attention", attention), mock.patch.object(
        hf, "masking_utils", types.SimpleNamespace(**others)
    ):
        yield calls


def documents(*lengths):
    return [torch.randint(1, 211, (1, length)) for length in lengths]


def pack(parts):
    """The tokens of a row, and their positions."""
    places = [torch.arange(part.shape[1])[None] for part in parts]
    return torch.cat(parts, 1), torch.cat(places, 1)


def starts_of(parts):
    lengths = torch.tensor([0] + [part.shape[1] for part in parts])
    return lengths.cumsum(0).to(torch.int32)


class SequencesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)  # the models are small
        torch.manual_seed(7)
        hf.register()

    def test_positions(self):
        rows = [documents(14, 1, 11), documents(5, 21)]
        both = [torch.cat(x) for x in zip(*map(pack, rows))]
        for name in MODELS:
            model, exact = pair(name)
            for count in (1, 2):
                tokens, places = (x[:count] for x in both)
                parts = [part for row in rows[:count] for part in row]
                wanted = torch.cat([exact(part).logits for part in parts], 1).view(count, 26, -1)
                with self.subTest(model=name, rows=count), torch.no_grad(), watch() as calls:
                    found = model(tokens, position_ids=places, use_cache=False).logits
                    self.assertLessEqual(error(found, wanted), 1e-5)
                    for call in calls:
                        self.assertTrue(torch.equal(call["cu_seqlens_q"], starts_of(parts)))

    def test_positions_with_a_cache(self):
        """transformers tells no mask function of them."""
        parts = documents(14, 11)
        tokens, places = pack(parts)
        for name in ("Llama", "GptOss"):
            model, exact = pair(name)
            with self.subTest(model=name), torch.no_grad(), watch():
                wanted = torch.cat([exact(part).logits for part in parts], 1)
                self.assertLessEqual(error(model(tokens, position_ids=places).logits, wanted), 1e-5)
                # Positions that begin elsewhere are one sequence, and so are those of one image.
                other = {"position_ids": torch.arange(25)[None] + 3}
                self.assertLessEqual(
                    error(model(tokens, **other).logits, exact(tokens, **other).logits), 1e-5
                )
        with watch() as calls:
            model(tokens, position_ids=torch.tensor([[0, 1, 2, 2, 2, *range(3, 23)]]), use_cache=True)
        self.assertTrue(all("cu_seqlens_q" not in call for call in calls))

    def test_starts(self):
        """Without positions, so that transformers cannot tell the sequences apart."""
        parts = documents(14, 1, 11)
        tokens, places = pack(parts)
        starts = starts_of(parts)
        for name in MODELS:
            model, exact = pair(name)
            given = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 14, "max_length_k": 14}
            with self.subTest(model=name), torch.no_grad(), watch() as calls:
                wanted = torch.cat([exact(part).logits for part in parts], 1)
                found = model(tokens, position_ids=places, **given).logits
                self.assertLessEqual(error(found, wanted), 1e-5)
                self.assertTrue(all(call["cu_seqlens_q"] is starts for call in calls))
                ones = torch.ones_like(tokens)
                again = model(tokens, position_ids=places, attention_mask=ones, **given).logits
                self.assertTrue(torch.equal(found, again))

    def test_padding(self):
        tokens = torch.randint(1, 211, (3, 20))
        for name in MODELS:
            model, _ = pair(name)
            eager = copy.deepcopy(model)
            eager.set_attn_implementation("eager")
            for first, end in (((0, 7, 19), (20, 20, 20)), ((0, 0, 0), (20, 13, 1)), ((2, 0, 5), (11, 20, 18))):
                columns = torch.arange(20)
                seen = (columns >= torch.tensor(first)[:, None]) & (columns < torch.tensor(end)[:, None])
                places = (seen.cumsum(1) - 1).clamp(min=0)
                given = {"attention_mask": seen.long(), "position_ids": places}
                with self.subTest(model=name, first=first, end=end), torch.no_grad():
                    wanted = eager(tokens, **given).logits[seen]
                    for use_cache in (False, True):
                        with watch() as calls:
                            found = model(tokens, use_cache=use_cache, **given).logits[seen]
                        self.assertLessEqual(error(found, wanted.double()), 2e-5)
                        for call in calls:
                            self.assertEqual(call["q_len"].tolist(), seen.sum(1).tolist())
            with self.subTest(model=name, hole=True), torch.no_grad():
                seen = torch.ones_like(tokens)
                seen[1, 4:6] = 0
                found = model(tokens, attention_mask=seen).logits[seen.bool()]
                wanted = eager(tokens, attention_mask=seen).logits[seen.bool()]
                self.assertLessEqual(error(found, wanted.double()), 2e-5)

    def test_gradients(self):
        parts = documents(14, 1, 11)
        tokens, places = pack(parts)
        seen = torch.zeros(3, 14, dtype=torch.long)
        batch = torch.ones_like(seen)
        for row, part in enumerate(parts):
            seen[row, : part.shape[1]] = 1
            batch[row, : part.shape[1]] = part[0]
        for name in MODELS:
            model, exact = pair(name)
            d_logits = torch.randn(26, 211)
            apart = torch.cat([exact(part).logits[0] for part in parts])
            (apart * d_logits).sum().backward()
            for given in (
                {"input_ids": tokens, "position_ids": places, "use_cache": False},
                {"input_ids": tokens, "cu_seq_lens_q": starts_of(parts), "position_ids": places},
                {"input_ids": batch, "attention_mask": seen},
            ):
                with self.subTest(model=name, given=list(given)), watch():
                    model.zero_grad()
                    logits = model(**given).logits
                    rows = logits[0] if len(logits) == 1 else logits[seen.bool()]
                    (rows * d_logits).sum().backward()
                    for (where, mine), other in zip(model.named_parameters(), exact.parameters()):
                        if other.grad is not None and other.grad.norm():
                            self.assertLessEqual(error(mine.grad, other.grad), 5e-5, where)

    def test_generation(self):
        """Prompts of unequal lengths with a cache: each prompt has the tokens that it has alone."""
        prompts = documents(9, 14, 4)
        tokens = torch.zeros(3, 14, dtype=torch.long)
        seen = torch.zeros_like(tokens)
        for row, prompt in enumerate(prompts):
            tokens[row, -prompt.shape[1] :] = prompt[0]
            seen[row, -prompt.shape[1] :] = 1
        options = {"max_new_tokens": 12, "do_sample": False}
        for name in MODELS:
            model, _ = pair(name)
            with self.subTest(model=name), torch.no_grad():
                found = model.generate(tokens, attention_mask=seen, **options)[:, 14:]
                alone = [
                    model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[:, -12:]
                    for prompt in prompts
                ]
                self.assertTrue(torch.equal(found, torch.cat(alone)))

    def test_the_host_waits_once(self):
        parts = documents(14, 11)
        tokens, places = pack(parts)
        seen = torch.ones(2, 20, dtype=torch.long)
        seen[0, :7] = 0
        batch = torch.randint(1, 211, (2, 20))
        for given in (
            {"input_ids": tokens, "position_ids": places, "use_cache": False},
            {"input_ids": tokens, "position_ids": places},
            {"input_ids": tokens, "position_ids": places, "cu_seq_lens_q": starts_of(parts)},
            {"input_ids": batch, "attention_mask": seen},
            {"input_ids": batch},
        ):
            counts = []
            for layers in (2, 5):
                config = transformers.LlamaConfig(**{**SMALL, "num_hidden_layers": layers})
                model = transformers.LlamaForCausalLM(config).eval()
                model.set_attn_implementation("flashattn")
                fresh = {name: copy.copy(x) for name, x in given.items()}  # the last positions are known
                with torch.no_grad(), Waits() as waits:
                    model(**fresh)
                counts.append(waits.count)
            with self.subTest(given=list(given)):
                self.assertEqual(counts[0], counts[1])
                self.assertLessEqual(counts[0], 2)

    def test_encoders(self):
        torch.manual_seed(2)
        sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=211)
        model = transformers.BertModel(transformers.BertConfig(**sizes)).eval()
        exact = copy.deepcopy(model).double()
        exact.set_attn_implementation("eager")
        model.set_attn_implementation("flashattn")
        tokens = torch.randint(1, 211, (2, 20))
        for name, begin, end in (("right", 0, 13), ("left", 6, 20), ("none", 0, 20)):
            seen = torch.ones_like(tokens)
            seen[1, :begin] = seen[1, end:] = 0
            with self.subTest(padding=name):
                with watch() if name != "left" else contextlib.nullcontext([]) as calls:
                    found = model(tokens, attention_mask=seen).last_hidden_state[seen.bool()]
                wanted = exact(tokens, attention_mask=seen).last_hidden_state[seen.bool()]
                self.assertLessEqual(error(found.detach(), wanted.detach()), 1e-5)
                self.assertTrue(all(("kv_len" in call) == (name == "right") for call in calls))
                parameters = model.encoder.parameters(), exact.encoder.parameters()
                gradients = [torch.autograd.grad(x.square().sum(), p) for x, p in
                             zip((found, wanted), map(list, parameters))]  # fmt: skip
                for mine, other in zip(*gradients):
                    if other.norm() > 1e-3:  # those of the bias of keys are 0
                        self.assertLessEqual(error(mine, other), 1e-4)

    def test_cross_attention(self):
        """Padding of the encoder hides no queries of the decoder, even if there are as many."""
        torch.manual_seed(2)
        config = transformers.BartConfig(
            vocab_size=211, d_model=64, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=64,
        )  # fmt: skip
        model = transformers.BartModel(config).eval()
        tokens = torch.randint(4, 211, (2, 12))
        for columns in (slice(0, 5), slice(9, 12)):
            seen = torch.ones_like(tokens)
            seen[1, columns] = 0
            found = []
            for name in ("eager", "flashattn"):
                model.set_attn_implementation(name)
                with torch.no_grad():
                    found.append(model(tokens, attention_mask=seen, decoder_input_ids=tokens).last_hidden_state)
            torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)

    def test_models_without_flash_attention(self):
        """T5 adds the mask to a bias of positions, so it gets a value for each pair."""
        torch.manual_seed(2)
        config = transformers.T5Config(
            vocab_size=211, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, decoder_start_token_id=0
        )
        model = transformers.T5Model(config).eval()
        tokens = torch.randint(4, 211, (2, 12))
        seen = torch.ones_like(tokens)
        seen[1, 7:] = 0
        found = []
        for name in ("eager", "flashattn"):
            model.set_attn_implementation(name)
            with torch.no_grad():
                found.append(model(tokens, attention_mask=seen, decoder_input_ids=tokens).last_hidden_state)
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)

    def test_images(self):
        """Qwen2-VL gives the starts of the images to any implementation with "flash" in its name."""
        torch.manual_seed(2)
        config = transformers.models.qwen2_vl.configuration_qwen2_vl.Qwen2VLVisionConfig(
            depth=2, embed_dim=64, num_heads=4, hidden_size=64, mlp_ratio=2, patch_size=4
        )
        model = transformers.models.qwen2_vl.modeling_qwen2_vl.Qwen2VisionTransformerPretrainedModel(config).eval()
        sizes = torch.tensor([[1, 4, 6], [1, 2, 4], [2, 2, 2]])
        patches = torch.randn(int(sizes.prod(1).sum()), 3 * 2 * 4 * 4)
        found = []
        for name in ("eager", "flashattn"):
            model.set_attn_implementation(name)
            with torch.no_grad():
                found.append(model(patches, grid_thw=sizes).last_hidden_state)
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)

    def test_compiled(self):
        parts = documents(14, 11)
        tokens, places = pack(parts)
        starts = starts_of(parts)
        model, exact = pair("Mistral")
        with torch.no_grad():
            wanted = torch.cat([exact(part).logits for part in parts], 1)
            whole = torch.compile(model, backend="aot_eager", fullgraph=True)
            for given in ({}, {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts}):
                found = whole(tokens, position_ids=places, use_cache=False, **given).logits
                self.assertLessEqual(error(found, wanted), 1e-5)
            for layer in model.model.layers:
                layer.compile(backend="aot_eager", fullgraph=True)
            with watch():
                for given in ({}, {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts}):
                    found = model(tokens, position_ids=places, use_cache=False, **given).logits
                    self.assertLessEqual(error(found, wanted), 1e-5)

    def collated(self, batch, parts):
        model, exact = pair("Llama")
        with torch.no_grad(), watch() as calls:
            found = model(**batch, use_cache=False)
            wanted = torch.cat([exact(part).logits for part in parts], 1)
        self.assertLessEqual(error(found.logits[:, : wanted.shape[1]], wanted), 1e-5)
        self.assertTrue(all("cu_seqlens_q" in call for call in calls))
        self.assertTrue(torch.isfinite(found.loss))

    def test_transformers_collator(self):
        parts = documents(14, 11, 3)
        examples = [{"input_ids": part[0].tolist()} for part in parts]
        for returns in (False, True):
            collate = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=returns)
            self.collated(collate(examples), parts)

    @unittest.skipUnless(importlib.util.find_spec("trl"), "trl is not installed")
    def test_trl_collator(self):
        from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

        parts = documents(14, 11, 3)
        packed = {"input_ids": torch.cat(parts[:2], 1)[0].tolist(), "seq_lengths": [14, 11]}
        last = {"input_ids": parts[2][0].tolist(), "seq_lengths": [3]}
        for multiple in (None, 16):
            collate = DataCollatorForLanguageModeling(
                pad_token_id=0, padding_free=True, pad_to_multiple_of=multiple
            )
            self.collated(collate([packed, last]), parts)


if __name__ == "__main__":
    unittest.main()

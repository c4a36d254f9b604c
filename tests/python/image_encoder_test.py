"""`python -m kvcal.images --encoder-scales`: the scales beside what the layers of transformers' own towers take, computed from hooks on them.

IMAGES names the package as for images_test.py, whose checkpoints these are. reference/vllm_encoder_scales.py hands the files to vLLM.
"""

import importlib
import json
import math
import unittest

from images_test import FIXTURES, PACKAGE, Checkpoints, Folder, families, samples

DEEP = {"qwen2_5_vl": {"depth": 3, "fullatt_block_indexes": [1]}, "qwen3_vl": {"depth": 3}}  # the first: windows, whole images, windows


class CommandLine(Folder):
    def test_usage(self):
        making = ["model", "--dataset", "d", "-o", "x"]
        for words, message in (
            ([*making, "--encoder-margin", "2"], "--encoder-margin is for --encoder-scales"),
            ([*making, "--encoder-scales", "f", "--encoder-margin", "0"], "--encoder-margin: found 0.0, expected a number above 0"),
            ([*making, "--encoder-scales", "f", "--encoder-margin", "inf"], "--encoder-margin: found inf"),
            ([*making, "--encoder-scales", "f", "--encoder-margin", "two"], "invalid float value: 'two'"),
            (["--check", "x", "--encoder-scales", "f"], "--check makes no scales"),
        ):
            status, printed = self.run_it(*words)
            self.assertEqual(status, 2, printed)
            self.assertIn(message, printed)

    def test_families(self):
        self.assertEqual(set(families.ENCODERS), {"qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"})
        self.expect("config.json: found model_type 'llava', expected one whose vision encoder vLLM gives scales: Qwen2.5-VL, Qwen3-VL, Qwen3-VL-MoE, "
                    "Qwen3.5, Qwen3.5-MoE", families.encoder_of, "llava", "config.json")  # fmt: skip

    def test_file(self):
        file = self.folder / "scales.json"
        samples.write_json({"a": 1}, file)
        self.assertEqual(json.loads(file.read_text()), {"a": 1})
        self.assertEqual([path.name for path in self.folder.iterdir()], ["scales.json"])
        self.expect("scales.json: exists already", samples.write_json, {"a": 2}, file)


class Encoders(Checkpoints):
    def reference(self, model, data):
        """By layer the largest magnitudes of q, k and v, which the inputs of transformers' layers give."""
        torch, transformers = importlib.import_module("torch"), self.making.transformers
        tower = transformers.AutoModelForImageTextToText.from_pretrained(model, dtype=torch.float32).eval().model.visual
        processor = transformers.AutoProcessor.from_pretrained(model)
        largest = [[0.0] * 3 for _ in tower.blocks]

        def rotated(values, angles):
            cos, sin = (part.unsqueeze(-2) for part in angles)
            first, second = values.chunk(2, -1)
            return values * cos + torch.cat([-second, first], -1) * sin

        def look(layer):
            def see(attention, given, named):
                hidden = given[0] if given else named["hidden_states"]
                sides = (hidden @ attention.qkv.weight.T + attention.qkv.bias).unflatten(-1, (3, attention.num_heads, -1)).unbind(-3)
                turned = [*(rotated(side, named["position_embeddings"]) for side in sides[:2]), sides[2]]
                largest[layer] = [max(before, side.abs().max().item()) for before, side in zip(largest[layer], turned)]

            return see

        for layer, block in enumerate(tower.blocks):
            block.attn.register_forward_pre_hook(look(layer), with_kwargs=True)
        with torch.no_grad():
            for messages in self.making.RECORDS[:2]:  # the third has no picture
                inputs = self.making.processed(data.parent, processor, messages)
                tower(inputs["pixel_values"], grid_thw=inputs["image_grid_thw"])
        return largest

    def test_scales_are_of_what_attention_takes(self):
        names = [folder.name for folder in sorted(FIXTURES.iterdir())
                 if json.loads((folder / "config.json").read_text())["model_type"] in families.ENCODERS]  # fmt: skip
        self.assertEqual(len(names), len(families.ENCODERS))
        for name in names:
            with self.subTest(name):
                self.clear()
                model, data = self.checkpoint(name, **DEEP.get(name, {}))
                self.make(model, data, "samples", "--encoder-scales", self.folder / "scales.json")
                scales = json.loads((self.folder / "scales.json").read_text())
                expected = self.reference(model, data)
                self.assertEqual(list(scales), [f"visual.blocks.{layer}.attn.attn" for layer in range(len(expected))])
                for layer, largest in zip(scales.values(), expected):
                    self.assertEqual(list(layer), ["q", "k", "v"])
                    for value, most in zip(layer.values(), largest):
                        self.assertAlmostEqual(value / (most / 448), 1, delta=1e-5)

    def clear(self):
        for path in self.folder.iterdir():
            self.making.shutil.rmtree(path) if path.is_dir() else path.unlink()

    def test_margin_and_samples(self):
        model, data = self.checkpoint("qwen3_vl")
        first = self.make(model, data, "first")
        second = self.make(model, data, "second", "--encoder-scales", self.folder / "one.json")
        self.make(model, data, "third", "--encoder-scales", self.folder / "two.json", "--encoder-margin", "2")
        for file in first.iterdir():
            self.assertEqual(file.read_bytes(), (second / file.name).read_bytes(), file.name)
        one, two = (json.loads((self.folder / f"{name}.json").read_text()) for name in ("one", "two"))
        for layer, scales in one.items():
            for side, value in scales.items():
                self.assertAlmostEqual(two[layer][side] / value, 2, delta=1e-7)

    def test_refused(self):
        model, data = self.checkpoint("llava")
        message = "found model_type 'llava', expected one whose vision encoder vLLM gives scales"
        self.expect_failure(message, model, data, "--encoder-scales", self.folder / "x.json")
        kept = self.folder / "kept.json"
        kept.write_text("{}")
        self.expect_failure("kept.json: exists already", model, data, "--encoder-scales", kept)
        self.expect_failure("its folder does not exist", model, data, "--encoder-scales", self.folder / "none/x.json")
        self.assertEqual(kept.read_text(), "{}")

    def test_values(self):
        torch, encoder = importlib.import_module("torch"), importlib.import_module(f"{PACKAGE}.encoder")
        block = torch.nn.Module()
        block.attn = torch.nn.Module()
        model = torch.nn.Module()
        model.blocks = torch.nn.ModuleList([block])
        layers = families.EncoderLayers("blocks", "attn", "b.{}.attn")
        key = torch.tensor([[[[1.0, -7.0]]], [[[2.0, 3.0]]]])  # of two images
        for value, expected in ((0.0, 2.0**-23), (-448.0, 1.0)):
            seen = encoder.Encoder(layers)
            for image in key:
                seen.attention(block.attn, torch.zeros(1, 1, 1, 2), image[None], torch.full((1, 1, 1, 2), value), attention_mask=None, scaling=1.0)
            scales = seen.scales(model, 1.0)["b.0.attn"]
            self.assertEqual(scales, {"q": float(f"{2**-23:.9g}"), "k": 7 / 448, "v": float(f"{expected:.9g}")})
        self.expect("blocks.0: did not run", encoder.Encoder(layers).scales, model, 1.0)
        bad = torch.full((1, 1, 1, 2), math.nan)
        seen.attention(block.attn, bad, bad, bad, attention_mask=None)
        self.expect("blocks.0: Q, K or V is not finite", seen.scales, model, 1.0)


if __name__ == "__main__":
    unittest.main(verbosity=2)

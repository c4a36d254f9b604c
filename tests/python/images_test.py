"""`python -m kvcal.images`: data sets and files without a package; towers and fixtures where transformers is installed.

IMAGES names the package, `kvcal.images` or `images`, which PYTHONPATH finds.
"""

import base64
import contextlib
import hashlib
import importlib
import importlib.util
import io
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PACKAGE = os.environ["IMAGES"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures/images"
NEEDS = [name for name in ("torch", "transformers", "PIL", "torchvision", "av", "num2words") if importlib.util.find_spec(name) is None]
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC")
DATA_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()

errors, records, samples, command, families = (
    importlib.import_module(f"{PACKAGE}.{name}") for name in ("errors", "records", "samples", "__main__", "families"))  # fmt: skip


def image_part(url):
    return {"type": "image_url", "image_url": {"url": url}}


def chat(*parts):
    return {"messages": [{"role": "user", "content": list(parts)}]}


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def expect(self, message, function, *arguments):
        with self.assertRaises(errors.BadInput) as raised:
            function(*arguments)
        self.assertIn(message, str(raised.exception))

    def run_it(self, *words):
        """Status and what was printed."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            status = command.main([str(word) for word in words])
        return status, printed.getvalue()


class DataSets(Folder):
    def write(self, *lines):
        file = self.folder / "chats.jsonl"
        file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        (self.folder / "a.png").write_bytes(PNG)
        return file

    def read(self, *lines):
        return list(records.read_records(self.write(*lines), None))

    def test_messages(self):
        turns = [{"role": "system", "content": "Be brief."},
                 {"role": "user", "content": [{"type": "text", "text": "A"}, image_part("a.png"), image_part(DATA_URL)]},
                 {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]  # fmt: skip
        first, second = self.read({"messages": turns, "tools": [{"type": "function"}]}, "", chat(image_part(f"file://{self.folder}/a.png")))
        self.assertEqual(first.place, f"{self.folder}/chats.jsonl:1")
        self.assertEqual([turn["content"] for turn in first.messages],
                         [[{"type": "text", "text": "Be brief."}], [{"type": "text", "text": "A"}, {"type": "image"}, {"type": "image"}], []])  # fmt: skip
        self.assertEqual(first.messages[2]["tool_calls"], [{"id": "1"}])
        self.assertEqual(first.tools, [{"type": "function"}])
        self.assertEqual([picture.source for picture in first.pictures], [self.folder / "a.png", PNG])
        self.assertEqual(first.pictures[1].place, f"{first.place}: messages[1].content[2]")
        self.assertEqual((second.place, second.pictures[0].source), (f"{self.folder}/chats.jsonl:3", self.folder / "a.png"))

    def test_refused(self):
        place = f"{self.folder}/chats.jsonl:2"
        for line, message in (
            ("{", f"{place}: is no JSON"),
            ("[" * 100000, f"{place}: is no JSON"),
            ("[1]", f'{place}: found [1], expected an object with "messages"'),
            ({"text": "a"}, f'{place}: found null, expected "messages", a list of turns'),
            ({"messages": []}, f"{place}: found []"),
            ({"messages": ["hi"]}, f'{place}: messages[0]: found "hi"'),
            ({"messages": [{"role": "user", "content": 3}]}, f"{place}: messages[0].content: found 3, expected a string or a list of parts"),
            ({**chat({"type": "text", "text": "a"}), "tools": "x"}, f'{place}: tools: found "x", expected a list'),
            (chat("hi"), f'{place}: messages[0].content[0]: found "hi", expected a part of type "text", "image_url" or "video_url"'),
            (chat({"type": "text"}), 'expected {"type": "text", "text": …}'),
            (chat({"type": "image_url", "image_url": "a.png"}), 'expected {"type": "image_url", "image_url": {"url": …}}'),
            (chat({"type": "video_url", "video_url": "a.mp4"}), 'expected {"type": "video_url", "video_url": {"url": …}}'),
            (chat({"type": "video_url", "video_url": {"url": "a.mp4"}}), f"found no file '{self.folder}/a.mp4'"),
            (chat({"type": "video_url", "video_url": {"url": DATA_URL}}), "expected data:video/…;base64,…"),
            (chat({"type": "input_audio", "input_audio": {}}), "only text, pictures and videos are read, no sound"),
            (chat(image_part("https://example.com/a.png")), f"{place}: messages[0].content[0]: found the address https://example.com/a.png"),
            (chat(image_part("HTTP://example.com/a.png")), "nothing is fetched"),
            (chat(image_part("s3://bucket/a.png")), "nothing is fetched"),
            (chat(image_part("b.png")), f"found no file '{self.folder}/b.png'"),
            (chat(image_part("a.png\0")), "found no file"),
            (chat(image_part("file:///none.png")), "found no file '/none.png'"),
            (chat(image_part("data:text/plain;base64,AAAA")), "expected data:image/…;base64,…"),
            (chat(image_part("data:image/png,abc")), "expected data:image/…;base64,…"),
            (chat(image_part("data:image/png;base64,A*==")), "the data: URL is no base64"),
            (chat(image_part("data:image/png;base64,")), "the data: URL is empty"),
        ):
            with self.subTest(message):
                self.expect(message, self.read, chat({"type": "text", "text": "a"}), line)

    def test_folder_of_pictures(self):
        for name in ("b.PNG", "a.jpg", ".c.png", "notes.txt"):
            (self.folder / name).write_bytes(PNG)
        found = list(records.read_records(self.folder, "What is it?"))
        self.assertEqual([record.place for record in found], [f"{self.folder}/a.jpg", f"{self.folder}/b.PNG"])
        self.assertEqual(found[0].messages, [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}])
        self.expect("a folder of pictures needs --prompt TEXT", records.read_records, self.folder, None)
        empty = self.folder / "empty"
        empty.mkdir()
        self.expect("found no picture", lambda: list(records.read_records(empty, "A")))

    def test_other_sources(self):
        self.expect("found no such file", records.read_records, self.folder / "none", None)
        self.expect("expected a file of JSON lines", records.read_records, pathlib.Path(__file__), None)
        self.expect("--prompt is for a folder", records.read_records, self.write(chat({"type": "text", "text": "a"})), "A")


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def good_sample():
    """Six tokens, of which 1, 2 and 4 are of images; 900 is the id of an image's token, outside the vocabulary."""
    whole = samples.int_tensor
    return {"input_ids": whole([5, 900, 900, 6, 900, 7]), "embedded_positions": whole([1, 2, 4]), "image_groups": whole([0, 1, 1, 0, 2, 0]),
            "embeddings": samples.Tensor("F32", (3, 2), floats(1, 2, 3, 4, 5, 6)), "injected.1": samples.Tensor("BF16", (3, 2), bytes(12)),
            "position_ids": whole([0, 1, 1, 3, 4, 5] * 3, 3), "per_layer_ids": whole([5, 0, 0, 6, 0, 7])}  # fmt: skip


MODEL = {"model_type": "qwen3_vl", "config_sha256": "0" * 64, "hidden_size": 2, "num_hidden_layers": 4, "vocab_size": 8, "bidirectional_layers": [0, 2]}


class FileForm(Folder):
    def write(self, tensors=None, model=None):
        output = self.folder / "samples"
        shutil.rmtree(output, ignore_errors=True)
        with samples.Writer(output) as writer:
            writer.add(tensors or good_sample(), 2)
            writer.finish(model or MODEL, {"transformers": "5.24.0"})
        return output

    def test_good(self):
        output = self.write()
        index = samples.check_samples(output)
        self.assertEqual(index["kvcal_samples"], 1)
        content = (output / "00000.safetensors").read_bytes()
        self.assertEqual(index["samples"], [{"file": "00000.safetensors", "sha256": hashlib.sha256(content).hexdigest(), "tokens": 6, "embedded": 3,
                                             "images": 2}])  # fmt: skip
        self.assertEqual(samples.read_tensors(content, "x"), good_sample())
        size = struct.unpack("<Q", content[:8])[0]
        self.assertEqual((8 + size) % 8, 0)
        for entry in json.loads(content[8 : 8 + size]).values():
            self.assertEqual(entry["data_offsets"][0] % samples.DTYPES[entry["dtype"]][0], 0)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["samples"])
        self.assertEqual(self.run_it("--check", output), (0, f"{output}: 1 samples of qwen3_vl\n"))

    def test_text_alone(self):
        whole = samples.int_tensor
        text = {"input_ids": whole([1, 2]), "embedded_positions": whole([]), "image_groups": whole([0, 0]), "embeddings": samples.Tensor("F32", (0, 2), b"")}
        self.assertEqual(samples.check_samples(self.write(text))["samples"][0]["embedded"], 0)

    def test_tensors(self):
        whole, rows = samples.int_tensor, samples.Tensor("F32", (3, 2), bytes(24))
        for name, tensor, message in (
            ("image_groups", None, "image_groups is missing"),
            ("embeddings", None, "embeddings is missing"),
            ("more", whole([1]), "found the tensor 'more', which this form does not have"),
            ("injected.01", rows, "found the tensor 'injected.01'"),
            ("injected.4", rows, "injected.4: the model has 4 layers"),
            ("embeddings", samples.Tensor("F32", (2, 3), bytes(24)), "embeddings: found the shape [2, 3], expected [3, 2]"),
            ("embeddings", samples.Tensor("I32", (3, 2), bytes(24)), "embeddings: found dtype I32, expected BF16 or F32"),
            ("embeddings", samples.Tensor("F32", (3, 2), floats(1, 2, 3, float("inf"), 5, 6)), "embeddings: found a value that is not finite"),
            ("injected.1", samples.Tensor("BF16", (3, 2), bytes(10) + b"\xc0\x7f"), "injected.1: found a value that is not finite"),
            ("position_ids", whole([0, 1, 2, 3, 4, 5]), "position_ids: found the shape [6], expected [3, 6]"),
            ("position_ids", whole([0, 1, -1, 3, 4, 5] * 3, 3), "position_ids: found a negative number"),
            ("per_layer_ids", whole([0, 1, -1, 3, 4, 5]), "per_layer_ids: found a negative number"),
            ("embedded_positions", whole([2, 1, 4]), "embedded_positions: expected rising numbers"),
            ("embedded_positions", whole([1, 2, 6]), "embedded_positions: expected 0 to 5"),
            ("embedded_positions", whole([-1, 2, 4]), "embedded_positions: expected 0 to 5"),
            ("image_groups", whole([0, 1, 2, 0, 3, 0]), "image_groups: expected the number of its run"),
            ("input_ids", whole([5, 900, 900, 8, 900, 7]), "input_ids: found 8 at 3, expected 0 to 7"),
        ):
            with self.subTest(message):
                changed = {**good_sample(), name: tensor}
                self.expect(message, self.write, {key: value for key, value in changed.items() if value is not None})
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_index(self):
        output = self.write()
        good = json.loads((output / "index.json").read_text())
        entry = good["samples"][0]
        for change, message in (
            ({"kvcal_samples": 2}, "kvcal_samples: found version 2, expected 1"),
            ({"kvcal_samples": True}, "found version True"),
            ({"model": 1}, "model: expected an object"),
            ({"model": {**MODEL, "hidden_size": 0}}, "model.hidden_size: expected a whole number from 1"),
            ({"model": {**MODEL, "model_type": 1}}, "model.model_type: expected a string"),
            ({"model": {**MODEL, "config_sha256": "0"}}, "model.config_sha256: expected 64 digits of hex"),
            ({"model": {**MODEL, "bidirectional_layers": [2, 0]}}, "model.bidirectional_layers: expected layers below 4"),
            ({"model": {**MODEL, "bidirectional_layers": [4]}}, "model.bidirectional_layers: expected layers below 4"),
            ({"samples": []}, "samples: expected a list of one or more"),
            ({"samples": [{**entry, "file": "../a.safetensors"}]}, "samples[0]: file: expected a name such as"),
            ({"samples": [{**entry, "tokens": 7}]}, "image_groups: found the shape [6], expected [7]"),
            ({"samples": [{**entry, "images": -1}]}, "samples[0]: images: expected a whole number from 0"),
            ({"samples": [{**entry, "sha256": "0" * 64}]}, "its sha256 is not the one in index.json"),
            ({"samples": [{**entry, "file": "00001.safetensors"}]}, "00001.safetensors: cannot be read"),
            ({"samples": [entry, entry]}, "samples: a file is named twice"),
        ):
            with self.subTest(message):
                (output / "index.json").write_text(json.dumps({**good, **change}))
                self.expect(message, samples.check_samples, output)
        for text, message in (("{", "is no JSON"), ("{}", "this is no folder of samples"), ("[1]", "this is no folder of samples")):
            (output / "index.json").write_text(text)
            self.expect(message, samples.check_samples, output)
        self.expect("index.json: cannot be read", samples.check_samples, self.folder)

    def test_safetensors(self):
        good = samples.safetensors_bytes(good_sample())
        size = struct.unpack("<Q", good[:8])[0]
        for content, message in (
            (b"short", "is no safetensors file"),
            (struct.pack("<Q", 1 << 40), "is no safetensors file"),
            (good[:8] + b"{" * size, "is no safetensors file"),
            (good + b"\0", f"found {len(good) + 1} bytes, expected {len(good)}"),
            (good.replace(b'"I32"', b'"I16"', 1), "found dtype I16"),
            (good.replace(b"[6]", b"[5]", 1), "found 24 bytes, expected 20"),
            (good.replace(b"[6]", b"-66", 1), "is no safetensors file"),
        ):
            with self.subTest(message):
                self.expect(message, samples.read_tensors, content, "x")

    def test_output_exists(self):
        output = self.write()
        self.expect("exists already", samples.Writer, output)
        self.expect("its folder does not exist", samples.Writer, self.folder / "none" / "samples")


class Fixtures(unittest.TestCase):
    """The files that the decoder's tests read."""

    def test_each_has_the_form(self):
        folders = sorted(FIXTURES.iterdir())
        types = {samples.check_samples(folder / "samples")["model"]["model_type"] for folder in folders}
        self.assertEqual(types, set(families.FAMILIES))
        for folder in folders:
            with self.subTest(folder.name):
                index = samples.check_samples(folder / "samples")
                self.assertEqual(hashlib.sha256((folder / "config.json").read_bytes()).hexdigest(), index["model"]["config_sha256"])
                expected = json.loads((folder / "expected.json").read_text())
                self.assertEqual([entry["images"] for entry in index["samples"]], [2, 1, 0])
                self.assertEqual([len(layers) for layers in expected["samples"]], [index["model"]["num_hidden_layers"]] * 3)
                self.assertLess(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()), 300_000)


class CommandLine(Folder):
    def test_usage(self):
        for words, message in (
            (["model"], "--dataset and --output missing"),
            ([], "MODEL and --dataset and --output missing"),
            (["model", "--check", "x"], "--check takes no other folder"),
            (["model", "--dataset", "d", "-o", "x", "--num-samples", "0"], "--num-samples: found 0, expected 1 or more"),
            (["model", "--dataset", "d", "-o", "x", "--dtype", "float16"], "invalid choice"),
        ):
            status, printed = self.run_it(*words)
            self.assertEqual(status, 2, printed)
            self.assertIn(message, printed)

    def test_data_set_is_read_first(self):
        data = self.folder / "d.jsonl"
        data.write_text("\n")
        self.assertEqual(self.run_it("none", "--dataset", data, "-o", self.folder / "x"), (1, f"error: {data}: found no record\n"))
        data.write_text(json.dumps(chat({"type": "text", "text": "a"})))
        self.assertIn("found no picture and no video in 1 records", self.run_it("none", "--dataset", data, "-o", self.folder / "x")[1])
        data.write_text(json.dumps(chat(image_part("http://localhost/a.png"))))
        status, printed = self.run_it("none", "--dataset", data, "-o", self.folder / "x")
        self.assertEqual((status, printed.startswith(f"error: {data}:1: messages[0].content[0]: found the address http://localhost/a.png")), (1, True))

    def test_without_packages(self):
        data = self.folder / "d.jsonl"
        data.write_text(json.dumps(chat(image_part(DATA_URL))))
        words = [sys.executable, "-B", "-S", "-m", PACKAGE, str(self.folder), "--dataset", str(data), "-o", str(self.folder / "x")]
        done = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("kvcal.images needs torch, torchvision, transformers and pillow (pip install 'kvcal[images]')", done.stderr)

    def test_other_families(self):
        self.expect("found model_type 'mllama', expected a family whose vision tower is run: Gemma 3, Gemma 4, Idefics 3, InternVL, Llama 4, LLaVA, "
                    "LLaVA-OneVision, Mistral 3, Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3-VL-MoE, Qwen3.5, Qwen3.5-MoE, SmolVLM",
                    families.decoder_of, "mllama", "config.json")  # fmt: skip


@unittest.skipIf(NEEDS, f"{', '.join(NEEDS)} not installed: towers and the making of fixtures are not tested")
class Checkpoints(Folder):
    @classmethod
    def setUpClass(cls):
        os.environ["HF_HUB_OFFLINE"] = "1"
        sys.path.insert(0, str(ROOT / "reference"))
        cls.making = importlib.import_module("image_fixtures")

    def checkpoint(self, name, **vision):
        """The checkpoint whose decoder a fixture is, with processor and data set: folder and data set. vision: keys of its vision_config."""
        seed = json.loads((FIXTURES / name / "expected.json").read_text())["seed"]
        row, config = self.making.FIXTURES[name], self.making.config_of(name)
        config["vision_config"].update(vision)
        disk = self.making.attempt(config, row.options, seed)[3]
        folder = self.folder / "model"
        folder.mkdir()
        self.making.checkpoint(folder, row, config, disk)
        return folder, self.making.write_dataset(self.folder, self.making.records_of(row))

    def make(self, model, data, output="samples", *more):
        status, printed = self.run_it(model, "--dataset", data, "-o", self.folder / output, *more)
        self.assertEqual(status, 0, printed)
        return self.folder / output

    def expect_failure(self, message, model, data, *more):
        status, printed = self.run_it(model, "--dataset", data, "-o", self.folder / "x", *more)
        self.assertEqual(status, 1, printed)
        self.assertIn(message, printed)
        self.assertEqual([path.name for path in self.folder.iterdir() if "x" in path.name], [])


class Towers(Checkpoints):
    def rewrite(self, model, keep):
        """The checkpoint with the tensors alone whose name keep accepts."""
        files = importlib.import_module("safetensors.torch")
        tensors = files.load_file(model / "model.safetensors")
        kept = {name: tensor for name, tensor in tensors.items() if keep(name)}
        self.assertTrue(0 < len(kept) < len(tensors))
        files.save_file(kept, model / "model.safetensors", metadata={"format": "pt"})

    def same_floats(self, ours, theirs):
        torch = importlib.import_module("torch")
        for name in ours.keys() | theirs.keys():
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-4, msg=name)

    def test_fixtures_are_made_again(self):
        load = importlib.import_module("safetensors.torch").load_file
        for name in self.making.FIXTURES:
            with self.subTest(name), contextlib.redirect_stdout(io.StringIO()):
                self.making.make(self.folder, name, json.loads((FIXTURES / name / "expected.json").read_text())["seed"])
                for file in sorted((FIXTURES / name).rglob("*.safetensors")):
                    self.same_floats(load(file), load(self.folder / name / file.relative_to(FIXTURES / name)))
                self.assertEqual((self.folder / name / "config.json").read_bytes(), (FIXTURES / name / "config.json").read_bytes())

    def test_same_bytes(self):
        model, data = self.checkpoint("qwen3_vl")
        first, second = self.make(model, data, "a"), self.make(model, data, "b")
        for file in first.iterdir():
            self.assertEqual(file.read_bytes(), (second / file.name).read_bytes(), file.name)

    def test_decoder_is_not_read(self):
        for name in ("llama4", "smolvlm"):
            with self.subTest(name):
                model, data = self.checkpoint(name)
                whole = self.make(model, data, "whole")
                self.rewrite(model, lambda name: self.making.re.search(self.making.OUTSIDE, name))
                part = self.make(model, data, "part")
                self.assertEqual((whole / "index.json").read_bytes(), (part / "index.json").read_bytes())
                for folder in (model, whole, part):
                    shutil.rmtree(folder)

    def test_tower_must_be_whole(self):
        model, data = self.checkpoint("internvl")
        self.rewrite(model, lambda name: "multi_modal_projector.linear_2.weight" not in name)
        self.expect_failure("the vision tower's tensor model.multi_modal_projector.linear_2.weight is missing", model, data)

    def test_bfloat16(self):
        for name in ("gemma3", "llama4", "qwen2_5_vl"):
            with self.subTest(name):
                model, data = self.checkpoint(name)
                output = self.make(model, data, "samples", "--dtype", "bfloat16")
                tensors = samples.read_tensors((output / "00000.safetensors").read_bytes(), "x")
                self.assertEqual(tensors["embeddings"].dtype, "BF16")
                shutil.rmtree(model)
                shutil.rmtree(output)

    def test_folder_and_number(self):
        model, _ = self.checkpoint("llava")
        output = self.make(model, self.folder, "samples", "--prompt", "what is it?", "--num-samples", "1")
        (entry,) = samples.check_samples(output)["samples"]
        self.assertEqual((entry["images"], entry["embedded"]), (1, 16))

    def test_video_in_memory(self):
        model, data = self.checkpoint("qwen2_5_vl_video")
        from_files = self.make(model, data)
        clip = base64.b64encode((self.folder / "clip.mp4").read_bytes()).decode()
        data.write_text(data.read_text().replace("clip.mp4", "data:video/mp4;base64," + clip))
        (self.folder / "clip.mp4").unlink()
        for file in self.make(model, data, "others").iterdir():
            self.assertEqual(file.read_bytes(), (from_files / file.name).read_bytes())

    def test_videos_that_fail(self):
        model, data = self.checkpoint("qwen2_5_vl_video")
        (self.folder / "clip.mp4").write_bytes(b"none")
        self.expect_failure("data.jsonl:1: the processor fails", model, data)
        shutil.rmtree(model)
        model, data = self.checkpoint("mistral3")
        self.making.write_dataset(self.folder, self.making.VIDEO_RECORDS)
        self.expect_failure("data.jsonl:1: messages[0].content[3]: found a video, and the processor of mistral3 takes pictures alone", model, data)

    def test_values_that_are_not_finite(self):
        files = importlib.import_module("safetensors.torch")
        model, data = self.checkpoint("llava")
        for value, message in ((float("nan"), "found 32 tokens of images and videos, of which 0 get rows without NaN"), (float("inf"), "")):
            tensors = files.load_file(model / "model.safetensors")
            (name,) = [name for name in tensors if name.endswith("multi_modal_projector.linear_2.bias")]
            tensors[name][0] = value
            files.save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
            self.expect_failure(message or "the vision tower gives values that are not finite", model, data)

    def test_arguments_that_samples_do_not_hold(self):
        torch, capture = importlib.import_module("torch"), importlib.import_module(f"{PACKAGE}.capture")
        config = self.making.transformers.LlavaConfig(image_token_index=9)
        rows = torch.full((1, 3, 2), torch.nan)
        rows[0, 1] = 1.0
        good = {"inputs_embeds": rows, "attention_mask": torch.ones(1, 3), "use_cache": None, "logits_to_keep": 0}
        self.assertEqual(set(capture.sample_of([5, 9, 6], good, config, "x")), {"input_ids", "embedded_positions", "embeddings", "image_groups"})
        for change, message in (
            ({"cross_attention_states": rows}, "x: transformers hands the decoder ['cross_attention_states'], which samples do not hold"),
            ({"input_ids": torch.ones(1, 3)}, "x: transformers hands the decoder input_ids"),
            ({"position_ids": torch.tensor([[1, 2, 3]])}, "x: found positions of the shape [1, 3], expected 3 axes, or 0 to 2"),
            ({"deepstack_visual_embeds": [rows[0, :1]], "visual_pos_masks": torch.tensor([[True, False, False]])}, "x: found rows for other tokens"),
            ({"inputs_embeds": torch.ones(1, 3, 2)}, "x: found 1 tokens of images and videos, of which 3 get rows"),
        ):
            self.expect(message, capture.sample_of, [5, 9, 6], {**good, **change}, config, "x")

    def test_masks(self):
        torch, capture = importlib.import_module("torch"), importlib.import_module(f"{PACKAGE}.capture")
        config = self.making.transformers.Gemma3TextConfig(sliding_window=2, layer_types=["sliding_attention", "full_attention"], num_hidden_layers=2)
        groups, causal = [0, 1, 1, 1], torch.ones(4, 4, dtype=torch.bool).tril()
        both = causal.clone()
        both[1:, 1:] = True
        masks = capture.MaskedLayers(config)
        masks.see({"full_attention": causal[None, None], "sliding_attention": (both & ~causal.tril(-2))[None, None]}, groups, "x")
        masks.see(torch.ones(1, 4), groups, "x")
        self.assertEqual(masks.layers(), [0])
        self.expect("x: found a mask of full_attention layers", masks.see, {"full_attention": both[None, None]}, groups, "x")
        self.expect("x: found a mask of sliding_attention layers", masks.see, {"sliding_attention": causal[None, None]}, groups, "x")
        self.expect("x: found a mask of the shape [1, 4]", masks.see, torch.zeros(1, 4), groups, "x")

    def test_errors(self):
        model, data = self.checkpoint("llava")
        (self.folder / "bad.png").write_bytes(PNG[:40])
        data.write_text(json.dumps(chat(image_part("bad.png"))))
        self.expect_failure(f"{data}:1: messages[0].content[0]: the picture cannot be read", model, data)
        data.write_text(json.dumps(chat({"type": "text", "text": "<image>"}, image_part(DATA_URL))))
        self.expect_failure(f"{data}:1: the processor fails", model, data)
        config = json.loads((model / "config.json").read_text())
        for change, message in (({"quantization_config": {}}, "found quantization_config"), ({"model_type": "mllama"}, "found model_type 'mllama'")):
            (model / "config.json").write_text(json.dumps({**config, **change}))
            self.expect_failure(message, model, data)
        (model / "config.json").write_text("[]")
        self.expect_failure("config.json: is no JSON object", model, data)
        self.expect_failure("found no config.json, expected the folder of a checkpoint", self.folder, data)


if __name__ == "__main__":
    unittest.main(verbosity=2)

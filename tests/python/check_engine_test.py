"""`python -m kvcal.check_engine` without an engine: a package `transformers` of this file stands for one, beside a `torch` that has what is imported.

CHECK_ENGINE names the package, `kvcal.check_engine` or `check_engine`, which PYTHONPATH finds. Python runs without site-packages, so that no
installed engine answers.
"""

import importlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PACKAGE = os.environ["CHECK_ENGINE"]
TORCH = {
    "torch/__init__.py": "class Tensor: ...\nclass Size: ...\nint64 = bool = object()\nclass UntypedStorage:\n    from_file = None\n",
    "torch/utils/__init__.py": "",
    "torch/utils/_python_dispatch.py": """
class TorchDispatchMode:
    def __enter__(self):
        return self
    def __exit__(self, *_):
        return None
""",
    "torch/utils/_pytree.py": "tree_flatten = tree_map = None\n",
}
# What it does of a checkpoint is said by "does" of its config.json.
ENGINE = """
import json, logging, os, struct, types
__version__ = "9.9"

class Scale:
    def __init__(self, values):
        self.values = values
    def detach(self):
        return self
    float = flatten = detach
    def tolist(self):
        return self.values

class Attention:
    pass

class Config:
    def get_text_config(self):
        return self

class AutoConfig:
    from_pretrained = staticmethod(lambda folder: Config())

class AutoModelForImageTextToText:
    _model_mapping = ()

def scales(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        entries = json.loads(file.read(size))
        data = file.read()
    assert not any(data[slice(*entries["model.embed_tokens.weight"]["data_offsets"])]), "weights have no bytes"
    return {name: [x[0] for x in struct.iter_unpack("<f", data[slice(*entry["data_offsets"])])]
            for name, entry in entries.items() if name.endswith("_scale")}

class Model:
    config = Config()
    def __init__(self, modules):
        self.modules = modules
    def named_modules(self):
        return self.modules.items()

class AutoModelForCausalLM:
    @staticmethod
    def from_pretrained(folder, output_loading_info):
        print("noise of the engine")
        with open(os.path.join(folder, "config.json")) as file:
            config = json.load(file)
        does, found, modules, dropped = config["does"], scales(folder), {}, []
        if "warns" in does:
            logging.getLogger("transformers").warning(does["warns"], folder)
        if "refuses" in does or ("refuses_scales" in does and found):
            raise ValueError(folder + ": " + does.get("refuses", does.get("refuses_scales")))
        if "needs" in does:
            raise RuntimeError(does["needs"] + " was called, which is not here")
        for name, values in found.items():
            place, side = name.rsplit(".", 1)
            if int(place.split(".")[2]) in does.get("drops", []):
                dropped.append(name)
                continue
            module = modules.setdefault(place, Attention())
            setattr(module, side, Scale([x * does.get("times", 1) for x in values]))
            if does.get("quantizes", True) and "quantization_config" in config:
                arguments = types.SimpleNamespace(type=does.get("type", "float"), num_bits=8)
                module.quantization_scheme = types.SimpleNamespace(input_activations=arguments)
        return Model(modules), {"missing_keys": [], "unexpected_keys": dropped}
"""
VALUES = {(layer, side): (layer + 1) / number for layer in range(3) for side, number in (("k", 32), ("v", 64))}


def write_files(folder, files):
    for name, text in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)


def write_tensors(path, tensors):
    """tensors: {name: numbers}, of float32"""
    data, header = b"", {"__metadata__": {"format": "pt"}}
    for name, values in tensors.items():
        added = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(added)]}
        data += added
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_tensor(path, name):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        entry = json.loads(file.read(size))[name]
        file.seek(8 + size + entry["data_offsets"][0])
        return file.read(entry["data_offsets"][1] - entry["data_offsets"][0])


class CheckEngine(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.engines = os.path.join(self.folder, "engines")
        write_files(self.engines, {**TORCH, "transformers/__init__.py": ENGINE})

    def checkpoint(self, scales=None, layers=3, **does):
        """The folder of a checkpoint, whose engine does what is said."""
        folder = os.path.join(self.folder, "model")
        config = {"model_type": "llama", "num_hidden_layers": layers, "does": does,
                  "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": {"num_bits": 8}}}
        write_files(folder, {"config.json": json.dumps(config)})
        if scales is None:
            scales = {f"model.layers.{layer}.self_attn.{side}_scale": [value] for (layer, side), value in VALUES.items()}
        write_tensors(os.path.join(folder, "model.safetensors"), {"model.embed_tokens.weight": [1.5] * 100000, **scales})
        return folder

    def run_it(self, *words, engines=None):
        """Its status, stdout and stderr."""
        paths = [self.engines if engines is None else engines, *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run([sys.executable, "-B", "-S", "-m", PACKAGE, *words], capture_output=True, text=True, cwd=self.folder,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
        return done.returncode, done.stdout, done.stderr

    def answer(self, *words, **more):
        """The status and the line of the verdict, and the lines behind it."""
        status, out, err = self.run_it("transformers", *words, **more)
        self.assertEqual(err, "")
        self.assertNotIn("\x1b", out)
        lines = out.splitlines()
        prefix = "transformers 9.9 (installed): "
        self.assertEqual(lines[0][: len(prefix)], prefix)
        return status, lines[0][len(prefix) :], lines[1:]

    def test_loaded(self):
        self.assertEqual(self.answer(self.checkpoint()), (0, "loaded: K and V scales of 3 layers, cache fp8", []))
        self.assertEqual(self.answer(self.checkpoint(type="int")), (0, "loaded: K and V scales of 3 layers, cache int8", []))

    def test_scales_of_heads(self):
        scales = {f"model.layers.0.self_attn.{side}_scale": [0.5, 0.25] for side in "kv"}
        self.assertEqual(self.answer(self.checkpoint(scales)), (0, "loaded: K and V scales of 1 layer, cache fp8", []))

    def test_rounded(self):
        self.assertEqual(self.answer(self.checkpoint(times=1.001)), (0, "loaded: K and V scales of 3 layers, rounded by 0.1 % at most, cache fp8", []))

    def test_lost_in_a_layer(self):
        found = self.answer(self.checkpoint(drops=[1]))
        self.assertEqual(found, (1, "lost: scales of layer 1, of 3 layers with scales, cache fp8", [
            "  layer 1: K none, V none; stored: K 0.0625, V 0.03125",
            "  dropped: model.layers.1.self_attn.k_scale and 1 more scale"]))

    def test_other_numbers_are_lost(self):
        status, line, differences = self.answer(self.checkpoint(times=2))
        self.assertEqual((status, line), (1, "lost: scales of layers 0-2, of 3 layers with scales, cache fp8"))
        self.assertEqual(differences[0], "  layer 0: K 0.0625, V 0.03125; stored: K 0.03125, V 0.015625")

    def test_three_layers_are_told_and_all_with_verbose(self):
        scales = {f"model.layers.{layer}.self_attn.{side}_scale": [0.5] for layer in range(5) for side in "kv"}
        model = self.checkpoint(scales, layers=5, times=2)
        _, _, lines = self.answer(model)
        self.assertEqual([line[:9] for line in lines[:3]], ["  layer 0", "  layer 1", "  layer 2"])
        self.assertEqual(lines[3:], ["  and 2 more layers (--verbose lists them)"])
        _, out, _ = self.run_it("transformers", model, "-v")
        self.assertEqual([line[:9] for line in out.splitlines()[1:6]], [f"  layer {layer}" for layer in range(5)])
        self.assertEqual(out.splitlines()[-1], "  stood in: the CPU for a GPU")

    def test_cache_of_16_bits(self):
        self.assertEqual(self.answer(self.checkpoint(quantizes=False)), (1, "not used: K and V stay in 16 bits, cache auto", []))

    def test_refused(self):
        line = 1 + ENGINE[: ENGINE.index("raise ValueError")].count("\n")
        found = self.answer(self.checkpoint(refuses_scales="no place for k_scale"))
        self.assertEqual(found, (1, f"refused: ValueError: MODEL: no place for k_scale (__init__.py:{line})", []))

    def test_a_model_that_is_refused_without_scales(self):
        status, line, _ = self.answer(self.checkpoint(refuses="no such model"))
        self.assertEqual(status, 1)
        self.assertIn("refused: ValueError: MODEL: no such model", line)
        self.assertIn("; without the scales it does not start here either", line)

    def test_what_a_cpu_lacks_is_no_refusal(self):
        status, line, _ = self.answer(self.checkpoint(needs="flashinfer.attend"))
        self.assertEqual(status, 1)
        self.assertIn("not known: RuntimeError: flashinfer.attend was called, which is not here", line)

    def test_no_scales(self):
        self.assertEqual(self.answer(self.checkpoint({})), (1, "no scales: the checkpoint has no K and V scales, cache auto", []))

    def test_scales_of_drafts_and_towers_are_not_asked(self):
        names = ["model.layers.3.self_attn.{}_scale", "mtp.layers.0.self_attn.{}_scale", "vision_tower.layers.1.self_attn.{}_scale",
                 "model.layers.0.self_attn.{}_scale"]
        scales = {name.format(side): [0.5 / (i + 1)] for i, name in enumerate(names) for side in "kv"}
        status, line, _ = self.answer(self.checkpoint(scales))
        self.assertEqual((status, line), (0, "loaded: K and V scales of 1 layer, cache fp8"))

    def test_warnings(self):
        self.assertEqual(self.answer(self.checkpoint(warns="odd scales in %s"))[2], ["  its warning: odd scales in MODEL"])

    def test_json(self):
        status, out, err = self.run_it("transformers", self.checkpoint(drops=[2]), "--json")
        self.assertEqual((status, err), (1, ""))
        found = json.loads(out)
        rows = found.pop("layers")
        self.assertEqual(found, {"engine": "transformers", "version": "9.9", "answer": "partly", "loads": True, "cache_dtype": "fp8", "why": None,
                                 "dropped": ["model.layers.2.self_attn.k_scale", "model.layers.2.self_attn.v_scale"], "warnings": [],
                                 "stood_in": ["the CPU for a GPU"]})
        self.assertEqual(rows[1], {"layer": 1, "k_scale": 0.0625, "v_scale": 0.03125, "k_stored": 0.0625, "v_stored": 0.03125})
        self.assertEqual(rows[2], {"layer": 2, "k_scale": None, "v_scale": None, "k_stored": 0.09375, "v_stored": 0.046875})

    def test_verbose_shows_what_the_engine_prints(self):
        status, out, err = self.run_it("transformers", self.checkpoint(), "--verbose")
        self.assertEqual((status, out.splitlines()[0]), (0, "transformers 9.9 (installed): loaded: K and V scales of 3 layers, cache fp8"))
        self.assertIn("noise of the engine", err)

    def expect_error(self, found, text, status=1):
        """Of kvcal's form: 1 for what an input or the machine does not allow, 2 for a wrong command line."""
        self.assertEqual((found[0], found[1]), (status, ""))
        self.assertTrue(found[2].startswith("error: "), found[2])
        self.assertEqual(found[2].endswith("\nRun with --help for usage.\n"), status == 2, found[2])
        self.assertIn(text, found[2])

    def test_errors(self):
        model = self.checkpoint()
        self.expect_error(self.run_it("nothing", model), "invalid choice: 'nothing'", status=2)
        self.expect_error(self.run_it("transformers", self.folder), f"error: {self.folder}: found no config.json, expected the folder of a checkpoint")
        self.expect_error(self.run_it("transformers", model, "--scales", "x.json"), "error: transformers has no option for a file of scales: --scales x.json", status=2)
        self.expect_error(self.run_it("transformers", model, "--kv-cache-dtype", "fp8"),
                          "error: transformers has no option for the dtype of its cache: --kv-cache-dtype fp8", status=2)
        self.expect_error(self.run_it("sglang", model, "--scales", "x.json"), "error: x.json: its scales cannot be read: FileNotFoundError")
        os.remove(os.path.join(model, "model.safetensors"))
        self.expect_error(self.run_it("transformers", model), f"error: {model}: found no *.safetensors file")

    def test_engine_that_is_not_installed(self):
        for name in ("vllm", "sglang", "lmdeploy"):
            self.expect_error(self.run_it(name, self.checkpoint()), f"is not installed in {sys.executable}: found no package '{name}'")
            self.expect_error(self.run_it(name, self.checkpoint()), f"pip install {name}")

    def test_engine_of_an_unknown_make(self):
        write_files(self.engines, {"lmdeploy/__init__.py": "__version__ = '99'\n"})
        self.expect_error(self.run_it("lmdeploy", self.checkpoint()), "check_engine was run with LMDeploy 0.18")

    def test_a_copy_has_scales_and_no_weights(self):
        copies = importlib.import_module(f"{PACKAGE}.checkpoint")
        model = self.checkpoint()
        index = {"weight_map": {f"model.layers.0.self_attn.{name}": "model.safetensors" for name in ("q_proj.weight", "k_scale")}}
        write_files(model, {"model.safetensors.index.json": json.dumps(index), "tokenizer/vocab.txt": "a"})
        copy = pathlib.Path(self.folder, "copy")
        copies.hollow_copy(pathlib.Path(model), copy)
        file = str(copy / "model.safetensors")
        self.assertEqual(read_tensor(file, "model.layers.2.self_attn.v_scale"), struct.pack("<f", VALUES[2, "v"]))
        self.assertEqual(read_tensor(file, "model.embed_tokens.weight"), bytes(400000))
        self.assertLess(os.stat(file).st_blocks * 512, 100000)
        self.assertEqual((copy / "tokenizer" / "vocab.txt").read_text(), "a")
        self.assertEqual(copies.read_scales(copy), copies.read_scales(pathlib.Path(model)))
        bare = pathlib.Path(self.folder, "bare")
        copies.hollow_copy(pathlib.Path(model), bare, has_scales=False)
        self.assertEqual(copies.read_scales(bare), ({}, {}))
        self.assertEqual(read_tensor(str(bare / "model.safetensors"), "model.embed_tokens.weight"), bytes(400000))
        self.assertNotIn("quantization_config", json.loads((bare / "config.json").read_text()))
        self.assertEqual(list(json.loads((bare / "model.safetensors.index.json").read_text())["weight_map"]), ["model.layers.0.self_attn.q_proj.weight"])

    def test_broken_checkpoint(self):
        model = self.checkpoint()
        with open(os.path.join(model, "model.safetensors"), "w") as file:
            file.write("short")
        self.expect_error(self.run_it("transformers", model), "its scales cannot be read")


if __name__ == "__main__":
    unittest.main()

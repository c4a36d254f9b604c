#!/usr/bin/env python3
"""vllm_encoder_scales.py [NAME...]

What vLLM does with the file that `python -m kvcal.images --encoder-scales` writes. For each image fixture of a model type that has one: a
checkpoint with processor as image_fixtures.py makes it, without the decoder's weights; samples and scales of its pictures; and vLLM's own
configuration, loader and processing after loading with `--mm-encoder-attn-dtype fp8 --mm-encoder-fp8-scale-path FILE`. Demanded are
  - the file's scales, bit for bit, in every layer of the encoder, and no other name in the file;
  - of the encoder's forward pass over the same pixels: the same largest magnitudes where it rounds q, k and v to FP8, and 448 as the largest
    code of each. vLLM's own code rounds. Attention behind it is computed from what it rounded.
  - an error of the loader where a layer is missing in the file.
Heads have 16 channels here: others are padded by a kernel of Triton's, which needs a GPU.
Stand-ins: the CPU platform names cuDNN's attention of encoders, which says that it runs FP8; its kernel is torch's attention.

Reference: vllm 0.33.0 (--no-deps) with VLLM_TARGET_DEVICE=cpu as for engines_vllm.py, torch 2.13, transformers 5.24. Run with that environment's python.
"""
import contextlib
import io
import json
import pathlib
import sys
import tempfile

import engines_judge  # noqa: F401  first: it finds check_engine
import check_engine.vllm
import torch
import vllm
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention import mm_encoder_attention
from vllm.model_executor.model_loader import base_loader, get_model
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.platforms import current_platform
from vllm.v1.attention.backends.registry import AttentionBackendEnum

import image_fixtures as making
from images.families import ENCODERS

SIDES, LARGEST = "qkv", 448.0


def let_encoders_through():
    """What of cuDNN the layer asks for before it loads scales."""
    type(current_platform).get_vit_attn_backend = classmethod(lambda *_, **__: AttentionBackendEnum.FLASHINFER)
    # The decoder has no weights, and does not run.
    DefaultModelLoader.track_weights_loading = lambda *_, **__: None
    process = base_loader.process_weights_after_loading
    base_loader.process_weights_after_loading = lambda model, *more: process(model.visual, *more)
    mm_encoder_attention.is_flashinfer_cudnn_fp8_prefill_attn_supported = lambda: True
    mm_encoder_attention._get_flashinfer_workspace_buffer = lambda: None
    layer = mm_encoder_attention.MMEncoderAttention
    layer.forward_cpu = layer.forward_cuda


def load(folder, scales):
    """The model and its layers of encoder attention by name."""
    mm_encoder_attention._load_fp8_scales_file.cache_clear()
    engine = EngineArgs(model=str(folder), dtype="float32", enforce_eager=True, max_model_len=32, mm_encoder_attn_dtype="fp8",
                        mm_encoder_fp8_scale_path=str(scales), mm_device_do_normalize=False)
    vllm_config = engine.create_engine_config()
    with set_current_vllm_config(vllm_config):
        model = get_model(vllm_config=vllm_config)
    return model, {layer.layer_name: layer for layer in model.modules() if isinstance(layer, mm_encoder_attention.MMEncoderAttention)}


class Seen:
    """The largest magnitudes that each layer rounds, and the largest codes that it makes of them."""

    def __init__(self):
        self.values, self.codes = {}, {}
        self._round = mm_encoder_attention.MMEncoderAttention._quantize_qkv_fp8

    @contextlib.contextmanager
    def looking(self):
        layer = mm_encoder_attention.MMEncoderAttention
        layer._quantize_qkv_fp8 = lambda attention, *given: self.rounded(attention, given)
        mm_encoder_attention.vit_flashinfer_wrapper = self.attention
        try:
            yield self
        finally:
            layer._quantize_qkv_fp8 = self._round

    def rounded(self, attention, given):
        codes = self._round(attention, *given)
        for kept, tensors in ((self.values, given), (self.codes, codes)):
            largest = torch.stack([side.float().abs().max() for side in tensors])
            kept[attention.layer_name] = torch.maximum(largest, kept.get(attention.layer_name, largest))
        self._given = given
        return codes

    def attention(self, *, scale, sequence_lengths, **_):
        """Of what was rounded, [1, patches, heads, head_dim], an image or window at a time."""
        lengths = [length for length in sequence_lengths.flatten().tolist() if length]
        parts = [side.reshape(-1, *side.shape[-2:]).transpose(0, 1).split(lengths, 1) for side in self._given]
        made = [torch.nn.functional.scaled_dot_product_attention(*part, scale=scale) for part in zip(*parts)]
        return torch.cat(made, 1).transpose(0, 1).reshape(self._given[0].shape)


def check(scratch, name):
    row, config = making.FIXTURES[name], making.config_of(name)
    vision = config["vision_config"]
    vision["num_heads"] = vision["hidden_size"] // 16
    seed = json.loads((making.FOLDER / name / "expected.json").read_text())["seed"]
    folder, file = scratch / "model", scratch / "scales.json"
    folder.mkdir()
    tower = {name: tensor for name, tensor in making.attempt(config, row.options, seed)[3].items() if "visual." in name}
    processor = making.checkpoint(folder, row, config, tower)
    dataset = making.write_dataset(scratch)
    with contextlib.redirect_stdout(io.StringIO()):
        assert making.images_main([str(folder), "--dataset", str(dataset), "-o", str(scratch / "samples"), "--encoder-scales", str(file)]) == 0
    written = json.loads(file.read_text())
    model, layers = load(folder, file)
    assert layers.keys() == written.keys(), f"vLLM has {sorted(layers)}, the file {sorted(written)}"
    for layer, scales in written.items():
        held = {side: getattr(layers[layer], f"_fp8_{side}_scale") for side in SIDES}
        assert all(held[side].item() == torch.tensor(scales[side]).item() for side in SIDES), f"{layer}: vLLM holds {held}, the file {scales}"
    with torch.no_grad(), Seen().looking() as seen:
        for messages in making.RECORDS[:2]:  # the third has no picture
            inputs = making.processed(scratch, processor, messages)
            model.visual(inputs["pixel_values"], inputs["image_grid_thw"].tolist())
    for layer, scales in written.items():
        torch.testing.assert_close(seen.values[layer] / LARGEST, torch.tensor([scales[side] for side in SIDES]), rtol=1e-5, atol=0)
        assert seen.codes[layer].tolist() == [LARGEST] * 3, f"{layer}: the largest codes are {seen.codes[layer].tolist()}"
    missing = scratch / "missing.json"
    missing.write_text(json.dumps(dict(list(written.items())[1:])))
    try:
        load(folder, missing)
        raise AssertionError("a file without the first layer is loaded")
    except ValueError as error:
        assert "scales not found for layer" in str(error), error
    return written


def main():
    check_engine.vllm.ask_here()
    check_engine.vllm.let_cpu_through()
    let_encoders_through()
    for name in sys.argv[1:] or [name for name in making.FIXTURES if making.config_of(name)["model_type"] in ENCODERS]:
        with tempfile.TemporaryDirectory() as scratch:
            print(f"{name}: vLLM {vllm.__version__} holds {check(pathlib.Path(scratch), name)}", flush=True)


if __name__ == "__main__":
    main()

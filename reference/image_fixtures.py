#!/usr/bin/env python3
"""Writes tests/fixtures/images/<name>: samples with pictures, a decoder, and what transformers computes of them.

usage: image_fixtures.py [--folder FOLDER] [NAME ...]   (FOLDER, default: tests/fixtures/images)
needs: torch 2.13, torchvision, transformers 5.24, pillow, av, num2words (SmolVLM's processor)

reference/image_families.py has a row a fixture: the decoder's config of a model fixture, a vision tower, a processor. The
checkpoint's weights are random, as make_fixtures.py makes them. Three records (two pictures of different sizes; one in a
turn with an answer; text alone; in rows with a video, a picture and a video, and a video) become samples by `python -m kvcal.images`.
Output: config.json; model.safetensors (the decoder's tensors); samples/; expected.json: the seed; for each sample its layers, in each
for every KV head the largest magnitude of K after RoPE and of V as handed to the cache, over all tokens, over those that an
image's rows replace, and over the others (null where there are none; a layer without a cache of its own is null); moves, how far the
logits of the first sample move, relative to the largest, without each tensor of the samples; and expected.safetensors:
logits.<sample> [up to 48, vocab], of the sample's last tokens. Reference: float32, eager attention, the whole model with pixels as its input. A seed is
taken only if every variation shows and no choice of experts is nearly a tie.
"""
import argparse
import contextlib
import io
import json
import pathlib
import re
import shutil
import sys
import tempfile
import zlib

import av
import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save, save_file
from transformers.modeling_outputs import MoeCausalLMOutputWithPast

from image_families import FIXTURES, config_of, save_processor
from make_fixtures import MIN_MOVE, OUTSIDE, ProductInputs, attempt, new_cache, one_per_head, write_if_changed

ROOT = pathlib.Path(__file__).parent.parent
FOLDER = ROOT / "tests/fixtures/images"
MAX_BYTES, MIN_GAP, SEEDS, MOST_LOGITS = 300_000, 2e-3, 300, 48
MoeCausalLMOutputWithPast.image_outputs = None  # transformers 5.24's class for Llama 4 reads it, and no output has it
PICTURES = {"wide.png": (40, 24), "high.png": (18, 36)}  # width, height

sys.path.insert(0, str(ROOT / "python/kvcal"))
from images.__main__ import main as images_main  # noqa: E402
from images.families import decoder_of  # noqa: E402
from images.samples import check_samples  # noqa: E402


def write_pictures(folder):
    """Gradients with noise: every patch of a picture is another one."""
    generator = torch.Generator().manual_seed(7)
    for name, (width, height) in PICTURES.items():
        across, down = torch.meshgrid(torch.linspace(0, 150, width), torch.linspace(0, 100, height), indexing="xy")
        base = torch.stack([across, down, 150 - across], -1)
        values = (base + 100 * torch.rand(height, width, 3, generator=generator)).to(torch.uint8)
        Image.fromarray(values.numpy()).save(folder / name)


def picture(name):
    return {"type": "image_url", "image_url": {"url": name}}


def text(words):
    return {"type": "text", "text": words}


def video(name):
    return {"type": "video_url", "video_url": {"url": name}}


RECORDS = [
    [{"role": "user", "content": [text("one "), picture("wide.png"), text(" and "), picture("high.png"), text(" which?")]}],
    [{"role": "user", "content": [picture("high.png"), text("what is it?")]}, {"role": "assistant", "content": "a tower."}],
    [{"role": "user", "content": "name a town."}, {"role": "assistant", "content": "oslo."}],
]


VIDEO_RECORDS = [
    [{"role": "user", "content": [text("one "), picture("wide.png"), text(" and "), video("clip.mp4"), text(" which?")]}],
    [{"role": "user", "content": [video("clip.mp4"), text("what is it?")]}, {"role": "assistant", "content": "a tower."}],
    RECORDS[2],
]


def write_video(file):
    """Twelve frames at four a second, each brighter than the one before."""
    with av.open(file, "w") as container:
        stream = container.add_stream("mpeg4", rate=4)
        stream.width, stream.height = 48, 32
        for number in range(12):
            values = torch.rand(32, 48, 3, generator=torch.Generator().manual_seed(number)) * 100 + 12 * number
            container.mux(stream.encode(av.VideoFrame.from_ndarray(values.to(torch.uint8).numpy(), format="rgb24")))
        container.mux(stream.encode())


def records_of(row):
    return VIDEO_RECORDS if row.video else RECORDS


def write_dataset(folder, records):
    write_pictures(folder)
    write_video(folder / "clip.mp4")
    dataset = folder / "data.jsonl"
    dataset.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in records))
    return dataset


def taken(folder, part):
    """A part as transformers' processors take it; a video with all its frames."""
    if part["type"] == "text":
        return part, None
    file = folder / part[part["type"]]["url"]
    if part["type"] == "image_url":
        return {"type": "image", "image": Image.open(file)}, None
    with av.open(file) as container:
        rate = float(container.streams.video[0].average_rate)
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
    return {"type": "video", "video": frames}, {"fps": rate, "total_num_frames": len(frames), "duration": len(frames) / rate,
                                                  "frames_indices": list(range(len(frames)))}


def processed(folder, processor, messages):
    """The inputs that transformers' own processor makes of a record."""
    turns, metadata = [], []
    for turn in messages:
        parts = [text(turn["content"])] if isinstance(turn["content"], str) else turn["content"]
        given = [taken(folder, part) for part in parts]
        metadata += [described for _, described in given if described]
        turns.append({**turn, "content": [part for part, _ in given]})
    more = {"processor_kwargs": {"video_metadata": [metadata]}} if metadata else {}
    return processor.apply_chat_template(turns, tokenize=True, return_dict=True, return_tensors="pt", **more).to(dtype=torch.float32)


def decoder(model):
    return model.get_submodule(decoder_of(model.config.model_type, ""))


@contextlib.contextmanager
def decoder_calls(model, change=None):
    """The keyword arguments of the decoder's calls, which change may change."""
    calls = []

    def seen(_, args, kwargs):
        assert not args
        kwargs = change(dict(kwargs)) if change else kwargs
        calls.append(kwargs)
        return (), kwargs

    handle = decoder(model).register_forward_pre_hook(seen, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


def amax(values):
    return [float(f"{value:.8g}") for value in values.abs().amax((1, 2)).tolist()] if values.shape[1] else None


def layers_of(cache, num_layers, is_image):
    layers = []
    for layer in cache.layers + [None] * (num_layers - len(cache.layers)):
        if getattr(layer, "keys", None) is None:
            layers.append(None)
            continue
        sides = {"k": one_per_head(layer.keys[0]), "v": one_per_head(layer.values[0])}
        assert all(side.shape[1] == len(is_image) for side in sides.values())
        layers.append({f"{side}_{part}amax": amax(values[:, which]) for part, which in
                       (("", slice(None)), ("image_", is_image), ("text_", ~is_image)) for side, values in sides.items()})
    return layers


def whole_run(model, inputs):
    """Logits [tokens, vocab], layers, the decoder's arguments, and the nearest tie of a choice of experts."""
    cache = new_cache(model)
    with torch.no_grad(), decoder_calls(model) as calls:
        logits = model(**inputs, cache=cache, use_cache=True).logits[0]
    with torch.no_grad(), ProductInputs(model) as products:  # of the decoder alone: the tower makes no choices
        decoder(model)(**{**calls[0], "cache": None, "use_cache": False})
    tokens = [getattr(model.config, name, None) for name in ("image_token_id", "video_token_id")]
    is_image = torch.isin(inputs["input_ids"][0], torch.tensor([token for token in tokens if token is not None]))
    return {"logits": logits.contiguous(), "given": calls[0], "gap": products.gap, "is_image": is_image,
            "layers": layers_of(cache, model.config.get_text_config().num_hidden_layers, is_image)}


def variations(model, sample, ids):
    """For each tensor of a sample: the decoder's arguments without it."""
    def without(name):
        return lambda kwargs: {**kwargs, name: None}

    def own_ids(kwargs):
        return {**kwargs, "per_layer_inputs": decoder(model).get_per_layer_inputs(ids, None)}

    def zeros(kwargs):
        rows = kwargs["inputs_embeds"].clone()
        rows[:, sample["embedded_positions"]] = 0
        return {**kwargs, "inputs_embeds": rows}

    changes = {"embeddings": zeros}
    if "position_ids" in sample:
        changes["position_ids"] = without("position_ids")
    for name in sample:
        if name.startswith("injected."):
            changes[name] = lambda kwargs, at=int(name[9:]): {**kwargs, "deepstack_visual_embeds": [
                rows * (layer != at) for layer, rows in enumerate(kwargs["deepstack_visual_embeds"])]}
    if "per_layer_ids" in sample:
        changes["per_layer_ids"] = own_ids
    return changes


def within(groups):
    return (groups[:, None] == groups) & (groups > 0)


def moves(model, inputs, sample, layers, logits):
    """How far the logits move without each part of the first sample."""
    changes = variations(model, sample, inputs["input_ids"])
    if layers:
        changes["bidirectional_layers"] = lambda kwargs: {**kwargs, "attention_mask": None}
        changes["the window within images"] = lambda kwargs: {**kwargs, "attention_mask": {
            kind: mask.masked_fill(within(sample["image_groups"]), 0) if kind == "sliding_attention" else mask
            for kind, mask in kwargs["attention_mask"].items()}}
    result = {}
    for label, change in changes.items():
        with torch.no_grad(), decoder_calls(model, change):
            other = model(**inputs, use_cache=False).logits[0]
        result[label] = ((other - logits).abs().max() / logits.abs().max()).item()
    return result


def checked(sample, run, ids):
    """The sample is what the whole model hands to its decoder; the tower's attention may be computed in another order."""
    given = run["given"]
    assert torch.equal(sample["input_ids"].long(), ids[0])
    assert torch.equal(sample["embedded_positions"].long(), run["is_image"].nonzero()[:, 0])
    torch.testing.assert_close(sample["embeddings"], given["inputs_embeds"][0][run["is_image"]], rtol=1e-5, atol=1e-5)
    if "position_ids" in sample:
        assert torch.equal(sample["position_ids"].long(), given["position_ids"][:, 0])
    for layer, rows in enumerate(given.get("deepstack_visual_embeds") or []):
        torch.testing.assert_close(sample[f"injected.{layer}"], rows, rtol=1e-5, atol=1e-5)


def checkpoint(folder, row, config, state_on_disk):
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file(state_on_disk, folder / "model.safetensors", metadata={"format": "pt"})
    save_processor(folder, row, config)
    return transformers.AutoProcessor.from_pretrained(folder)


def samples_of(scratch, dataset):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = images_main([str(scratch / "model"), "--dataset", str(dataset), "-o", str(scratch / "samples")])
    assert status == 0, printed.getvalue()
    index = check_samples(scratch / "samples")
    return index, [load_file(scratch / "samples" / entry["file"]) for entry in index["samples"]]


def tried(scratch, name, seed):
    """A checkpoint of one seed and what the whole model computes; the last is why the seed does not fit, or nothing."""
    row, config = FIXTURES[name], config_of(name)
    model, _, _, disk = attempt(config, row.options, seed)
    (scratch / "model").mkdir()
    processor = checkpoint(scratch / "model", row, config, disk)
    dataset = write_dataset(scratch, records_of(row))
    inputs = [processed(scratch, processor, messages) for messages in records_of(row)]
    runs = [whole_run(model, one) for one in inputs]
    gap = min(run["gap"] for run in runs)
    if gap < MIN_GAP:
        return (), {}, {}, f"gap {gap:.4f}"
    index, samples = samples_of(scratch, dataset)
    for sample, run, one in zip(samples, runs, inputs):
        checked(sample, run, one["input_ids"])
    moved = moves(model, inputs[0], samples[0], index["model"]["bidirectional_layers"], runs[0]["logits"])
    weak = [label for label, move in moved.items() if move < MIN_MOVE]
    kept = {name: tensor for name, tensor in disk.items() if not re.search(OUTSIDE, name) and "embed_vision" not in name}
    return runs, moved, kept, f"too weak: {weak}" if weak else ""


def write(folder, scratch, seed, runs, moved, kept):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(scratch / "model/config.json", folder)
    shutil.copytree(scratch / "samples", folder / "samples")
    write_if_changed(folder / "model.safetensors", save(kept, metadata={"format": "pt"}))
    write_if_changed(folder / "expected.safetensors", save({f"logits.{at}": run["logits"][-MOST_LOGITS:].contiguous() for at, run in enumerate(runs)}))
    expected = {"reference": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager",
                "seed": seed, "moves": {label: float(f"{move:.4g}") for label, move in moved.items()}, "samples": [run["layers"] for run in runs]}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def make(folder, name, first=None):
    """first: the seed to begin with."""
    first = zlib.crc32(name.encode()) % 100_000 if first is None else first
    for seed in range(first, first + SEEDS):
        with tempfile.TemporaryDirectory() as scratch:
            runs, moved, kept, fault = tried(pathlib.Path(scratch), name, seed)
            if fault:
                print(f"  {name} seed {seed}: {fault}", file=sys.stderr)
                continue
            write(folder / name, pathlib.Path(scratch), seed, runs, moved, kept)
            break
    else:
        raise SystemExit(f"{name}: no seed fits")
    size = sum(path.stat().st_size for path in (folder / name).rglob("*") if path.is_file())
    assert size < MAX_BYTES, f"{name}: {size} bytes"
    print(f"{name}: seed {seed}, {size // 1024} KiB, {[len(run['is_image']) for run in runs]} tokens, "
          f"{[int(run['is_image'].sum()) for run in runs]} of images,", {label: round(move, 3) for label, move in moved.items()}, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER)
    parser.add_argument("names", nargs="*", choices=[[], *FIXTURES], default=[])
    arguments = parser.parse_args()
    for name in arguments.names or FIXTURES:
        make(arguments.folder, name)


if __name__ == "__main__":
    main()

"""The command line of `python -m kvcal.images`."""

from __future__ import annotations

import argparse
import math
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from .errors import BadInput
from .records import Record, read_records
from .samples import Writer, check_free, check_samples, write_json

DONE, FAILED, USAGE = 0, 1, 2  # as kvcal has them


class WrongCommandLine(Exception):
    """Its options, whatever the files hold."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in the words of kvcal."""

    def error(self, message: str) -> NoReturn:
        raise WrongCommandLine(message)


def parsed(words: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="python -m kvcal.images", epilog="docs/images.md describes data sets and the files of SAMPLES.",
                    description="Runs the vision tower of a multimodal checkpoint and writes samples for its decoder.")  # fmt: skip
    parser.add_argument("model", type=Path, nargs="?", metavar="MODEL", help="a folder with the 16-bit checkpoint and its processor")
    parser.add_argument("--dataset", type=Path, metavar="D", help="JSON lines of OpenAI's messages, or a folder of pictures")
    parser.add_argument("-o", "--output", type=Path, metavar="SAMPLES", help="the folder to make")
    parser.add_argument("--prompt", metavar="TEXT", help="the user's words beside each picture of a folder")
    parser.add_argument("--num-samples", type=int, metavar="N", help="the first N records (default: all)")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of the tower and of the rows (default: float32)")
    parser.add_argument("--encoder-scales", type=Path, metavar="FILE", help="make FILE too: scales of the vision encoder's attention, for vLLM")
    parser.add_argument("--encoder-margin", type=float, metavar="M", help="a factor of these scales (default: 1)")
    parser.add_argument("--check", type=Path, metavar="SAMPLES", help="check the files of a folder instead of making one; needs no package")
    options = parser.parse_args(words)
    making = {"MODEL": options.model, "--dataset": options.dataset, "--output": options.output}
    missing = [name for name, value in making.items() if value is None]
    if options.check is None and missing:
        raise WrongCommandLine(f"{' and '.join(missing)} missing")
    if options.check is not None and len(missing) < len(making):
        raise WrongCommandLine("--check takes no other folder")
    if options.num_samples is not None and options.num_samples < 1:
        raise WrongCommandLine(f"--num-samples: found {options.num_samples}, expected 1 or more")
    margin = options.encoder_margin
    if margin is not None and not (math.isfinite(margin) and margin > 0):
        raise WrongCommandLine(f"--encoder-margin: found {margin}, expected a number above 0")
    if margin is not None and options.encoder_scales is None:
        raise WrongCommandLine("--encoder-margin is for --encoder-scales")
    if options.check is not None and options.encoder_scales is not None:
        raise WrongCommandLine("--check makes no scales")
    return options


def make(model: Path, dataset: Path, output: Path, *, prompt: str | None = None, num_samples: int | None = None, dtype: str = "float32",
         encoder_scales: Path | None = None, encoder_margin: float = 1.0) -> dict[str, Any]:  # fmt: skip
    """Every record is read, and the outputs' places checked, before transformers is imported, which takes long."""
    records = list(islice(read_records(dataset, prompt), num_samples))
    if not records:
        raise BadInput(f"{dataset}: found no record")
    if not any(record.pictures for record in records):
        raise BadInput(f"{dataset}: found no picture and no video in {len(records)} records; kvcal calibrate reads text itself")
    writer = Writer(output)
    if encoder_scales is not None:
        check_free(encoder_scales)
    from .towers import load  # what needs packages

    tower = load(model, dtype, encoder_scales is not None)
    with writer:
        counts, scales = write(writer, tower, records, dtype, encoder_margin)
    if encoder_scales is not None:
        write_json(scales, encoder_scales)
    return {**counts, "layers": len(scales)}


def write(writer: Writer, tower: Any, records: list[Record], dtype: str, encoder_margin: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Counts, and the encoder's scales where they are asked for."""
    import torch
    import transformers

    from .capture import MaskedLayers, sample_of

    config = tower.config.get_text_config()
    masks = MaskedLayers(config)
    counts = {"samples": len(records), "tokens": 0, "embedded": 0, "images": 0}
    for number, record in enumerate(records, 1):
        if sys.stderr.isatty():
            print(f"\r{number} of {len(records)}", end="" if number < len(records) else "\n", file=sys.stderr, flush=True)
        ids, given = tower.reach(record)
        tensors = sample_of(ids, given, tower.config, record.place)
        if bool(record.pictures) != bool(tensors["embedded_positions"].shape[0]):
            raise BadInput(f"{record.place}: {len(record.pictures)} pictures and videos became {tensors['embedded_positions'].shape[0]} tokens")
        masks.see(given.get("attention_mask"), tensors["image_groups"].values().tolist(), record.place)
        entry = writer.add(tensors, len(record.pictures))
        for name in ("tokens", "embedded", "images"):
            counts[name] += entry[name]
    model = {"model_type": tower.config.model_type, "config_sha256": tower.config_sha256, "hidden_size": config.hidden_size,
             "num_hidden_layers": config.num_hidden_layers, "vocab_size": config.vocab_size, "bidirectional_layers": masks.layers()}  # fmt: skip
    scales = tower.encoder.scales(tower.model, encoder_margin) if tower.encoder else {}
    writer.finish(model, {"transformers": transformers.__version__, "torch": str(torch.__version__).split("+")[0], "dtype": dtype})
    return counts, scales


def main(words: list[str] | None = None) -> int:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched
    try:
        options = parsed(words)
        if options.check is not None:
            index = check_samples(options.check)
            print(f"{options.check}: {len(index['samples'])} samples of {index['model']['model_type']}")
            return DONE
        counts = make(options.model, options.dataset, options.output, prompt=options.prompt, num_samples=options.num_samples, dtype=options.dtype,
                      encoder_scales=options.encoder_scales, encoder_margin=options.encoder_margin or 1.0)  # fmt: skip
    except WrongCommandLine as error:
        print(f"error: {error}\nRun with --help for usage.", file=sys.stderr)
        return USAGE
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    print(f"wrote {options.output}: {counts['samples']} samples, {counts['tokens']} tokens, "
          f"{counts['embedded']} of them of {counts['images']} pictures and videos")  # fmt: skip
    if options.encoder_scales is not None:
        print(f"wrote {options.encoder_scales}: scales of {counts['layers']} layers of the vision encoder")
    return DONE


if __name__ == "__main__":
    sys.exit(main())

"""The processor, vision tower and projector of a checkpoint, without its decoder: what transformers would hand to the decoder."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import BadInput
from .families import decoder_of, encoder_of
from .records import Picture, Record

try:
    import torch
    from PIL import Image, ImageOps
    from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor
    from transformers.utils import logging
    from transformers.video_utils import load_video
except ModuleNotFoundError as missing:
    raise BadInput(f"kvcal.images needs torch, torchvision, transformers and pillow (pip install 'kvcal[images]'): {missing}") from missing
from .encoder import ATTENTION, Encoder


class Reached(Exception):
    """The decoder was called: given holds its arguments."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__("the decoder")
        self.given = given


class Unread(torch.nn.Module):
    """An embedding without a table. Its rows are NaN, so that the rows which an image's replace are known afterwards."""

    def __init__(self, num_rows: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._shape, self._dtype = (num_rows, width), dtype

    @property
    def weight(self) -> torch.Tensor:
        return torch.full((1, 1), torch.nan, dtype=self._dtype).expand(self._shape)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.full((*ids.shape, self._shape[1]), torch.nan, dtype=self._dtype)


class Decoder(torch.nn.Module):
    """In the place of a decoder. per_layer_ids: [1, tokens], the ids whose rows of a table for each layer are asked for."""

    gradient_checkpointing = False

    def __init__(self, config: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = Unread(config.vocab_size, config.hidden_size, dtype)
        self.per_layer_ids: torch.Tensor | None = None

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.embed_tokens

    def get_per_layer_inputs(self, ids: torch.Tensor, _: torch.Tensor) -> None:
        self.per_layer_ids = ids

    def forward(self, **given: Any) -> None:
        raise Reached({**given, "per_layer_ids": self.per_layer_ids})


def without_decoder(model_class: type[Any], path: str, dtype: torch.dtype) -> type[Any]:
    """The class with a `Decoder` at path, and no head. from_pretrained reads the weights of what is left."""

    def construct(self: Any, config: Any, *more: Any, **options: Any) -> None:
        model_class.__init__(self, config, *more, **options)
        parent, _, name = path.rpartition(".")
        setattr(self.get_submodule(parent), name, Decoder(config.get_text_config(), dtype))
        if hasattr(self, "lm_head"):
            self.lm_head = None

    # Name and module are those of the class, by which transformers finds how the names on disk are renamed.
    return type(model_class.__name__, (model_class,),
                {"__init__": construct, "__module__": model_class.__module__, "_tied_weights_keys": {}, "_keys_to_ignore_on_load_unexpected": [".*"]})  # fmt: skip


@dataclass
class Tower:
    """encoder: what sees its attention, where its scales are asked for."""

    model: Any
    processor: Any
    config: Any
    config_sha256: str
    encoder: Encoder | None

    def reach(self, record: Record) -> tuple[list[int], dict[str, Any]]:
        """The ids of the conversation, and the arguments that transformers calls the decoder with."""
        with torch.inference_mode():
            inputs = self._inputs(record)
            try:
                self.model(**inputs)
            except Reached as reached:
                return inputs["input_ids"][0].tolist(), reached.given
            except (ValueError, RuntimeError, IndexError) as error:
                raise BadInput(f"{record.place}: the vision tower fails: {error}") from error
        raise BadInput(f"{record.place}: transformers did not call the decoder")

    def _inputs(self, record: Record) -> dict[str, Any]:
        pictures = iter(record.pictures)
        with tempfile.TemporaryDirectory() as scratch:
            messages = [{**message, "content": [part if part["type"] == "text" else {**part, part["type"]: self._opened(next(pictures), scratch)}
                                                for part in message["content"]]} for message in record.messages]  # fmt: skip
            try:
                inputs = self.processor.apply_chat_template(messages, tools=record.tools, tokenize=True, return_dict=True, return_tensors="pt")
            except Exception as error:  # a template raises what it likes
                raise BadInput(f"{record.place}: the processor fails: {type(error).__name__}: {error}") from error
        mask = inputs.get("attention_mask")
        if inputs["input_ids"].shape[0] != 1 or inputs["input_ids"].shape[1] == 0 or (mask is not None and not mask.all()):
            raise BadInput(f"{record.place}: the processor gives no tokens, or padding, expected one text")
        kind = self.model.dtype
        return {name: value.to(kind) if torch.is_tensor(value) and value.is_floating_point() else value for name, value in inputs.items()}


    def _opened(self, picture: Picture, scratch: str) -> Image.Image | str:
        """A picture, or the path of a video, of which the processor chooses frames. scratch: for those in memory."""
        if not picture.is_video:
            return opened(picture)
        if getattr(self.processor, "video_processor", None) is None:
            raise BadInput(f"{picture.place}: found a video, and the processor of {self.config.model_type} takes pictures alone")
        if isinstance(picture.source, Path):
            return str(picture.source)
        file = Path(tempfile.mkdtemp(dir=scratch)) / "video"
        file.write_bytes(picture.source)
        return str(file)


def fetched(videos: Any, sample_indices_fn: Any = None) -> Any:
    """What transformers' video processors fetch files by, with PyAV in the place of its other decoders: frames and metadata, or both of each."""
    if isinstance(videos, list):
        return list(zip(*(fetched(video, sample_indices_fn) for video in videos)))
    return load_video(videos, backend="pyav", sample_indices_fn=sample_indices_fn)


def opened(picture: Picture) -> Image.Image:
    """As transformers opens files: upright, in RGB."""
    try:
        with Image.open(io.BytesIO(picture.source) if isinstance(picture.source, bytes) else picture.source) as image:
            return ImageOps.exif_transpose(image).convert("RGB")
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise BadInput(f"{picture.place}: the picture cannot be read: {error}") from error


def load(folder: Path, dtype: str, sees_encoder: bool = False) -> Tower:
    """dtype: float32 or bfloat16, of the tower's weights, of its arithmetic and of the rows. sees_encoder: for scales of its attention."""
    path = folder / "config.json"
    if not path.is_file():
        raise BadInput(f"{folder}: found no config.json, expected the folder of a checkpoint")
    content = path.read_bytes()
    try:
        plain = json.loads(content)
        decoder = decoder_of(plain.get("model_type"), str(path))
    except (ValueError, AttributeError, RecursionError) as error:
        raise BadInput(f"{path}: is no JSON object: {error}") from error
    if "quantization_config" in plain:
        raise BadInput(f"{path}: found quantization_config, expected the 16-bit checkpoint that was quantized")
    encoder = Encoder(encoder_of(plain["model_type"], str(path))) if sees_encoder else None
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        processor = AutoProcessor.from_pretrained(folder, local_files_only=True)
        if getattr(processor, "video_processor", None) is not None:
            processor.video_processor.fetch_videos = fetched
        kind = getattr(torch, dtype)
        model_class = without_decoder(AutoModelForImageTextToText._model_mapping[type(config)], decoder, kind)
        # Of the decoder's attention the mask is read, which the eager kind makes in full.
        attention = {"text_config": "eager", **({"vision_config": ATTENTION} if encoder else {})}
        model, report = model_class.from_pretrained(folder, config=config, dtype=kind, attn_implementation=attention,
                                                    local_files_only=True, output_loading_info=True)  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError, ImportError, RuntimeError) as error:
        raise BadInput(f"{folder}: transformers does not load it: {type(error).__name__}: {error}") from error
    for name in sorted(report["missing_keys"]) + sorted(map(str, report["mismatched_keys"])):
        raise BadInput(f"{folder}: the vision tower's tensor {name} is missing or has another shape")
    return Tower(model.eval(), processor, config, hashlib.sha256(content).hexdigest(), encoder)

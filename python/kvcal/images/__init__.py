"""Samples with pictures for the calibration of multimodal checkpoints: transformers runs the vision tower, kvcal the decoder.

    python -m kvcal.images MODEL --dataset chats.jsonl -o SAMPLES

docs/images.md describes the files that it writes.
"""

from __future__ import annotations

from .errors import BadInput
from .samples import check_samples

__all__ = ["BadInput", "check_samples"]

"""FP8 checkpoints of 16-bit Hugging Face models. The program is `kvcal`; this package only starts it."""

"""Files of processors for engines_table.py: vLLM's Transformers backend runs some multimodal models with their processor alone."""
import json


def image_processor(kind, processor, *words, **named):
    """preprocessor_config.json, words that the processor looks up, and those that its tokenizer has under a name."""
    return dict(image_processor_type=kind, processor_class=processor, patch_size=14, size=dict(height=28, width=28)), [*words, *named.values()], named


PROCESSORS = {
    "fuyu": (dict(image_processor_type="FuyuImageProcessor", processor_class="FuyuProcessor"), ["|SPEAKER|", "|NEWLINE|", "<0x04>"], {}),
    "aya_vision": image_processor("GotOcr2ImageProcessor", "AyaVisionProcessor", "<|START_OF_IMG|>", "<|END_OF_IMG|>", image_token="<image>"),
    "deepseek_vl": image_processor("DeepseekVLImageProcessor", "DeepseekVLProcessor", image_token="<image_placeholder>"),
    "deepseek_vl_hybrid": image_processor("DeepseekVLHybridImageProcessor", "DeepseekVLHybridProcessor", image_token="<image_placeholder>"),
    "fast_vlm": image_processor("LlavaImageProcessor", "LlavaProcessor", image_token="<image>"),
    "glmga": image_processor("Glm46VImageProcessor", "Glm46VProcessor", image_token="<|image|>", video_token="<|video|>"),
    "got_ocr2": image_processor("GotOcr2ImageProcessor", "GotOcr2Processor", "<imgpad>", "<img>", "</img>"),
    "ovis2": image_processor("Ovis2ImageProcessor", "Ovis2Processor", image_token="<image>"),
    "video_llama_3": image_processor("VideoLlama3ImageProcessor", "VideoLlama3Processor", image_token="<image>", video_token="<video>"),
    "video_llava": image_processor("VideoLlavaImageProcessor", "VideoLlavaProcessor", image_token="<image>", video_token="<video>"),
    "vipllava": image_processor("CLIPImageProcessor", "LlavaProcessor", image_token="<image>"),
}


def add_processor(folder, name, vocab):
    """The files of PROCESSORS, and a tokenizer without merges."""
    if name not in PROCESSORS:
        return
    config, words, named = PROCESSORS[name]
    words = words + [f"word {i}" for i in range(vocab - len(words))]
    tokenizer = dict(version="1.0", added_tokens=[], truncation=None, padding=None, normalizer=None, pre_tokenizer=None, post_processor=None,
                     decoder=None, model=dict(type="WordLevel", vocab={word: i for i, word in enumerate(words)}, unk_token=words[-1]))
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast") | named))

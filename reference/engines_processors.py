"""Files of processors for engines_table.py: vLLM's Transformers backend runs some multimodal models with their processor alone."""
import json


SIZED_BY_AREA = ("Glm46VImageProcessor", "Qwen2VLImageProcessor")


def image_processor(kind, processor, *words, **named):
    """preprocessor_config.json, words that the processor looks up, and those that its tokenizer has under a name."""
    size = dict(shortest_edge=784, longest_edge=1568) if kind in SIZED_BY_AREA else dict(height=28, width=28)
    return dict(image_processor_type=kind, processor_class=processor, patch_size=14, size=size), [*words, *named.values()], named


PROCESSORS = {
    "fuyu": (dict(image_processor_type="FuyuImageProcessor", processor_class="FuyuProcessor"), ["|SPEAKER|", "|NEWLINE|", "<0x04>"], {}),
    "cohere_compass": image_processor("CohereCompassImageProcessor", "CohereCompassProcessor", image_token="<|image_pad|>", video_token="<|video_pad|>"),
    "emu3": image_processor("Emu3ImageProcessor", "Emu3Processor", image_token="<image>", boi_token="<|image start|>", eoi_token="<|image end|>",
                            image_wrapper_token="<|image token|>", eof_token="<|extra_201|>", bos_token="<bos>"),
    "glm46v": image_processor("Glm46VImageProcessor", "Glm46VProcessor", image_token="<|image|>", video_token="<|video|>"),
    "hyperclovax_vision_v2": image_processor("Qwen2VLImageProcessor", "HyperCLOVAXVisionV2Processor", image_token="<|image_pad|>",
                                             video_token="<|video_pad|>"),
    "janus": image_processor("JanusImageProcessor", "JanusProcessor", image_token="<image_placeholder>", boi_token="<begin_of_image>",
                             eoi_token="<end_of_image>"),
    "qwen2_vl": image_processor("Qwen2VLImageProcessor", "Qwen2VLProcessor", image_token="<|image_pad|>", video_token="<|video_pad|>"),
    "qwen2_5_vl": image_processor("Qwen2VLImageProcessor", "Qwen2_5_VLProcessor", image_token="<|image_pad|>", video_token="<|video_pad|>"),
    "aya_vision": image_processor("GotOcr2ImageProcessor", "AyaVisionProcessor", "<|START_OF_IMG|>", "<|END_OF_IMG|>", image_token="<image>"),
    "deepseek_vl": image_processor("DeepseekVLImageProcessor", "DeepseekVLProcessor", image_token="<image_placeholder>"),
    "deepseek_vl_hybrid": image_processor("DeepseekVLHybridImageProcessor", "DeepseekVLHybridProcessor", image_token="<image_placeholder>"),
    "deepseek_ocr2": image_processor("DeepseekOcr2ImageProcessor", "DeepseekOcr2Processor", image_token="<image>"),
    "fast_vlm": image_processor("LlavaImageProcessor", "LlavaProcessor", image_token="<image>"),
    "glmga": image_processor("Glm46VImageProcessor", "Glm46VProcessor", image_token="<|image|>", video_token="<|video|>"),
    "got_ocr2": image_processor("GotOcr2ImageProcessor", "GotOcr2Processor", "<imgpad>", "<img>", "</img>"),
    "hunyuan_vl": image_processor("HunYuanVLImageProcessor", "HunYuanVLProcessor", image_token="<image>", image_start_token="<img>",
                                  image_end_token="</img>", pad_token="<pad>"),
    "idefics2": image_processor("Idefics2ImageProcessor", "Idefics2Processor", "<end_of_utterance>", image_token="<image>",
                                image_boundary_token="<fake_token_around_image>"),
    "instructblip": image_processor("BlipImageProcessor", "InstructBlipProcessor", image_token="<image>"),
    "instructblipvideo": image_processor("BlipImageProcessor", "InstructBlipVideoProcessor", video_token="<video>"),
    "lighton_ocr": image_processor("PixtralImageProcessor", "LightOnOcrProcessor", image_token="<|image_pad|>", image_break_token="<|vision_pad|>",
                                   image_end_token="<|vision_end|>"),
    "mllama": image_processor("MllamaImageProcessor", "MllamaProcessor", "<|python_tag|>", image_token="<|image|>", bos_token="<bos>"),
    "ovis2": image_processor("Ovis2ImageProcessor", "Ovis2Processor", image_token="<image>"),
    "perception_lm": image_processor("PerceptionLMImageProcessor", "PerceptionLMProcessor", image_token="<|image|>", video_token="<|video|>"),
    "pp_chart2table": image_processor("PPChart2TableImageProcessor", "PPChart2TableProcessor", "<imgpad>", "<img>", "</img>"),
    "video_llama_3": image_processor("VideoLlama3ImageProcessor", "VideoLlama3Processor", image_token="<image>", video_token="<video>"),
    "video_llava": image_processor("VideoLlavaImageProcessor", "VideoLlavaProcessor", image_token="<image>", video_token="<video>"),
    "vipllava": image_processor("CLIPImageProcessor", "LlavaProcessor", image_token="<image>"),
}
# Words of added_tokens.json, for models whose files alone name tokens of images and sounds.
ADDED_TOKENS = {"dots3_note": ["<|imgpad|>", "<|audio_comp_pad|>"]}
VIDEO_PROCESSORS = {"instructblipvideo": "InstructBlipVideoVideoProcessor", "perception_lm": "PerceptionLMVideoProcessor"}


def add_processor(folder, name, vocab):
    """The files of PROCESSORS, and a tokenizer without merges (instructblip has a second one, of its Q-Former)."""
    if name in ADDED_TOKENS:
        (folder / "added_tokens.json").write_text(json.dumps({word: i for i, word in enumerate(ADDED_TOKENS[name])}))
    if name not in PROCESSORS:
        return
    config, words, named = PROCESSORS[name]
    words = words + [f"word {i}" for i in range(vocab - len(words))]
    tokenizer = dict(version="1.0", added_tokens=[], truncation=None, padding=None, normalizer=None, pre_tokenizer=None, post_processor=None,
                     decoder=None, model=dict(type="WordLevel", vocab={word: i for i, word in enumerate(words)}, unk_token=words[-1]))
    files = {"preprocessor_config.json": config, "tokenizer.json": tokenizer,
             "tokenizer_config.json": dict(tokenizer_class="PreTrainedTokenizerFast") | named}
    if name in VIDEO_PROCESSORS:
        files["video_preprocessor_config.json"] = dict(video_processor_type=VIDEO_PROCESSORS[name], processor_class=config["processor_class"],
                                                       size=config["size"])
    if name.startswith("instructblip"):
        files |= {f"qformer_tokenizer/{file}": files[file] for file in ("tokenizer.json", "tokenizer_config.json")}
    for file, content in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(json.dumps(content))

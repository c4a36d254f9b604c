"""A row a fixture of image_fixtures.py: whose decoder it has, its vision tower, and the processor that fits both."""
import dataclasses
import json
import pathlib

import transformers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from make_fixtures import MODELS, merged

LETTERS = " abcdefghijklmnopqrstuvwxyz.,?!:\n0123456789"
TEMPLATE = ("{{ bos_token }}{% for message in messages %}{{ message.role[0] }}:{% for part in message.content %}"
            "{% if part.type == 'image' %}IMAGE{% elif part.type == 'video' %}VIDEO{% else %}{{ part.text }}{% endif %}{% endfor %}\n{% endfor %}")


@dataclasses.dataclass
class Row:
    """decoder: the model fixture whose config.json, as changes change it, is the checkpoint's. image, video: what a template
    writes for one; a row with a video has records with one.
    tokens: {attribute of the tokenizer, or the token itself: (token, id)}. processor: a function of config that returns
    (class, arguments, parts by name). options: of make_fixtures.py."""
    decoder: str
    changes: dict
    image: str
    tokens: dict
    processor: object
    options: dict = dataclasses.field(default_factory=dict)
    video: str = ""


def image_processor(name, **arguments):
    return getattr(transformers, name)(**arguments)


def qwen_tokens(first, image):
    return {"vision_start": ("<|vision_start|>", first), "vision_end": ("<|vision_end|>", first + 1),
            "image": ("<|image_pad|>", image), "video": ("<|video_pad|>", image + 1)}


def qwen(processor, images):
    def parts(_):
        sizes = {"patch_size": 4, "temporal_patch_size": 2, "merge_size": 2, "size": {"shortest_edge": 64, "longest_edge": 1024}}
        video = "Qwen2VLVideoProcessor" if processor in ("Qwen2VLProcessor", "Qwen2_5_VLProcessor") else "Qwen3VLVideoProcessor"
        return processor, {}, {"image_processor": image_processor(images, **sizes), "video_processor": image_processor(video, **sizes)}
    return parts


QWEN2_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
QWEN2_VIDEO = QWEN2_IMAGE.replace("image", "video")
DEEPSTACK = {"text_config": {"num_hidden_layers": 3}, "vision_config": {"depth": 2, "deepstack_visual_indexes": [0, 1]}}


def qwen_row(decoder, processor, images="Qwen2VLImageProcessor", changes=None, ids=(104, 106), **options):
    return Row(decoder, changes or {}, QWEN2_IMAGE, qwen_tokens(*ids), qwen(processor, images), options)


def gemma3(config):
    size = {"height": 16, "width": 16}
    return "Gemma3Processor", {"image_seq_length": config["mm_tokens_per_image"]}, {"image_processor": image_processor("Gemma3ImageProcessor", size=size)}


def gemma4(_):
    sizes = {"patch_size": 4, "pooling_kernel_size": 2, "max_soft_tokens": 70}
    return "Gemma4Processor", {"image_seq_length": 70}, {
        "image_processor": image_processor("Gemma4ImageProcessor", **sizes), "video_processor": image_processor("Gemma4VideoProcessor", **sizes, num_frames=3),
        "feature_extractor": image_processor("Gemma4AudioFeatureExtractor")}


GEMMA4_TOKENS = {"image_token": ("<|image|>", 130), "video": ("<|video|>", 131), "audio_token": ("<|audio|>", 132), "boi_token": ("<|image>", 133),
                 "eoi_token": ("<image|>", 134), "boa_token": ("<|audio>", 135), "eoa_token": ("<audio|>", 129)}
GEMMA4_TOWER = {"vision_config": {"pooling_kernel_size": 2, "position_embedding_size": 80}, "text_config": {"max_position_embeddings": 512}}


def gemma4_of(decoder):
    """The wrapper of gemma4_multimodal around the decoder of another fixture."""
    config = json.loads((MODELS / decoder / "config.json").read_text())
    named = {key: value for key, value in config.items() if key not in ("architectures", "transformers_version")}
    return merged(GEMMA4_TOWER, {"text_config": {**named, "max_position_embeddings": 512}})


def llama4(_):
    size = {"height": 16, "width": 16}
    return "Llama4Processor", {"patch_size": 4, "pixel_shuffle_ratio": 0.5}, {
        "image_processor": image_processor("Llama4ImageProcessor", size=size, max_patches=4)}


def pixtral(_):
    return "PixtralProcessor", {"patch_size": 4, "spatial_merge_size": 2}, {
        "image_processor": image_processor("PixtralImageProcessor", patch_size={"height": 4, "width": 4}, size={"longest_edge": 24})}


def internvl(config):
    sizes = {"size": {"height": 16, "width": 16}, "crop_to_patches": True, "max_patches": 3}
    return "InternVLProcessor", {"image_seq_length": config["image_seq_length"]}, {
        "image_processor": image_processor("GotOcr2ImageProcessor", **sizes), "video_processor": image_processor("InternVLVideoProcessor", size=sizes["size"])}


def llava(_):
    sizes = {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}}
    return "LlavaProcessor", {"patch_size": 4, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}, {
        "image_processor": image_processor("CLIPImageProcessor", **sizes)}


def llava_onevision(config):
    sizes = {"size": {"height": 16, "width": 16}, "image_grid_pinpoints": config["image_grid_pinpoints"]}
    return "LlavaOnevisionProcessor", {"num_image_tokens": 16, "vision_feature_select_strategy": "full"}, {
        "image_processor": image_processor("LlavaOnevisionImageProcessor", **sizes),
        "video_processor": image_processor("LlavaOnevisionVideoProcessor", size=sizes["size"])}


def idefics(processor, images, **more):
    def parts(_):
        sizes = {"size": {"longest_edge": 32}, "max_image_size": {"longest_edge": 16}}
        return processor, {"image_seq_len": 4}, {"image_processor": image_processor(images, **sizes),
                                                 **{name: image_processor(kind) for name, kind in more.items()}}
    return parts


IDEFICS_TOKENS = {"image_token": ("<image>", 100), "fake_image_token": ("<fake_token_around_image>", 101),
                  "end_of_utterance_token": ("<end_of_utterance>", 102), "global_image_token": ("<global-img>", 103),
                  **{f"<row_{row}_col_{col}>": (f"<row_{row}_col_{col}>", 101 + 2 * row + col) for row in (1, 2) for col in (1, 2)}}
IMAGE = {"image_token": ("<image>", 100)}

FIXTURES = {
    "qwen2_vl": qwen_row("qwen2_vl", "Qwen2VLProcessor"),
    "qwen2_5_vl": qwen_row("qwen2_5_vl", "Qwen2_5_VLProcessor"),
    "qwen3_vl": qwen_row("qwen3_vl", "Qwen3VLProcessor", changes=DEEPSTACK),
    "qwen3_vl_moe": qwen_row("qwen3_vl_moe_v5", "Qwen3VLProcessor", changes=DEEPSTACK),
    "qwen3_5": qwen_row("qwen3_5", "Qwen3VLProcessor", ids=(90, 92), float32="A_log|linear_attn.norm"),
    "qwen3_5_moe": qwen_row("qwen3_5_moe", "Qwen3VLProcessor", ids=(90, 92), float32="A_log|linear_attn.norm"),
    "gemma3": Row("gemma3_multimodal", {"mm_tokens_per_image": 16, "image_token_index": 136, "boi_token_index": 134, "eoi_token_index": 135},
                  "<start_of_image>", {"image_token": ("<image_soft_token>", 136), "boi_token": ("<start_of_image>", 134),
                                       "eoi_token": ("<end_of_image>", 135)}, gemma3,
                  {"amplify": {"embed_tokens": 0.5}, "rename": [["^vision_tower\\.", "vision_tower.vision_model."]]}),
    "gemma4": Row("gemma4_multimodal", GEMMA4_TOWER, "<|image|>", GEMMA4_TOKENS, gemma4, {"amplify": {"embed_tokens.weight": 0.6}}),
    "gemma4_bidirectional": Row("gemma4_multimodal", gemma4_of("gemma4_31b"),
                                "<|image|>", GEMMA4_TOKENS, gemma4, {"amplify": {"embed_tokens.weight": 0.6}}),
    "llama4": Row("llama4_wrapped", {"image_token_index": 104},
                  "<|image|>", {"image": ("<|image|>", 102), "start": ("<|image_start|>", 100), "end": ("<|image_end|>", 101),
                                "patch": ("<|patch|>", 104), "x": ("<|tile_x_separator|>", 105), "y": ("<|tile_y_separator|>", 106)}, llama4),
    "mistral3": Row("mistral3", {}, "[IMG]", {"image_token": ("[IMG]", 10), "image_break_token": ("[IMG_BREAK]", 11),
                                              "image_end_token": ("[IMG_END]", 12)}, pixtral),
    "internvl": Row("internvl", {}, "<IMG_CONTEXT>", {"context_image_token": ("<IMG_CONTEXT>", 100), "start_image_token": ("<img>", 101),
                                                      "end_image_token": ("</img>", 102), "video_token": ("<video>", 103)}, internvl),
    "llava": Row("llava", {"vision_config": {"num_hidden_layers": 2}}, "<image>", IMAGE, llava),
    "llava_onevision": Row("llava_onevision", {}, "<image>", {**IMAGE, "video_token": ("<video>", 101)}, llava_onevision),
    "idefics3": Row("idefics3", {}, "<image>", IDEFICS_TOKENS, idefics("Idefics3Processor", "Idefics3ImageProcessor")),
    "qwen2_5_vl_video": dataclasses.replace(qwen_row("qwen2_5_vl", "Qwen2_5_VLProcessor"), video=QWEN2_VIDEO),
    "qwen3_vl_video": dataclasses.replace(qwen_row("qwen3_vl", "Qwen3VLProcessor", changes=DEEPSTACK), video=QWEN2_VIDEO),
    "llava_onevision_video": Row("llava_onevision", {}, "<image>", {**IMAGE, "video_token": ("<video>", 101)}, llava_onevision, video="<video>"),
    "internvl_video": Row("internvl", {}, "<IMG_CONTEXT>", {"context_image_token": ("<IMG_CONTEXT>", 100), "start_image_token": ("<img>", 101),
                                                            "end_image_token": ("</img>", 102), "video_token": ("<video>", 103)}, internvl, video="<video>"),
    "gemma4_video": Row("gemma4_multimodal", GEMMA4_TOWER, "<|image|>", GEMMA4_TOKENS, gemma4, {"amplify": {"embed_tokens.weight": 0.6}}, "<|video|>"),
    "smolvlm": Row("smolvlm", {}, "<image>", IDEFICS_TOKENS,
                   idefics("SmolVLMProcessor", "SmolVLMImageProcessor", video_processor="SmolVLMVideoProcessor")),
}


def config_of(name):
    row = FIXTURES[name]
    return merged(json.loads((MODELS / row.decoder / "config.json").read_text()), row.changes)


def tokenizer_of(row):
    """A token a letter, and those of the row."""
    special = dict(row.tokens.values())
    free = (number for number in range(4, 200) if number not in special.values())
    vocab = {"<pad>": 0, "</s>": 1, "<s>": 2, "<unk>": 3, **{letter: next(free) for letter in LETTERS}, **special}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    named = {name: token for name, (token, _) in row.tokens.items()}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
                                                extra_special_tokens=named)


def save_processor(folder: pathlib.Path, row, config):
    name, arguments, parts = row.processor(config)
    template = TEMPLATE.replace("IMAGE", row.image).replace("VIDEO", row.video)
    getattr(transformers, name)(tokenizer=tokenizer_of(row), chat_template=template, **parts, **arguments).save_pretrained(folder)

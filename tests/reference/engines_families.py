"""Families of engines_table.py: what their checkpoints have that the fixtures of tests/fixtures/models have not, and which engines are not run."""
import json
import pathlib
import re

MODELS = pathlib.Path(__file__).parent.parent / "fixtures" / "models"
# Shapes of one kind with published checkpoints, where an engine computes one from another.
CONFIGS = {"exaone4": dict(head_dim=6), "olmoe": dict(num_key_value_heads=6), "granitemoehybrid_moe": dict(mamba_d_head=8),
           "qwen3_next": dict(decoder_sparse_step=1, num_hidden_layers=4, full_attention_interval=4,
                              layer_types=["linear_attention"] * 3 + ["full_attention"]), "nemotron_h": dict(n_groups=8, mamba_num_heads=8),
           "phi": dict(intermediate_size=192), "gpt_oss": dict(intermediate_size=32), "falcon_11b": dict(ffn_hidden_size=192),
           "exaone": dict(max_position_embeddings=64), "qwen2_vl": dict(use_sliding_window=False),
           # Keys of published checkpoints that transformers does not need.
           "deepseek_v32": dict(moe_layer_freq=1), "glm_moe_dsa": dict(moe_layer_freq=1), "hy_v3": dict(expert_hidden_dim=14, first_k_dense_replace=1, qk_norm=True, route_norm=True),
           "hunyuan_v1_moe": dict(use_qk_norm=True, use_mixed_mlp_moe=True),
           "mimo_v2_flash": dict(hybrid_layer_pattern=[0, 1, 1, 0], moe_layer_freq=[0, 1, 0, 1], layernorm_epsilon=1e-5, partial_rotary_factor=0.334,
                                 rope_theta=5000000.0, sliding_window_size=4, swa_rope_theta=10000.0, swa_num_attention_heads=4, swa_num_key_value_heads=2,
                                 swa_head_dim=12, swa_v_head_dim=8, add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False,
                                 scoring_func="sigmoid", topk_method="noaux_tc",
                                 auto_map=dict(AutoConfig="configuration_mimo_v2_flash.MiMoV2FlashConfig")),
           "lfm2": dict(conv_dim=32, block_dim=32), "gemma4_26b": dict(num_global_key_value_heads=1, global_head_dim=16),
           "lfm2_vl": dict(text_config=json.loads((MODELS / "lfm2_vl" / "config.json").read_text())["text_config"] | dict(conv_dim=24, block_dim=24)),
           "exaone_moe": dict(is_moe_layer=[False, True, False, True]),
           "iquestcoder": dict(pad_token_id=None, auto_map=dict(AutoConfig="configuration_iquestcoder.IQuestCoderConfig",
                                                                AutoModelForCausalLM="modeling_iquestcoder.IQuestCoderForCausalLM"))}
# Keys of transformers alone, beside which it would not read the published ones.
WITHOUT = {"gemma4_26b": ["per_layer_config"], "mimo_v2_flash": ["rope_parameters"]}
LEFT_OUT = ("llama_rope", "phi3_longrope", "llama_biased", "qwen2_window", "gemma3_text_v5", "deepseek_v3_fp8", "deepseek_v32_sparse", "glm_moe_dsa_sparse",
            "llama4_yarn", "nanochat_yarn",
            # Their fixtures have other names than synth, or other sizes than the class of transformers.
            "nemotron_h_omni", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker", "shieldgemma2")
# Of no text model, as in make_fixtures.py, or of a part of one that makes no K and V of tokens.
OUTSIDE = re.compile(r"vision|visual|projector|connector|image_newline|image_tower|video_tower|audio_tower|embed_audio|sound_projection|aligner|"
                     r"qformer|query_tokens|language_projection|mlp_AR|mlp1\.|view_sep|cross_attn|\.indexer\.")
CROSS_LAYERS = {"mllama": "language_model.model.layers.1."}  # which synth leaves out as a whole
# Families added last, with which not every engine was run.
WRAPPERS = set("aria aria_text aya_vision blip_2 cohere2_vision cohere_compass cohere_compass_text deepseek_ocr2 deepseek_vl deepseek_vl_hybrid emu3 "
               "exaone4_5 fast_vlm gemma3n gemma3n_text gemma4_unified gemma4_unified_text glm_ocr glmga got_ocr2 granite_docling hunyuan_vl "
               "hyperclovax_vision_v2 idefics2 instructblip instructblipvideo janus lighton_ocr llava_next_video minicpm_ocr minicpmv4_6 minicpmv4_7 "
               "mllama moss_transcribe_diarize olmo_clip ovis2 paddleocr_vl perception_lm phi4_multimodal pp_chart2table qianfan_ocr video_llama_3 "
               "video_llava vipllava".split())
# Engines that need a GPU, a processor's files, parts of the model or keys of config.json that a fixture has not, or another version of
# transformers than their environment's: verify says "not known" of these.
NOT_RUN = {"vllm": "glm46v aria_text emu3 janus phi4_multimodal granite_docling hyperclovax_vision_v2 minicpm_ocr minicpmv4_7 pp_chart2table qianfan_ocr "
                   "instructblipvideo".split(),
           "vllm@0.33": WRAPPERS | {"flint", "glm46v", "olmo_hybrid_saved"},
           "sglang": "kimi_k25 lfm2 lfm2_moe".split(),
           "tgi": "dbrx idefics2 idefics3 mllama llama4_wrapped llava_next opt qwen2_5_vl qwen2_vl".split(), "transformers": [], "transformers@5.23": [],
           "lmdeploy": WRAPPERS | {"deepseek_v32", "glm4v", "glm_moe_dsa", "kimi_k25"},
           "aphrodite": WRAPPERS | set("afmoe deepseek_v32 exaone_moe gemma4_e2b gemma4_multimodal glm46v glm_moe_dsa granite4_vision kimi_k25 laguna llava_onevision "
                                       "mellum mistral3 qwen2_5_vl qwen2_vl qwen3_vl qwen3_vl_moe qwen3_vl_moe_v5".split())}
# Of these transformers makes random numbers for the parts that the fixtures have not, which it cannot of FP8 weights.
NO_FP8_WEIGHTS = {"transformers": "deepseek_ocr2 emu3 fast_vlm gemma3n hunyuan_vl instructblip instructblipvideo janus minicpm_ocr minicpmv4_6 minicpmv4_7 mllama "
                                  "perception_lm phi4_multimodal".split()}

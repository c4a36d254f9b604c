"""Families of engines_table.py: what their checkpoints have that the fixtures of tests/fixtures/models have not, and which engines are not run."""
import json
import pathlib
import re

MODELS = pathlib.Path(__file__).parent.parent / "tests" / "fixtures" / "models"


def fixture_config(name):
    return json.loads((MODELS / name / "config.json").read_text())


def part_of(name, key, **more):
    return fixture_config(name)[key] | more


def config_of(name):
    """What the family's checkpoint is made of."""
    config = fixture_config(SAME_AS.get(name, name)) | CONFIGS.get(name, {})
    return {key: value for key, value in config.items() if key not in WITHOUT.get(name, ())}


def all_families():
    return sorted([path.parent.name for path in MODELS.glob("*/config.json") if not path.parent.name.startswith(LEFT_OUT)] + list(SAME_AS))


# Shapes of one kind with published checkpoints, where an engine computes one from another.
CONFIGS = {"exaone4": dict(head_dim=6), "olmoe": dict(num_key_value_heads=6), "granitemoehybrid_moe": dict(mamba_d_head=8),
           "qwen3_next": dict(decoder_sparse_step=1, num_hidden_layers=4, full_attention_interval=4,
                              layer_types=["linear_attention"] * 3 + ["full_attention"]), "nemotron_h": dict(n_groups=8, mamba_num_heads=8),
           "phi": dict(intermediate_size=192), "gpt_oss": dict(intermediate_size=32), "falcon_11b": dict(ffn_hidden_size=192),
           "exaone": dict(max_position_embeddings=64), "qwen2_vl": dict(use_sliding_window=False),
           # Keys of published checkpoints that transformers does not need.
           "afmoe": dict(layer_types=["sliding_attention"] * 3 + ["full_attention"]),
           "deepseek_v32": dict(moe_layer_freq=1), "glm_moe_dsa": dict(moe_layer_freq=1), "hy_v3": dict(expert_hidden_dim=14, first_k_dense_replace=1, qk_norm=True, route_norm=True),
           "hunyuan_v1_moe": dict(use_qk_norm=True, use_mixed_mlp_moe=True),
           "mimo_v2_flash": dict(hybrid_layer_pattern=[0, 1, 1, 0], moe_layer_freq=[0, 1, 0, 1], layernorm_epsilon=1e-5, partial_rotary_factor=0.334,
                                 rope_theta=5000000.0, sliding_window_size=4, swa_rope_theta=10000.0, swa_num_attention_heads=4, swa_num_key_value_heads=2,
                                 swa_head_dim=12, swa_v_head_dim=8, add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False,
                                 scoring_func="sigmoid", topk_method="noaux_tc",
                                 auto_map=dict(AutoConfig="configuration_mimo_v2_flash.MiMoV2FlashConfig")),
           "lfm2": dict(conv_dim=32, block_dim=32), "gemma4_26b": dict(num_global_key_value_heads=1, global_head_dim=16),
           "lfm2_vl": dict(text_config=part_of("lfm2_vl", "text_config", conv_dim=24, block_dim=24)),
           "kimi_k25": dict(text_config=part_of("kimi_k25", "text_config", moe_layer_freq=1),
                            vision_config=part_of("kimi_k25", "vision_config", vt_hidden_size=8, vt_intermediate_size=12, vt_num_hidden_layers=1,
                                                  vt_num_attention_heads=2, text_hidden_size=32, mm_hidden_size=8, init_pos_emb_height=4, init_pos_emb_width=4,
                                                  init_pos_emb_time=2, merge_type="sd2_tpool", merge_kernel_size=[2, 2], mm_projector_type="patchmerger",
                                                  projector_hidden_act="gelu", projector_ln_eps=1e-5, pos_emb_type="divided_fixed",
                                                  video_attn_type="spatial_temporal")),
           "kimi_k2": dict(model_type="kimi_k2", n_group=1, topk_group=1, num_nextn_predict_layers=0, pad_token_id=2,
                           auto_map=dict(AutoConfig="configuration_deepseek.DeepseekV3Config",
                                         AutoModelForCausalLM="modeling_deepseek.DeepseekV3ForCausalLM")),
           "bailing_hybrid": dict(architectures=["BailingMoeV3ForCausalLM"], num_hidden_layers=4, no_kda_lora=True, moe_shared_expert_intermediate_size=10, use_bias=False, use_qkv_bias=False,
                                  auto_map=dict(AutoConfig="configuration_bailing_moe_v3.BailingMoeV3Config",
                                                AutoModelForCausalLM="modeling_bailing_moe_v3.BailingMoeV3ForCausalLM")),
           "dots3_note": dict(architectures=["Dots3NoteForCausalLM"], topk_method="noaux_tc", scoring_func="sigmoid", attention_gate_type="headwise", swa_attention_gate_type="headwise", apply_mla_qkv_lora_rescale=False, vision_config=part_of("dots3_note", "vision_config", num_attention_heads=2), moe_layer_freq=1, layer_types=["full_attention"] * 2 + ["sliding_attention"] * 2),
           "glm5_next": dict(text_config=part_of("glm5_next", "text_config", mhc=True, mla_use_nope=True, topk_method="noaux_tc", scoring_func="sigmoid", indexer_rope_interleave=True, index_kpool_compress=True, layer_types=["linear_attention", "full_attention"] * 2,
                                                 linear_attn_config=fixture_config("glm5_next")["text_config"]["linear_attn_config"] |
                                                 dict(kda_layers=[0, 2], full_attn_layers=[1, 3])),
                             vision_config=part_of("glm5_next", "vision_config", swiglu_limit=1.0)),
           "qwen4_exp": dict(text_config=part_of("qwen4_exp", "text_config", eos_token_id=2, indexer_budget=2048)),
           "inkling": dict(text_config=part_of("inkling", "text_config", use_embed_norm=True, use_sconv=True, use_gate_bias=True, use_global_scale=True)),
           "qwen2_5_vl": part_of("qwen2_5_vl", "text_config", model_type="qwen2_5_vl"),
           "exaone_moe": dict(is_moe_layer=[False, True, False, True]),
           # A text_config names no architectures.
           "mistral3_mistral4": dict(text_config={key: value for key, value in fixture_config("mistral4").items() if key != "architectures"}),
           "iquestcoder": dict(pad_token_id=None, auto_map=dict(AutoConfig="configuration_iquestcoder.IQuestCoderConfig",
                                                                AutoModelForCausalLM="modeling_iquestcoder.IQuestCoderForCausalLM"))}
# Other shapes of a type whose published keys these are, too.
for _name, _other in {"phi_normed": "phi", "nemotron_h_latent": "nemotron_h", "hunyuan_v1_moe_topk": "hunyuan_v1_moe"}.items():
    CONFIGS[_name] = CONFIGS[_other]
# Families of another one's fixture: under a model_type of their own, around another text model, without what CONFIGS adds.
SAME_AS = {"kimi_k2": "deepseek_v3", "mistral3_mistral4": "mistral3", "hy_v3_bare": "hy_v3"}
# Keys of transformers alone, beside which it would not read the published ones.
WITHOUT = {"gemma4_26b": ["per_layer_config"], "mimo_v2_flash": ["rope_parameters"], "qwen2_5_vl": ["text_config"]}
LEFT_OUT = ("llama_rope", "phi3_longrope", "llama_biased", "qwen2_window", "gemma3_text_v5", "deepseek_v3_fp8", "deepseek_v32_sparse", "glm_moe_dsa_sparse",
            "llama4_yarn", "nanochat_yarn",
            # Other shapes of types that are recorded.
            "dbrx_norm", "ernie4_5_moe_biased", "gpt2_scaled", "hunyuan_v1_moe_topk", "hy_v3_biased", "jamba_biased", "lfm2_moe_plain", "nemotron_h_latent", "opt_plain", "opt_post_norm",
            "kimi_k3_plain", "phi_normed", "qwen3_5_biased", "qwen3_next_biased", "smollm3_window",
            # Their fixtures have other names than synth, or other sizes than the class of transformers.
            "nemotron_h_omni", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker", "shieldgemma2")
# Of no text model, as in make_fixtures.py, or of a part of one that makes no K and V of tokens.
OUTSIDE = re.compile(r"vision|visual|projector|connector|image_newline|image_tower|video_tower|audio_tower|embed_audio|sound_projection|aligner|"
                     r"qformer|query_tokens|language_projection|mlp_AR|mlp1\.|view_sep|cross_attn|\.indexer\.")
CROSS_LAYERS = {"mllama": "language_model.model.layers.1."}  # which synth leaves out as a whole
# Of these transformers makes random numbers for the parts that the fixtures have not, which it cannot of FP8 weights.
NO_FP8_WEIGHTS = {"transformers": "blip_2 deepseek_ocr2 dots3_note emu3 fast_vlm gemma3n glm5_next hunyuan_vl instructblip instructblipvideo janus minicpm_ocr minicpmv4_6 minicpmv4_7 mllama "
                                  "perception_lm phi4_multimodal qwen4_exp".split()}

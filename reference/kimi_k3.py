"""Kimi-K3's text model as llm-compressor runs it, for transformers' AutoModelForCausalLM.

needs: llmcompressor 0.14.0.1 and fla-core 0.6.0 (pip install --no-deps), einops; apart from other scripts' environments
(pip install --target, and that folder as PYTHONPATH): where fla-core is, transformers takes its kernels for other models
Importing this module registers the model type kimi_k3. llm-compressor's class runs on a CPU with fla-core's own torch
code of the delta rule and its decays (`naive_recurrent_kda`, `naive_kda_gate`, `naive_kda_lowerbound_gate`); fla-core
has its convolution and its gated norm for GPUs alone, which the two classes below stand for.
"""
import copy
import importlib.util
import sys
import types

import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin


class ShortConvolution(torch.nn.Conv1d):
    """A causal convolution by channel, then its activation; source: fla-core 0.6.0, `fla.modules.ShortConvolution`."""

    def __init__(self, hidden_size, kernel_size, activation):
        assert activation == "silu"
        super().__init__(hidden_size, hidden_size, kernel_size, groups=hidden_size, bias=False)

    def forward(self, x, cache=None, output_final_state=False, cu_seqlens=None):
        assert cu_seqlens is None
        before = x.new_zeros(x.shape[0], self.kernel_size[0] - 1, x.shape[2]) if cache is None else cache
        rows = torch.cat([before, x], 1)
        return F.silu(super().forward(rows.mT).mT), rows[:, -before.shape[1]:] if output_final_state else None


class FusedRMSNormGated(torch.nn.Module):
    """rms(x) · weight · sigmoid(gate); source: fla-core 0.6.0, `fla.modules.FusedRMSNormGated`."""

    def __init__(self, hidden_size, eps, activation):
        assert activation == "sigmoid"
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(hidden_size)), eps

    def forward(self, x, gate):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight * torch.sigmoid(gate)


def delta_rule(q, k, v, g, beta, A_log, dt_bias, initial_state, output_final_state, lower_bound=None, **switches):
    """fla-core's kernels, by its own torch code."""
    from fla.ops.kda.gate import naive_kda_gate, naive_kda_lowerbound_gate
    from fla.ops.kda.naive import naive_recurrent_kda
    assert switches.pop("cu_seqlens") is None and switches.pop("safe_gate", lower_bound is not None) == (lower_bound is not None)
    assert all(switches.values())  # norms of q and k, the gate, beta's sigmoid and a transposed state in the kernel
    decays = naive_kda_gate(g, A_log, dt_bias) if lower_bound is None else naive_kda_lowerbound_gate(
        g, A_log, dt_bias, lower_bound)
    q, k = (x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    return naive_recurrent_kda(q, k, v, decays, beta.sigmoid(), initial_state=initial_state,
                               output_final_state=output_final_state)


def module_of(name, **members):
    module = sys.modules[name] = types.ModuleType(name)
    module.__dict__.update(members)


def imported():
    """llm-compressor's module without the package around it, which needs much more."""
    folder = importlib.util.find_spec("llmcompressor").submodule_search_locations[0]
    for package, below in (("llmcompressor", ""), ("llmcompressor.modeling", "/modeling"),
                           ("llmcompressor.modeling.moe", "/modeling/moe"),
                           ("llmcompressor.modeling.kimi_k3", "/modeling/kimi_k3")):
        module_of(package, __path__=[folder + below])
    import fla.ops.kda.gate  # noqa: F401, before the stand-ins
    module_of("fla.modules", ShortConvolution=ShortConvolution, FusedRMSNormGated=FusedRMSNormGated)
    sys.modules["fla.ops.kda"].chunk_kda = sys.modules["fla.ops.kda"].fused_recurrent_kda = delta_rule
    from llmcompressor.modeling.kimi_k3 import modeling_kimi_linear
    return modeling_kimi_linear


kimi = imported()
from llmcompressor.modeling.kimi_k3.configuration_kimi_k3 import KimiK3Config  # noqa: E402, behind the stand-ins


class Latent:
    """What transformers' caches hold of latent attention, of the last run: the latent behind its norm, and the part of
    keys beside it. The class above caches K and V of all heads, which an engine does not."""

    def __init__(self, attention):
        self.keys = self.values = None
        if hasattr(attention, "kv_a_layernorm"):
            attention.kv_a_proj_with_mqa.register_forward_hook(
                lambda module, inputs, output: setattr(self, "values", output[:, None, :, attention.kv_lora_rank:]))
            attention.kv_a_layernorm.register_forward_hook(
                lambda module, inputs, output: setattr(self, "keys", output[:, None]))


class Cache(kimi.KimiDynamicCache):
    layers = ()


class Model(kimi.KimiPreTrainedModel, GenerationMixin):
    """The text model where a published checkpoint has it, without the tower."""

    config_class = KimiK3Config
    _keys_to_ignore_on_load_unexpected = [r"^vision_tower\.", r"^mm_projector\."]

    def __init__(self, config):
        super().__init__(config)
        config.text_config._attn_implementation = "eager"
        self.language_model = kimi.KimiLinearForCausalLM(config.text_config)
        self.latents = [Latent(layer.self_attn) for layer in self.language_model.model.layers]
        self.post_init()

    def forward(self, input_ids, past_key_values=None, cache=None, use_cache=False, **others):
        cache = cache if past_key_values is None else past_key_values
        result = self.language_model(input_ids, past_key_values=cache, use_cache=use_cache)
        if cache is not None:
            cache.layers = [copy.copy(latent) for latent in self.latents]
        return result

    def get_input_embeddings(self):
        return self.language_model.get_input_embeddings()

    def get_output_embeddings(self):
        return self.language_model.lm_head

    def new_cache(self):
        return Cache(self.config.text_config)


AutoConfig.register("kimi_k3", KimiK3Config)
AutoModelForCausalLM.register(KimiK3Config, Model)

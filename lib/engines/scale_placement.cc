#include <algorithm>

#include "core/text.h"
#include "engines/scale_loading.h"

namespace kvcal {
namespace {

bool is_plain_module(const ModelConfig& config, int64_t layer) {
  const std::string module = config.attention_module(layer);
  return module.ends_with(".self_attn") || module.ends_with(".mixer");
}

const NameRule* rule_of(const MethodRules& rules, const ScaleTensor& tensor,
                        const ModelConfig& config) {
  if (tensor.layer < 0) return nullptr;
  const auto rule = std::ranges::find_if(rules.names, [&](const NameRule& name) {
    return name.suffix == tensor.rest &&
           (!name.needs_plain_module || is_plain_module(config, tensor.layer));
  });
  return rule == rules.names.end() ? nullptr : &*rule;
}

/// Whether the engine knows the name with some configuration.
bool is_known(const EngineRules& engine, const ScaleTensor& tensor, const ModelConfig& config) {
  return std::ranges::any_of(engine.methods, [&](const MethodRules& rules) {
    return rule_of(rules, tensor, config) != nullptr;
  });
}

/// Zero points, and scales of queries and probabilities, are none of the cache's.
bool is_of_cache(const ScaleTensor& tensor) {
  const std::string_view rest = tensor.rest;
  return !rest.ends_with("zero_point") && !rest.ends_with(".q_scale") &&
         !rest.ends_with(".q.scale") && !rest.ends_with("q_proj.output_scale") &&
         !rest.ends_with("prob_output_scale") && !rest.ends_with("prob_scale");
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return "[" + join(shape, ", ", [](int64_t size) { return std::to_string(size); }) + "]";
}

int64_t element_count_of(const ScaleTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  return count;
}

class Placer {
 public:
  Placer(const VerifyCase& subject, Findings& findings) : subject_(subject), findings_(findings) {
    for (int64_t layer = 0; layer < subject.config.num_hidden_layers; ++layer)
      if (subject.config.has_attention(layer)) placement_.layers[layer];
  }

  Placement place() && {
    using enum NameOutcome;
    for (const ScaleTensor& tensor : subject_.tensors) {
      const NameRule* rule =
          subject_.choice.reads_scales ? rule_of(subject_.rules, tensor, subject_.config) : nullptr;
      const auto [outcome, side] = seen_of(tensor);
      if (outcome == kRefused)
        refuse(tensor, "its loader of such models stops at " + name_of(tensor), subject_.remedy);
      else if (outcome == kDropped || outcome == kDroppedWhenAsked || outcome == kSixteenBits)
        dropped_.push_back(&tensor);
      else if ((outcome == kLoaded || outcome == kLoadedWhenAsked) && side != 0 &&
               tensor.layer >= 0)
        put(tensor, side == 'k' ? ScaleSide::kKey : ScaleSide::kValue);
      else if (!rule)
        leave(tensor);
      else if (rule->side != ScaleSide::kTaken)
        put(tensor, rule->side);
    }
    for (const ScaleTensor* tensor : dropped_) tell_dropped(*tensor);
    return std::move(placement_);
  }

 private:
  std::string name_of(const ScaleTensor& tensor) const {
    return general_name(tensor, subject_.config);
  }

  /// What the loader was seen to do with the name; not where it passes over all scales.
  TriedName seen_of(const ScaleTensor& tensor) const {
    return !subject_.names || !subject_.choice.reads_scales
               ? TriedName()
               : tried_name(*subject_.names, name_in_layer(tensor));
  }

  void refuse(const ScaleTensor& tensor, const std::string& why, const std::string& remedy) {
    placement_.loads = false;
    findings_.add(tensor.layer, Severity::kError, why, remedy);
  }

  void leave(const ScaleTensor& tensor) {
    const bool known = is_known(subject_.engine, tensor, subject_.config);
    const Unknown policy = known ? subject_.engine.unplaced : subject_.engine.unknown;
    if (policy != Unknown::kRefused) {
      dropped_.push_back(&tensor);
      return;
    }
    const std::string place = tensor.layer < 0
                                  ? ", which belongs to no attention layer of the model"
                              : known ? ", for which this configuration makes no place"
                                      : ", a name that it does not know";
    refuse(tensor, "its loader stops at " + name_of(tensor) + place, remedy_for(tensor, known));
  }

  std::string remedy_for(const ScaleTensor& tensor, bool known) const {
    if (tensor.layer < 0) return "remove the tensor, or rename it to its layer's";
    if (known || subject_.rules.names.empty()) return subject_.remedy;
    return "rename it to " + std::string(subject_.rules.names[0].suffix.substr(1)) + " or " +
           std::string(subject_.rules.names[1].suffix.substr(1)) + " of " +
           subject_.config.attention_module(tensor.layer) + ", or " + subject_.remedy;
  }

  void put(const ScaleTensor& tensor, ScaleSide side) {
    if (counts_other_heads(tensor))
      refuse(tensor,
             "it counts " + std::to_string(subject_.config.num_key_value_heads) +
                 " KV heads for every layer, and stops at scales of heads where a layer has " +
                 std::to_string(subject_.config.cache(tensor.layer).heads),
             "calibrate with a scale a tensor");
    else
      check_shape(tensor, side);
    PlacedScales& layer = placement_.layers.at(tensor.layer);
    const ScaleTensor*& place = side == ScaleSide::kKey     ? layer.k
                                : side == ScaleSide::kValue ? layer.v
                                                            : layer.both;
    if (place && place->values != tensor.values)
      findings_.add(tensor.layer, Severity::kError,
                    place->name == tensor.name
                        ? name_of(tensor) + " of " + tensor.file + " replaces that of " +
                              place->file + ", which holds another value"
                        : name_of(tensor) + " replaces " + name_of(*place) +
                              ", which comes before it by name and holds another value",
                    "remove one of the two");
    place = &tensor;
  }

  /// Source: vLLM 0.32, compressed_tensors.py, `_tp_aware_loader`.
  bool counts_other_heads(const ScaleTensor& tensor) const {
    return subject_.rules.heads == HeadScales::kCut && takes_head_scales(subject_) &&
           subject_.config.latent.latent_rank == 0 &&
           subject_.config.cache(tensor.layer).heads != subject_.config.num_key_value_heads;
  }

  /// The heads that config.json names, also of a latent cache, which has one.
  int64_t named_heads(int64_t heads) const {
    return subject_.config.latent.latent_rank > 0 ? subject_.config.num_key_value_heads : heads;
  }

  /// Whether the shape is one that the engine takes without a word.
  bool fits(const ScaleTensor& tensor, bool has_heads) const {
    const int64_t heads = subject_.config.cache(tensor.layer).heads,
                  count = element_count_of(tensor);
    const std::vector<int64_t> head_shape{heads, 1, 1};
    if (subject_.rules.shapes == ScaleShapes::kExact)
      return tensor.shape ==
             (has_heads ? std::vector<int64_t>{named_heads(heads), 1, 1} : std::vector<int64_t>{1});
    if (has_heads && subject_.rules.shapes == ScaleShapes::kAny)
      return count == 1 || tensor.shape == head_shape;
    return (count == 1 && (!has_heads || subject_.options.tp_size == 1)) ||
           (has_heads && count == heads);
  }

  int64_t channels_of(const ScaleTensor& tensor, ScaleSide side) const {
    const LayerCache& cache = subject_.config.cache(tensor.layer);
    return cache.heads * (side == ScaleSide::kKey ? cache.k_dim : cache.v_dim);
  }

  void check_shape(const ScaleTensor& tensor, ScaleSide side) {
    const int64_t heads = subject_.config.cache(tensor.layer).heads,
                  count = element_count_of(tensor);
    if (tensor.values.empty() && count > 0) {
      findings_.add(tensor.layer, Severity::kError,
                    name_of(tensor) + " is no tensor of a few numbers", "store it as F32");
      return;
    }
    if (subject_.rules.shapes == ScaleShapes::kChannels) {
      if (const int64_t channels = channels_of(tensor, side); count != channels)
        refuse(tensor,
               "it refuses " + name_of(tensor) + " of shape " + shape_text(tensor.shape) +
                   ", it takes " + counted(channels, "element") + ", one a channel",
               subject_.remedy);
      return;
    }
    const bool has_heads = takes_head_scales(subject_);
    if (fits(tensor, has_heads)) return;
    const std::string found = name_of(tensor) + " of shape " + shape_text(tensor.shape);
    const std::string wanted =
        has_heads ? counted(heads, "element") + ", one a head" : "one element";
    if (subject_.rules.shapes == ScaleShapes::kAny)
      findings_.add(tensor.layer, Severity::kError,
                    "its forward pass stops at " + found + ", it takes " + wanted, subject_.remedy);
    else if (subject_.rules.heads == HeadScales::kCut && has_heads && count > heads)
      findings_.add(tensor.layer, Severity::kError, "of " + found + " it takes the first " + wanted,
                    subject_.remedy);
    else
      refuse(tensor, "it refuses " + found + ", it takes " + wanted, subject_.remedy);
  }

  void tell_dropped(const ScaleTensor& tensor) {
    if (!is_of_cache(tensor)) return;
    const bool known = is_known(subject_.engine, tensor, subject_.config);
    const Unknown policy = known ? subject_.engine.unplaced : subject_.engine.unknown;
    const std::string how =
        policy == Unknown::kDroppedWithWarning ? "drops it with a warning" : "never looks for it";
    if (tensor.layer >= 0) {
      const PlacedScales& layer = placement_.layers.at(tensor.layer);
      if (layer.both || (layer.k && layer.v)) {
        findings_.add(tensor.layer, Severity::kNote,
                      name_of(tensor) + " is not read: other tensors give the layer's scales");
        return;
      }
    }
    if (!subject_.options.scales.empty() && subject_.engine.scales_file.is_read) {
      findings_.add(tensor.layer, Severity::kNote,
                    name_of(tensor) + " is not read: the scales are those of " +
                        subject_.options.scales.filename().string());
      return;
    }
    findings_.add(tensor.layer, Severity::kError, name_of(tensor) + " is lost: it " + how,
                  subject_.remedy);
  }

  const VerifyCase& subject_;
  Findings& findings_;
  Placement placement_;
  std::vector<const ScaleTensor*> dropped_;
};

/// Engines that tell capital letters apart refuse them before.
bool is_head_strategy(const Json& strategy) {
  return strategy.is_string() && ascii_lower(strategy.get<std::string>()) == "attn_head";
}

}  // namespace

bool is_dynamic(const CacheDeclaration& declaration) {
  const Json& scheme = declaration.scheme;
  const Json dynamic = value_of(scheme, "dynamic");
  return dynamic == true || dynamic == 1;
}

bool takes_head_scales(const VerifyCase& subject) {
  const Json& scheme = subject.declaration.scheme;
  return subject.rules.heads != HeadScales::kNotTaken && scheme.is_object() &&
         is_head_strategy(scheme.value("strategy", Json()));
}

Placement place_scales(const VerifyCase& subject, Findings& findings) {
  return Placer(subject, findings).place();
}

}  // namespace kvcal

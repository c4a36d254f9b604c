#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "family/family_choice.h"

namespace kvcal {

struct Architecture;
struct ModelConfig;
struct NamePrefix;

/// Place of a text model's tensors in a multimodal checkpoint.
struct TextPlace {
  /// kModel: all of its tensors lie below the prefix under the names of its own checkpoints
  /// ("language_model.model.layers", "language_model.lm_head"). kBackbone: its backbone does
  /// ("model.language_model.layers"), and lm_head lies outside ("lm_head").
  enum class Holds : uint8_t { kModel, kBackbone };
  std::string_view prefix;
  Holds holds = Holds::kModel;
};

/// A multimodal model type whose text part is a known decoder. With text alone its image positions
/// (M-RoPE) are equal numbers, so that its text part runs as the decoder by itself does.
struct Wrapper {
  std::string_view model_type;
  std::string_view description;  ///< well-known models
  /// Type of the text part where text_config does not name one, or, where has_one_text_type,
  /// whatever it names.
  std::string_view text_type;
  std::vector<TextPlace> places;  ///< the published one first
  /// Beginnings of the names of tensors outside of the text model, also below "model.".
  std::vector<std::string_view> outside;
  struct Rules {
    bool has_one_text_type = false;
    bool may_be_flat =
        false;  ///< older checkpoints keep the text model's keys beside vision_config
    /// lm_head is tied where either the wrapper or its text_config says so; else the wrapper's word
    /// precedes.
    bool ties_if_either = false;
    bool multiplies_no_logits = false;  ///< the text model's multiplier of the logits is not read
    std::string_view around_text = {};  ///< object that holds text_config; empty: config.json does
  };
  Rules rules = {};
};

/// All known wrappers, in the order in which users see them. Source: transformers 5.24,
/// `conversion_mapping.py` and each model's modeling file.
const std::vector<Wrapper>& wrappers();
/// Places that text models have in most multimodal checkpoints, the most likely first.
const std::vector<TextPlace>& usual_places();

/// The family of a config.json, and its object that describes the text model.
struct TextModel {
  const Architecture* architecture = nullptr;
  const Json* config = nullptr;
  std::string model_type;
  std::string wrapper_type = {};     ///< model_type around it; empty: none
  const Wrapper* wrapper = nullptr;  ///< its row; nullptr: none, or the type is not known
  FamilyChoice chosen = {};          ///< where model_type is not known; else empty
};
/// A model_type that is not known but has the text_config of a known decoder counts as a wrapper.
/// family: of a text model whose type is not known. Throws Error naming model_type and the known
/// types, and where the family is not that of a known type.
TextModel text_model_of(const Json& config, const FamilyChoice& family = {});

/// Prefixes that the text model's tensors may have, the most likely first; last those of a model
/// that was saved without its head (AutoModel), whose names lack the backbone's prefix.
std::vector<NamePrefix> name_prefixes(const ModelConfig& config);

/// Entries of an `ignore` list for the modules that is_outside_text holds for, and for lm_head,
/// under whatever names engines give them: transformers 5 and vLLM rename parts of a vision tower.
std::vector<std::string> outside_patterns(const std::vector<std::string>& ignored,
                                          const ModelConfig& config);

/// Whether a tensor belongs to the part of a multimodal checkpoint that is not run: its vision
/// tower, its projector. Of a wrapper that is not known, all that lies beside the text model does.
bool is_outside_text(std::string_view tensor, const ModelConfig& config);

}  // namespace kvcal

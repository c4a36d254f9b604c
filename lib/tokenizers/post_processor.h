#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/registry.h"
#include "tokenizers/tokenizer.h"

namespace kvcal::tokenizers {

/// Post-processing of the ids of one text. Source: `tokenizers`, src/processors, for single
/// sequences.
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  /// Without add_special_tokens only what templates do to the text itself happens (repeat it, drop
  /// it).
  virtual void apply(std::vector<TokenId>& ids, bool add_special_tokens) const = 0;
};

using MakePostProcessor = std::unique_ptr<PostProcessor> (*)(const Json& object);

/// "type" → maker; "Sequence" is not in it.
extern const Registry<MakePostProcessor> kPostProcessors;

/// The steps that json (an object or a "Sequence") describes. path: where it stands, for messages.
std::vector<std::unique_ptr<PostProcessor>> make_post_processors(const Json& json,
                                                                 const std::string& path);

}  // namespace kvcal::tokenizers

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/registry.h"

namespace kvcal::tokenizers {

/// One step from tokens to text: rewrites the list of token texts. Source: `tokenizers`,
/// src/decoders.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

using MakeTokenDecoder = std::unique_ptr<TokenDecoder> (*)(const Json& object);

/// "type" → maker; "Sequence" is not in it.
extern const Registry<MakeTokenDecoder> kTokenDecoders;

/// The steps that json (an object or a "Sequence") describes. path: where it stands, for messages.
std::vector<std::unique_ptr<TokenDecoder>> make_decoders(const Json& json, const std::string& path);

}  // namespace kvcal::tokenizers

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/registry.h"
#include "tokenizers/pattern.h"

namespace kvcal::tokenizers {

/// A text on its way through the normalizers.
struct Normalized {
  std::string text;
  /// How many leading bytes of text stem from the first character of the whole input. Metaspace
  /// with prepend_scheme "first" marks only pieces that begin there. 0 when none does.
  size_t origin_bytes = 0;
};

/// Rewrites valid UTF-8 into valid UTF-8. Source: `tokenizers`, src/normalizers. Thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(Normalized& normalized) const = 0;
};

/// Builds one normalizer from its object in tokenizer.json; Throws Error naming the field.
using MakeNormalizer = std::unique_ptr<Normalizer> (*)(const Json& object);

/// "type" → maker; "Sequence" is not in it, make_normalizer builds that.
extern const Registry<MakeNormalizer> kNormalizers;

/// The normalizer that json describes. path is where json stands in the file, for messages.
std::unique_ptr<Normalizer> make_normalizer(const Json& json, const std::string& path);

/// "Precompiled": the character map that sentencepiece compiles into its models.
std::unique_ptr<Normalizer> make_precompiled_charsmap(const Json& object);
/// Throws Error unless every walk through the map in blob stays inside it, for libraries that do
/// not check.
void check_charsmap(std::string_view blob);

/// The {"String": ...} or {"Regex": ...} of a "pattern" field.
std::unique_ptr<Pattern> make_pattern(const Json& object);

/// Puts prefix before normalized, unless that is empty.
void prepend(Normalized& normalized, std::string_view prefix);

}  // namespace kvcal::tokenizers

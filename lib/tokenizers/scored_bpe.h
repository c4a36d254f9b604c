#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizers/model_proto.h"
#include "tokenizers/token_model.h"

namespace kvcal::tokenizers {

/// sentencepiece's BPE in our own BPE, for the models where both give the same ids: no character
/// map, spaces kept, no pieces of unusual types, every character of a piece a piece itself, no
/// piece with a space mark behind another character. Llama's and Mistral's are of this kind.
class ScoredBpe {
 public:
  /// nullptr when the model is of another kind.
  static std::unique_ptr<ScoredBpe> make(const ModelProto& model);

  /// Appends the ids of text; with mark_start a space mark goes before it.
  void encode(std::string_view text, bool mark_start, std::vector<TokenId>& ids) const;

 private:
  explicit ScoredBpe(std::unique_ptr<TokenModel> bpe) : bpe_(std::move(bpe)) {}

  std::unique_ptr<TokenModel> bpe_;
  ScratchPool scratch_;
};

}  // namespace kvcal::tokenizers

#pragma once

#include <memory>
#include <string>

#include "tokenizers/merge_table.h"
#include "tokenizers/token_model.h"

namespace kvcal::tokenizers {

struct BpeOptions {
  std::string unknown, prefix, suffix;
  bool has_unknown = false, fuse_unknown = false, byte_fallback = false, ignore_merges = false;
};

/// Byte pair encoding with these tokens and merges.
std::unique_ptr<TokenModel> make_bpe(BpeOptions options, Vocabulary vocabulary, MergeTable merges);

}  // namespace kvcal::tokenizers

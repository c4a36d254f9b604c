#include "run/continuations.h"

#include <algorithm>
#include <memory>

#include "core/interrupt.h"
#include "eval/generate.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {
namespace {

constexpr size_t kPromptTokens = 64;
constexpr int64_t kNewTokens = 100;

/// Text that each token completes.
std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  TextStream stream(tokenizer);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(stream.push(id));
  if (!pieces.empty()) pieces.back() += stream.finish();
  return pieces;
}

report::GeneratedText text_of(const std::string& name, const Tokenizer& tokenizer,
                              const std::vector<TokenId>& ids) {
  return {.name = name, .text = tokenizer.decode(ids, true), .tokens = pieces_of(tokenizer, ids)};
}

KvCache cache_of(const EvalVariant& variant, int64_t tokens) {
  return variant.model->decoder.make_cache(variant.label.type, variant.scales, tokens);
}

report::ComparedTexts compared(const EvalVariants& variants, const Tokenizer& tokenizer,
                               std::span<const TokenId> prompt, const GenerateOptions& options) {
  const int64_t tokens = std::ssize(prompt) + options.max_new_tokens;
  const EvalVariant& reference = *variants.reference();
  report::ComparedTexts texts{.prompt = tokenizer.decode({prompt.begin(), prompt.end()}, true),
                              .reference = {}};
  for (const EvalVariant& variant : variants.variants()) {
    if (variant.model != reference.model) continue;
    throw_if_interrupted();
    KvCache first = cache_of(reference, tokens), second = cache_of(variant, tokens);
    Comparison comparison = compare_caches(variant.model->decoder, first, second, prompt, options);
    texts.reference = text_of(variants.reference_name(), tokenizer, comparison.first.ids);
    report::GeneratedText& text =
        texts.variants.emplace_back(text_of(variant.label.name, tokenizer, comparison.second.ids));
    if (comparison.first_divergence >= 0) text.first_divergence = comparison.first_divergence;
    text.kl = std::move(comparison.kl);
  }
  return texts;
}

}  // namespace

std::vector<report::ComparedTexts> continuations_of(const EvalVariants& variants,
                                                    const std::vector<ScoredSequence>& sequences,
                                                    int64_t count, Diagnostics& diagnostics) {
  std::vector<report::ComparedTexts> texts;
  if (count == 0) return texts;
  const LoadedModel& model = *variants.reference()->model;
  if (model.config.max_position_embeddings <= static_cast<int64_t>(kPromptTokens)) return texts;
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = make_tokenizer(model.model_dir.path());
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    // Lists of ids need no tokenizer.
    diagnostics.warn(std::string("no texts in the report: ") + error.what());
    return texts;
  }
  const GenerateOptions options{
      .max_new_tokens = std::min(
          kNewTokens, model.config.max_position_embeddings - static_cast<int64_t>(kPromptTokens)),
      .sampling = {},
      .stop_tokens = stop_tokens_of(model.model_dir.generation_config(), model.model_dir.config())};
  const auto wanted = std::min<int64_t>(count, std::ssize(sequences));
  for (int64_t i = 0; i < wanted; ++i) {
    const std::vector<TokenId>& ids = sequences[static_cast<size_t>(i)].ids;
    const auto prompt = std::span(ids).first(std::min(kPromptTokens, ids.size()));
    report::ComparedTexts text = compared(variants, *tokenizer, prompt, options);
    if (!text.variants.empty()) texts.push_back(std::move(text));
    diagnostics.progress("texts", i + 1, wanted, "texts");
  }
  return texts;
}

}  // namespace kvcal

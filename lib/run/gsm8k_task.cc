#include <memory>

#include "run/evaluation.h"

namespace kvcal {
namespace {

GsmOptions questions_for(const LoadedModel& model, const EvalOptions& options,
                         const GsmTaskOptions& asked) {
  GsmOptions questions = asked.questions;
  questions.dataset = options.dataset;
  questions.model_folder = model.model_dir.path();
  if (!questions.cache_bytes) questions.cache_bytes = cache_memory(model.backend);
  return questions;
}

}  // namespace

GsmTaskResult evaluate_gsm8k(const EvalOptions& options, const GsmTaskOptions& asked,
                             Diagnostics& diagnostics) {
  EvalVariants variants(options, false, diagnostics);
  if (asked.gates.has_any()) check_gated(variants, options);
  // All tokenizers first: otherwise a folder without one would waste the others' answers.
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const EvalVariant& variant : variants.variants())
    tokenizers.push_back(make_tokenizer(variant.model->model_dir.path()));
  GsmTaskResult result{.is_single = variants.is_single(), .variants = {}, .missed = {}};
  for (size_t i = 0; i < tokenizers.size(); ++i) {
    const EvalVariant& variant = variants.variants()[i];
    result.variants.push_back(
        {variant.label,
         run_gsm8k(variant.model->decoder, *tokenizers[i], variant.label.type, variant.scales,
                   questions_for(*variant.model, options, asked), diagnostics)});
    tell_warnings(variants.model().backend, diagnostics);
    add_missed(missed_gates(result.variants[i].result, asked.gates), variants, i, result.missed);
  }
  return result;
}

}  // namespace kvcal

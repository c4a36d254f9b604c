#include "run/sample_preview.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "datasets/chat_template.h"
#include "run/calibration_result.h"

namespace kvcal {
namespace {

constexpr const char* kKinds[] = {"texts", "conversations", "token ids"};

std::string shown_ids(const Tokenizer* tokenizer, const std::vector<TokenId>& ids) {
  if (tokenizer) return tokenizer->decode(ids, /*skip_special_tokens=*/false);
  return join(ids, " ", [](TokenId id) { return std::to_string(id); });
}

/// Where the template of conversations is from.
std::string template_of(const CalibrateRequest& request, const fs::path& model) {
  if (!request.records.chat.template_file.empty()) return request.records.chat.template_file;
  return ChatFormat::from_folder(model) ? "the model's own" : "none: texts are joined";
}

}  // namespace

SamplePreview preview_samples(CalibrateRequest request, int64_t num_shown,
                              Diagnostics& diagnostics) {
  PlannedRun plan;
  plan_run(request, plan, diagnostics);
  const PlannedModel& subject = *plan.subject;
  if (!runs_text(request, subject))
    fail("--show-samples: the recipe calibrates nothing, so no sample is read");
  const auto dataset = open_dataset(request.dataset, {.records = request.records});
  const size_t kind = first_record(*dataset, request.records.skip).content.index();
  const int64_t most = request.samples.max_seq_length;
  SampleOptions uncut = request.samples;
  uncut.max_seq_length = most + 1;  // one more tells which are cut
  std::vector<Sample> samples = samples_for(subject, *dataset, request.records, uncut, diagnostics);
  SamplePreview preview{
      .dataset = request.dataset,
      .kind = kKinds[kind],
      .chat_template = kind == 1 ? template_of(request, subject.model_dir.path()) : std::string(),
      .num_samples = samples.size(),
      .max_seq_length = most};
  const auto tokenizer = kind == 2 ? nullptr : make_tokenizer(subject.model_dir.path());
  for (Sample& sample : samples) {
    const bool is_cut = std::ssize(sample.ids) > most;
    if (is_cut) sample.ids.resize(static_cast<size_t>(most));
    preview.num_cut += is_cut;
    if (std::ssize(preview.samples) < num_shown)
      preview.samples.push_back({.record = sample.index,
                                 .num_tokens = std::ssize(sample.ids),
                                 .is_cut = is_cut,
                                 .text = shown_ids(tokenizer.get(), sample.ids)});
  }
  preview.num_tokens = tokens_of(samples);
  preview.longest = longest_of(samples);
  preview.shortest = std::ranges::min(lengths_of(samples));
  return preview;
}

Json to_json(const SamplePreview& preview) {
  Json json{{"dataset", preview.dataset},
            {"records", preview.kind},
            {"chat_template", preview.chat_template},
            {"num_samples", preview.num_samples},
            {"num_tokens", preview.num_tokens},
            {"shortest", preview.shortest},
            {"longest", preview.longest},
            {"max_seq_length", preview.max_seq_length},
            {"num_cut", preview.num_cut},
            {"samples", Json::array()}};
  for (const SamplePreview::Shown& one : preview.samples)
    json["samples"].push_back({{"record", one.record},
                               {"num_tokens", one.num_tokens},
                               {"is_cut", one.is_cut},
                               {"text", one.text}});
  return json;
}

std::string sample_text(const SamplePreview& preview) {
  LabelledLines lines{
      {"data set", preview.dataset + ": " + preview.kind},
      {"samples",
       counted(preview.num_samples, "sample") + ", " + counted(preview.num_tokens, "token") + ", " +
           std::to_string(preview.shortest) + " to " + std::to_string(preview.longest) + " each"},
      {"cut", std::to_string(preview.num_cut) + " at --max-seq-length " +
                  std::to_string(preview.max_seq_length)}};
  if (!preview.chat_template.empty()) lines.emplace_back("template", preview.chat_template);
  std::string text = labelled_text(lines);
  for (const SamplePreview::Shown& one : preview.samples)
    text += "\n--- record " + std::to_string(one.record) + ", " + counted(one.num_tokens, "token") +
            (one.is_cut ? ", cut" : "") + "\n" + one.text + "\n";
  return text;
}

}  // namespace kvcal

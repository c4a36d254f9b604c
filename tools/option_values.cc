#include "option_values.h"

#include <algorithm>

#include "engines/engine_rules.h"
#include "export/writer.h"
#include "kernels/backends.h"
#include "shell/completion.h"

namespace kvcal {
namespace {

/// command: "" for every command that has the option.
struct ValueRow {
  std::string_view command, option;
  ValueKind kind;
  std::vector<std::string> choices = {};
  bool are_choices_joined = false;
};

std::vector<std::string> with_first(const char* first, std::vector<std::string> names) {
  names.insert(names.begin(), first);
  return names;
}

const std::vector<std::string> kCaches = {"auto",     "float32",  "float16",     "bfloat16",
                                          "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz"};

/// Rows of one command stand before those of all.
const std::vector<ValueRow>& value_rows() {
  static const std::vector<ValueRow> kRows = {
      {"sweep", "file", ValueKind::kFile},
      {"completion", "shell", ValueKind::kChoice, completion_shells()},
      {"", "model", ValueKind::kFolder},
      {"", "checkpoint", ValueKind::kFolder},
      {"", "overlay", ValueKind::kFolder},
      {"", "output", ValueKind::kFolder},
      {"", "--model", ValueKind::kFolder},
      {"", "--output", ValueKind::kFolder},
      {"", "--plots", ValueKind::kFolder},
      {"", "--reference", ValueKind::kFolder},
      {"", "--state", ValueKind::kFolder},
      {"", "--scales", ValueKind::kPath},
      {"", "--config", ValueKind::kFile},
      {"", "--dataset", ValueKind::kPath},
      {"", "--fewshot-dataset", ValueKind::kFile},
      {"", "--html", ValueKind::kFile},
      {"", "--log-samples", ValueKind::kFile},
      {"", "--output-recipe", ValueKind::kFile},
      {"", "--recipe", ValueKind::kFile},
      {"", "--report", ValueKind::kFile},
      {"", "--save-statistics", ValueKind::kFile},
      {"", "--statistics", ValueKind::kFile},
      {"", "--device", ValueKind::kChoice, with_first("auto", kBackends.names())},
      {"", "--compute-dtype", ValueKind::kChoice, {"auto", "float32", "bfloat16", "float16"}},
      {"", "--format", ValueKind::kChoice, kWriters.names(), true},
      {"", "--to", ValueKind::kChoice, kWriters.names(), true},
      {"", "--weights", ValueKind::kChoice, {"auto", "shared", "exchange", "local"}},
      {"", "--kv-forward", ValueKind::kChoice, {"quantized", "exact"}},
      {"generate", "--kv-cache-dtype", ValueKind::kChoice, kCaches},
      {"eval", "--kv-cache-dtype", ValueKind::kChoice, kCaches},
      {"eval", "--reference-kv-cache-dtype", ValueKind::kChoice, kCaches},
      {"calibrate",
       "--kv-cache-dtype",
       ValueKind::kChoice,
       {"fp8_e4m3", "fp8_e4m3fnuz", "fp8_e5m2"}},
      {"scales", "--kv-cache-dtype", ValueKind::kChoice, {"fp8_e4m3", "fp8_e4m3fnuz", "fp8_e5m2"}},
      {"eval", "--task", ValueKind::kChoice, {"perplexity", "kl", "gsm8k", "sensitivity"}},
      {"", "--engine", ValueKind::kChoice, with_first("all", engine_rules().names())},
  };
  return kRows;
}

}  // namespace

void add_option_values(std::string_view command, std::string_view option,
                       OptionDescription& described) {
  const auto& rows = value_rows();
  const auto row = std::ranges::find_if(rows, [&](const ValueRow& one) {
    return one.option == option && (one.command.empty() || one.command == command);
  });
  if (row == rows.end()) return;
  described.kind = row->kind;
  described.choices = row->choices;
  described.are_choices_joined = row->are_choices_joined;
}

}  // namespace kvcal

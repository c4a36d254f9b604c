#include "run/quantize_checkpoint.h"

#include <algorithm>
#include <iostream>
#include <map>

#include "commands.h"
#include "core/join.h"
#include "input_options.h"
#include "kvcal_version.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

/// "embedding: model.embed_tokens", a line a reason; of many modules the first few.
void print_kept(const QuantizeResult& result) {
  constexpr size_t kMaxShown = 4;
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const KeptWeight& one : result.kept) by_reason[one.reason].push_back(one.name);
  for (auto& [reason, names] : by_reason) {
    const size_t count = names.size();
    names.resize(std::min(count, kMaxShown));
    std::cout << "left alone, " << reason << ": " << join(names, ", ");
    if (count > kMaxShown) std::cout << ", ... (" << count << ")";
    std::cout << '\n';
  }
}

void print_result(const QuantizeRequest& request, const QuantizeResult& result) {
  std::cout << "quantized: " << result.num_quantized << " weights, " << result.scheme << " ("
            << result.format << ")\n";
  print_kept(result);
  std::cout << "bytes: " << result.source_bytes << " became " << result.output_bytes
            << ", of which " << result.kept_bytes << " are left alone\n"
            << "wrote compressed-tensors: " << request.output << '\n';
}

void run_quantize(const QuantizeRequest& request, bool json) {
  TerminalDiagnostics diagnostics;
  const QuantizeResult result = quantize_checkpoint(request, diagnostics);
  if (json)
    std::cout << dump_json(result.manifest);
  else if (!is_quiet())
    print_result(request, result);
}

}  // namespace

void add_quantize(CLI::App& app, std::function<void()>& run) {
  auto request = std::make_shared<QuantizeRequest>();
  auto json = std::make_shared<bool>(false);
  request->version = KVCAL_VERSION;
  CLI::App* command = app.add_subcommand(
      "quantize", "Quantize a checkpoint's weights by rounding, of any architecture, without data");
  add_model(*command, "checkpoint", request->checkpoint, "Model folder, or an id of the hub")
      ->required();
  add_text(*command, "--scheme", request->scheme,
           "FP8_DYNAMIC, FP8_BLOCK, W8A8, W4A16, W4A16_ASYM, W8A16, W4AFP8, NVFP4A16, MXFP4, MXFP8 "
           "or another preset of compressed-tensors that needs no data")
      ->required();
  command
      ->add_option("--ignore", request->ignore,
                   "Module to leave as it is, by name or 're:REGEX' (Python's re.match); may be "
                   "repeated. Embeddings, heads, norms, routers and towers are left anyway")
      ->take_all()
      ->check(is_not_empty());
  add_text(*command, "-o,--output", request->output,
           "Folder to write; appears complete or not at all")
      ->required();
  command->add_flag("--overwrite", request->overwrite, "Replace the output if it exists");
  add_number(*command, "--threads", request->threads, "0: one for each core", 0, 4096);
  command->add_flag("--json", *json, "Print the manifest instead of a summary");
  command->callback(
      [request, json, &run] { run = [request, json] { run_quantize(*request, *json); }; });
}

}  // namespace kvcal

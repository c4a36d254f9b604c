#include "input_options.h"

#include <functional>

#include "commands.h"
#include "core/byte_size.h"
#include "core/error.h"
#include "datasets/dataset.h"
#include "run/named_inputs.h"

namespace kvcal {
namespace {

struct InputOption {
  const CLI::Option* option;
  std::function<void(Diagnostics&)> fetch;
};

// Filled once, while the commands are declared.
std::vector<InputOption> inputs;

CLI::Option* add_path(CLI::App& command, const std::string& name, std::string& target,
                      const std::string& help,
                      std::string (*local)(const std::string&, Diagnostics&)) {
  CLI::Option* option = add_text(command, name, target, help);
  inputs.push_back({option, [&target, local](Diagnostics& diagnostics) {
                      target = local(target, diagnostics);
                    }});
  return option;
}

}  // namespace

CLI::Option* add_model(CLI::App& command, const std::string& name, std::string& model,
                       const std::string& help) {
  return add_path(command, name, model, help, local_model);
}

CLI::Option* add_checkpoint(CLI::App& command, CheckpointSource& checkpoint, bool offline_config,
                            const std::string& help) {
  CLI::Option* option = add_text(command, "checkpoint", checkpoint.path, help);
  inputs.push_back({option, [&checkpoint, offline_config](Diagnostics& diagnostics) {
                      checkpoint = checkpoint_source(checkpoint.path, offline_config, diagnostics);
                    }});
  return option;
}

CLI::Option* add_dataset(CLI::App& command, const std::string& name, std::string& dataset,
                         const std::string& help) {
  return add_path(command, name, dataset, help, local_dataset);
}

namespace {

Json parse_variables(const std::string& text) {
  Json variables = parse_json(text, {.max_bytes = size_t{1} << 20});
  if (!variables.is_object()) fail("found ", kind_of(variables), ", expected an object");
  return variables;
}

void add_skip_option(CLI::App& command, SkipLimit& skip) {
  command
      .add_option_function<std::string>(
          "--skip-bad-records", [&skip](const std::string& text) { skip = parse_skip_limit(text); },
          "Records that cannot be used to pass over at most, such as 10, or 1% of all")
      ->check(is_number_text(parse_skip_limit))
      ->default_str("0");
}

}  // namespace

void add_chat_options(CLI::App& command, ChatOptions& chat) {
  add_text(command, "--chat-template", chat.template_file,
           "File with the chat template to use instead of the model's");
  command
      .add_option_function<std::string>(
          "--chat-template-kwargs",
          [&chat](const std::string& text) { chat.variables = parse_variables(text); },
          "Variables of the chat template, as a JSON object")
      ->check(is_number_text(parse_variables));
}

void add_reading_options(CLI::App& command, RecordOptions& records) {
  RecordColumns& columns = records.columns;
  add_text(command, "--text-column", columns.text, "Column or key of the data set that holds text");
  add_text(command, "--prompt-column", columns.prompt,
           "Column that holds what the user says, for the chat template");
  add_text(command, "--response-column", columns.response,
           "Column that holds the answer to --prompt-column");
  add_text(command, "--messages-column", columns.messages,
           "Column that holds a conversation: messages, or ShareGPT turns");
  add_skip_option(command, records.skip);
  const auto parse = [](const std::string& text) -> size_t {
    const uint64_t size = parse_byte_size(text);
    if (size == 0) fail("0 is no limit, expected a size like 8MiB");
    return size;
  };
  command
      .add_option_function<std::string>(
          "--max-record-bytes",
          [&records, parse](const std::string& text) { records.max_bytes = parse(text); },
          "The longest record of a data set; reading one takes about 20 times as much memory")
      ->check(is_number_text(parse))
      ->default_str("8MiB");
}

void add_record_options(CLI::App& command, RecordOptions& records) {
  add_reading_options(command, records);
  add_chat_options(command, records.chat);
}

CLI::Option* add_variants(CLI::App& command, const std::string& name,
                          std::vector<std::string>& variants, const std::string& help) {
  CLI::Option* option = command.add_option(name, variants, help);
  inputs.push_back({option, [&variants](Diagnostics& diagnostics) {
                      for (std::string& variant : variants)
                        variant = local_variant(variant, diagnostics);
                    }});
  return option;
}

void fetch_inputs(Diagnostics& diagnostics) {
  for (const InputOption& input : inputs) {
    if (input.option->count() == 0) continue;
    if (input.option->get_positional())
      input.fetch(diagnostics);
    else
      in_context(input.option->get_name(), [&] { input.fetch(diagnostics); });
  }
}

}  // namespace kvcal

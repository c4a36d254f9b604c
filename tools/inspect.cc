#include <algorithm>
#include <cmath>
#include <iostream>
#include <sstream>

#include "commands.h"
#include "inspect_html.h"
#include "inspection.h"
#include "sparkline.h"
#include "table.h"

namespace kvcal {
namespace {

struct InspectOptions {
  std::string checkpoint;
  bool json = false, tensors = false;
  ReportOptions drawn;
};

std::string cell(const Json& row, const char* key) {
  const Json* value = find_field(row, key);
  if (!value) return "-";
  if (value->is_array()) return std::to_string(value->size()) + " heads";
  if (value->is_string()) return value->get<std::string>();
  return short_float(value->get<double>());
}

/// "heading" and below it one line a pair, the second words in a column of their own.
void print_pairs(const std::string& heading,
                 const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::cout << '\n' << heading << '\n';
  size_t width = 0;
  for (const auto& [label, text] : pairs) width = std::max(width, label.size());
  for (const auto& [label, text] : pairs)
    std::cout << "  " << label << std::string(width - label.size() + 2, ' ') << text << '\n';
}

void print_architecture(const std::vector<Fact>& facts) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Fact& fact : facts) {
    std::string label = fact.key;
    std::ranges::replace(label, '_', ' ');
    if (!fact.text.empty()) pairs.emplace_back(label, fact.text);
  }
  print_pairs("architecture", pairs);
}

void print_sizes(const Json& report) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& [kind, sizes] : report.at("tensors").items())
    pairs.emplace_back(kind, std::to_string(sizes.at("count").get<int64_t>()) + ", " +
                                 byte_text(sizes.at("bytes").get<double>()));
  print_pairs("tensors", pairs);
  const Json& cache = report.at("kv_cache");
  print_pairs("KV cache of one token",
              {{"16 bits", byte_text(cache.at("bytes_per_token_16_bit").get<double>())},
               {"FP8", byte_text(cache.at("bytes_per_token_fp8").get<double>())}});
  const auto states = cache.at("state_bytes_per_sequence").get<double>();
  if (states > 0) print_pairs("recurrent states of one sequence", {{"float32", byte_text(states)}});
}

std::string engine_text(const Json& engine) {
  const auto note = engine.at("note").get<std::string>();
  return engine.at("reads").get<std::string>() + (note.empty() ? "" : ": " + note);
}

void print_consumers(const Json& consumers) {
  const auto reason = [](const Json& entry) {
    return entry.at("supported").get<bool>() ? "yes"
                                             : "no: " + entry.at("reason").get<std::string>();
  };
  std::vector<std::pair<std::string, std::string>> pairs{
      {"calibration", reason(consumers.at("calibration"))}};
  for (const Json& format : consumers.at("formats")) {
    std::string text = reason(format);
    std::string strategies;
    for (const Json& strategy : format.at("strategies"))
      strategies += (strategies.empty() ? "" : ", ") + strategy.get<std::string>();
    if (!strategies.empty()) text += ", strategy " + strategies;
    for (const Json& note : format.at("notes")) text += "; " + note.get<std::string>();
    pairs.emplace_back("format " + format.at("format").get<std::string>(), text);
  }
  for (const Json& engine : consumers.at("engines"))
    pairs.emplace_back(engine.at("engine").get<std::string>() + " " +
                           engine.at("version").get<std::string>() + ", " +
                           engine.at("format").get<std::string>(),
                       engine_text(engine));
  print_pairs("supported by", pairs);
}

void print_layers(const Json& report) {
  std::cout << '\n';
  const Json& layers = report.at("layers");
  const bool has_queries = std::any_of(layers.begin(), layers.end(), [](const Json& row) {
    return find_field(row, "q_scale") != nullptr;
  });
  std::vector<std::string> headings{"layer",  "dtype",  "size",      "k_scale",  "v_scale",
                                    "k_amax", "v_amax", "k_clipped", "v_clipped"};
  const auto after_v_scale = [](auto& cells) { return cells.begin() + 5; };
  if (has_queries) headings.insert(after_v_scale(headings), "q_scale");
  Table table(headings);
  for (const Json& row : layers) {
    const auto clipped = [&](const char* key) {
      const Json* value = find_field(row, key);
      return value && value->is_number() ? percent(value->get<double>()) : std::string("-");
    };
    std::vector<std::string> cells{std::to_string(row.at("layer").get<int64_t>()),
                                   cell(row, "dtype"),
                                   byte_text(row.at("bytes").get<double>()),
                                   cell(row, "k_scale"),
                                   cell(row, "v_scale"),
                                   cell(row, "k_amax"),
                                   cell(row, "v_amax"),
                                   clipped("k_saturated"),
                                   clipped("v_saturated")};
    if (has_queries) cells.insert(after_v_scale(cells), cell(row, "q_scale"));
    table.add(cells);
  }
  table.print(std::cout);
}

void print_tensors(const std::vector<ListedTensor>& tensors) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const ListedTensor& entry : tensors) {
    std::ostringstream text;
    text << entry.tensor->dtype << ' ' << entry.tensor->shape << ' ' << entry.role;
    pairs.emplace_back(entry.name, text.str());
  }
  print_pairs("all tensors", pairs);
}

Json tensor_json(const ListedTensor& entry) {
  return {{"name", entry.name},
          {"role", entry.role},
          {"kind", entry.kind},
          {"dtype", name_of(entry.tensor->dtype)},
          {"shape", entry.tensor->shape.dims}};
}

/// The number, or the largest of the list, that each layer has; NaN for none.
std::vector<double> largest_by_layer(const Json& layers, const std::string& key) {
  std::vector<double> values;
  for (const Json& row : layers) {
    double largest = std::nan("");
    const Json* found = find_field(row, key);
    const Json list = !found ? Json::array() : found->is_array() ? *found : Json::array({*found});
    for (const Json& value : list)
      if (value.is_number()) largest = std::fmax(largest, value.get<double>());
    values.push_back(largest);
  }
  return values;
}

/// What runs over the layers at a glance: amax where it is known, else scales.
void print_lines(const Json& layers) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const char side : {'k', 'v'})
    for (const char* what : {"_amax", "_scale"}) {
      const std::string key = side + std::string(what);
      const std::vector<double> values = largest_by_layer(layers, key);
      if (std::ranges::none_of(values, [](double value) { return value > 0.0; })) continue;
      const auto [least, largest] = positive_range(values);
      const std::string ends = least == largest
                                   ? short_float(least)
                                   : short_float(least) + " to " + short_float(largest);
      pairs.emplace_back(key, sparkline(values, has_unicode()) + "  " + ends);
      break;
    }
  if (!pairs.empty()) print_pairs("over the layers, logarithmic", pairs);
}

void print_report(const Inspection& found) {
  const Json& report = found.report;
  std::cout << report.at("path").get<std::string>() << ": "
            << report.at("model_type").get<std::string>() << ", "
            << report.at("parameters").get<uint64_t>() << " parameters, "
            << byte_text(report.at("bytes").get<double>())
            << ", KV scales: " << report.at("kv_scales").get<std::string>() << '\n';
  print_architecture(found.facts);
  print_sizes(report);
  print_consumers(report.at("supported_by"));
  print_lines(report.at("layers"));
  print_layers(report);
}

void run_inspect(const InspectOptions& options) {
  check_report_targets(options.drawn);
  Inspection found(options.checkpoint);
  check_report_targets(options.drawn, found.model_dir);
  for (const std::string& warning : found.quantization.warnings)
    std::cerr << "warning: " << options.checkpoint << ": " << warning << '\n';
  write_checkpoint_report(found, options.drawn);
  if (options.json) {
    if (options.tensors)
      for (const ListedTensor& entry : found.tensors())
        found.report["all_tensors"].push_back(tensor_json(entry));
    std::cout << dump_json(found.report);
    return;
  }
  print_report(found);
  if (options.tensors) print_tensors(found.tensors());
}

}  // namespace

void add_inspect(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show the architecture, who supports it, and the scales and sizes of every layer");
  command->add_option("checkpoint", options->checkpoint, "Model folder, with or without scales")
      ->required()
      ->check(is_not_empty());
  command->add_flag("--tensors", options->tensors, "List every tensor: role, dtype and shape");
  command->add_flag("--json", options->json, "Print JSON instead of tables");
  add_report_options(*command, options->drawn, "--html");
  command->add_flag("--overwrite", options->drawn.overwrite,
                    "Replace what --html and --plots name");
  command->callback([options, &run] { run = [options] { run_inspect(*options); }; });
}

}  // namespace kvcal

#include "inspect/inspection.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>

#include "core/text.h"
#include "report/checkpoint_report.h"
#include "report/markup.h"

namespace kvcal {
namespace {

using report::Pairs;

/// One line a pair, the second words in a column of their own.
void put_lines(const std::string& indent, const Pairs& pairs, std::ostream& out) {
  size_t width = 0;
  for (const auto& [label, text] : pairs) width = std::max(width, label.size());
  for (const auto& [label, text] : pairs)
    out << indent << label << std::string(width - label.size() + 2, ' ') << text << '\n';
}

void put_pairs(const std::string& heading, const Pairs& pairs, std::ostream& out) {
  out << '\n' << heading << '\n';
  put_lines("  ", pairs, out);
}

void put_sizes(const InspectionResult& found, std::ostream& out) {
  Pairs pairs;
  for (const report::TensorKind& group : group_sizes(found.tensors))
    pairs.emplace_back(group.kind, std::to_string(group.count) + ", " + byte_text(group.bytes));
  put_pairs("tensors", pairs, out);
  const auto values = static_cast<double>(found.cache.values_per_token);
  put_pairs("KV cache of one token",
            {{"16 bits", byte_text(2 * values)}, {"FP8", byte_text(values)}}, out);
  const auto states = static_cast<double>(found.cache.state_bytes_per_sequence);
  if (states > 0)
    put_pairs("recurrent states of one sequence", {{"float32", byte_text(states)}}, out);
}

std::string support_text(const std::string& refusal) {
  return refusal.empty() ? "yes" : "no: " + refusal;
}

std::string format_text(const FormatSupport& format) {
  if (!format.is_known) return "not known: " + format.reason;
  if (format.strategies.empty()) return support_text(format.reason);
  std::string text = support_text({}) + ", strategy " + join(format.strategies, ", ");
  for (const std::string& note : format.notes) text += "; " + note;
  return text;
}

void put_consumers(const Consumers& consumers, std::ostream& out) {
  Pairs pairs{{"calibration", support_text(consumers.calibration_refusal)}};
  for (const FormatSupport& format : consumers.formats)
    pairs.emplace_back("format " + format.format, format_text(format));
  for (const ServedEngine& engine : consumers.served)
    pairs.emplace_back(engine.title, std::string(name_of(engine.outcome)) + ": " + engine.note);
  for (const EngineVerdict& engine : consumers.engines) {
    if (!consumers.served.empty()) break;  // they are about scales that could be made
    std::string text(name_of(engine.reads));
    if (!engine.note.empty()) text += ": " + std::string(engine.note);
    pairs.emplace_back(title_of(engine) + ", " + std::string(engine.format), text);
  }
  put_pairs("supported by", pairs, out);
}

/// A number of the manifest; nullopt where it has none.
std::optional<double> seen_number(const InspectedLayer& layer, const std::string& key) {
  const Json* value = layer.statistics ? find_field(*layer.statistics, key) : nullptr;
  return value && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

/// kv_heads: of K and V, which may have a scale a channel; 0: of queries.
std::string scales_cell(const std::vector<Scale>& scales, int64_t kv_heads = 0) {
  if (scales.empty()) return "-";
  if (scales.size() == 1) return short_float(static_cast<double>(scales[0].value));
  const bool has_channels = kv_heads > 0 && std::ssize(scales) > kv_heads;
  return std::to_string(scales.size()) + (has_channels ? " channels" : " heads");
}

void put_layers(const std::vector<InspectedLayer>& layers, std::ostream& out) {
  out << '\n';
  const bool has_queries = std::ranges::any_of(
      layers, [](const InspectedLayer& layer) { return !layer.q_scales.empty(); });
  std::vector<std::string> headings{"layer",  "dtype",  "size",      "k_scale",  "v_scale",
                                    "k_amax", "v_amax", "k clipped", "v clipped"};
  const auto after_v_scale = [](auto& cells) { return cells.begin() + 5; };
  if (has_queries) headings.insert(after_v_scale(headings), "q_scale");
  TextTable table(headings);
  for (const InspectedLayer& layer : layers) {
    const auto seen = [&](const char* key, const auto& text_of) {
      const auto value = seen_number(layer, key);
      return value ? text_of(*value) : std::string("-");
    };
    std::vector<std::string> cells{std::to_string(layer.layer),
                                   layer.dtype ? std::string(name_of(*layer.dtype)) : "-",
                                   byte_text(layer.bytes),
                                   scales_cell(layer.k_scales, layer.kv_heads),
                                   scales_cell(layer.v_scales, layer.kv_heads),
                                   seen("k_amax", short_float),
                                   seen("v_amax", short_float),
                                   seen("k_saturated", percent),
                                   seen("v_saturated", percent)};
    if (has_queries) cells.insert(after_v_scale(cells), scales_cell(layer.q_scales));
    table.add(cells);
  }
  out << table.text();
}

double largest_value(const std::vector<Scale>& scales) {
  double largest = std::nan("");
  for (const Scale& scale : scales) largest = std::fmax(largest, static_cast<double>(scale.value));
  return largest;
}

/// The course over the layers at a glance: amax where it is known, else scales.
void put_layer_lines(const std::vector<InspectedLayer>& layers, bool has_unicode,
                     std::ostream& out) {
  Pairs pairs;
  const auto add = [&](const std::string& key, const std::vector<double>& values) {
    if (std::ranges::none_of(values, [](double value) { return value > 0.0; })) return false;
    const auto [low, high] = report::positive_range(values);
    const std::string ends =
        low == high ? short_float(low) : short_float(low) + " to " + short_float(high);
    pairs.emplace_back(key, report::sparkline(values, has_unicode) + "  " + ends);
    return true;
  };
  const auto add_side = [&](const std::string& side, const auto scales) {
    std::vector<double> amaxes, largest_scales;
    for (const InspectedLayer& layer : layers) {
      amaxes.push_back(seen_number(layer, side + "_amax").value_or(std::nan("")));
      largest_scales.push_back(largest_value(layer.*scales));
    }
    if (!add(side + "_amax", amaxes)) add(side + "_scale", largest_scales);
  };
  add_side("k", &InspectedLayer::k_scales);
  add_side("v", &InspectedLayer::v_scales);
  if (!pairs.empty()) put_pairs("over the layers, logarithmic", pairs, out);
}

bool has_scales(const InspectedLayer& layer) {
  return !layer.k_scales.empty() || !layer.v_scales.empty() || !layer.q_scales.empty();
}

/// The layers with the largest K or V, or else scales: "4 (K 20.1, V 4.5), 0 (..)".
std::string largest_text(const std::vector<InspectedLayer>& layers) {
  constexpr size_t kShown = 3;
  struct Largest {
    int64_t layer;
    double k, v;
  };
  std::vector<Largest> all;
  for (const InspectedLayer& layer : layers)
    all.push_back({layer.layer,
                   seen_number(layer, "k_amax").value_or(largest_value(layer.k_scales)),
                   seen_number(layer, "v_amax").value_or(largest_value(layer.v_scales))});
  std::erase_if(all, [](const Largest& one) { return std::isnan(std::fmax(one.k, one.v)); });
  std::ranges::stable_sort(all, std::greater{},
                           [](const Largest& one) { return std::fmax(one.k, one.v); });
  if (all.size() > kShown) all.resize(kShown);
  return join(all, ", ", [](const Largest& one) {
    return std::to_string(one.layer) + " (K " + short_float(one.k) + ", V " + short_float(one.v) +
           ")";
  });
}

/// The engines that load the scales, or could load those of a calibration.
std::string engines_line(const Consumers& consumers) {
  std::vector<std::string> could;  // an engine has a verdict for each format
  for (const EngineVerdict& engine : consumers.engines)
    if (engine.reads == Reads::kYes && (could.empty() || could.back() != title_of(engine)))
      could.push_back(title_of(engine));
  const std::string titles = consumers.served.empty()
                                 ? join(could, ", ")
                                 : titles_of(consumers.served, {LoadOutcome::kLoaded});
  return titles.empty() ? "none that was run" : titles;
}

/// What most users look for.
void put_answers(const InspectionResult& found, std::ostream& out) {
  const auto values = static_cast<double>(found.cache.values_per_token);
  Pairs pairs{{"KV cache",
               byte_text(2 * values) + " a token in 16 bits, " + byte_text(values) + " in FP8"}};
  const bool is_scaled = std::ranges::any_of(found.layers, has_scales);
  const bool is_seen = std::ranges::any_of(
      found.layers, [](const InspectedLayer& layer) { return layer.statistics != nullptr; });
  const Consumers& consumers = found.consumers;
  if (is_scaled || is_seen)
    pairs.emplace_back(is_seen ? "largest K, V" : "largest scales",
                       "layers " + largest_text(found.layers));
  if (!is_scaled)
    pairs.emplace_back("calibration", consumers.calibration_refusal.empty()
                                          ? "yes: kvcal try tells what an FP8 cache costs"
                                          : support_text(consumers.calibration_refusal));
  pairs.emplace_back(is_scaled ? "loaded by" : "could serve", engines_line(consumers));
  put_lines("", pairs, out);
}

}  // namespace

std::string inspection_text(const InspectionResult& found, bool has_unicode, bool is_whole) {
  std::ostringstream out;
  const std::string family =
      found.config.chosen ? " as " + std::string(found.config.architecture->name) : "";
  out << found.path << ": " << found.config.model_type << family << ", "
      << counted(found.parameters, "parameter") << ", " << byte_text(found.bytes)
      << ", KV scales: " << found.scale_format
      << (found.hollow ? ", without weights: as config.json describes them" : "") << '\n';
  put_answers(found, out);
  put_layer_lines(found.layers, has_unicode, out);
  if (!is_whole) {
    out << "--verbose shows architecture, tensors, formats, engines and layers.\n";
    return out.str();
  }
  put_pairs("architecture", shown(found.properties), out);
  put_sizes(found, out);
  put_consumers(found.consumers, out);
  const bool has_layers = std::ranges::any_of(found.layers, [](const InspectedLayer& layer) {
    return has_scales(layer) || layer.statistics;
  });
  if (has_layers) put_layers(found.layers, out);
  return out.str();
}

std::string tensors_text(const std::vector<ListedTensor>& tensors) {
  Pairs pairs;
  for (const ListedTensor& entry : tensors) {
    std::ostringstream text;
    text << entry.tensor->dtype << ' ' << entry.tensor->shape << ' ' << entry.role;
    pairs.emplace_back(entry.name, text.str());
  }
  std::ostringstream out;
  put_pairs("all tensors", pairs, out);
  return out.str();
}

}  // namespace kvcal

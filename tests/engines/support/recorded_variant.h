#pragma once

#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "engines/cache_choice.h"
#include "engines/support/engine_case.h"
#include "support/folders.h"

// Variants of one checkpoint as reference/engines_*.py record them, with what an engine made
// of each.

namespace kvcal::test {

inline Json fixture(const std::string& name) {
  return parse_json(read_text(tests_folder() / "fixtures/engines" / (name + ".json")),
                    {.has_python_constants = true});
}

inline const Json& record_of(const std::string& engine) {
  static std::map<std::string, Json> records;
  Json& record = records[engine];
  if (record.is_null()) record = fixture(engine);
  return record;
}

/// How the records of an engine's version end: "vllm" for "vllm@0.32".
inline std::string records_of(const std::string& engine) {
  const std::string_view recorded = choose_engine(engine).rules().recorded;
  for (const EmbeddedText& table : answer_tables())
    if (table.stem() == recorded) return parse_json(table.text).at("records");
  throw std::runtime_error(engine + " was not run");
}

inline std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

inline void add_tensors(EngineCase& subject, const Json& tensors, const std::string& file = {}) {
  for (const auto& [name, tensor] : tensors.items())
    subject.add_bytes(name, *dtype_from_name(tensor.at("dtype").get<std::string>()),
                      tensor.at("shape").get<std::vector<int64_t>>(),
                      from_hex(tensor.at("bytes").get<std::string>()), file);
}

/// Files beside the one of the weights, and the index.
inline void add_files(EngineCase& subject, const Json& variant) {
  const Json texts = variant.value("texts", Json::object());
  for (const auto& [file, text] : texts.items())
    subject.write_as_it_is(file, text.get<std::string>());
  if (variant.contains("files"))
    for (const auto& [file, tensors] : variant.at("files").items())
      add_tensors(subject, tensors, file);
  if (!variant.contains("index")) return;
  const std::string main = "model-00001-of-00002.safetensors";
  subject.set_main_file(main);
  subject.write("model.safetensors.index.json",
                {{"metadata", Json::object()}, {"weight_map", variant.at("index")}});
}

inline VerifyReport verify_variant(const std::string& engine, const Json& base,
                                   const Json& variant) {
  Json config = base;
  if (variant.contains("config")) config.update(variant.at("config"));
  const Json raw = variant.value("raw", Json::object());
  for (const auto& [key, value] : raw.items()) {
    config[key] = value;
    if (value == "absent") config.erase(key);
  }
  EngineCase subject(config);
  if (variant.contains("quantization_config")) subject.quantize(variant.at("quantization_config"));
  if (variant.contains("hf_quant_config"))
    subject.write("hf_quant_config.json", variant.at("hf_quant_config"));
  // Its dtype is that of the weights.
  const std::string dtype = variant.value("weights_dtype", "bfloat16");
  const DType stored = dtype == "float16"   ? DType::kF16
                       : dtype == "float32" ? DType::kF32
                                            : DType::kBF16;
  subject.add_bytes("lm_head.weight", stored, {1},
                    std::vector<std::byte>(static_cast<size_t>(bits_of_dtype(stored)) / 8));
  add_tensors(subject, variant.at("tensors"));
  add_files(subject, variant);
  VerifyOptions options;
  options.kv_cache_dtype = variant.value("kv_cache_dtype", "auto");
  options.is_rocm = variant.value("rocm", false);
  // As vLLM takes the words of its option: one that is no number fits no layer.
  for (const std::string& word : variant.value("skip_layers", std::vector<std::string>()))
    if (word.find_first_not_of("0123456789") == word.npos)
      options.skip_layers.push_back(std::stoll(word));
  return subject.verify(engine, options);
}

inline bool is_same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

/// seen: a number, "nan", one number a head, "undefined", or null where the module has no scale.
inline bool agrees(const EngineScale& held, const Json& seen) {
  if (seen.is_null()) return held.values.empty() || held.source.empty();
  if (seen == "undefined") return held.values.empty();
  const Json list = seen.is_array() ? seen : Json::array({seen});
  for (size_t i = 0; i < list.size(); ++i) {
    const float wanted = list[i] == "nan"    ? std::nanf("")
                         : list[i] == "inf"  ? INFINITY
                         : list[i] == "-inf" ? -INFINITY
                                             : list[i].get<float>();
    // One value stands for all heads.
    if (held.values.size() != 1 && held.values.size() != list.size()) return false;
    if (!is_same(held.values[held.values.size() == 1 ? 0 : i], wanted)) return false;
  }
  return true;
}

/// What verify says, where an Error is its word.
inline VerifyReport report_of(const std::string& engine, const Json& base,
                              const Json& variant) try {
  return verify_variant(engine, base, variant);
} catch (const Error& error) {
  VerifyReport report;
  report.loads = false;
  report.findings.push_back({Severity::kError, {}, error.what(), {}});
  return report;
}

/// "fp8_e4m3" and "fp8" are one answer, and so are all caches of 16 bits.
inline std::string plain_cache(const std::string& dtype) {
  if (!is_quantized_cache(dtype)) return "auto";
  return dtype.starts_with("fp8") ? "fp8" : dtype;
}

/// Where the report is another than what the engine was seen to do; empty: nowhere.
inline std::string difference(const VerifyReport& report, const Json& seen) {
  if (report.loads != seen.at("loads").get<bool>())
    return report.loads ? "refused" : "loads, verify: " + report.findings.front().message;
  if (!report.loads) return {};
  const std::string cache = seen.at("cache_dtype");
  // The habits ask every engine in the same word.
  if (plain_cache(report.kv_cache_dtype) != plain_cache(cache))
    return "cache " + cache + ", verify: " + report.kv_cache_dtype;
  const Json& layers = seen.at("layers");
  if (layers.empty() && cache == "auto") return {};  // a model without modules for scales
  if (report.layers.size() != layers.size()) return "other layers";
  for (size_t layer = 0; layer < layers.size(); ++layer)
    if (!agrees(report.layers[layer].k, layers[layer].at("k")) ||
        !agrees(report.layers[layer].v, layers[layer].at("v")))
      return "layer " + std::to_string(layer) + " holds " + layers[layer].dump() +
             ", verify: " + report_json(report).at("layers")[layer].dump();
  return {};
}

}  // namespace kvcal::test

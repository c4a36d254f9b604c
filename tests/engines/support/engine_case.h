#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/file.h"
#include "engines/verify.h"
#include "family/architecture.h"
#include "stored/weights.h"
#include "support/scratch_folder.h"

namespace kvcal::test {

/// The configuration of a small Llama.
inline const Json kLlama = {{"architectures", {"LlamaForCausalLM"}},
                            {"model_type", "llama"},
                            {"hidden_size", 64},
                            {"num_hidden_layers", 2},
                            {"num_attention_heads", 4},
                            {"num_key_value_heads", 2},
                            {"intermediate_size", 64},
                            {"vocab_size", 96},
                            {"max_position_embeddings", 64},
                            {"rms_norm_eps", 1e-5},
                            {"hidden_act", "silu"},
                            {"torch_dtype", "bfloat16"}};

/// A checkpoint folder with a configuration and the scales of a test, without weights.
class EngineCase {
 public:
  explicit EngineCase(Json config) : config_(std::move(config)) {
    // Of a type that says nothing of the model's dtype.
    add_bytes("model.rotary_emb.inv_freq", DType::kU8, {1}, std::vector<std::byte>(1));
  }
  /// file: "" for the main one.
  void add_bytes(const std::string& name, DType dtype, std::vector<int64_t> shape,
                 std::vector<std::byte> bytes, const std::string& file = {}) {
    files_[file][name] = {dtype, Shape(std::move(shape)), std::move(bytes)};
  }
  /// The file that is always there, model.safetensors otherwise.
  void set_main_file(std::string name) { main_file_ = std::move(name); }
  void add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
           const std::vector<float>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    add_bytes(name, *dtype_from_name(dtype), std::move(shape), {bytes.begin(), bytes.end()});
  }
  /// F32 [1].
  void add(const std::string& name, float value) { add(name, "F32", {1}, {value}); }
  void quantize(Json config) { config_["quantization_config"] = std::move(config); }
  Json& config() { return config_; }
  const Json& config() const { return config_; }
  void write(const std::string& file, const Json& content) const {
    write_file(folder_ / file, dump_json(content));
  }
  /// A file of that text, which may be config.json.
  void write_as_it_is(std::string file, std::string text) {
    texts_[std::move(file)] = std::move(text);
  }
  fs::path path(const std::string& file = {}) const { return folder_ / file; }

  VerifyReport verify(const std::string& engine, const VerifyOptions& options = {}) const {
    write_file(folder_ / "config.json", dump_as_python(config_));
    for (const auto& [file, text] : texts_) {
      fs::create_directories((folder_ / file).parent_path());
      write_file(folder_ / file, text);
    }
    for (const auto& [file, tensors] : files_) {
      fs::create_directories((folder_ / file).parent_path());
      std::vector<TensorSource> sources;
      for (const auto& [name, tensor] : tensors)
        sources.push_back({.name = name,
                           .dtype = tensor.dtype,
                           .shape = tensor.shape,
                           .bytes = tensor.bytes,
                           .file = {},
                           .file_offset = 0});
      write_safetensors(folder_ / (file.empty() ? main_file_ : file), sources, {});
    }
    return verify_checkpoint(folder_.path(), engine, options);
  }

 private:
  struct StoredTensor {
    DType dtype = DType::kF32;
    Shape shape;
    std::vector<std::byte> bytes;
  };
  ScratchFolder folder_;
  Json config_;
  std::map<std::string, std::string> texts_;
  std::string main_file_ = "model.safetensors";
  std::map<std::string, std::map<std::string, StoredTensor>> files_;  ///< tensors by file
};

/// Whether a finding of that severity says part.
inline bool tells(const VerifyReport& report, Severity severity, std::string_view part) {
  for (const Finding& finding : report.findings)
    if (finding.severity == severity && contains(finding.message, part)) return true;
  return false;
}

}  // namespace kvcal::test

#include "rewrite/rewritten_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "core/file.h"
#include "core/interrupt.h"
#include "export/checkpoint_copy.h"
#include "export/source_values.h"
#include "family/wrapper.h"
#include "quant/weight_loops.h"
#include "quant/weight_scales.h"
#include "stored/quantization_config.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

using weight_loops::bytes_of_element;

/// The dtype of the first tensor that has numbers of a float type.
DType float_dtype_of(const ModelDir& model) {
  for (const auto& shard : model.shards())
    for (const auto& tensor : shard.tensors())
      if (is_float(tensor.dtype)) return tensor.dtype;
  return DType::kF32;
}

/// One tensor with another content. Borrows the source's bytes.
class ChangedTensor {
 public:
  /// source: nullptr where the checkpoint has none, and zeros are changed.
  ChangedTensor(std::string name, Shape shape, const TensorView* source, DType dtype,
                TensorChange change)
      : name_(std::move(name)),
        shape_(std::move(shape)),
        source_(source ? source->bytes : std::span<const std::byte>()),
        source_dtype_(dtype),
        dtype_(dtype),
        change_(std::move(change)),
        is_exact_(change_.outputs.is_exact()) {
    for (uint64_t i = 0; i < element_count(shape_); ++i) check(i);
  }

  bool is_widened() const { return dtype_ != source_dtype_; }
  bool is_rounded() const { return !is_exact_ && dtype_ != DType::kF32; }
  double largest_error() const { return largest_error_; }

  static TensorSource source(const std::shared_ptr<const ChangedTensor>& tensor) {
    return generated_source(tensor->name_, tensor->dtype_, tensor->shape_,
                            [tensor](uint64_t offset, std::span<std::byte> to) {
                              const uint64_t size = bytes_of_element(tensor->dtype_);
                              for (uint64_t i = 0; i < to.size() / size; ++i) {
                                const uint32_t bits =
                                    bits_in(tensor->dtype_, tensor->value(offset / size + i));
                                std::memcpy(to.data() + i * size, &bits, size);
                              }
                            });
  }

 private:
  float stored(uint64_t i) const {
    return source_.empty() ? 0.0f : element_of(source_.data(), source_dtype_, i);
  }
  float value(uint64_t i) const { return change_.apply(stored(i), stored(change_.partner(i)), i); }

  void check(uint64_t i) {
    const float wanted = value(i);
    if (!std::isfinite(wanted)) {
      // As the source has it.
      if (!std::isfinite(stored(i)) || !std::isfinite(stored(change_.partner(i)))) return;
      fail("tensor '", name_, "': element ", i, ", ", stored(i),
           ", leaves float32's range with its factor");
    }
    if (!change_.offsets.empty()) return;  // another function anyway: rounded to the dtype
    const float rounded = rounded_to(source_dtype_, wanted);
    if (is_exact_ ? rounded != wanted : !std::isfinite(rounded)) dtype_ = DType::kF32;
    largest_error_ = std::max(largest_error_, change_.error(stored(i), i));
  }

  std::string name_;
  Shape shape_;
  std::span<const std::byte> source_;
  DType source_dtype_, dtype_;
  TensorChange change_;
  bool is_exact_ = true;  ///< else values are rounded to the dtype once more
  double largest_error_ = 0.0;
};

class Rewriting {
 public:
  Rewriting(const ModelDir& model, const ModelConfig& config, const KvFactors& factors)
      : model_(model) {
    for (const ExpectedTensor& tensor : expected_tensors(config)) {
      TensorChange change = change_of(tensor, config, factors);
      const TensorView* source = model.find(tensor.name);
      const bool is_new = !source && is_bias(tensor);
      if (change.is_none() && !is_new) continue;
      if (is_new) ++result_.added;
      throw_if_interrupted();
      in_context(model.path().string(), [&] { add(tensor, source, std::move(change)); });
    }
  }

  RewrittenCheckpoint write(ThreadPool& pool, const std::filesystem::path& folder) {
    for (size_t i = 0; i < model_.shards().size(); ++i) {
      throw_if_interrupted();
      const SafetensorsFile& shard = model_.shards()[i];
      std::vector<TensorSource> sources;
      for (const TensorView& tensor : shard.tensors()) {
        const auto found = changed_.find(tensor.name);
        sources.push_back(found == changed_.end() ? source_of(shard, tensor)
                                                  : ChangedTensor::source(found->second));
      }
      if (i == 0)
        for (const auto& tensor : added_) sources.push_back(ChangedTensor::source(tensor));
      const std::string_view name = model_.index() ? model_.shard_names()[i] : kSingleFileName;
      write_safetensors(folder / name, std::move(sources), metadata_of(shard), {.pool = &pool});
    }
    if (model_.index()) write_index(model_, model_.shard_names(), folder);
    return result_;
  }

 private:
  static bool is_bias(const ExpectedTensor& tensor) {
    const TensorClass kind = row_of(tensor.row->role).tensor_class;
    return kind == TensorClass::kBias || kind == TensorClass::kOutputBias;
  }

  void add(const ExpectedTensor& tensor, const TensorView* source, TensorChange change) {
    if (source && !is_float(source->dtype))
      fail("tensor '", tensor.name, "' is ", source->dtype, ", expected F32, F16 or BF16");
    const DType dtype = source ? source->dtype : float_dtype_of(model_);
    auto made = std::make_shared<const ChangedTensor>(tensor.name, tensor.shape, source, dtype,
                                                      std::move(change));
    ++result_.changed;
    if (made->is_widened()) ++result_.widened;
    if (made->is_rounded()) ++result_.rounded;
    result_.largest_error = std::max(result_.largest_error, made->largest_error());
    if (source)
      changed_.emplace(tensor.name, std::move(made));
    else
      added_.push_back(std::move(made));
  }

  const ModelDir& model_;
  std::map<std::string, std::shared_ptr<const ChangedTensor>, std::less<>> changed_;
  std::vector<std::shared_ptr<const ChangedTensor>> added_;
  RewrittenCheckpoint result_;
};

bool has_key_bias(const ModelConfig& config) {
  const std::vector<ExpectedTensor> tensors = expected_tensors(config);
  return std::ranges::any_of(tensors, [](const ExpectedTensor& tensor) {
    return tensor.row->role == Role::kKeyBias || tensor.row->role == Role::kQueryKeyValueBias;
  });
}

/// The config with which the model has a bias of K: its own, or one with attention_bias.
Json config_with_key_bias(const Json& config, const FamilyChoice& family) {
  const ModelConfig parsed = parse_model_config(config, family);
  if (has_key_bias(parsed)) return config;
  Json changed = config;
  Json& text =
      text_model_of(changed, family).config == &changed ? changed : changed.at("text_config");
  text["attention_bias"] = true;
  if (!has_key_bias(parse_model_config(changed, family)))
    fail("no bias of K: family ", parsed.architecture->name,
         " has none, nor an attention_bias that would add one");
  return changed;
}

}  // namespace

void check_can_be_rewritten(const ModelDir& model) {
  const QuantizationConfig config = read_quantization_config(model);
  if (config.format)
    fail(config.where,
         ": describes a quantization; expected a checkpoint with 16- or 32-bit weights");
}

RewrittenCheckpoint write_rewritten_checkpoint(const ModelDir& model, const ModelConfig& config,
                                               const KvFactors& factors, ThreadPool& pool,
                                               const std::filesystem::path& folder) {
  Rewriting rewriting(model, config, factors);
  copy_sidecar_files(model, {}, folder);
  write_text_file(folder / "config.json", config_text(model.config()));
  return rewriting.write(pool, folder);
}

RewrittenCheckpoint write_outliers(ModelDir model, const OutlierRequest& request, ThreadPool& pool,
                                   const std::filesystem::path& folder) {
  check_can_be_rewritten(model);
  ModelConfig config = read_model_config(model, request.family);
  { const Weights checked(model, config); }  // names, shapes and dtypes of all tensors
  KvFactors factors;
  in_context(model.given_path().string(), [&] {
    factors = outlier_factors(config, request.outliers, request.seed);
    if (!request.outliers.bias_norm) return;
    model.set_config(config_with_key_bias(model.config(), request.family));
    config = read_model_config(model, request.family);
  });
  return write_rewritten_checkpoint(model, config, factors, pool, folder);
}

}  // namespace kvcal

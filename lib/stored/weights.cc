#include "stored/weights.h"

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "family/expected_tensors.h"
#include "stored/coded_matrix.h"
#include "stored/fp8_checkpoint.h"
#include "stored/kv_scales.h"
#include "stored/row_decoders.h"
#include "stored/weight_rows.h"

namespace kvcal {
namespace {

/// Collects all problems, so that one run reports all of them.
class Problems {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    if (++count_ > kMaxShown) return;
    std::ostringstream line;
    (line << ... << parts);
    text_ += "\n  " + shown_text(line.str());
  }
  void fail_if_any(const ModelConfig& config) const {
    if (count_ == 0) return;
    const std::string more =
        count_ > kMaxShown ? "\n  and " + std::to_string(count_ - kMaxShown) + " more" : "";
    fail("the checkpoint does not hold a ", config.model_type,
         " of this config.json:", Lines{text_ + more});
  }

 private:
  static constexpr int kMaxShown = 20;
  std::string text_;
  int64_t count_ = 0;
};

constexpr std::string_view kWeight = ".weight";

int64_t divided_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

/// Whether the role is read as stored, and so is never FP8.
bool is_of_embedding_or_norm(Role role) {
  const TensorClass tensor_class = row_of(role).tensor_class;
  return tensor_class == TensorClass::kEmbedding || tensor_class == TensorClass::kNorm ||
         role == Role::kLmHead;
}

}  // namespace

/// Fills the tables and records problems.
class Weights::Binder {
 public:
  Binder(const ModelDir& model_dir, const ModelConfig& config,
         const CheckpointQuantization* quantization)
      : model_dir_(model_dir),
        config_(config),
        quantization_(quantization),
        names_(model_dir.tensor_names()) {}

  void bind(const ExpectedTensor& tensor, Table& table) {
    const TensorRow& row = *tensor.row;
    if (is_split(tensor)) {
      for (const ExpertTensor& one : split_into_experts(tensor, config_))
        if (const auto bound = bind_one(one.name, one.shape, one.role, Layout::kOutIn))
          table[{one.role, one.slice.index}] = *bound;
      return;
    }
    if (quantization_ && bind_coded_stack(tensor, table)) return;
    const auto bound = bind_one(tensor.name, tensor.shape, row.role, row.layout);
    if (!bound) return;
    if (row.is_stacked()) {
      bind_stacked(tensor, *bound, table);
    } else {
      table[{row.role, tensor.index}] = *bound;
    }
  }

  void finish() {
    // The file may hold a tied lm_head anyway, or only its scale, which transformers needs where
    // the shared matrix is FP8.
    for (const TensorRow& row : config_.architecture->model_tensors)
      if (row.is_of_head())
        for (const char* ending : {"", "_scale"})
          expected_.insert(config_.head_prefix + std::string(row.name) + ending);
    for (const int64_t layer : config_.attention_layers())
      if (!config_.has_own_cache(layer))
        for (const std::string_view name : config_.architecture->ignored_without_cache)
          expected_.insert(config_.layer_prefix(layer) + std::string(name));
    expected_.merge(kv_scale_names(config_));
    if (quantization_) {
      expected_.insert(quantization_->tensors.begin(), quantization_->tensors.end());
      for (const std::string& problem : quantization_->problems) problems_.add(problem);
    }
    for (const std::string& name : model_dir_.tensor_names())
      if (!expected_.contains(name) && !is_unused_tensor(name, config_))
        problems_.add("unexpected: ", name, " ", model_dir_.tensor(name).shape);
    problems_.fail_if_any(config_);
  }

 private:
  /// Whether experts of the tensor's layer have tensors of their own instead of a stacked one.
  bool is_split(const ExpectedTensor& tensor) const {
    if (tensor.row->split.empty() || model_dir_.find(tensor.name)) return false;
    if (quantization_ && quantization_->stacked.contains(tensor.name)) return false;
    const std::string_view own = tensor.row->split.front().name;
    const std::string prefix =
        config_.layer_prefix(tensor.layer) + std::string(own.substr(0, own.find("{}")));
    return std::ranges::any_of(names_, [&](const std::string& name) {
      return name.size() > prefix.size() && name.starts_with(prefix) &&
             name[prefix.size()] >= '0' && name[prefix.size()] <= '9';
    });
  }

  std::optional<Bound> bind_one(const std::string& own_name, const Shape& wanted, Role role,
                                Layout layout) {
    const std::string name = name_in_file(own_name);
    expected_.insert(name);
    if (const LinearQuantization* linear = coded_linear(name)) {
      const auto bound = bind_coded(name, *linear->coded, wanted, layout);
      return bound ? std::optional(with(*bound, *linear)) : std::nullopt;
    }
    const TensorView* tensor = model_dir_.find(name);
    if (!tensor) {
      problems_.add("missing: ", name, " ", wanted);
      return std::nullopt;
    }
    if (tensor->shape != wanted) {
      problems_.add("misshapen: ", name, " is ", tensor->shape, ", expected ", wanted);
      return std::nullopt;
    }
    Bound bound{.view = *tensor, .block_scale = nullptr, .layout = layout};
    if (tensor->dtype == DType::kF8E4M3 && quantization_) {
      bound.quantization = quantization_of(name, layout);
    } else if (tensor->dtype == DType::kF8E4M3 && config_.weight_block_rows > 0 &&
               wanted.rank() == 2 && layout == Layout::kOutIn && !is_of_embedding_or_norm(role)) {
      bound.block_scale = block_scale(name, wanted);
    } else if (!is_float(tensor->dtype)) {
      problems_.add("unreadable: ", name, " is ", tensor->dtype, ", expected F32, F16 or BF16");
    }
    return bound;
  }

  std::string name_in_file(const std::string& name) const {
    if (model_dir_.find(name) || coded_linear(name) || !name.ends_with(kWeight)) return name;
    const std::string other =
        renamed_expert(name.substr(0, name.size() - kWeight.size())) + std::string(kWeight);
    return model_dir_.find(other) || coded_linear(other) ? other : name;
  }

  /// The quantization of a weight by its name in the family's table; nullptr where it is 16-bit or
  /// FP8 with plain scales.
  const LinearQuantization* coded_linear(const std::string& name) const {
    if (!quantization_ || !name.ends_with(kWeight)) return nullptr;
    const auto found = quantization_->linears.find(name.substr(0, name.size() - kWeight.size()));
    return found != quantization_->linears.end() && found->second.coded ? &found->second : nullptr;
  }

  static Bound with(Bound bound, const LinearQuantization& quantization) {
    bound.quantization = &quantization;
    return bound;
  }

  /// Binds codes, whose rows are outputs for any layout. wanted: shape in the family's table.
  std::optional<Bound> bind_coded(const std::string& name, const CodedMatrix& coded,
                                  const Shape& wanted, Layout layout) {
    const bool is_turned = layout == Layout::kInOut || layout == Layout::kInOutInterleaved;
    const Shape expected = is_turned && wanted.rank() == 2 ? Shape{wanted[1], wanted[0]} : wanted;
    if (coded.shape() != expected) {
      problems_.add("misshapen: ", name, " has codes of ", coded.shape(), ", expected ", expected);
      return std::nullopt;
    }
    Bound bound{.view = coded.codes(), .block_scale = nullptr, .coded = &coded};
    bound.view.shape = coded.shape();
    const bool is_interleaved =
        layout == Layout::kInOutInterleaved || layout == Layout::kOutInterleaved;
    bound.layout = is_interleaved ? Layout::kOutInterleaved : Layout::kOutIn;
    return bound;
  }

  /// Binds a matrix of each expert. Returns whether the checkpoint stores the tensor as codes.
  bool bind_coded_stack(const ExpectedTensor& tensor, Table& table) {
    const auto found = quantization_->stacked.find(tensor.name);
    if (found == quantization_->stacked.end()) return false;
    const std::vector<const CodedMatrix*>& matrices = found->second;
    if (std::ssize(matrices) != tensor.count || tensor.row->is_flat) {
      problems_.add("misshapen: ", tensor.name, " has codes of ", matrices.size(),
                    " experts, expected ", tensor.count);
      return true;
    }
    for (int64_t i = 0; i < tensor.count; ++i)
      if (const auto bound = bind_coded(tensor.name, *matrices[static_cast<size_t>(i)],
                                        {tensor.shape[1], tensor.shape[2]}, tensor.row->layout))
        table[{tensor.row->role, i}] = *bound;
    return true;
  }

  /// Quantization of an F8_E4M3 weight. Missing scales were reported when the scales were read.
  const LinearQuantization* quantization_of(const std::string& name, Layout layout) {
    const auto found =
        name.ends_with(kWeight)
            ? quantization_->linears.find(name.substr(0, name.size() - kWeight.size()))
            : quantization_->linears.end();
    if (found != quantization_->linears.end() && layout == Layout::kOutIn) return &found->second;
    if (quantization_->problems.empty())
      problems_.add("unreadable: ", name, " is F8_E4M3, expected F32, F16 or BF16");
    return nullptr;
  }

  const TensorView* block_scale(const std::string& name, const Shape& shape) {
    const std::string scale_name = name + "_scale_inv";
    const Shape wanted{divided_up(shape[0], config_.weight_block_rows),
                       divided_up(shape[1], config_.weight_block_columns)};
    expected_.insert(scale_name);
    const TensorView* scale = model_dir_.find(scale_name);
    if (!scale) {
      problems_.add("missing: ", scale_name, " ", wanted, " of the F8_E4M3 weight");
    } else if (scale->shape != wanted) {
      problems_.add("misshapen: ", scale_name, " is ", scale->shape, ", expected ", wanted);
    } else if (!is_float(scale->dtype)) {
      problems_.add("unreadable: ", scale_name, " is ", scale->dtype,
                    ", expected F32, F16 or BF16");
    }
    return scale;
  }

  /// Binds one tensor [count, ...] as count tensors.
  static void bind_stacked(const ExpectedTensor& tensor, const Bound& bound, Table& table) {
    for (int64_t i = 0; i < tensor.count; ++i) {
      Bound entry = bound;
      entry.view = expert_of(bound.view, i, tensor.row->is_flat ? tensor.count : 0);
      table[{tensor.row->role, i}] = entry;
    }
  }

  const ModelDir& model_dir_;
  const ModelConfig& config_;
  const CheckpointQuantization* quantization_;
  const std::vector<std::string> names_;  ///< of the checkpoint's tensors
  Problems problems_;
  std::set<std::string, std::less<>> expected_;
};

Weights::Weights(const ModelDir& model_dir, const ModelConfig& config,
                 const CheckpointQuantization* quantization)
    : model_dir_(&model_dir), config_(&config) {
  Binder binder(model_dir, config, quantization);
  layers_.resize(config.layers.size());
  for (const ExpectedTensor& tensor : expected_tensors(config))
    binder.bind(tensor,
                tensor.layer == kNoLayer ? model_ : layers_[static_cast<size_t>(tensor.layer)]);
  binder.finish();
  for (const TensorRow& row : config.architecture->model_tensors)
    if (quantization && row.role == Role::kLmHead && !has(Role::kLmHead)) {
      const std::string module = config.head_prefix + std::string(row.name);
      const auto tied =
          quantization->linears.find(module.substr(0, module.size() - kWeight.size()));
      if (tied != quantization->linears.end()) tied_head_ = &tied->second;
    }
}

std::vector<Weights::LayerTensor> Weights::tensors(int64_t layer) const {
  return tensors(layers_.at(static_cast<size_t>(layer)));
}

std::vector<Weights::LayerTensor> Weights::tensors(const Table& table) {
  std::vector<LayerTensor> all;
  for (const auto& [key, bound] : table) {
    all.push_back({.role = key.first, .view = bound.view});
    if (bound.block_scale)
      all.push_back({.role = key.first, .view = *bound.block_scale, .is_scale = true});
    if (bound.coded)
      for (const TensorView& scale : bound.coded->scales())
        all.push_back({.role = key.first, .view = scale, .is_scale = true});
    else if (bound.quantization)
      all.push_back(
          {.role = key.first, .view = bound.quantization->weight_scale, .is_scale = true});
  }
  return all;
}

bool Weights::has(Role role) const {
  return model_.contains({role, 0});
}

bool Weights::has(int64_t layer, Role role) const {
  return holder(layer, role, 0).first != nullptr;
}

int64_t Weights::count(int64_t layer, Role role) const {
  int64_t count = 0;
  while (find(layer, role, count)) ++count;
  return count;
}

const Weights::Bound* Weights::find(int64_t layer, Role role, int64_t index) const {
  const Table& table = layers_.at(static_cast<size_t>(layer));
  const auto it = table.find({role, index});
  return it == table.end() ? nullptr : &it->second;
}

std::pair<const Weights::Bound*, Role> Weights::holder(int64_t layer, Role role,
                                                       int64_t index) const {
  if (const Bound* bound = find(layer, role, index)) return {bound, role};
  for (const Role fused_role : fused_roles_of(role))
    if (const Bound* bound = find(layer, fused_role, index)) return {bound, fused_role};
  return {nullptr, role};
}

const Weights::Bound& Weights::model_tensor(Role role, int64_t index) const {
  const auto it = model_.find({role, index});
  KVCAL_CHECK(it != model_.end());
  return it->second;
}

const TensorView& Weights::at(Role role, int64_t index) const {
  return model_tensor(role, index).view;
}

const LinearQuantization* Weights::quantization(int64_t layer, Role role, int64_t index) const {
  const Bound* bound = holder(layer, role, index).first;
  return bound ? bound->quantization : nullptr;
}

const LinearQuantization* Weights::quantization(Role role, int64_t index) const {
  return model_tensor(role, index).quantization;
}

const LinearQuantization* Weights::output_quantization() const {
  return tied_head_ ? tied_head_ : quantization(output_embedding());
}

WeightRows Weights::rows(int64_t layer, Role role, int64_t index) const {
  const auto [bound, held_as] = holder(layer, role, index);
  KVCAL_CHECK(bound);
  return held_as == role ? whole(*bound) : cut(whole(*bound), layer, role, held_as);
}

WeightRows Weights::rows(Role role, int64_t index) const {
  return whole(model_tensor(role, index));
}

WeightRows Weights::rows_to_pack(int64_t layer, Role role, int64_t index) const {
  const auto [bound, held_as] = holder(layer, role, index);
  KVCAL_CHECK(bound);
  WeightRows all = whole_to_pack(*bound);
  return held_as == role ? std::move(all) : cut(std::move(all), layer, role, held_as);
}

WeightRows Weights::rows_to_pack(Role role, int64_t index) const {
  return whole_to_pack(model_tensor(role, index));
}

namespace {

WeightRows coded(const TensorView& codes, const LinearQuantization& quantization) {
  KVCAL_CHECK(quantization.scales_rows());
  WeightRows rows{.parts = {codes}};
  const std::vector<float> scales = as_float32(std::span(&quantization.weight_scale, 1));
  for (int64_t row = 0; row < codes.shape[0]; ++row)
    rows.row_scales.push_back(scales[static_cast<size_t>(row / quantization.block_rows)]);
  return rows;
}

}  // namespace

WeightRows Weights::codes(int64_t layer, Role role, int64_t index) const {
  const auto [bound, held_as] = holder(layer, role, index);
  KVCAL_CHECK(bound && bound->quantization);
  WeightRows all = coded(bound->view, *bound->quantization);
  return held_as == role ? std::move(all) : cut(std::move(all), layer, role, held_as);
}

WeightRows Weights::codes(Role role, int64_t index) const {
  const Bound& bound = model_tensor(role, index);
  KVCAL_CHECK(bound.quantization);
  return coded(bound.view, *bound.quantization);
}

namespace {

/// Decodes all rows now, as F32. name: of the tensor.
WeightRows decoded_now(const WeightRows& rows, std::string_view name) {
  WeightRows result;
  const DecodedRows& all = rows.decoded[0];
  const auto floats = static_cast<size_t>(all.count * all.decoder->width());
  std::vector<std::byte>& bytes = result.owned.emplace_back(floats * sizeof(float));
  all.decoder->decode(all.first, all.count, reinterpret_cast<float*>(bytes.data()));
  result.parts.push_back({.name = name,
                          .dtype = DType::kF32,
                          .shape = {all.count, all.decoder->width()},
                          .bytes = bytes});
  return result;
}

}  // namespace

WeightRows Weights::whole(const Bound& bound) const {
  WeightRows rows = whole_to_pack(bound);
  return rows.decoded.empty() ? std::move(rows) : decoded_now(rows, bound.view.name);
}

WeightRows Weights::whole_to_pack(const Bound& bound) const {
  WeightRows rows;
  const auto decode = [&](std::unique_ptr<RowDecoder> decoder) {
    rows.decoded.push_back({decoder.get(), 0, bound.view.shape[0]});
    rows.decoders.push_back(std::move(decoder));
  };
  if (bound.coded && bound.layout == Layout::kOutInterleaved) {
    decode(std::make_unique<DeinterleavedRows>(*bound.coded, bound.coded->rows()));
  } else if (bound.coded) {
    rows.decoded.push_back({bound.coded, 0, bound.coded->rows()});
  } else if (const LinearQuantization* scaled = bound.quantization) {
    decode(std::make_unique<BlockScaledRows>(bound.view, scaled->weight_scale, scaled->block_rows,
                                             scaled->block_columns));
  } else if (bound.block_scale) {
    decode(std::make_unique<BlockScaledRows>(
        bound.view, *bound.block_scale, config_->weight_block_rows, config_->weight_block_columns));
  } else if (bound.layout == Layout::kInOut) {
    return transposed(bound.view);
  } else if (bound.layout == Layout::kInOutInterleaved) {
    return deinterleaved(transposed(bound.view).parts[0]);
  } else if (bound.layout == Layout::kOutInterleaved) {
    return deinterleaved(bound.view);
  } else {
    rows.parts.push_back(bound.view);
  }
  return rows;
}

/// Rows of a role inside a fused tensor, which is one part.
WeightRows Weights::cut(WeightRows whole, int64_t layer, Role role, Role fused_role) const {
  const std::vector<TensorView> parts = std::exchange(whole.parts, {});
  const std::vector<DecodedRows> decoded = std::exchange(whole.decoded, {});
  const std::vector<float> scales = std::exchange(whole.row_scales, {});
  const int64_t rows = decoded.empty() ? parts[0].shape[0] : decoded[0].count;
  for (const auto& [begin, count] : row_ranges(role, fused_role, rows, *config_, layer)) {
    if (decoded.empty())
      whole.parts.push_back(rows_of(parts[0], begin, count));
    else
      whole.decoded.push_back({decoded[0].decoder, begin, count});
    if (!scales.empty())
      whole.row_scales.insert(whole.row_scales.end(), scales.begin() + begin,
                              scales.begin() + begin + count);
  }
  return whole;
}

}  // namespace kvcal

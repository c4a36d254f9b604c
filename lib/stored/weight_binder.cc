#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "family/expected_tensors.h"
#include "stored/coded_matrix.h"
#include "stored/fp8_checkpoint.h"
#include "stored/kv_scales.h"
#include "stored/quantization_config.h"
#include "stored/weights.h"

namespace kvcal {

const AccountedTensor* TensorAccount::undescribed() const {
  const auto found = std::ranges::find(tensors, TensorUse::kUndescribed, &AccountedTensor::use);
  return found == tensors.end() ? nullptr : &*found;
}

void check_account(const TensorAccount& account, const ModelConfig& config) {
  constexpr size_t kMaxShown = 20;
  const size_t count = account.problems.size();
  if (count == 0) return;
  std::string text;
  for (size_t i = 0; i < std::min(count, kMaxShown); ++i)
    text += "\n  " + shown_text(account.problems[i]);
  if (count > kMaxShown) text += "\n  and " + std::to_string(count - kMaxShown) + " more";
  fail("the checkpoint does not hold a ", config.model_type, " of this config.json:", Lines{text});
}

bool is_name_of_codes(std::string_view last_part) {
  return has_word(
      "SCB absmax activation_scale g_idx input_global_scale input_scale input_zero_point "
      "nested_absmax nested_quant_map quant_map qweight qzeros scales weight_g_idx "
      "weight_global_scale weight_packed weight_scale weight_scale_2 weight_scale_inv weight_shape "
      "weight_zero_point",
      last_part);
}

/// Fills the tables of Weights, and accounts for every tensor.
class Weights::Binder {
 public:
  Binder(const ModelDir& model_dir, const ModelConfig& config,
         const CheckpointQuantization* quantization)
      : model_dir_(model_dir),
        config_(config),
        quantization_(quantization),
        names_(model_dir.tensor_names()) {}

  static constexpr std::string_view kWeight = ".weight";
  static std::string module_of(const std::string& weight) {
    return weight.substr(0, weight.size() - kWeight.size());
  }

  void bind(const ExpectedTensor& tensor, Table& table) {
    const TensorRow& row = *tensor.row;
    if (row.is_of_head()) {
      bind_head(tensor, table);
    } else if (is_split(tensor)) {
      for (const ExpertTensor& one : split_into_experts(tensor, config_))
        if (const auto bound = bind_one(one.name, one.shape, one.role, Layout::kOutIn, problems_))
          table[{one.role, one.slice.index}] = *bound;
    } else if (!quantization_ || !bind_coded_stack(tensor, table)) {
      const auto bound = bind_one(tensor.name, tensor.shape, row.role, row.layout, problems_);
      if (bound && row.is_stacked())
        bind_stacked(tensor, *bound, table);
      else if (bound)
        table[{row.role, tensor.index}] = *bound;
    }
  }

  /// Why lm_head is not read; empty: it is, or the embedding's weight is it.
  std::string head_problem() const {
    if (config_.lacks_head)
      return "the checkpoint holds no " + head_module() +
             ", and config.json does not tie it to the embedding";
    if (quantization_ && !quantization_->head_problem.empty()) return quantization_->head_problem;
    return head_problems_.empty() ? std::string() : head_problems_.front();
  }

  TensorAccount finish() {
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
    scales_.merge(kv_scale_names(config_));
    if (quantization_) {
      scales_.insert(quantization_->tensors.begin(), quantization_->tensors.end());
      std::ranges::copy(quantization_->problems, std::back_inserter(problems_));
    }
    TensorAccount account;
    for (const std::string& name : names_) account.tensors.push_back({name, use_of(name)});
    for (const AccountedTensor& tensor : account.tensors)
      if (!is_explained(tensor.use) && !unread_.contains(tensor.name) &&
          !is_of_unread_head(tensor.name))
        refused(problems_, "unexpected: ", tensor.name, " ", model_dir_.tensor(tensor.name).shape);
    account.problems = std::move(problems_);
    account.head_problem = head_problem();
    return account;
  }

 private:
  /// Adds a line to problems, and gives what is bound then: nothing.
  template <class... Parts>
  static std::nullopt_t refused(std::vector<std::string>& problems, const Parts&... parts) {
    problems.push_back(problem_line(parts...));
    return std::nullopt;
  }

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

  /// Binds lm_head, whose problems concern only what multiplies by it.
  void bind_head(const ExpectedTensor& tensor, Table& table) {
    const TensorRow& row = *tensor.row;
    const auto bound = bind_one(tensor.name, tensor.shape, row.role, row.layout, head_problems_);
    if (bound && head_problem().empty()) table[{row.role, tensor.index}] = *bound;
  }

  TensorUse use_of(const std::string& name) const {
    if (unread_.contains(name)) return TensorUse::kUndescribed;
    if (scales_.contains(name)) return TensorUse::kScale;
    if (expected_.contains(name)) return TensorUse::kRun;
    if (is_unused_tensor(name, config_)) return TensorUse::kAside;
    if (is_scale_of_codes(name)) return TensorUse::kUndescribed;
    return is_beside_model(name, config_) ? TensorUse::kAside : TensorUse::kUnknown;
  }

  /// Whether a tensor has the name of codes or scales of a module that is run.
  bool is_scale_of_codes(const std::string& name) const {
    const size_t dot = name.rfind('.');
    return dot != std::string::npos && is_name_of_codes(std::string_view(name).substr(dot + 1)) &&
           (expected_.contains(name.substr(0, dot) + std::string(kWeight)) ||
            expected_.contains(name.substr(0, dot)));
  }

  std::string head_module() const {
    for (const TensorRow& row : config_.architecture->model_tensors)
      if (row.role == Role::kLmHead)
        return config_.head_prefix + std::string(row.name.substr(0, row.name.rfind('.')));
    return "lm_head";
  }

  bool is_of_unread_head(const std::string& name) const {
    return !config_.lacks_head && !head_problem().empty() && name.starts_with(head_module() + ".");
  }

  std::optional<Bound> bind_one(const std::string& own_name, const Shape& wanted, Role role,
                                Layout layout, std::vector<std::string>& problems) {
    const std::string name = name_in_file(own_name);
    expected_.insert(name);
    if (const LinearQuantization* linear = coded_linear(name)) {
      auto bound = bind_coded(name, *linear->coded, wanted, layout, problems);
      if (bound) bound->quantization = linear;
      return bound;
    }
    const TensorView* tensor = model_dir_.find(name);
    if (!tensor && has_other_codes(name)) return std::nullopt;
    if (!tensor) return refused(problems, "missing: ", name, " ", wanted);
    if (quantization_ && quantization_->undescribed.contains(name)) {  // told with its scales
      unread_.insert(name);
      return std::nullopt;
    }
    if (tensor->shape != wanted)
      return refused(problems, "misshapen: ", name, " is ", tensor->shape, ", expected ", wanted);
    Bound bound{.view = *tensor, .block_scale = nullptr, .layout = layout};
    const bool is_hash = row_of(role).tensor_class == TensorClass::kHashNumber;
    if (is_hash) {
      if (tensor->dtype != DType::kI64)
        return refused(problems, "unreadable: ", name, " is ", tensor->dtype, ", expected I64");
    } else if (tensor->dtype == DType::kF8E4M3 && quantization_) {
      bound.quantization = quantization_of(name, layout, problems);
    } else if (tensor->dtype == DType::kF8E4M3 && config_.weight_block_rows > 0 &&
               wanted.rank() == 2 && layout == Layout::kOutIn && !is_of_embedding_or_norm(role)) {
      bound.block_scale = block_scale(name, wanted, problems);
    } else if (!is_float(tensor->dtype)) {
      refused(problems, "unreadable: ", name, " is ", tensor->dtype, ", expected F32, F16 or BF16");
      unread_.insert(name);
    }
    return bound;
  }

  /// Whether a weight that the file lacks is there as codes that nothing describes.
  bool has_other_codes(const std::string& weight) {
    if (!quantization_ || !weight.ends_with(kWeight)) return false;
    for (const std::string_view end : kNamesOfCodes)
      if (std::string name = module_of(weight) + std::string(end);
          quantization_->undescribed.contains(name)) {
        unread_.insert(std::move(name));
        return true;
      }
    return false;
  }

  std::string name_in_file(const std::string& name) const {
    if (model_dir_.find(name) || coded_linear(name) || !name.ends_with(kWeight)) return name;
    const std::string other = renamed_expert(module_of(name)) + std::string(kWeight);
    return model_dir_.find(other) || coded_linear(other) ? other : name;
  }

  /// The quantization of a weight by its name; nullptr: it has none.
  const LinearQuantization* linear_of(const std::string& name) const {
    if (!quantization_ || !name.ends_with(kWeight)) return nullptr;
    const auto found = quantization_->linears.find(module_of(name));
    return found != quantization_->linears.end() ? &found->second : nullptr;
  }

  /// linear_of, unless it is FP8 with plain scales.
  const LinearQuantization* coded_linear(const std::string& name) const {
    const LinearQuantization* linear = linear_of(name);
    return linear && linear->coded ? linear : nullptr;
  }

  /// Binds codes, whose rows are outputs for any layout. wanted: shape in the family's table.
  std::optional<Bound> bind_coded(const std::string& name, const CodedMatrix& coded,
                                  const Shape& wanted, Layout layout,
                                  std::vector<std::string>& problems) {
    const bool is_turned = layout == Layout::kInOut || layout == Layout::kInOutInterleaved;
    const Shape expected = is_turned && wanted.rank() == 2 ? Shape{wanted[1], wanted[0]} : wanted;
    if (coded.shape() != expected)
      return refused(problems, "misshapen: ", name, " has codes of ", coded.shape(), ", expected ",
                     expected);
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
      refused(problems_, "misshapen: ", tensor.name, " has codes of ",
              counted(matrices.size(), "expert"), ", expected ", tensor.count);
      return true;
    }
    for (int64_t i = 0; i < tensor.count; ++i)
      if (const auto bound =
              bind_coded(tensor.name, *matrices[static_cast<size_t>(i)],
                         {tensor.shape[1], tensor.shape[2]}, tensor.row->layout, problems_))
        table[{tensor.row->role, i}] = *bound;
    return true;
  }

  /// Quantization of an F8_E4M3 weight. Missing scales were reported when the scales were read.
  const LinearQuantization* quantization_of(const std::string& name, Layout layout,
                                            std::vector<std::string>& problems) {
    const LinearQuantization* linear = linear_of(name);
    if (linear && layout == Layout::kOutIn) return linear;
    if (quantization_->problems.empty())
      refused(problems, "unreadable: ", name, " is F8_E4M3, expected F32, F16 or BF16");
    return nullptr;
  }

  const TensorView* block_scale(const std::string& name, const Shape& shape,
                                std::vector<std::string>& problems) {
    const std::string scale_name = name + "_scale_inv";
    const Shape wanted{divided_up(shape[0], config_.weight_block_rows),
                       divided_up(shape[1], config_.weight_block_columns)};
    expected_.insert(scale_name);
    const TensorView* scale = model_dir_.find(scale_name);
    if (!scale)
      refused(problems, "missing: ", scale_name, " ", wanted, " of the F8_E4M3 weight");
    else if (scale->shape != wanted)
      refused(problems, "misshapen: ", scale_name, " is ", scale->shape, ", expected ", wanted);
    else if (!is_float(scale->dtype))
      refused(problems, "unreadable: ", scale_name, " is ", scale->dtype,
              ", expected F32, F16 or BF16");
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

  /// Whether the role is read as stored, and so is never FP8.
  static bool is_of_embedding_or_norm(Role role) {
    const TensorClass tensor_class = row_of(role).tensor_class;
    return tensor_class == TensorClass::kEmbedding || tensor_class == TensorClass::kNorm ||
           role == Role::kLmHead;
  }

  const ModelDir& model_dir_;
  const ModelConfig& config_;
  const CheckpointQuantization* quantization_;
  const std::vector<std::string> names_;  ///< of the checkpoint's tensors
  std::vector<std::string> problems_, head_problems_;
  std::set<std::string, std::less<>> expected_, scales_;
  std::set<std::string, std::less<>> unread_;  ///< codes that nothing describes
};

TensorAccount Weights::account(const ModelDir& model_dir, const ModelConfig& config,
                               const CheckpointQuantization* quantization) {
  Binder binder(model_dir, config, quantization);
  Table table;
  for (const ExpectedTensor& tensor : expected_tensors(config)) binder.bind(tensor, table);
  return binder.finish();
}

void check_described(const ModelDir& model_dir, const ModelConfig& config,
                     const CheckpointQuantization& quantization) {
  in_context(model_dir.given_path().string(), [&] {
    const TensorAccount account = Weights::account(model_dir, config, &quantization);
    check_account(account, config);
    if (!account.head_problem.empty() && !config.lacks_head) fail(account.head_problem);
  });
}

Weights::Weights(const ModelDir& model_dir, const ModelConfig& config,
                 const CheckpointQuantization* quantization)
    : model_dir_(&model_dir), config_(&config) {
  Binder binder(model_dir, config, quantization);
  layers_.resize(config.layers.size());
  for (const ExpectedTensor& tensor : expected_tensors(config))
    binder.bind(tensor,
                tensor.layer == kNoLayer ? model_ : layers_[static_cast<size_t>(tensor.layer)]);
  const TensorAccount account = binder.finish();
  check_account(account, config);
  head_problem_ = account.head_problem;
  for (const TensorRow& row : config.architecture->model_tensors)
    if (quantization && row.role == Role::kLmHead && !has(Role::kLmHead) && head_problem_.empty()) {
      const auto tied =
          quantization->linears.find(Binder::module_of(config.head_prefix + std::string(row.name)));
      if (tied != quantization->linears.end()) tied_head_ = &tied->second;
    }
}

}  // namespace kvcal

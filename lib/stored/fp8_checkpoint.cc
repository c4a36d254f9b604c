#include "stored/fp8_checkpoint.h"

#include <algorithm>
#include <array>

#include "family/expected_tensors.h"
#include "quant/scale.h"
#include "stored/kv_scales.h"
#include "stored/stored_format.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// Whether a 16-bit weight of the module need not be among a config's exceptions: engines run it so
/// for any config, or Kimi-K3's published config leaves it out. Source: llm-compressor 0.14,
/// `patch_kimi_k3_ignore`.
bool may_be_unlisted(Role role) {
  return role == Role::kRouter || role == Role::kSharedExpertGate || is_score(role) ||
         role == Role::kExpertsIn || role == Role::kExpertsOut;
}

class Reader {
 public:
  explicit Reader(const ModelDir& model_dir) : model_dir_(model_dir) {}

  void add(const ModuleName& module, const ModuleScheme* scheme) {
    is_head_ = module.role == Role::kLmHead;
    if (scheme && !scheme->unrun_input.empty()) unrun_inputs_.insert(scheme->unrun_input);
    if (scheme && scheme->storage && add_coded(module, *scheme)) return;
    const std::string name = module_in_file(module.name, ".weight");
    const TensorView* weight = model_dir_.find(name + ".weight");
    if (const TensorView* codes = weight ? nullptr : other_codes(name)) {
      add_undescribed(*codes, scheme);
      return;
    }
    const bool is_fp8 = weight && weight->dtype == DType::kF8E4M3;
    if (!weight) {  // tied, or missing: Weights knows
      if (scheme && module.role == Role::kLmHead) tied_head_ = {name, scheme};
    } else if (is_other_code(weight->dtype) || (is_fp8 && (!scheme || scheme->storage))) {
      add_undescribed(*weight, scheme);
    } else if (!is_fp8) {
      if (scheme) add_unquantized(*weight, *scheme, *module.role);
    } else {
      const bool is_bound = bind(name, *weight, *scheme, module.class_name == "Embedding");
      if (is_bound && module.role == Role::kEmbedding) embedding_ = name;
    }
  }

  /// Adds a tensor that stacks experts, where the format stores it under names of its own.
  void add_stacked(const StoredFormat& format, const ExpectedTensor& tensor) {
    if (!tensor.row->is_stacked() || model_dir_.find(tensor.name)) return;
    try {
      for (auto& matrix : format.open_stacked(model_dir_, tensor.name, result_.tensors)) {
        drop_scales(*matrix);
        result_.stacked[tensor.name].push_back(
            result_.matrices.emplace_back(std::move(matrix)).get());
      }
    } catch (const Error& error) {
      problem(error.what());
    }
  }

  CheckpointQuantization take() {
    is_head_ = false;
    if (tied_head_.second && !embedding_.empty()) bind_tied_head();
    if (!left_.empty()) tell_left();
    if (!result_.head_problem.empty())
      result_.warnings.push_back(result_.head_problem + "; K and V need no lm_head");
    for (const std::string& input : unrun_inputs_)
      result_.warnings.push_back(input + ": inputs run in 16 bits here, engines quantize them");
    return std::move(result_);
  }

 private:
  template <class... Parts>
  void problem(const Parts&... parts) {
    if (!is_head_)
      result_.problems.push_back(problem_line(parts...));
    else if (result_.head_problem.empty())
      result_.head_problem = problem_line(parts...);
  }

  /// The scales of all layers were checked, and those of one layer at a time are needed.
  void drop_scales(const CodedMatrix& matrix) const {
    for (const TensorView& scales : matrix.scales()) drop_pages(model_dir_, scales);
  }

  /// The module's name, or llm-compressor's of an expert where the checkpoint has no such tensor of
  /// the former.
  std::string module_in_file(const std::string& module, const std::string& tensor) const {
    const std::string other = renamed_expert(module);
    return other.empty() || model_dir_.find(module + tensor) ? module : other;
  }

  /// Returns whether the module has codes of the scheme's storage.
  bool add_coded(const ModuleName& module, const ModuleScheme& scheme) {
    const std::string codes(scheme.storage->codes_name);
    const std::string name = module_in_file(module.name, codes);
    if (!model_dir_.find(name + codes)) return false;
    try {
      ModuleTensors tensors(model_dir_, name, result_.tensors);
      LinearQuantization linear;
      linear.coded = result_.matrices.emplace_back(scheme.storage->open(tensors)).get();
      drop_scales(*linear.coded);
      const bool is_embedding = module.class_name == "Embedding";
      if (!is_embedding) set_input(name, linear.coded->width(), scheme, linear);
      if (module.role == Role::kEmbedding) embedding_ = name;
      result_.linears.emplace(name, std::move(linear));
    } catch (const Error& error) {
      problem(error.what());
    }
    return true;
  }

  /// Codes of a module under a name of their own; nullptr: it has none.
  const TensorView* other_codes(const std::string& module) const {
    for (const std::string_view end : kNamesOfCodes)
      if (const TensorView* found = model_dir_.find(module + std::string(end))) return found;
    return nullptr;
  }

  /// Whether weights of the dtype are codes that are not FP8 with plain scales.
  static bool is_other_code(DType dtype) {
    constexpr std::array kCodes{DType::kF4,     DType::kU8,     DType::kI8,
                                DType::kF8E5M2, DType::kF8E8M0, DType::kF8E4M3Fnuz,
                                DType::kI32,    DType::kU32,    DType::kF8E5M2Fnuz};
    return std::ranges::find(kCodes, dtype) != kCodes.end();
  }

  /// Adds codes that the module's scheme, or its absence, does not explain.
  void add_undescribed(const TensorView& weight, const ModuleScheme* scheme) {
    result_.undescribed.emplace(weight.name);
    if (!scheme)
      problem("unreadable: ", weight.name, " is ", weight.dtype,
              ", and the config does not say that the module is quantized");
    else
      problem("unreadable: ", weight.name, " is ", weight.dtype, ", and ", scheme->source,
              scheme->storage ? " describes other codes" : " says FP8, which is F8_E4M3");
  }

  /// Adds a 16-bit weight of a module that has a scheme.
  void add_unquantized(const TensorView& weight, const ModuleScheme& scheme, Role role) {
    if (may_be_unlisted(role)) return;
    if (!scheme.lists_few_exceptions) {
      problem("not quantized: ", weight.name, " is ", weight.dtype, ", ", scheme.source, " says ",
              scheme.storage ? "that it is quantized" : "FP8");
    } else if (role != Role::kLmHead) {  // which engines leave so, listed or not
      left_.push_back(&weight);
      left_source_ = scheme.source;
      left_kind_ = scheme.storage ? "quantized" : "FP8";
    }
  }

  /// Reports 16-bit weights that the config does not list, perhaps by omission.
  void tell_left() {
    const TensorView& first = *left_.front();
    const std::string others =
        left_.size() == 1 ? "" : " (and " + std::to_string(left_.size() - 1) + " more)";
    if (result_.linears.empty()) {
      if (result_.has_coded()) return;
      problem("not quantized: ", first.name, " is ", first.dtype, others, ", ", left_source_,
              " says ", left_kind_, ", and no weight is");
    } else {
      result_.warnings.push_back(
          problem_line(left_source_, " says that weights are ", left_kind_, " and does not list ",
                       first.name, ", which is ", first.dtype, others,
                       ": they run as they are, engines may read them as ", left_kind_));
    }
  }

  /// Binds the tied head to the embedding's weight and scale. Source: tried with transformers 5.17.
  void bind_tied_head() {
    const auto& [name, scheme] = tied_head_;
    LinearQuantization linear = result_.linears.at(embedding_);
    const int64_t width =
        linear.coded ? linear.coded->width() : model_dir_.tensor(embedding_ + ".weight").shape[1];
    set_input(name, width, *scheme, linear);
    // llm-compressor omits it, transformers needs it.
    const std::string scale_name = name_in_file(name, scheme->scale_names);
    if (model_dir_.find(scale_name)) result_.tensors.insert(scale_name);
    result_.linears.emplace(name, std::move(linear));
  }

  /// Returns whether all tensors are present.
  bool bind(const std::string& name, const TensorView& weight, const ModuleScheme& scheme,
            bool is_embedding) {
    if (weight.shape.rank() != 2) return false;  // misshapen: Weights knows
    LinearQuantization linear;
    const bool has_scale = read_weight_scale(name, weight, scheme, linear);
    if (!is_embedding) set_input(name, weight.shape[1], scheme, linear);
    check_zero_points(name);
    if (has_scale) result_.linears.emplace(name, std::move(linear));
    return has_scale;
  }

  void set_input(const std::string& name, int64_t width, const ModuleScheme& scheme,
                 LinearQuantization& linear) {
    linear.input = scheme.input;
    linear.group = scheme.group;
    if (linear.input == InputQuantization::kStatic)
      linear.input_scale = read_input_scale(name, scheme);
    if (linear.input != InputQuantization::kDynamicGroup || width % linear.group == 0) return;
    // No engine runs a shorter last group. A config that requests groups explicitly is refused; in
    // the fp8 format, only the weights stay FP8.
    if (scheme.infers_groups)
      linear.input = InputQuantization::kNone;
    else
      problem("misshapen: ", name, ".weight takes ", counted(width, "input"),
              ", no multiple of the groups of ", linear.group, " that share a scale");
  }

  /// Name of a scale of the module, by the names that its format may have.
  std::string name_in_file(const std::string& module,
                           const std::array<std::string_view, 2>& names) {
    const std::string usual = module + std::string(names[0]),
                      other = module + std::string(names[1]);
    if (names[1].empty() || !model_dir_.find(other)) return usual;
    if (!model_dir_.find(usual)) return other;
    problem("contradictory: ", usual, " and ", other, " are the same scale, expected one of them");
    return usual;
  }

  bool read_weight_scale(const std::string& name, const TensorView& weight,
                         const ModuleScheme& scheme, LinearQuantization& linear) {
    const std::string scale_name = name_in_file(name, scheme.scale_names);
    const int64_t rows = weight.shape[0], columns = weight.shape[1];
    linear.strategy = scheme.strategy;
    linear.block_rows = rows;
    linear.block_columns = columns;
    if (scheme.strategy == Strategy::kChannel) linear.block_rows = 1;
    if (scheme.strategy == Strategy::kBlock) {
      linear.block_rows = scheme.block_rows;
      linear.block_columns = scheme.block_columns;
    }
    const Shape grid{divided_up(rows, linear.block_rows),
                     divided_up(columns, linear.block_columns)};
    result_.tensors.insert(scale_name);
    const TensorView* scale = model_dir_.find(scale_name);
    if (!scale) {
      problem("missing: ", scale_name, " ", grid, " of the F8_E4M3 weight");
      return false;
    }
    // [], [1], [out], [out, 1], and ModelOpt's [rows of blocks, 1, columns of blocks, 1].
    std::vector<int64_t> dims = scale->shape.dims, wanted = grid.dims;
    std::erase(dims, 1);
    std::erase(wanted, 1);
    if (dims != wanted) {
      problem("misshapen: ", scale_name, " is ", scale->shape, ", expected ", grid, " (",
              scheme.source, ")");
      return false;
    }
    TensorView scales = *scale;
    if (scheme.has_exponents && scales.dtype == DType::kU8) scales.dtype = DType::kF8E8M0;
    if (!check_values(scales)) return false;
    linear.weight_scale = scales;
    linear.weight_scale.shape = grid;
    return true;
  }

  float read_input_scale(const std::string& name, const ModuleScheme& scheme) {
    const std::string scale_name = name_in_file(name, scheme.input_scale_names);
    result_.tensors.insert(scale_name);
    const TensorView* scale = model_dir_.find(scale_name);
    if (!scale) {
      problem("missing: ", scale_name, " [1]; ", scheme.source, " says that inputs are static");
    } else if (element_count(scale->shape) != 1) {
      problem("misshapen: ", scale_name, " is ", scale->shape, ", expected one value");
    } else if (check_values(*scale) && !scale->is_hollow()) {
      return as_float32(std::span(scale, 1))[0];
    }
    return 0.0f;
  }

  bool check_values(const TensorView& scale) {
    if (!is_float(scale.dtype) && scale.dtype != DType::kF8E8M0) {
      problem("unreadable: ", scale.name, " is ", scale.dtype,
              ", expected F32, F16, BF16 or F8_E8M0");
      return false;
    }
    if (scale.is_hollow()) return true;
    for (const float value : as_float32(std::span(&scale, 1)))
      if (!is_usable({value})) {
        problem("unreadable: ", scale.name, " holds ", value, ", expected ", kUsableScale);
        return false;
      }
    return true;
  }

  /// FP8 is symmetric; some files state this with zero points of 0.
  void check_zero_points(const std::string& name) {
    for (const std::string_view end : {".weight_zero_point", ".input_zero_point"}) {
      const TensorView* zeros = model_dir_.find(name + std::string(end));
      if (!zeros) continue;
      result_.tensors.insert(std::string(zeros->name));
      if (zeros->is_hollow()) continue;
      if (std::ranges::any_of(zeros->bytes, [](std::byte byte) { return byte != std::byte{0}; }))
        problem("unreadable: ", zeros->name, " is not 0, expected symmetric FP8");
    }
  }

  const ModelDir& model_dir_;
  CheckpointQuantization result_;
  std::string embedding_;                                  ///< an FP8 one
  std::pair<std::string, const ModuleScheme*> tied_head_;  ///< its name; nullptr: there is none
  bool is_head_ = false;                                   ///< problems are lm_head's
  std::vector<const TensorView*> left_;
  std::set<std::string> unrun_inputs_;
  std::string left_source_;
  std::string_view left_kind_;  ///< of the weights that the config describes
};

}  // namespace

std::string renamed_expert(const std::string& module) {
  constexpr std::array<std::array<std::string_view, 2>, 3> kNames{
      {{".w1", ".gate_proj"}, {".w2", ".down_proj"}, {".w3", ".up_proj"}}};
  if (module.find(".experts.") == std::string::npos) return {};
  for (const auto& [own, theirs] : kNames)
    if (module.ends_with(own))
      return module.substr(0, module.size() - own.size()) + std::string(theirs);
  return {};
}

bool CheckpointQuantization::quantizes_inputs() const {
  return std::ranges::any_of(
      linears, [](const auto& one) { return one.second.input != InputQuantization::kNone; });
}

void CheckpointQuantization::leave_inputs() {
  for (auto& [module, linear] : linears) linear.input = InputQuantization::kNone;
}

namespace {

/// read_model_config refuses those that run.
std::vector<std::string> warnings_of_index(const ModelDir& model_dir) {
  const std::vector<AbsentTensor>& absent = model_dir.absent();
  if (absent.empty()) return {};
  const std::string more = absent.size() == 1
                               ? ", which is"
                               : " and " + std::to_string(absent.size() - 1) + " more, which are";
  return {std::string(kIndexFileName) + " names " + absent.front().name + more +
          " in no file and not run"};
}

}  // namespace

CheckpointQuantization read_checkpoint_quantization(const ModelDir& model_dir,
                                                    const ModelConfig& config) {
  QuantizationConfig source = read_quantization_config(model_dir);
  std::vector<std::string> warnings = warnings_of_index(model_dir);
  source.warnings = &warnings;
  const auto schemes = read_module_schemes(source);
  Reader reader(model_dir);
  for (const ModuleName& module : list_modules(config))
    if (module.role) reader.add(module, schemes ? schemes(module) : nullptr);
  const bool stacks_experts =
      source.format && source.format->stacks_experts && source.format->stacks_experts(source);
  if (stacks_experts)
    for (const ExpectedTensor& tensor : expected_tensors(config))
      reader.add_stacked(*source.format, tensor);
  CheckpointQuantization quantization = reader.take();
  quantization.warnings.insert(quantization.warnings.begin(), warnings.begin(), warnings.end());
  if (stacks_experts && !schemes && quantization.stacked.empty())
    quantization.problems.push_back("not quantized: quant_method " +
                                    std::string(source.format->method) +
                                    " says that experts are, and no tensor ends with _blocks");
  quantization.kv = read_kv_scheme(source);
  quantization.kv.dialect = read_dialect(model_dir);
  return quantization;
}

}  // namespace kvcal

#include "convert/output_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "convert/stored_weights.h"
#include "core/folder.h"
#include "core/json.h"
#include "export/planned_weights.h"
#include "export/quantization_configs.h"
#include "export/writer.h"
#include "family/expected_tensors.h"
#include "quant/weight_packer.h"
#include "stored/kv_scales.h"
#include "stored/quantization_config.h"
#include "stored/stored_format.h"

namespace kvcal {

bool keeps_weights(const SourceQuantization& kept, std::string_view format) {
  return std::ranges::all_of(joined_names(format), [&](const std::string& name) {
    return kWriters.at(name).keeps_any_weights || name == kept.format;
  });
}

std::optional<SourceQuantization> read_kept_quantization(const ModelDir& model) {
  SourceQuantization kept;
  for (const char* key : {"quantization_config", "compression_config"})
    if (const Json* config = member(model.config(), key); config && kept.config.is_null())
      kept.config = *config;
  const fs::path file = model.path() / kModelOptFileName;
  if (is_there(file))
    kept.modelopt_file = in_context(file.string(), [&] {
      Json json = parse_model_json(read_text(file, kSmallFileLimits.max_bytes));
      if (!json.is_object()) fail("is ", kind_of(json), ", expected an object");
      return json;
    });
  // A format's own file is no part of the output, whose config.json says the same.
  if (kept.config.is_null() && kept.modelopt_file.is_null())
    if (const QuantizationConfig beside = read_quantization_config(model); beside.format) {
      kept.config = beside.json;
      kept.config["quant_method"] = beside.format->method;
    }
  if (kept.config.is_null() && kept.modelopt_file.is_null()) return std::nullopt;
  kept.format = in_context((model.path() / "config.json").string() + ": quantization_config", [&] {
    if (kept.config.is_null()) return std::string(format_beside(model.path())->method);
    if (!kept.config.is_object()) fail("found ", kind_of(kept.config), ", expected an object");
    return required_string(kept.config, "quant_method");
  });
  const StoredFormat* stored = format_of_method(kept.format);
  if (!stored) return kept;
  kept.format = stored->method;
  const bool in_config = stored->strip_cache(kept.config);
  const bool in_file = !stored->config_file.empty() && stored->strip_cache(kept.modelopt_file);
  return in_config || in_file ? std::optional(std::move(kept)) : std::nullopt;
}

bool strip_queries(std::optional<SourceQuantization>& kept) {
  const StoredFormat* stored = kept ? format_of_method(kept->format) : nullptr;
  if (!stored || !stored->strip_queries || !stored->strip_queries(kept->config)) return false;
  if (!stored->strip_cache(kept->config)) kept.reset();
  return true;
}

namespace {

constexpr std::string_view kCompressedTensors = "compressed-tensors";

CompressionFormat format_of_codes(const QuantArgs& args) {
  return storage_of(args, std::nullopt).format == "mxfp4-pack-quantized"
             ? CompressionFormat::kMxfp4PackQuantized
             : CompressionFormat::kPackQuantized;
}

/// Source of a slice of a 16-bit tensor. Borrows the model's bytes.
TensorSource slice_source(const TensorView& stacked, const ExpertTensor& one) {
  return rows_source(
      one.name, stacked.dtype, shape_of(one.slice, stacked.shape),
      [stacked, slice = one.slice](int64_t begin, int64_t count, std::byte* out) {
        const SliceValues values = values_of(stacked, slice);
        const auto row_bytes = static_cast<int64_t>(values.view.bytes.size() /
                                                    static_cast<size_t>(values.view.shape[0]));
        std::copy_n(values.view.bytes.data() + begin * row_bytes, count * row_bytes, out);
      });
}

/// Why engines do not load such codes in compressed-tensors' format; empty: they do.
std::string caveat_of(const QuantArgs& args) {
  if (args.type == QuantType::kFloat)
    return "vLLM 0.32 stops at the biases of MXFP4 experts; --format quark keeps these tensors as "
           "they are, and vLLM loads them";
  if (args.actorder)
    return "its columns are ordered by activations (desc_act), which vLLM 0.32 and "
           "compressed-tensors from 0.19 on refuse";
  if (args.num_bits != 4 && args.num_bits != 8)
    return "vLLM 0.32 has no kernel of its own for " + counted(args.num_bits, "bit");
  return "";
}

std::string at_first(const CheckpointQuantization& weights, const auto& problem_of) {
  for (const auto& matrix : weights.matrices)
    if (const std::string problem = problem_of(*matrix); !problem.empty())
      return std::string(matrix->codes().name) + ": " + problem;
  return "";
}

class Recoder {
 public:
  Recoder(ModelDir& model, const ModelConfig& config, const CheckpointQuantization& weights)
      : model_(model), config_(config), weights_(weights), hidden_(weights.tensors) {}

  Recoded recode() {
    for (const auto& [module, linear] : weights_.linears) {
      KVCAL_CHECK(linear.coded);
      add(module, *linear.coded, {.first = 0, .step = 1, .count = linear.coded->rows()});
    }
    add_stacked();
    check_all_are_read();
    for (auto& [shard, sources] : added_) {
      for (const TensorSource& source : sources)
        hidden_.erase(source.name);  // Quark's weight_scale
      model_.add(shard, std::move(sources));
    }
    Recoded recoded{
        .kept = {.format = std::string(kCompressedTensors), .config = config_of_schemes()},
        .caveat = at_first(weights_, [&](const auto& one) { return caveat_of(args_of(one)); })};
    model_.leave_out(hidden_);
    return recoded;
  }

 private:
  void add(const std::string& module, const CodedMatrix& matrix, const RowChoice& rows) {
    const QuantArgs& args = args_of(matrix);
    schemes_.emplace(module, QuantScheme{.targets = {},
                                         .weights = args,
                                         .input_activations = {},
                                         .format = format_of_codes(args)});
    add_to_shard_of(matrix.codes().name, matrix.packed_tensors(module, args, rows));
    hidden_.emplace(matrix.codes().name);
  }

  /// Found once a matrix: all its zero points are looked at.
  const QuantArgs& args_of(const CodedMatrix& matrix) {
    const auto [known, is_new] = args_.try_emplace(&matrix);
    if (is_new) known->second = matrix.packed_args();
    return known->second;
  }

  void add_to_shard_of(std::string_view tensor, std::vector<TensorSource> sources) {
    // A tensor of the same name is replaced in its own shard.
    for (TensorSource& source : sources) {
      const bool is_there = model_.find(source.name) != nullptr;
      added_[shard_of(model_, is_there ? source.name : tensor)].push_back(std::move(source));
    }
  }

  /// Experts are split in all tensors of a layer, so that each expert has its biases.
  void add_stacked() {
    std::set<int64_t> layers;
    const std::vector<ExpectedTensor> expected = expected_tensors(config_);
    for (const ExpectedTensor& tensor : expected)
      if (weights_.stacked.contains(tensor.name)) layers.insert(tensor.layer);
    for (const ExpectedTensor& tensor : expected)
      if (layers.contains(tensor.layer)) split(tensor);
  }

  void split(const ExpectedTensor& tensor) {
    constexpr std::string_view kWeight = ".weight";
    const auto coded = weights_.stacked.find(tensor.name);
    const TensorView* const plain = model_.find(tensor.name);
    for (const ExpertTensor& one : split_into_experts(tensor, config_)) {
      if (coded != weights_.stacked.end()) {
        const CodedMatrix& matrix = *coded->second.at(static_cast<size_t>(one.slice.index));
        KVCAL_CHECK(one.name.ends_with(kWeight));
        add(one.name.substr(0, one.name.size() - kWeight.size()), matrix,
            outputs_of(one.slice, matrix.rows()));
      } else if (plain) {
        add_to_shard_of(plain->name, {slice_source(*plain, one)});
        hidden_.insert(tensor.name);
      }
    }
  }

  /// Throws Error for tensors of the old format that remain: readers would take them for new ones.
  void check_all_are_read() const {
    constexpr std::array<std::string_view, 6> kEnds{".qweight", ".qzeros", ".SCB",
                                                    ".absmax",  "_blocks", "_scales"};
    for (const std::string& name : model_.tensor_names())
      if (!hidden_.contains(name) &&
          std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); }))
        fail(name, " is quantized and no part of the text model, and compressed-tensors would ",
             "not hold it");
  }

  Json config_of_schemes() const {
    SilentDiagnostics silent;
    Calibration calibration;
    calibration.plan = plan_of_modules(model_, config_, schemes_, std::nullopt, {}, silent);
    return quantization_config(calibration);
  }

  ModelDir& model_;
  const ModelConfig& config_;
  const CheckpointQuantization& weights_;
  std::map<const CodedMatrix*, QuantArgs> args_;
  ModuleSchemeMap schemes_;
  std::map<size_t, std::vector<TensorSource>> added_;  ///< by shard
  std::set<std::string, std::less<>> hidden_;
};

/// The writer adds FP8 outputs. Source: vLLM 0.32, which ran with this configuration
/// (`QuarkConfig`, `GptOssModel._load_weights_quark`).
Json mxfp4_in_quark() {
  const Json unquantized = {{"bias", nullptr},
                            {"input_tensors", nullptr},
                            {"output_tensors", nullptr},
                            {"weight", nullptr}};
  Json global = unquantized;
  global["weight"] = {{"ch_axis", -1},
                      {"dtype", "fp4"},
                      {"group_size", 32},
                      {"is_dynamic", false},
                      {"observer_cls", "PerBlockMXObserver"},
                      {"qscheme", "per_group"},
                      {"scale_calculation_mode", "even"},
                      {"scale_format", "e8m0"},
                      {"symmetric", nullptr}};
  Json config = quark_config(std::move(global), {"re:.*attn\\.[qkvo]_proj$", "re:.*attn.qkv_proj$",
                                                 "lm_head", "re:.*router$"});
  config["layer_quant_config"] = {{"*k_proj", unquantized}, {"*v_proj", unquantized}};
  config["softmax_quant_spec"] = nullptr;
  return config;
}

}  // namespace

std::string usual_recoding(const SourceQuantization& kept) {
  return kept.format == "mxfp4" ? "quark" : std::string(kCompressedTensors);
}

std::string recoding_target(const SourceQuantization& kept,
                            const std::vector<std::string>& formats) {
  for (const std::string& wanted : {usual_recoding(kept), std::string(kCompressedTensors)})
    for (const std::string& format : formats)
      if (const std::vector<std::string> names = joined_names(format);
          wanted != kept.format && std::ranges::find(names, wanted) != names.end())
        return wanted;
  return "";
}

std::string recoding_problem(const CheckpointQuantization& weights) {
  if (!weights.has_coded()) return "kvcal convert writes FP8 weights in the form of others";
  for (const auto& [module, linear] : weights.linears)
    if (!linear.coded) return module + ".weight: is FP8 beside weights of other types";
  return at_first(weights, [](const CodedMatrix& matrix) { return matrix.packing_problem(); });
}

std::string recoding_caveat(const CheckpointQuantization& weights) {
  return at_first(weights, [](const auto& matrix) { return caveat_of(matrix.packed_args()); });
}

Recoded recode_weights(ModelDir& model, const ModelConfig& config,
                       const CheckpointQuantization& weights, const std::string& source,
                       const std::string& target) {
  Recoded recoded;
  if (target == kCompressedTensors)
    recoded = in_context(model.given_path().string(), [&] {
      if (const std::string problem = recoding_problem(weights); !problem.empty()) fail(problem);
      return Recoder(model, config, weights).recode();
    });
  else
    recoded.kept = {.format = target, .config = mxfp4_in_quark()};
  recoded.note = "weights of " + source + " are written in the form of " + target +
                 ", with the same codes and scales";
  return recoded;
}

std::optional<OutputModel> output_model(const ModelDir& source, const ModelConfig& config,
                                        const std::vector<std::string>& formats,
                                        Diagnostics& diagnostics) {
  std::optional<SourceQuantization> kept = read_kept_quantization(source);
  const bool has_scales = find_kv_scale_format(scale_tensors_of(source), config) != nullptr;
  if (has_scales)
    diagnostics.note(source.given_path().string() +
                     ": has KV scales already, which the new ones replace");
  const std::string target = kept ? recoding_target(*kept, formats) : "";
  if (!has_scales && target.empty()) return std::nullopt;

  OutputModel output{
      .model = ModelDir(source.given_path()), .kept = std::move(kept), .recoded = {}};
  if (!target.empty()) {
    output.recoded = read_checkpoint_quantization(output.model, config);
    // Contradictions are reported with those of other weights.
    if (output.recoded.has_coded() && output.recoded.problems.empty()) {
      Recoded recoded =
          recode_weights(output.model, config, output.recoded, output.kept->format, target);
      diagnostics.note(recoded.note);
      if (!recoded.caveat.empty()) diagnostics.warn(recoded.caveat);
      output.kept = std::move(recoded.kept);
    }
  }
  strip_queries(output.kept);
  strip_scales(output.model, config);
  return output;
}

void strip_scales(ModelDir& model, const ModelConfig& config,
                  const std::set<std::string, std::less<>>& tensors) {
  auto names = kv_scale_names(config);
  names.insert(tensors.begin(), tensors.end());
  model.leave_out(names);
  Json stripped = model.config();
  for (const std::string_view key : {std::string_view("quantization_config"),
                                     std::string_view("compression_config"), kDialectKey})
    stripped.erase(key);
  model.set_config(std::move(stripped));
}

}  // namespace kvcal

#include "export/writer.h"

#include <algorithm>
#include <set>

#include "core/file.h"
#include "core/text.h"
#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "quant/scale.h"
#include "stored/kv_scales.h"
#include "stored/scales_file.h"

namespace kvcal {
namespace {

void check_side(const KvTensorCalibration& side, Strategy strategy) {
  const size_t heads = side.head_ranges.size();
  if (side.scales.empty()) fail("has no scale");
  if (strategy == Strategy::kTensor && side.scales.size() != 1)
    fail("has ", counted(side.scales.size(), "scale"), ", strategy tensor has one");
  if (strategy == Strategy::kAttnHead && heads != 0 && side.scales.size() != heads)
    fail("has ", counted(side.scales.size(), "scale"), " for ", counted(heads, "head"));
  if (strategy == Strategy::kChannel && heads != 0 && side.scales.size() % heads != 0)
    fail("has ", counted(side.scales.size(), "scale"), " for the channels of ",
         counted(heads, "head"));
  for (size_t i = 0; i < side.scales.size(); ++i) {
    const float value = side.scales[i].value;
    if (!is_usable({value}))
      fail(strategy == Strategy::kChannel ? "channel " : "head ", i, ": scale ", value,
           ", expected ", kUsableScale);
  }
}

void check_layer(const AttentionCalibration& layer, Strategy strategy) {
  in_context("K", [&] { check_side(layer.k, strategy); });
  in_context("V", [&] { check_side(layer.v, strategy); });
  if (strategy != Strategy::kChannel && layer.k.scales.size() != layer.v.scales.size())
    fail(counted(layer.k.scales.size(), "scale"), " of K, ", layer.v.scales.size(), " of V");
}

void check_layers(const Calibration& calibration) {
  const Strategy strategy = resolved_strategy(calibration.kv_args);
  const bool may_be_channel = calibration.kv_format.is_int8() && strategy == Strategy::kChannel;
  if (strategy != Strategy::kTensor && strategy != Strategy::kAttnHead && !may_be_channel)
    fail("KV cache scales of strategy ", name_of(strategy), ", expected tensor or attn_head");
  const bool has_queries = has_query_scales(calibration);
  std::set<std::string_view> modules;
  bool has_scales = false;
  int64_t previous = -1;
  for (const AttentionCalibration& layer : calibration.layers) {
    in_context(layer.module, [&] {
      if (layer.module.empty() || !modules.insert(layer.module).second)
        fail("layer ", layer.layer, " has no module name of its own");
      if (layer.layer <= previous) fail("layer ", layer.layer, " comes after layer ", previous);
      previous = layer.layer;
      if (layer.ignored) return;
      check_layer(layer, strategy);
      if (has_queries && !layer.q) fail("Q: has no scale");
      if (has_queries) in_context("Q", [&] { check_side(*layer.q, strategy); });
      has_scales = true;
    });
  }
  if (!has_scales) fail("the calibration has no scale: no layer, or all are ignored");
}

/// Checks that every static input of the plan has a scale, and every scale an input.
void check_inputs(const Calibration& calibration) {
  const QuantPlan& plan = calibration.plan;
  auto next = calibration.linears.begin();
  for (const PlannedLinear& linear : plan.linears) {
    const auto& inputs = plan.groups.at(linear.group).input_activations;
    if (!inputs || inputs->dynamic) continue;
    if (next == calibration.linears.end() || next->module != linear.module)
      fail(linear.module, ": its input has no scale");
    const float value = next->input_scale.value;
    if (!is_usable({value}))
      fail(linear.module, ": scale ", value, " of its input, expected ", kUsableScale);
    ++next;
  }
  if (next != calibration.linears.end())
    fail(next->module, ": has a scale of its input, and the plan none");
}

constexpr const char* kQuantizationKey = "quantization_config";

/// One format in a joined format.
struct Part {
  std::string name;
  const OutputFormat* format;
  std::unique_ptr<Writer> writer;
};

/// Writes several formats into one folder. Where two formats set the same key, tensor or file, they
/// must agree.
class JoinedWriter : public Writer {
 public:
  explicit JoinedWriter(std::vector<Part> parts) : parts_(std::move(parts)) {}

  void check(const ExportInput& input) const override {
    for (const Part& part : parts_)
      in_context(part.name, [&] { part.writer->check(input_of(part, input)); });
    check_weights_are_shared(input);
    check_scales_agree(input);
    parts(input);
  }

  FormatParts parts(const ExportInput& input) const override {
    FormatParts all{.has_checkpoint = false};
    for (const Part& part : parts_) {
      FormatParts own = part.writer->parts(input_of(part, input));
      for (const auto& [key, value] : own.config.items()) add_key(part, key, value, all);
      for (auto& [name, content] : own.files) {
        const auto [known, is_new] = all.files.emplace(name, content);
        if (!is_new && known->second != content) refuse(part, name);
      }
      for (Tensor& tensor : own.tensors) add_tensor(part, std::move(tensor), all);
      if (own.has_checkpoint && !all.weights) all.weights = own.weights;
      all.has_checkpoint = all.has_checkpoint || own.has_checkpoint;
    }
    return all;
  }

  WrittenScales held(const AttentionCalibration& layer, int64_t tp_size) const override {
    return parts_.front().writer->held(layer, tp_size);
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    std::vector<std::string> all;
    for (const Part& part : parts_)
      for (std::string& note : part.writer->notes(input))
        if (std::ranges::find(all, note) == all.end()) all.push_back(std::move(note));
    return all;
  }

 private:
  [[noreturn]] void refuse(const Part& part, std::string_view what) const {
    fail(parts_.front().name, " and ", part.name, " cannot share a folder: each has a ", what,
         " of its own; write them as two formats, which gives two folders");
  }

  /// Input of one format. A format that accepts any weights leaves their description to the format
  /// of the weights, if that is joined.
  ExportInput input_of(const Part& part, const ExportInput& input) const {
    ExportInput own = input;
    if (!part.format->keeps_any_weights) return own;
    const auto has_weights = [](const Part& one) { return !one.format->keeps_any_weights; };
    own.has_weights_beside = std::ranges::any_of(parts_, has_weights);
    if (input.kept && std::ranges::find(parts_, input.kept->format, &Part::name) != parts_.end())
      own.kept = nullptr;
    return own;
  }

  /// Readers that find both kinds of names need equal scales of K and V; kv_scale is the largest.
  void check_scales_agree(const ExportInput& input) const {
    const Part* first = nullptr;
    for (const Part& part : parts_) {
      if (part.format->keeps_any_weights) continue;
      if (first && has_head_scales(input.calibration) &&
          (first->format->holds_heads || part.format->holds_heads))
        fail(first->name, " and ", part.name,
             " cannot share a folder: one has a scale a head, the other one of all heads; expected "
             "strategy tensor");
      first = &part;
    }
  }

  void check_weights_are_shared(const ExportInput& input) const {
    if (!input.calibration.plan.quantizes_weights()) return;
    const auto has_weights = [&](const Part& part) {
      return part.writer->parts(input).weights != nullptr;
    };
    if (std::ranges::count_if(parts_, has_weights) > 1)
      fail(
          "each of the formats stores the scales of FP8 weights in its own way; write them as "
          "two formats, which gives two folders");
  }

  /// The first format's quantization_config wins: readers of a format with its own config file
  /// prefer that file.
  void add_key(const Part& part, const std::string& key, const Json& value,
               FormatParts& all) const {
    if (!all.config.contains(key)) {
      all.config[key] = value;
      return;
    }
    if (all.config[key] == value) return;
    if (key == kQuantizationKey && part.format->has_config_file) return;
    refuse(part, key);
  }

  void add_tensor(const Part& part, Tensor tensor, FormatParts& all) const {
    const auto known = std::ranges::find(all.tensors, tensor.name, &Tensor::name);
    if (known == all.tensors.end())
      all.tensors.push_back(std::move(tensor));
    else if (known->bytes != tensor.bytes || known->shape != tensor.shape)
      refuse(part, tensor.name);
  }

  std::vector<Part> parts_;
};

}  // namespace

// One maker for each file of writers/.
std::unique_ptr<Writer> make_ascend_writer();
std::unique_ptr<Writer> make_compressed_tensors_writer();
std::unique_ptr<Writer> make_fp8_writer();
std::unique_ptr<Writer> make_lightllm_writer();
std::unique_ptr<Writer> make_modelopt_writer();
std::unique_ptr<Writer> make_onnxruntime_genai_writer();
std::unique_ptr<Writer> make_quark_writer();
std::unique_ptr<Writer> make_scales_json_writer();
std::unique_ptr<Writer> make_tgi_writer();

const Registry<OutputFormat> kWriters{
    "format",
    {
        {"compressed-tensors",
         {.make = make_compressed_tensors_writer,
          .holds_heads = true,
          .holds_queries = true,
          .holds_int8 = true}},
        {"ascend",
         {.make = make_ascend_writer,
          .holds_heads = true,
          .holds_fp8 = false,
          .holds_int8 = true,
          .takes_channels = true}},
        {"fp8", {.make = make_fp8_writer}},
        {"lightllm",
         {.make = make_lightllm_writer,
          .keeps_any_weights = true,
          .file = kLightllmName,
          .holds_heads = true}},
        {"modelopt",
         {.make = make_modelopt_writer,
          .holds_int8 = true,
          .takes_channels = true,
          .holds_nvfp4 = true,
          .has_config_file = true}},
        {"onnxruntime-genai",
         {.make = make_onnxruntime_genai_writer,
          .keeps_any_weights = true,
          .file = kOnnxruntimeGenaiName,
          .holds_heads = true,
          .holds_int8 = true,
          .takes_channels = true}},
        {"quark", {.make = make_quark_writer}},
        {"scales-json",
         {.make = make_scales_json_writer,
          .keeps_any_weights = true,
          .file = kScalesJsonName,
          .holds_ranks = true}},
        {"tgi", {.make = make_tgi_writer, .keeps_any_weights = true}},
    }};

std::string list_formats() {
  std::vector<std::string> names = kWriters.names();
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return kWriters.at(name).is_checkpoint(); });
  std::string all = names.front() + " (default)";
  for (size_t i = 1; i < names.size(); ++i)
    all += (i + 1 == names.size() ? " or " : ", ") + names[i];
  return all;
}

void check_calibration(const Calibration& calibration) {
  if (!calibration.layers.empty() || !calibration.plan.quantizes_weights())
    check_layers(calibration);
  check_inputs(calibration);
}

void check_holds(const Calibration& calibration, std::string_view format) {
  if (calibration.layers.empty()) return;
  const bool is_int8 = calibration.kv_format.is_int8();
  const bool has_channels = resolved_strategy(calibration.kv_args) == Strategy::kChannel;
  const auto holds_codes = [&](const OutputFormat& row) {
    return is_int8 ? row.holds_int8 : row.holds_fp8;
  };
  const auto holds_all = [&](const OutputFormat& row) {
    return holds_codes(row) && (!has_channels || row.takes_channels);
  };
  const OutputFormat& own = kWriters.at(format);
  if (holds_all(own)) return;
  std::vector<std::string> others;
  for (const auto& [name, row] : kWriters.rows())
    if (holds_all(row)) others.push_back(name);
  fail("holds no scales of ",
       holds_codes(own) ? "channels"
       : is_int8        ? "INT8 caches"
                        : "FP8 caches",
       "; formats that do are ", join(others, ", "));
}

void check_is_kv_only(const Calibration& calibration, std::string_view format) {
  if (calibration.plan.quantizes_weights())
    fail(format,
         ", and FP8 weights are made; expected kv_cache_scheme alone, or this format in a run of "
         "its "
         "own");
  check_calibration(calibration);
}

void check_kept(const ExportInput& input, std::string_view format, std::string_view title) {
  if (!input.kept) return check_is_unquantized(input.model);
  const std::string& kept = input.kept->format;
  if (kept == format) return;
  const std::string problem =
      "the weights of the source are quantized in another form (quant_method '" + kept + "'): ";
  if (!kWriters.find(kept))
    fail(problem, "compressed-tensors holds the same codes where it has such, scales-json stands ",
         "beside them");
  fail(problem, kept, " keeps them, kvcal convert writes FP8 weights in ", title, "'s");
}

WrittenCheckpoint Writer::write(const ExportInput& input, const std::filesystem::path& folder,
                                const WrittenCheckpoint* first) const {
  const FormatParts parts = this->parts(input);
  WrittenCheckpoint written;
  if (parts.has_checkpoint) {
    written = write_checkpoint(input, parts, folder, first);
    written.folder = folder;
  }
  for (const auto& [name, content] : parts.files) write_text_file(folder / name, content);
  return written;
}

void check_target(const ModelDir& model, const std::filesystem::path& target) {
  for (const auto& folder : {model.path(), model.given_path()}) {
    if (lies_in(target, folder))
      fail(target.string(), ": lies in the source folder ", folder.string(),
           ", which is never written to");
    if (lies_in(folder, target))
      fail(target.string(), ": holds the source folder ", folder.string(),
           ", which an output would replace");
  }
  // Shards of a hub cache are links into another folder.
  for (const SafetensorsFile& shard : model.shards())
    if (lies_in(shard.file().path(), target))
      fail(target.string(), ": holds ", shard.file().path().string(),
           ", a file of the source, which an output would replace");
}

std::vector<std::string> joined_names(std::string_view format) {
  std::vector<std::string> names;
  for (const std::string_view name : split(format, '+')) {
    if (name.empty()) fail("format '", format, "' has an empty name beside '+'");
    names.push_back(kWriters.name_of(name));
    if (std::find(names.begin(), names.end() - 1, names.back()) != names.end() - 1)
      fail("format ", format, " names ", names.back(), " twice");
  }
  return names;
}

std::string format_name(std::string_view format) {
  return join(joined_names(format), "+");
}

bool any_has(std::string_view format, const std::function<bool(const OutputFormat&)>& property) {
  return std::ranges::any_of(joined_names(format),
                             [&](const std::string& name) { return property(kWriters.at(name)); });
}

std::unique_ptr<Writer> make_writer(std::string_view format) {
  std::vector<Part> parts;
  for (const std::string& name : joined_names(format)) {
    const OutputFormat& row = kWriters.at(name);
    parts.push_back({name, &row, row.make()});
  }
  if (parts.size() == 1) return std::move(parts.front().writer);
  std::stable_partition(parts.begin(), parts.end(),
                        [](const Part& part) { return !part.format->has_config_file; });
  return std::make_unique<JoinedWriter>(std::move(parts));
}

}  // namespace kvcal

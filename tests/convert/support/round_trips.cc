#include "convert/support/round_trips.h"

#include <sstream>

namespace kvcal::test {
namespace {

std::string format_of(const std::string& stored) {
  return stored == "attn_head" ? "compressed-tensors" : stored;
}

/// It adds its scale to weights that stay as they are, whatever their form.
bool takes_any_weights(const std::string& stored) {
  return kWriters.at(format_of(stored)).keeps_any_weights;
}

/// Name of its file; empty: it is a checkpoint.
std::string file_of(const std::string& stored) {
  return std::string(kWriters.at(format_of(stored)).file);
}

/// What form holds of scales, told apart from the library: this is the judge.
void merge(Calibration& calibration, const std::string& stored) {
  for (AttentionCalibration& layer : calibration.layers) {
    if (layer.ignored || stored == "attn_head" || stored == "lightllm" ||
        stored == "onnxruntime-genai")
      continue;
    float k = 0.0f, v = 0.0f;
    for (const Scale scale : layer.k.scales) k = std::max(k, scale.value);
    for (const Scale scale : layer.v.scales) v = std::max(v, scale.value);
    if (takes_any_weights(stored)) k = v = std::max(k, v);
    layer.k.scales.assign(layer.k.scales.size(), Scale{k});
    layer.v.scales.assign(layer.v.scales.size(), Scale{v});
  }
}

}  // namespace

namespace {

/// Tensors by name, with dtype, shape and bytes in one text; other files as they are.
std::map<std::string, std::string> contents_without_places(const fs::path& folder) {
  std::map<std::string, std::string> contents = outputs_of(folder);
  std::erase_if(contents, [](const auto& file) {
    return file.first.ends_with(".safetensors") || file.first == kIndexFileName;
  });
  if (!fs::exists(folder / "config.json")) return contents;
  const ModelDir model(folder);
  for (const std::string& name : model.tensor_names()) {
    const TensorView& tensor = model.tensor(name);
    std::ostringstream text;
    text << tensor.dtype << tensor.shape
         << std::string_view(reinterpret_cast<const char*>(tensor.bytes.data()),
                             tensor.bytes.size());
    contents[name] = text.str();
  }
  return contents;
}

bool is_same(const fs::path& actual, const fs::path& expected) {
  return outputs_of(actual) == outputs_of(expected);
}

bool is_moved(const fs::path& actual, const fs::path& expected) {
  return contents_without_places(actual) == contents_without_places(expected);
}

}  // namespace

std::string RoundTrips::outcome(const std::string& from, const std::string& to) {
  std::string word = "no outcome";
  try {
    const Output& source = written(from);
    const fs::path back = converted_back(converted(source, from, to), to, from).folder;
    const fs::path merged = passing_folder();
    write(from, merged, to);
    if (is_same(back, source.folder))
      word = "same";
    else if (is_same(back, merged))
      word = "merged";
    else if (is_moved(back, source.folder))
      word = "moved";
    else if (is_moved(back, merged))
      word = "merged, moved";
    else
      word = difference(outputs_of(back), outputs_of(source.folder));
  } catch (const Error& error) {
    word = error.message();
  }
  fs::remove_all(passing());
  return word;
}

const RoundTrips::Output& RoundTrips::written(const std::string& stored) {
  if (const auto found = written_.find(stored); found != written_.end()) return found->second;
  Output output{.folder = new_folder(), .checkpoint = {}, .scales = {}};
  write(stored, output.folder, {});
  output.checkpoint = output.folder;
  if (const std::string file = file_of(stored); !file.empty()) {
    output.checkpoint = without_scales();
    output.scales = output.folder / file;
  }
  return written_.emplace(stored, output).first->second;
}

void RoundTrips::write(const std::string& stored, const fs::path& target,
                       const std::string& merged_as) {
  const std::string strategy = stored == "attn_head" ? "attn_head" : "tensor";
  Calibrated run(weights_.model, recipe_text(weights_.recipe, strategy, ignored_), scale_of_);
  if (!merged_as.empty()) merge(run.calibration, merged_as);
  if (stored != "tgi" || weights_.recipe.empty())
    return write_calibrated(run.input(), format_of(stored), target);
  // No run writes it beside FP8 weights: it is put on compressed-tensors'.
  const fs::path base = passing_folder();
  write_calibrated(run.input(), "compressed-tensors", base);
  convert({.checkpoint = base, .formats = {"tgi"}, .target = target});
}

fs::path RoundTrips::without_scales() {
  if (weights_.recipe.empty()) return weights_.model;
  if (without_scales_.empty()) {
    without_scales_ = new_folder();
    const Calibrated run(weights_.model, recipe_text(weights_.recipe, ""), scale_of_);
    write_calibrated(run.input(), "compressed-tensors", without_scales_);
  }
  return without_scales_;
}

RoundTrips::Output RoundTrips::converted(const Output& source, const std::string& from,
                                         const std::string& to) {
  Output output{.folder = passing_folder(), .checkpoint = {}, .scales = {}};
  ConvertRun run{.checkpoint = source.checkpoint,
                 .formats = {format_of(to)},
                 .target = output.folder,
                 .options = {.scales = source.scales, .strategy = {}, .dialect = {}}};
  if (to == "attn_head") run.options.strategy = Strategy::kAttnHead;
  if (from == "attn_head" && to == "compressed-tensors") run.options.strategy = Strategy::kTensor;
  convert(run);
  const std::string file = file_of(to);
  output.checkpoint = file.empty() ? output.folder : source.checkpoint;
  if (!file.empty()) output.scales = output.folder / file;
  return output;
}

RoundTrips::Output RoundTrips::converted_back(const Output& there, const std::string& to,
                                              const std::string& from) {
  // Ours began with the weights of compressed-tensors.
  const bool has_other_weights =
      !weights_.recipe.empty() && !takes_any_weights(to) && format_of(to) != "compressed-tensors";
  if (from != "tgi" || !has_other_weights) return converted(there, to, from);
  return converted(converted(there, to, "compressed-tensors"), "compressed-tensors", from);
}

}  // namespace kvcal::test

#include "export/joined_writer.h"

#include <algorithm>

#include "export/layer_scales.h"

namespace kvcal {
namespace {

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

  HeldScales held(const AttentionCalibration& layer, int64_t tp_size) const override {
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

std::vector<std::string> joined_names(std::string_view format) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= format.size();) {
    const size_t end = std::min(format.find('+', begin), format.size());
    const std::string_view name = format.substr(begin, end - begin);
    if (name.empty()) fail("format '", format, "' has an empty name beside '+'");
    names.push_back(kWriters.name_of(name));
    if (std::find(names.begin(), names.end() - 1, names.back()) != names.end() - 1)
      fail("format ", format, " names ", names.back(), " twice");
    begin = end + 1;
  }
  return names;
}

std::string format_name(std::string_view format) {
  std::string all;
  for (const std::string& name : joined_names(format)) all += (all.empty() ? "" : "+") + name;
  return all;
}

bool any_has(std::string_view format, bool OutputFormat::*property) {
  return std::ranges::any_of(joined_names(format),
                             [&](const std::string& name) { return kWriters.at(name).*property; });
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

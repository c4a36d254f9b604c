// Samples of a multimodal model that `python -m kvcal.images` writes: a folder with index.json and
// a safetensors file for each sample. docs/images.md describes both.

#include <algorithm>
#include <charconv>
#include <utility>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/hash.h"
#include "core/json.h"
#include "core/links.h"
#include "core/safe_points.h"
#include "core/text.h"
#include "datasets/dataset_reader.h"

namespace kvcal {
namespace {

constexpr std::string_view kIndex = "index.json", kVersionKey = "kvcal_samples";
constexpr int64_t kVersion = 1;
constexpr JsonLimits kLimits{.max_bytes = size_t{16} << 20, .max_values = 1'000'000};
constexpr std::string_view kInjected = "injected.";

/// The index begins with the key that names the form: other folders may have an index.json, too.
bool is_embedded_dataset(const fs::path& folder) {
  const fs::path index = folder / kIndex;
  if (!is_folder(folder) || !is_there(index)) return false;
  const TextFile file(index);
  return file.text().substr(0, 4096).find("\"" + std::string(kVersionKey) + "\"") !=
         std::string_view::npos;
}

/// One-dimensional integers, as int64.
std::vector<int64_t> integers(const TensorView& tensor) {
  if (tensor.shape.rank() != 1) fail(tensor.name, " has shape ", tensor.shape, ", expected [n]");
  const auto widened = [](const auto& values) {
    return std::vector<int64_t>(values.begin(), values.end());
  };
  if (tensor.dtype == DType::kI64) return widened(tensor.as<int64_t>());
  if (tensor.dtype == DType::kI32) return widened(tensor.as<int32_t>());
  fail(tensor.name, " has dtype ", tensor.dtype, ", expected I32 or I64");
}

/// The tensors of one sample's file, each of which must be asked for.
class SampleTensors {
 public:
  explicit SampleTensors(const SafetensorsFile& file) : file_(file) {}

  const TensorView* find(std::string_view name) const { return file_.find(name); }
  const TensorView& at(std::string_view name) const {
    const TensorView* tensor = find(name);
    if (!tensor) fail("tensor '", name, "' is missing");
    return *tensor;
  }
  void check_names() const {
    for (const TensorView& tensor : file_.tensors())
      if (!tensor.name.starts_with(kInjected) &&
          std::ranges::find(kNames, tensor.name) == std::end(kNames))
        fail("tensor '", tensor.name, "' is not known; known are ", join(kNames, ", "),
             " and injected.<layer>");
  }

 private:
  static constexpr std::string_view kNames[] = {"input_ids",    "embedded_positions",
                                                "embeddings",   "image_groups",
                                                "position_ids", "per_layer_ids"};
  const SafetensorsFile& file_;
};

std::vector<int32_t> positions_of(const SampleTensors& tensors, int64_t tokens) {
  std::vector<int32_t> positions;
  for (const int64_t position : integers(tensors.at("embedded_positions"))) {
    const int64_t least = positions.empty() ? 0 : positions.back() + 1;
    if (position < least || position >= tokens)
      fail("embedded_positions[", positions.size(), "] is ", position, ", expected ", least, " to ",
           tokens - 1, ": the tokens' numbers, ascending");
    positions.push_back(static_cast<int32_t>(position));
  }
  return positions;
}

/// Of each embedded token, from a number for each token that is 0 for text.
std::vector<int32_t> images_of(const SampleTensors& tensors, std::span<const int32_t> positions,
                               int64_t tokens) {
  const std::vector<int64_t> groups = integers(tensors.at("image_groups"));
  if (std::ssize(groups) != tokens)
    fail("image_groups has ", counted(groups.size(), "value"), ", expected one for each of ",
         counted(tokens, "token"));
  std::vector<int32_t> images;
  size_t next = 0;
  for (int64_t token = 0; token < tokens; ++token) {
    const int64_t group = groups[static_cast<size_t>(token)];
    const bool is_embedded = next < positions.size() && positions[next] == token;
    const int64_t least = images.empty() ? 1 : images.back();
    if (is_embedded && (group < least || group > tokens))
      fail("image_groups[", token, "] is ", group, " of an embedded token, expected ", least,
           " or the next image's number");
    if (!is_embedded && group != 0)
      fail("image_groups[", token, "] is ", group, " of a token that is not embedded, expected 0");
    if (!is_embedded) continue;
    images.push_back(static_cast<int32_t>(group));
    ++next;
  }
  return images;
}

TensorView rows_of(const TensorView& tensor, int64_t count, int64_t width) {
  if (!is_float(tensor.dtype))
    fail(tensor.name, " has dtype ", tensor.dtype, ", expected F32, F16 or BF16");
  if (tensor.shape != Shape{count, width})
    fail(tensor.name, " has shape ", tensor.shape, ", expected ", Shape{count, width});
  return tensor;
}

std::vector<TokenPlace> places_of(const TensorView* tensor, int64_t tokens) {
  if (!tensor) return {};
  if (tensor->shape != Shape{3, tokens})
    fail("position_ids has shape ", tensor->shape, ", expected ", Shape{3, tokens},
         ": time, height and width of each token");
  const TensorView flat{
      .name = tensor->name, .dtype = tensor->dtype, .shape = {3 * tokens}, .bytes = tensor->bytes};
  const std::vector<int64_t> values = integers(flat);
  std::vector<TokenPlace> places(static_cast<size_t>(tokens));
  for (size_t axis = 0; axis < 3; ++axis)
    for (size_t token = 0; token < places.size(); ++token) {
      const int64_t value = values[axis * places.size() + token];
      // No axis runs ahead of the tokens; a video's time may.
      constexpr int64_t kMost = int64_t{1} << 24;
      if (value < 0 || value > kMost)
        fail("position_ids[", axis, "][", token, "] is ", value, ", expected 0 to ", kMost);
      places[token][axis] = static_cast<int32_t>(value);
    }
  return places;
}

std::vector<TokenId> token_ids(const TensorView& tensor) {
  std::vector<TokenId> ids;
  for (const int64_t id : integers(tensor)) {
    if (id < 0 || id > INT32_MAX)
      fail(tensor.name, "[", ids.size(), "] is ", id, ", expected a token id from 0 to 2147483647");
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

int64_t injected_layer(std::string_view name) {
  const std::string_view number = name.substr(kInjected.size());
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), layer);
  if (error != std::errc() || end != number.data() + number.size() || layer < 0)
    fail("tensor '", name, "' names no layer, expected injected.0 and so on");
  return layer;
}

/// Puts the ids that a layer's own inputs read into the places of embedded tokens, whose ids
/// nothing else reads.
void put_layer_ids(const TensorView* tensor, std::span<const int32_t> positions,
                   std::vector<TokenId>& ids) {
  if (!tensor) return;
  const std::vector<TokenId> read = token_ids(*tensor);
  if (read.size() != ids.size())
    fail("per_layer_ids has ", counted(read.size(), "value"), ", expected one for each of ",
         counted(ids.size(), "token"));
  for (const int32_t position : positions)
    ids[static_cast<size_t>(position)] = read[static_cast<size_t>(position)];
  const auto other = std::ranges::mismatch(ids, read).in1;
  if (other != ids.end())
    fail("per_layer_ids[", other - ids.begin(), "] is not the token's own id, ", *other,
         ", and the token is text");
}

class EmbeddedDataset : public Dataset {
 public:
  explicit EmbeddedDataset(const fs::path& folder, size_t max_record_bytes = kDefaultRecordBytes)
      : folder_(folder), max_record_bytes_(max_record_bytes) {
    const AllowedLinks links(folder, "data folder");
    links.check(folder_ / kIndex);
    in_context((folder_ / kIndex).string(), [&] { read_index(links); });
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> all{folder_ / kIndex};
    for (const Entry& sample : samples_) all.push_back(sample.file);
    return all;
  }
  int64_t size() const override { return std::ssize(samples_); }
  /// Of the index, which has the hashes of the samples.
  std::string sha256() const override { return sha256_of_file(folder_ / kIndex); }

  Record record(int64_t index) const override {
    const Entry& sample = samples_.at(static_cast<size_t>(index));
    const auto file = std::make_shared<SafetensorsFile>(sample.file);
    return in_context(sample.file.string(), [&] {
      if (const TensorView* ids = file->find("input_ids"))
        check_record_size("input_ids", ids->bytes.size(), max_record_bytes_);
      if (sha256_of_file(sample.file) != sample.sha256)
        fail("its SHA-256 is not the one that ", kIndex, " has: the file was changed or damaged");
      return read(file, sample);
    });
  }

 private:
  struct Entry {
    fs::path file;
    std::string sha256;
    int64_t tokens = 0, embedded = 0;
  };

  void read_index(const AllowedLinks& links) {
    const Json index = parse_json(read_text(folder_ / kIndex, kLimits.max_bytes), kLimits);
    if (!index.is_object()) fail("is ", kind_of(index), ", expected an object");
    if (const int64_t version = required_int(index, kVersionKey); version != kVersion)
      fail("key '", kVersionKey, "' is ", version, ", expected ", kVersion,
           "; another version of kvcal wrote these samples");
    const Json* model = find_field(index, "model");
    if (!model || !model->is_object()) fail_missing("model", "an object");
    in_context("model", [&] {
      model_type_ = required_string(*model, "model_type");
      hidden_size_ = required_int(*model, "hidden_size");
      if (hidden_size_ < 1) fail("key 'hidden_size' is ", hidden_size_, ", expected at least 1");
      if (!find_field(*model, "bidirectional_layers")) return;
      auto& layers = seen_whole_in_.emplace();
      for (const Json& layer : required_list(*model, "bidirectional_layers")) {
        if (!layer.is_number_integer()) fail_kind("bidirectional_layers", "layers", layer);
        layers.push_back(layer.get<int64_t>());
      }
    });
    SafePoints points(256);
    for (const Json& sample : required_list(index, "samples")) {
      points.pass();
      in_context("samples[" + std::to_string(size()) + "]", [&] {
        if (!sample.is_object()) fail("is ", kind_of(sample), ", expected an object");
        samples_.push_back(entry_of(sample, links));
      });
    }
    if (size() == 0) fail("key 'samples' is an empty list, the data set has no samples");
  }

  Entry entry_of(const Json& sample, const AllowedLinks& links) const {
    const std::string name = required_string(sample, "file");
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
      fail("key 'file' is '", name, "', expected a name in the same folder");
    links.check(folder_ / name);
    return {.file = folder_ / name,
            .sha256 = required_string(sample, "sha256"),
            .tokens = required_int(sample, "tokens"),
            .embedded = required_int(sample, "embedded")};
  }

  Record read(const std::shared_ptr<SafetensorsFile>& file, const Entry& sample) const {
    const SampleTensors tensors(*file);
    tensors.check_names();
    std::vector<TokenId> ids = token_ids(tensors.at("input_ids"));
    const int64_t tokens = std::ssize(ids);
    auto embedded = std::make_shared<EmbeddedTokens>();
    embedded->positions = positions_of(tensors, tokens);
    if (tokens != sample.tokens || embedded->count() != sample.embedded)
      fail("has ", counted(tokens, "token"), ", ", embedded->count(), " of them embedded; ", kIndex,
           " has ", sample.tokens, " and ", sample.embedded);
    embedded->images = images_of(tensors, embedded->positions, tokens);
    embedded->rows = rows_of(tensors.at("embeddings"), embedded->count(), hidden_size_);
    for (const TensorView& tensor : file->tensors())
      if (tensor.name.starts_with(kInjected))
        embedded->injected[injected_layer(tensor.name)] =
            rows_of(tensor, embedded->count(), hidden_size_);
    embedded->places = places_of(tensors.find("position_ids"), tokens);
    put_layer_ids(tensors.find("per_layer_ids"), embedded->positions, ids);
    embedded->model_type = model_type_;
    embedded->seen_whole_in = seen_whole_in_;
    embedded->owner = file;
    embedded->drop = [&mapped = file->file()](const TensorView& rows) { mapped.drop(rows.bytes); };
    file->file().drop(file->file().bytes());
    return {.content = std::move(ids),
            .place = sample.file.string(),
            .variables = nullptr,
            .embedded = std::move(embedded)};
  }

  fs::path folder_;
  size_t max_record_bytes_;  ///< of the token ids of a sample
  std::vector<Entry> samples_;
  std::string model_type_;
  int64_t hidden_size_ = 0;
  std::optional<std::vector<int64_t>> seen_whole_in_;
};

std::unique_ptr<Dataset> open_embedded(const fs::path& path, const DatasetOverrides& overrides) {
  return std::make_unique<EmbeddedDataset>(path, overrides.records.max_bytes);
}

}  // namespace

DatasetReader embedded_reader() {
  return {.open = open_embedded,
          .reads_path = is_embedded_dataset,
          .files = [](const fs::path& path) { return EmbeddedDataset(path).files(); }};
}

}  // namespace kvcal

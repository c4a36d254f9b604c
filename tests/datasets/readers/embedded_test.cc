// Samples with images, as `python -m kvcal.images` writes them.
#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/text.h"
#include "datasets/dataset.h"
#include "datasets/readers/dataset_files.h"

namespace kvcal {
namespace {

template <class T>
Tensor tensor_of(const std::string& name, const Shape& shape, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {.name = name,
          .dtype = kDTypeOf<T>,
          .shape = shape,
          .bytes = std::vector<std::byte>(bytes.begin(), bytes.end())};
}

/// Six tokens, of which 1, 2 and 4 are of two images.
std::vector<Tensor> usual_tensors() {
  return {tensor_of<int32_t>("input_ids", {6}, {5, 90, 90, 6, 90, 7}),
          tensor_of<int32_t>("embedded_positions", {3}, {1, 2, 4}),
          tensor_of<int32_t>("image_groups", {6}, {0, 1, 1, 0, 2, 0}),
          tensor_of<float>("embeddings", {3, 2}, {1, 2, 3, 4, 5, 6})};
}

class Samples {
 public:
  explicit Samples(const std::vector<Tensor>& tensors = usual_tensors()) { write(tensors); }

  void write(const std::vector<Tensor>& tensors) {
    std::vector<TensorSource> sources;
    for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
    write_safetensors(file(), sources, {});
    write_index();
  }
  /// changes: a JSON object that is merged into the index.
  void write_index(std::string_view changes = "{}") {
    Json index = {
        {"kvcal_samples", 1},
        {"model",
         {{"model_type", "llava"}, {"hidden_size", 2}, {"bidirectional_layers", Json::array()}}},
        {"samples",
         {{{"file", "00000.safetensors"},
           {"sha256", sha256_of_file(file())},
           {"tokens", 6},
           {"embedded", 3}}}}};
    index.merge_patch(parse_json(changes));
    scratch_.write("index.json", dump_json(index));
  }
  fs::path file() const { return scratch_.path() / "00000.safetensors"; }
  const fs::path& path() const { return scratch_.path(); }
  std::unique_ptr<Dataset> open() const { return open_dataset(path()); }
  /// The error of opening and reading, without the folder.
  std::string error() const {
    return test::error_of(path(), [&] { open()->record(0); });
  }

 private:
  test::ScratchFolder scratch_;
};

/// The usual tensors with one in place of that of its name, or beside them.
std::string error_with(Tensor changed) {
  std::vector<Tensor> tensors = usual_tensors();
  const auto same = std::ranges::find(tensors, changed.name, &Tensor::name);
  if (same == tensors.end())
    tensors.push_back(std::move(changed));
  else
    *same = std::move(changed);
  return Samples(tensors).error();
}

TEST_CASE("embedded: a sample's tokens, and what replaces their embeddings") {
  std::vector<Tensor> tensors = usual_tensors();
  tensors.push_back(tensor_of<int32_t>("position_ids", {3, 6},
                                       {0, 1, 1, 2, 3, 4, 0, 1, 1, 2, 3, 4, 0, 1, 2, 2, 3, 4}));
  tensors.push_back(tensor_of<float>("injected.1", {3, 2}, {6, 5, 4, 3, 2, 1}));
  tensors.push_back(tensor_of<int32_t>("per_layer_ids", {6}, {5, 0, 0, 6, 0, 7}));
  const Samples samples(tensors);
  const auto dataset = samples.open();
  CHECK(dataset->size() == 1);
  CHECK(dataset->sha256() == sha256_of_file(samples.path() / "index.json"));
  CHECK(dataset_files(samples.path()) ==
        std::vector<fs::path>{samples.path() / "index.json", samples.file()});
  const Record record = dataset->record(0);
  CHECK(std::get<std::vector<TokenId>>(record.content) == std::vector<TokenId>{5, 0, 0, 6, 0, 7});
  REQUIRE(record.embedded);
  const EmbeddedTokens& images = *record.embedded;
  CHECK(images.positions == std::vector<int32_t>{1, 2, 4});
  CHECK(images.images == std::vector<int32_t>{1, 1, 2});
  CHECK(images.rows.as<float>()[5] == 6.0f);
  CHECK(images.injected.at(1).as<float>()[0] == 6.0f);
  CHECK(images.places.at(2) == TokenPlace{1, 1, 2});
  CHECK(images.model_type == "llava");
  images.drop(images.rows);
  CHECK(images.rows.as<float>()[5] == 6.0f);  // read again
}

TEST_CASE("embedded: placeholders behind the vocabulary are no error, a cut leaves their rows") {
  const Samples samples;
  SilentDiagnostics silent;
  const auto read = [&](int64_t length) {
    return read_samples(*samples.open(), nullptr, nullptr, 80,
                        {.num_calibration_samples = 1,
                         .max_seq_length = length,
                         .shuffle_seed = {},
                         .skip = {}},
                        silent)
        .at(0);
  };
  CHECK(read(100).ids == std::vector<TokenId>{5, 0, 0, 6, 0, 7});
  const Sample cut = read(4);
  CHECK(cut.ids == std::vector<TokenId>{5, 0, 0, 6});
  CHECK(cut.embedded->positions == std::vector<int32_t>{1, 2});
}

TEST_CASE("embedded: the index is checked") {
  Samples samples;
  const auto error = [&](std::string_view changes) {
    samples.write_index(changes);
    return samples.error();
  };
  CHECK(error(R"({"kvcal_samples": 2})") ==
        "index.json: key 'kvcal_samples' is 2, expected 1; another version of kvcal wrote these "
        "samples");
  CHECK(error(R"({"model": null})") == "index.json: key 'model' is missing, expected an object");
  CHECK(error(R"({"model": {"hidden_size": 0}})") ==
        "index.json: model: key 'hidden_size' is 0, expected at least 1");
  CHECK(error(R"({"samples": []})") ==
        "index.json: key 'samples' is an empty list, the data set has no samples");
  CHECK(error(R"({"samples": [{"file": "../x"}]})") ==
        "index.json: samples[0]: key 'file' is '../x', expected a name in the same folder");
  CHECK(error(R"({"samples": [7]})") ==
        "index.json: samples[0]: is an integer, expected an object");
  CHECK(error("{}").empty());
}

TEST_CASE("embedded: a sample that was changed is refused") {
  const Samples samples;
  std::string bytes = read_text(samples.file());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(samples.file(), std::ios::binary) << bytes;
  CHECK(samples.error() ==
        "00000.safetensors: its SHA-256 is not the one that index.json has: the file was changed "
        "or damaged");
}

TEST_CASE("embedded: tensors of other shapes, dtypes or values are named") {
  CHECK(error_with(tensor_of<float>("input_ids", {6}, {0, 0, 0, 0, 0, 0})) ==
        "00000.safetensors: input_ids has dtype F32, expected I32 or I64");
  CHECK(error_with(tensor_of<int32_t>("input_ids", {6}, {0, 0, -1, 0, 0, 0})) ==
        "00000.safetensors: input_ids[2] is -1, expected a token id from 0 to 2147483647");
  CHECK(error_with(tensor_of<int32_t>("input_ids", {7}, {0, 0, 0, 0, 0, 0, 0})) ==
        "00000.safetensors: has 7 tokens, 3 of them embedded; index.json has 6 and 3");
  CHECK(error_with(tensor_of<int32_t>("embedded_positions", {3}, {1, 1, 4})) ==
        "00000.safetensors: embedded_positions[1] is 1, expected 2 to 5: the tokens' numbers, "
        "ascending");
  CHECK(error_with(tensor_of<int32_t>("embedded_positions", {3}, {1, 2, 6})) ==
        "00000.safetensors: embedded_positions[2] is 6, expected 3 to 5: the tokens' numbers, "
        "ascending");
  CHECK(error_with(tensor_of<int32_t>("image_groups", {6}, {0, 2, 1, 0, 2, 0})) ==
        "00000.safetensors: image_groups[2] is 1 of an embedded token, expected 2 or the next "
        "image's number");
  CHECK(error_with(tensor_of<int32_t>("image_groups", {6}, {1, 1, 1, 0, 2, 0})) ==
        "00000.safetensors: image_groups[0] is 1 of a token that is not embedded, expected 0");
  CHECK(error_with(tensor_of<float>("embeddings", {2, 3}, {1, 2, 3, 4, 5, 6})) ==
        "00000.safetensors: embeddings has shape [2, 3], expected [3, 2]");
  CHECK(error_with(tensor_of<int32_t>("embeddings", {3, 2}, {1, 2, 3, 4, 5, 6})) ==
        "00000.safetensors: embeddings has dtype I32, expected F32, F16 or BF16");
  CHECK(error_with(tensor_of<int32_t>("position_ids", {6}, {1, 2, 3, 4, 5, 6})) ==
        "00000.safetensors: position_ids has shape [6], expected [3, 6]: time, height and width of "
        "each token");
  CHECK(error_with(tensor_of<int32_t>("per_layer_ids", {6}, {4, 0, 0, 6, 0, 7})) ==
        "00000.safetensors: per_layer_ids[0] is not the token's own id, 5, and the token is text");
  CHECK(error_with(tensor_of<float>("injected.x", {3, 2}, {1, 2, 3, 4, 5, 6})) ==
        "00000.safetensors: tensor 'injected.x' names no layer, expected injected.0 and so on");
  CHECK(error_with(tensor_of<float>("other", {1}, {1})) ==
        "00000.safetensors: tensor 'other' is not known; known are input_ids, embedded_positions, "
        "embeddings, image_groups, position_ids, per_layer_ids and injected.<layer>");
}

}  // namespace
}  // namespace kvcal

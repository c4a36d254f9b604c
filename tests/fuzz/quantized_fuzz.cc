// A checkpoint of quantized weights: its tables are read, and all of its codes are decoded. Parts:
// config.json, the safetensors header, and an object with the bytes of tensors, by the end of their
// names, the longest that fits: a text of code points below 256, which is repeated.
#include <algorithm>
#include <cstring>

#include "stored/fp8_checkpoint.h"
#include "stored/weights.h"
#include "support/fuzz.h"
#include "support/json_mutator.h"

using namespace kvcal;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return fuzz::mutate_json_parts(data, size, max_size, seed);
}

namespace {

constexpr size_t kMostBytes = size_t{1} << 17;

/// The bytes that a text means. Code points beyond 255 are cut.
std::string bytes_of(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if ((byte & 0xc0u) == 0x80u) continue;  // within a code point
    const bool is_pair = byte >= 0xc0u && i + 1 < text.size();
    bytes +=
        is_pair
            ? static_cast<char>((byte & 0x03u) << 6u | (static_cast<uint8_t>(text[i + 1]) & 0x3fu))
            : text[i];
  }
  return bytes;
}

/// Bytes to repeat in a tensor.
std::string filling(const Json& fillings, std::string_view name) {
  std::string found = "\x3c";
  size_t longest = 0;
  if (!fillings.is_object()) return found;
  for (const auto& [end, value] : fillings.items())
    if (value.is_string() && name.ends_with(end) && end.size() >= longest) {
      longest = end.size();
      found = bytes_of(value.get<std::string>());
    }
  return found.empty() ? "\x3c" : found;
}

/// The file that a header describes.
std::string file_of(std::string_view header, const Json& fillings) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += header;
  const size_t start = file.size();
  const Json json = Json::parse(header, nullptr, false);
  if (!json.is_object()) return file;
  for (const auto& [name, entry] : json.items()) {
    if (!entry.is_object() || !entry.contains("data_offsets")) continue;
    const Json& offsets = entry.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
      continue;
    const size_t begin = offsets[0].get<size_t>(), end = offsets[1].get<size_t>();
    if (begin > end || end > kMostBytes) continue;
    if (file.size() < start + end) file.resize(start + end, '\x3c');
    const std::string bytes = filling(fillings, name);
    for (size_t i = begin; i < end; ++i) file[start + i] = bytes[(i - begin) % bytes.size()];
  }
  return file;
}

/// Decodes all rows, and some of them again.
void decode(const CodedMatrix& matrix) {
  std::vector<float> all(element_count(matrix.shape()));
  matrix.decode(0, matrix.rows(), all.data());
  const int64_t first = matrix.rows() / 3, count = std::min<int64_t>(3, matrix.rows() - first);
  std::vector<float> some(static_cast<size_t>(count * matrix.width()));
  matrix.decode(first, count, some.data());
  KVCAL_CHECK(std::memcmp(some.data(), all.data() + first * matrix.width(),
                          some.size() * sizeof(float)) == 0);
}

void read_everything(const fs::path& folder) {
  const ModelDir model_dir(folder);
  const ModelConfig config = parse_model_config(model_dir.config());
  const CheckpointQuantization quantization = read_checkpoint_quantization(model_dir, config);
  for (const auto& matrix : quantization.matrices) fuzz::accepts([&] { decode(*matrix); });
  const Weights weights(model_dir, config, &quantization);
  for (int64_t layer = 0; layer < weights.num_layers(); ++layer)
    for (const Weights::LayerTensor& tensor : weights.tensors(layer))
      if (!tensor.is_scale && weights.has(layer, tensor.role))
        fuzz::accepts([&] { weights.rows(layer, tensor.role); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  const auto parts = fuzz::parts_of(fuzz::text_of(data, size), 3);
  folder.write("config.json", parts[0]);
  folder.write("model.safetensors", file_of(parts[1], Json::parse(parts[2], nullptr, false)));
  fuzz::accepts([&] { read_everything(folder.path()); });
  return 0;
}

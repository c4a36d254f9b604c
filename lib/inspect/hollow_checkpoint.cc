#include "inspect/hollow_checkpoint.h"

#include <algorithm>
#include <array>

#include "checkpoint/hollow_file.h"
#include "checkpoint/model_dir.h"
#include "core/checked.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/json_limits.h"
#include "family/expected_tensors.h"
#include "synth/synthetic.h"

namespace kvcal {
namespace {

/// Extensions of files that hold no weights.
constexpr std::array<std::string_view, 6> kWithoutWeights{".json",  ".md",    ".txt",
                                                          ".jinja", ".model", ".py"};

/// Header of a file with these tensors, and the bytes of all.
struct Header {
  std::string text;
  uint64_t data_bytes = 0;
};

Header header_of(const ModelConfig& config) {
  const DType dtype = weight_dtype(config);
  Header header;
  Json tensors = Json::object();
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    const uint64_t begin = header.data_bytes;
    header.data_bytes = checked_add(begin, byte_count(tensor.shape, dtype));
    tensors[tensor.name] = {{"dtype", name_of(dtype)},
                            {"shape", tensor.shape.dims},
                            {"data_offsets", {begin, header.data_bytes}}};
  }
  header.text = tensors.dump();
  header.text.append((8 - header.text.size() % 8) % 8, ' ');
  return header;
}

std::string length_of(const std::string& header) {
  std::string bytes;
  for (int i = 0; i < 8; ++i)
    bytes += static_cast<char>((uint64_t{header.size()} >> (8 * i)) & 0xff);
  return bytes;
}

}  // namespace

HollowCheckpoint::HollowCheckpoint(const fs::path& config_file, const FamilyChoice& family)
    : folder_(temporary_path("config"), false) {
  const Json given = read_model_config(config_file);
  in_context(config_file.string(), [&] { write(given, family); });
}

void HollowCheckpoint::write(const Json& given, const FamilyChoice& family) const {
  const Json config = synthetic_config(given, {.family = family});
  const Header header = header_of(parse_model_config(config, family));
  write_text_file(path() / "config.json", dump_as_python(config));
  write_hollow_file(path() / kSingleFileName, length_of(header.text) + header.text,
                    8 + header.text.size() + header.data_bytes);
  write_present_tensors(path(), {});
}

fs::path lone_config(const fs::path& given) {
  if (type_of(given) == fs::file_type::regular)
    return given.extension() == ".json" ? given : fs::path();
  if (!is_folder(given) || !is_there(given / "config.json")) return {};
  const bool may_have_weights = std::ranges::any_of(paths_in(given), [](const fs::path& path) {
    return std::ranges::find(kWithoutWeights, path.extension().string()) == kWithoutWeights.end() ||
           path.filename() == kIndexFileName;
  });
  return may_have_weights ? fs::path() : given / "config.json";
}

}  // namespace kvcal

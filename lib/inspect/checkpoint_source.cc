#include "inspect/checkpoint_source.h"

#include <algorithm>
#include <array>

#include "checkpoint/hollow_file.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/safetensors.h"
#include "core/folder.h"
#include "core/number.h"
#include "core/text.h"
#include "engines/scale_tensors.h"
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

namespace {

constexpr uint64_t kLengthBytes = 8;                // before a header
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the format's limit
/// Such files are read whole: they may be no safetensors, which their first bytes tell.
constexpr uint64_t kSmallFileBytes = 4096;
/// Longer tensors are no scales of a cache.
constexpr uint64_t kMostScaleBytes = uint64_t{64} << 10;
/// Scales that lie closer together are fetched at once: a request takes longer than these bytes.
constexpr uint64_t kWidestGap = uint64_t{16} << 10;

/// Bytes of a file of weights, by its place in HubModel::weights.
struct Wanted {
  size_t file;
  ByteRange range;
};

/// How many bytes of a file follow its first ones, up to the end of its header; none of a file
/// whose header is not as it says, which its reader tells.
uint64_t bytes_of_header(std::string_view begin, uint64_t file_size) {
  if (file_size <= kSmallFileBytes) return file_size - begin.size();
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    length |= uint64_t{static_cast<unsigned char>(begin[i])} << (8 * i);
  return length <= kMostHeaderBytes && length <= file_size - kLengthBytes ? length : 0;
}

/// Whether a tensor may be a scale of the cache, or says the shape of a weight that codes alone do
/// not say.
bool is_wanted(std::string_view name) {
  return is_attention_scale(name) || name.ends_with(".weight_shape") ||
         name.find(".quant_state.") != name.npos;
}

/// A tensor that is wanted, and where it is.
struct TensorPlace {
  std::string name;
  Wanted place;
};

std::vector<TensorPlace> wanted_tensors(const fs::path& path, size_t index) {
  std::vector<TensorPlace> tensors;
  try {
    const SafetensorsFile file(path);
    for (const TensorView& tensor : file.tensors()) {
      const uint64_t size = tensor.bytes.size();
      if (size > 0 && size <= kMostScaleBytes && is_wanted(tensor.name))
        tensors.push_back({std::string(tensor.name), {index, {file.offset_of(tensor), size}}});
    }
  } catch (const SystemError&) {
    throw;
  } catch (const Error&) {  // who reads the checkpoint tells it
  }
  return tensors;
}

/// Ranges that hold these places, which are sorted, in fewer requests.
std::vector<Wanted> joined(std::span<const TensorPlace> tensors) {
  std::vector<Wanted> ranges;
  for (const auto& [name, place] : tensors) {
    const uint64_t end = ranges.empty() ? 0 : ranges.back().range.offset + ranges.back().range.size;
    if (!ranges.empty() && ranges.back().file == place.file &&
        place.range.offset <= end + kWidestGap)
      ranges.back().range.size = place.range.offset + place.range.size - ranges.back().range.offset;
    else
      ranges.push_back(place);
  }
  return ranges;
}

/// Makes a checkpoint's files of weights without most of their bytes.
class HollowCopy {
 public:
  HollowCopy(Hub& hub, const HubId& id, const HubModel& model, fs::path folder)
      : hub_(hub), id_(id), model_(model), folder_(std::move(folder)) {}

  /// Returns the number of tensors with values.
  size_t write() {
    const std::vector<std::string> headers = read_headers();
    for (size_t i = 0; i < headers.size(); ++i)
      write_hollow_file(path(i), headers[i], model_.weights[i].size);
    std::vector<TensorPlace> tensors;
    for (size_t i = 0; i < headers.size(); ++i)
      std::ranges::move(wanted_tensors(path(i), i), std::back_inserter(tensors));
    const std::vector<Wanted> ranges = joined(tensors);
    const std::vector<std::string> values = read(ranges);
    for (size_t i = 0; i < ranges.size(); ++i)
      fill_hollow_file(path(ranges[i].file), ranges[i].range.offset, values[i]);
    PresentTensors present;
    for (const auto& [name, place] : tensors) present[model_.weights[place.file].name].insert(name);
    write_present_tensors(folder_, present);
    return tensors.size();
  }

 private:
  fs::path path(size_t file) const { return folder_ / model_.weights[file].name; }

  std::vector<std::string> read(std::span<const Wanted> wanted) {
    std::vector<HubFilePart> parts;
    for (const Wanted& one : wanted) parts.push_back({model_.weights[one.file].name, one.range});
    return hub_.read(id_, model_.commit, parts);
  }

  /// The headers with their lengths, in two rounds of requests.
  std::vector<std::string> read_headers() {
    std::vector<std::string> headers(model_.weights.size());
    for (const bool has_length : {false, true}) {
      std::vector<Wanted> wanted;
      for (size_t i = 0; i < headers.size(); ++i) {
        const uint64_t size = model_.weights[i].size;
        const uint64_t more =
            has_length ? bytes_of_header(headers[i], size) : std::min(size, kLengthBytes);
        if (more > 0) wanted.push_back({i, {headers[i].size(), more}});
      }
      const std::vector<std::string> bytes = read(wanted);
      for (size_t i = 0; i < wanted.size(); ++i) headers[wanted[i].file] += bytes[i];
    }
    return headers;
  }

  Hub& hub_;
  const HubId& id_;
  const HubModel& model_;
  fs::path folder_;
};

}  // namespace

RemoteCheckpoint::RemoteCheckpoint(Hub& hub, const HubId& id, Diagnostics& diagnostics)
    : folder_(temporary_path("remote"), false) {
  const HubModel model = hub.outline(id);
  path_ = HubCache(folder_.path()).snapshot(id, model.commit);
  make_folders(path_);
  for (const std::string& name : model.names) kvcal::copy_file(model.snapshot / name, path_ / name);
  const size_t num_tensors = HollowCopy(hub, id, model, path_).write();
  uint64_t all = 0;
  for (const HubFile& file : model.weights) all += file.size;
  diagnostics.note(id.text() + ": read " + byte_text(hub.received()) + " of " + byte_text(all) +
                   ": all headers and " + counted(num_tensors, "tensor") +
                   " with scales of the cache or shapes; values of weights and of their own "
                   "scales were not checked");
}

CheckpointSource checkpoint_source(const std::string& given, bool offline_config,
                                   Diagnostics& diagnostics) {
  if (given.empty() || is_there(given)) return {.path = given, .name = given};
  const auto id = parse_hub_id(given, HubRepo::kModel);
  if (!id) return {.path = given, .name = given};
  Hub hub(hub_settings(), diagnostics);
  const auto local = [](const fs::path& path) -> CheckpointSource {
    return {.path = path.string(), .name = path.string()};
  };
  if (const auto whole = hub.whole_snapshot(*id)) return local(*whole);
  if (hub.is_offline())
    return local(offline_config ? hub.offline_description(*id) : hub.model(*id));
  auto remote = std::make_shared<const RemoteCheckpoint>(hub, *id, diagnostics);
  const std::string path = remote->path().string();
  return {.path = path, .name = id->text(), .remote = std::move(remote)};
}

std::string CheckpointSource::named(std::string text) const {
  return remote ? replaced(std::move(text), path, name) : text;
}

Json CheckpointSource::named(Json json) const {
  if (json.is_string()) return named(json.get<std::string>());
  if (json.is_structured())
    for (Json& value : json) value = named(std::move(value));
  return json;
}

void in_name_of(const CheckpointSource& source, const std::function<void()>& body) {
  try {
    body();
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    if (!source.remote) throw;
    throw Error(source.named(error.message()));
  }
}

}  // namespace kvcal

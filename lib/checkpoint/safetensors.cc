#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>

#include "checkpoint/hollow_file.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "core/number.h"
#include "core/text.h"

namespace kvcal {
namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;
/// A multiple of every element's bytes.
constexpr size_t kElements = 16;
/// Small enough that the threads finish together.
constexpr size_t kBlockBytes = size_t{128} << 10;

/// Writes generated tensors through two buffers: the threads fill one while the other is written to
/// the file. Borrows its arguments.
class GeneratedStream {
 public:
  GeneratedStream(FileWriter& writer, const WriteOptions& options, ThreadPool& pool)
      : writer_(writer), options_(options), pool_(pool) {}

  /// Appends a tensor; finish() completes it in the file.
  void add(const TensorSource& tensor) {
    filling_.resize(kBufferBytes);
    const uint64_t size = byte_count(tensor.shape, tensor.dtype);
    for (uint64_t offset = 0; offset < size;) {
      // Blocks of a tensor but the last are whole elements, wherever the tensor before ended.
      const uint64_t room = std::min(kBlockBytes, (kBufferBytes - filled_) / kElements * kElements);
      const auto count = static_cast<size_t>(std::min<uint64_t>(room, size - offset));
      if (count > 0)
        blocks_.push_back({&tensor, offset, std::span(filling_).subspan(filled_, count)});
      filled_ += count;
      offset += count;
      if (kBufferBytes - filled_ < kElements) turn();
    }
  }

  void finish() {
    if (filled_ > 0) turn();
    if (unwritten_ > 0) turn();
  }

 private:
  struct Block {
    const TensorSource* tensor = nullptr;
    uint64_t offset = 0;
    std::span<std::byte> bytes;
  };
  /// Fills the added blocks while the blocks before them are written.
  void turn() {
    throw_if_interrupted();
    const std::span<const std::byte> ready = std::span(writing_).first(unwritten_);
    pool_.parallel_for(static_cast<int64_t>(blocks_.size()) + 1, [&](int64_t index, int) {
      if (index == 0) {
        if (!ready.empty()) writer_.write(ready);
        return;
      }
      const Block& block = blocks_[static_cast<size_t>(index - 1)];
      block.tensor->generate(block.offset, block.bytes);
    });
    if (unwritten_ > 0 && options_.written) options_.written(unwritten_);
    filling_.swap(writing_);
    filling_.resize(kBufferBytes);
    unwritten_ = filled_;
    filled_ = 0;
    blocks_.clear();
  }

  FileWriter& writer_;
  const WriteOptions& options_;
  ThreadPool& pool_;
  std::vector<std::byte> filling_, writing_;
  size_t filled_ = 0, unwritten_ = 0;  ///< used bytes of the two buffers
  std::vector<Block> blocks_;
};

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // safetensors `MAX_HEADER_SIZE`
constexpr std::string_view kMetadataKey = "__metadata__";
/// Room for some 200,000 tensors. The format itself only limits the bytes.
constexpr JsonLimits kHeaderLimits{.max_bytes = kMaxHeaderBytes, .max_values = 1'500'000};

/// One tensor in the header.
struct HeaderEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t begin = 0, end = 0;
};

const Json& required_field(const Json& entry, std::string_view key, std::string_view wanted) {
  const Json* field = find_field(entry, key);
  if (!field) fail_missing(key, wanted);
  return *field;
}

uint64_t count_of(const Json& value, std::string_view key) {
  if (!value.is_number_unsigned()) fail_kind(key, "integers that are not negative", value);
  return value.get<uint64_t>();
}

Shape shape_of(const Json& value) {
  if (!value.is_array()) fail_kind("shape", "an array of integers", value);
  Shape shape;
  shape.dims.reserve(value.size());
  for (const Json& dim : value) {
    const uint64_t size = count_of(dim, "shape");
    if (size > uint64_t{INT64_MAX}) fail("shape holds ", size, ", the limit is ", INT64_MAX);
    shape.dims.push_back(static_cast<int64_t>(size));
  }
  return shape;
}

HeaderEntry entry_of(const std::string& name, const Json& value) {
  if (!value.is_object()) fail("is ", kind_of(value), ", expected an object");
  HeaderEntry entry{.name = name, .shape = {}};
  const Json& dtype = required_field(value, "dtype", "the name of a dtype");
  if (!dtype.is_string()) fail_kind("dtype", "the name of a dtype", dtype);
  const auto& dtype_name = dtype.get_ref<const std::string&>();
  const std::optional<DType> known = dtype_from_name(dtype_name);
  if (!known) fail("unknown dtype ", shown_name(dtype_name));
  entry.dtype = *known;
  entry.shape = shape_of(required_field(value, "shape", "an array of integers"));
  const Json& offsets = required_field(value, "data_offsets", "an array of two integers");
  if (!offsets.is_array() || offsets.size() != 2)
    fail_kind("data_offsets", "an array of two integers", offsets);
  entry.begin = count_of(offsets[0], "data_offsets");
  entry.end = count_of(offsets[1], "data_offsets");
  return entry;
}

/// Checks one entry against the buffer and the end of the entry before it.
void check_entry(const HeaderEntry& entry, uint64_t previous_end, uint64_t buffer_size) {
  const auto offsets = [&] {
    return "data_offsets [" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
  };
  if (entry.begin > entry.end) fail(offsets(), " end before they begin");
  if (entry.end > buffer_size)
    fail(offsets(), " leave the data of ", buffer_size, " bytes; the file may be cut short");
  if (entry.begin < previous_end)
    fail(offsets(), " overlap the tensor before, which ends at ", previous_end);
  if (entry.begin > previous_end)
    fail(offsets(), " leave a hole after the tensor before, which ends at ", previous_end);
  const uint64_t wanted = byte_count(entry.shape, entry.dtype);
  if (entry.end - entry.begin != wanted)
    fail("shape ", entry.shape, " of ", entry.dtype, " needs ", wanted, " bytes, the header gives ",
         entry.end - entry.begin);
}

std::map<std::string, std::string> metadata_of(const Json& value) {
  std::map<std::string, std::string> metadata;
  if (value.is_null()) return metadata;
  if (!value.is_object()) fail_kind(kMetadataKey, "an object of strings", value);
  for (const auto& item : value.items()) {
    if (!item.value().is_string()) fail_kind(item.key(), "a string", item.value());
    metadata.emplace(item.key(), item.value().get<std::string>());
  }
  return metadata;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path) {
  in_context(path.string(), [&] {
    const std::string_view text = header_text();
    const Json header = in_context("header", [&] {
      // The JSON parser skips a byte order mark; the format's reader does not.
      if (text.starts_with("\xef\xbb\xbf")) fail("begins with a byte order mark, expected '{'");
      Json value = parse_model_json(text, kHeaderLimits);
      if (!value.is_object()) fail("is ", kind_of(value), ", expected an object");
      return value;
    });
    read_header(header);
  });
  if (const auto present = present_tensors(path))
    for (TensorView& tensor : tensors_)
      if (!present->contains(tensor.name))
        tensor.bytes = {static_cast<const std::byte*>(nullptr), tensor.bytes.size()};
}

std::string_view SafetensorsFile::header_text() {
  const std::span<const std::byte> bytes = file_.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("version https://git-lfs"))
    fail("is a git LFS pointer, not the weights; fetch them with `git lfs pull`");
  if (bytes.size() < kLengthBytes)
    fail(bytes.size(), " bytes, a safetensors file has at least ", kLengthBytes);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    fail("header of ", length, " bytes, the format's limit is ", kMaxHeaderBytes,
         "; not a safetensors file?");
  if (length > bytes.size() - kLengthBytes)
    fail("header of ", length, " bytes does not fit a file of ", bytes.size(), " bytes");
  data_offset_ = kLengthBytes + length;
  return text.substr(kLengthBytes, length);
}

void SafetensorsFile::read_header(const Json& header) {
  std::vector<HeaderEntry> entries;
  entries.reserve(header.size());
  for (const auto& item : header.items()) {
    if (item.key() == kMetadataKey) {
      metadata_ = in_context(kMetadataKey, [&] { return metadata_of(item.value()); });
    } else {
      entries.push_back(in_context("tensor " + shown_name(item.key()),
                                   [&] { return entry_of(item.key(), item.value()); }));
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });

  const std::span<const std::byte> buffer = file_.bytes().subspan(data_offset_);
  uint64_t end = 0;
  names_.reserve(entries.size());
  tensors_.reserve(entries.size());
  for (HeaderEntry& entry : entries) {
    in_context("tensor " + shown_name(entry.name), [&] { check_entry(entry, end, buffer.size()); });
    end = entry.end;
    names_.push_back(std::move(entry.name));
    tensors_.push_back({.name = names_.back(),
                        .dtype = entry.dtype,
                        .shape = std::move(entry.shape),
                        .bytes = buffer.subspan(entry.begin, entry.end - entry.begin)});
  }
  index_tensors();
  if (end != buffer.size())
    fail("the tensors end at byte ", end, " of the data, the file holds ", buffer.size());
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

void SafetensorsFile::leave_out(const std::set<std::string, std::less<>>& names) {
  std::erase_if(tensors_, [&](const TensorView& tensor) { return names.contains(tensor.name); });
  index_tensors();
}

void SafetensorsFile::add(std::vector<TensorSource> sources) {
  std::set<std::string, std::less<>> replaced;
  for (const TensorSource& source : sources)
    if (by_name_.contains(source.name)) replaced.insert(source.name);
  leave_out(replaced);
  for (TensorSource& source : sources) {
    const auto [kept, is_new] = added_.emplace(source.name, source);
    KVCAL_CHECK(is_new && !by_name_.contains(source.name));
    tensors_.push_back(
        {.name = kept->first, .dtype = source.dtype, .shape = source.shape, .bytes = {}});
  }
  index_tensors();
}

void SafetensorsFile::index_tensors() {
  by_name_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

uint64_t SafetensorsFile::offset_of(const TensorView& tensor) const {
  const std::span<const std::byte> bytes = file_.bytes();
  KVCAL_CHECK(tensor.bytes.data() >= bytes.data() &&
              tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size());
  return static_cast<uint64_t>(tensor.bytes.data() - bytes.data());
}

TensorSource source_of(const SafetensorsFile& file, const TensorView& tensor) {
  const auto added = file.added_.find(tensor.name);
  if (added != file.added_.end()) return added->second;
  return {.name = std::string(tensor.name),
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .bytes = {},
          .file = file.file().path(),
          .file_offset = file.offset_of(tensor)};
}

TensorSource source_of(const Tensor& tensor) {
  return {.name = tensor.name,
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .bytes = tensor.bytes,
          .file = {},
          .file_offset = 0};
}

namespace {

std::string json_string(const std::string& text) {
  std::string quoted = dump_json(Json(text), -1);
  quoted.pop_back();  // the newline
  return quoted;
}

/// The header of tensors that are already in order, padded.
std::string header_of(const std::vector<TensorSource>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::ostringstream text;
  const char* separator = "{";
  if (!metadata.empty()) {
    text << separator << json_string(std::string(kMetadataKey)) << ':';
    for (const char* inner = "{"; const auto& [key, value] : metadata)
      text << std::exchange(inner, ",") << json_string(key) << ':' << json_string(value);
    text << '}';
    separator = ",";
  }
  uint64_t offset = 0;
  for (const TensorSource& tensor : tensors) {
    const uint64_t end = checked_add(offset, byte_count(tensor.shape, tensor.dtype));
    text << std::exchange(separator, ",") << json_string(tensor.name) << ":{\"dtype\":\""
         << tensor.dtype << "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.rank(); ++i) text << (i ? "," : "") << tensor.shape[i];
    text << "],\"data_offsets\":[" << offset << ',' << end << "]}";
    offset = end;
  }
  text << (*separator == '{' ? "{}" : "}");
  std::string header = std::move(text).str();
  header.append((8 - header.size() % 8) % 8, ' ');
  return header;
}

/// Generates or copies the bytes of tensors; adjacent ranges of one file are one copy.
void write_bytes(FileWriter& writer, const std::vector<TensorSource>& tensors,
                 const WriteOptions& options) {
  ThreadPool own_pool(1);
  GeneratedStream generated(writer, options, options.pool ? *options.pool : own_pool);
  for (size_t i = 0; i < tensors.size();) {
    throw_if_interrupted();
    const TensorSource& first = tensors[i];
    if (first.generate) {
      generated.add(first);
      ++i;
      continue;
    }
    generated.finish();
    uint64_t size = byte_count(first.shape, first.dtype);
    ++i;
    if (first.file.empty()) {
      KVCAL_CHECK(first.bytes.size() == size);
      writer.write(first.bytes);
      continue;
    }
    for (; i < tensors.size() && !tensors[i].generate && tensors[i].file == first.file &&
           tensors[i].file_offset == first.file_offset + size;
         ++i)
      size += byte_count(tensors[i].shape, tensors[i].dtype);
    writer.append_range(first.file, first.file_offset, size);
  }
  generated.finish();
}

}  // namespace

void write_safetensors(const fs::path& path, std::vector<TensorSource> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const WriteOptions& options) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSource& a, const TensorSource& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  in_context(path.string(), [&] {
    std::vector<std::string_view> names;
    for (const TensorSource& tensor : tensors) names.push_back(tensor.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) fail("tensor ", shown_name(*twice), " would be written twice");
    if (std::binary_search(names.begin(), names.end(), kMetadataKey))
      fail("a tensor cannot have the name ", kMetadataKey);
  });
  const std::string header = header_of(tensors, metadata);
  if (header.size() > kMaxHeaderBytes)
    fail(path.string(), ": header of ", header.size(), " bytes, the format's limit is ",
         kMaxHeaderBytes);
  const uint64_t length = header.size();
  FileWriter writer(path);
  writer.write(std::as_bytes(std::span(&length, 1)));
  writer.write(header);
  write_bytes(writer, tensors, options);
  writer.close();
}

}  // namespace kvcal

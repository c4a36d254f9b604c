#include "checkpoint/safetensors.h"

#include <algorithm>
#include <set>

#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"
#include "support/tensors.h"

using namespace kvcal;
using test::contains;
using test::message_of;
using test::ScratchFolder;

namespace {

const fs::path kFixtures = test::tests_folder() / "fixtures" / "checkpoint";

/// What the real package read from each file. Source: reference/checkpoint_files.py.
const Json& listing() {
  static const Json json = parse_json(read_text(kFixtures / "files.json"));
  return json;
}

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes)
    for (const int shift : {4, 0})
      text += "0123456789abcdef"[(std::to_integer<int>(byte) >> shift) & 15];
  return text;
}

std::map<std::string, std::string> metadata_of(const Json& entry) {
  return entry.at("metadata").get<std::map<std::string, std::string>>();
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

TEST_CASE("safetensors: a file reads as the format's own package reads it") {
  for (const auto& item : listing().items()) {
    INFO("file " << item.key());
    const SafetensorsFile file(kFixtures / "files" / (item.key() + ".safetensors"));
    CHECK(file.metadata() == metadata_of(item.value()));
    const Json& expected = item.value().at("tensors");
    REQUIRE(file.tensors().size() == expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const TensorView& tensor = file.tensors()[i];
      INFO("tensor " << i);
      CHECK(tensor.name == expected[i].at("name").get<std::string>());
      CHECK(name_of(tensor.dtype) == expected[i].at("dtype").get<std::string>());
      CHECK(tensor.shape.dims == expected[i].at("shape").get<std::vector<int64_t>>());
      CHECK(hex_of(tensor.bytes) == expected[i].at("hex").get<std::string>());
      CHECK(file.offset_of(tensor) == expected[i].at("offset").get<uint64_t>());
      CHECK(file.find(tensor.name) == &tensor);
    }
    CHECK(file.find("no such tensor") == nullptr);
  }
}

TEST_CASE("safetensors: the fixtures have every dtype of the format") {
  std::set<std::string> seen;
  for (const auto& item : listing().items())
    for (const Json& tensor : item.value().at("tensors")) seen.insert(tensor.at("dtype"));
  CHECK(seen.size() == 22);
}

TEST_CASE("safetensors: what is written has the bytes that the format's own package writes") {
  const ScratchFolder scratch;
  for (const auto& item : listing().items()) {
    if (!item.value().at("canonical").get<bool>()) continue;
    INFO("file " << item.key());
    const fs::path path = kFixtures / "files" / (item.key() + ".safetensors");
    const SafetensorsFile file(path);

    std::vector<TensorSource> ranges;
    for (const TensorView& tensor : file.tensors()) ranges.push_back(source_of(file, tensor));
    std::reverse(ranges.begin(), ranges.end());  // the order given does not matter
    write_safetensors(scratch / "ranges", ranges, file.metadata());
    CHECK(read_text(scratch / "ranges") == read_text(path));

    std::vector<TensorSource> memory;
    for (const TensorView& tensor : file.tensors())
      memory.push_back({.name = std::string(tensor.name),
                        .dtype = tensor.dtype,
                        .shape = tensor.shape,
                        .bytes = tensor.bytes,
                        .file = {},
                        .file_offset = 0});
    write_safetensors(scratch / "memory", memory, file.metadata());
    CHECK(read_text(scratch / "memory") == read_text(path));
  }
}

TEST_CASE("safetensors: a file in another order is written in the format's order, bytes kept") {
  const ScratchFolder scratch;
  for (const auto& item : listing().items()) {
    if (item.value().at("canonical").get<bool>()) continue;
    INFO("file " << item.key());
    const SafetensorsFile file(kFixtures / "files" / (item.key() + ".safetensors"));
    std::vector<TensorSource> sources;
    for (const TensorView& tensor : file.tensors()) sources.push_back(source_of(file, tensor));
    write_safetensors(scratch / "out", sources, file.metadata());
    const SafetensorsFile written(scratch / "out");
    CHECK(written.data_offset() % 8 == 0);
    CHECK(written.metadata() == file.metadata());
    REQUIRE(written.tensors().size() == file.tensors().size());
    for (const TensorView& tensor : file.tensors()) {
      const TensorView* copy = written.find(tensor.name);
      REQUIRE(copy != nullptr);
      CHECK(copy->dtype == tensor.dtype);
      CHECK(copy->shape == tensor.shape);
      CHECK(hex_of(copy->bytes) == hex_of(tensor.bytes));
    }
    for (size_t i = 1; i < written.tensors().size(); ++i)
      CHECK(written.tensors()[i - 1].dtype >= written.tensors()[i].dtype);
  }
}

TEST_CASE("safetensors: memory and ranges mix, with a metadata of several keys in their order") {
  const ScratchFolder scratch;
  const SafetensorsFile source(kFixtures / "single" / "model.safetensors");
  const std::vector<float> values{0.5f, 0.25f};
  const Tensor scale = make_f32_tensor("a.k_scale", {2}, values);
  std::vector<TensorSource> sources{source_of(scale)};
  for (const TensorView& tensor : source.tensors()) sources.push_back(source_of(source, tensor));
  write_safetensors(scratch / "out", sources, {{"z", "1"}, {"format", "pt"}});
  const std::string text = read_text(scratch / "out");
  CHECK(text.substr(8, 44) == R"({"__metadata__":{"format":"pt","z":"1"},"a.k)");
  const SafetensorsFile written(scratch / "out");
  REQUIRE(written.find("a.k_scale") != nullptr);
  const auto read = written.find("a.k_scale")->as<float>();
  CHECK(std::vector<float>(read.begin(), read.end()) == values);
  for (const TensorView& tensor : source.tensors())
    CHECK(hex_of(written.find(tensor.name)->bytes) == hex_of(tensor.bytes));
}

TEST_CASE("safetensors: views stay valid when the file is moved") {
  SafetensorsFile first(kFixtures / "files" / "names.safetensors");
  std::vector<std::string> names;
  for (const TensorView& tensor : first.tensors()) names.emplace_back(tensor.name);
  const TensorView* view = first.find("Z");
  std::vector<SafetensorsFile> files;
  files.push_back(std::move(first));
  for (int i = 0; i < 5; ++i)  // grows, and so moves what it holds
    files.emplace_back(kFixtures / "files" / "shapes.safetensors");
  REQUIRE(files[0].tensors().size() == names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    CHECK(files[0].tensors()[i].name == names[i]);
    CHECK(files[0].find(names[i]) == &files[0].tensors()[i]);
  }
  CHECK(files[0].find("Z") == view);
}

TEST_CASE("safetensors: misaligned data can be read as bytes, not as numbers") {
  const SafetensorsFile file(kFixtures / "files" / "misaligned.safetensors");
  const TensorView* tensor = file.find("b");
  REQUIRE(tensor != nullptr);
  CHECK(hex_of(tensor->bytes) == "0102030405060708");
  const bool aligned = reinterpret_cast<uintptr_t>(tensor->bytes.data()) % alignof(float) == 0;
  CHECK(message_of([&] { tensor->as<float>(); }) ==
        (aligned ? "no error" : "b is not aligned for F32"));
  CHECK(message_of([&] { tensor->as<double>(); }) == "b holds F32, was read as F64");
}

TEST_CASE("safetensors: bad files are refused, each with its message") {
  const fs::path folder = test::tests_folder() / "checkpoint" / "bad";
  const Json expected = parse_json(read_text(folder / "expected.json"));
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    ++files;
    const std::string name = entry.path().stem().string();
    INFO("file " << name);
    REQUIRE(expected.contains(name));
    std::string wanted =
        entry.path().string() + ": " + expected.at(name).at("message").get<std::string>();
    const std::string message = message_of([&] { SafetensorsFile file(entry.path()); });
    if (wanted.ends_with('*')) {
      wanted.pop_back();
      CHECK(message.substr(0, wanted.size()) == wanted);
      CHECK(message.size() > wanted.size());
    } else {
      CHECK(message == wanted);
    }
  }
  CHECK(files == expected.size());
  CHECK(files >= 50);
}

TEST_CASE("safetensors: every prefix of a good file is refused") {
  const ScratchFolder scratch;
  const std::string whole = read_text(kFixtures / "files" / "shapes.safetensors");
  for (size_t size = 0; size < whole.size(); ++size) {
    test::write_file(scratch / "cut", whole.substr(0, size));
    INFO("first " << size << " bytes");
    CHECK_THROWS_AS(SafetensorsFile(scratch / "cut"), Error);
  }
}

TEST_CASE(
    "safetensors: a changed byte of the header is refused or changes nothing outside the file") {
  const ScratchFolder scratch;
  const std::string whole = read_text(kFixtures / "files" / "shapes.safetensors");
  const size_t header = SafetensorsFile(kFixtures / "files" / "shapes.safetensors").data_offset();
  int refused = 0, read = 0;
  for (size_t at = 0; at < header; at += 3) {
    for (const char byte : {'\0', '9', '"', '\xff'}) {
      std::string text = whole;
      text[at] = byte;
      test::write_file(scratch / "changed", text);
      try {
        const SafetensorsFile file(scratch / "changed");
        size_t total = 0;
        for (const TensorView& tensor : file.tensors()) total += tensor.bytes.size();
        CHECK(total + file.data_offset() == text.size());
        ++read;
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  CHECK(refused > read);
}

TEST_CASE("safetensors: the writer refuses a name twice, the metadata's name, and a short source") {
  const ScratchFolder scratch;
  const Tensor tensor = make_f32_tensor("a", {1}, std::vector<float>{1.0f});
  const std::string path = (scratch / "out").string();
  CHECK(message_of([&] {
          write_safetensors(path, {source_of(tensor), source_of(tensor)}, {});
        }) == path + ": tensor 'a' would be written twice");
  const Tensor reserved = make_f32_tensor("__metadata__", {1}, std::vector<float>{1.0f});
  CHECK(message_of([&] { write_safetensors(path, {source_of(reserved)}, {}); }) ==
        path + ": a tensor cannot have the name __metadata__");
  test::write_file(scratch / "short", "1234");
  const TensorSource range{.name = "a",
                           .dtype = DType::kU8,
                           .shape = {10},
                           .bytes = {},
                           .file = scratch / "short",
                           .file_offset = 2};
  CHECK(message_of([&] { write_safetensors(path, {range}, {}); }) ==
        (scratch / "short").string() + ": ends 8 bytes early");
  CHECK(contains(message_of([&] { write_safetensors(scratch / "no" / "such", {}, {}); }),
                 "No such file or directory"));
}

TEST_CASE("safetensors: ranges of two files with equal offsets are not taken for one") {
  const ScratchFolder scratch;
  test::write_file(scratch / "x", "aabbcc");
  test::write_file(scratch / "y", "AABBCC");
  const auto range = [&](const char* name, const char* file, uint64_t offset) {
    return TensorSource{.name = name,
                        .dtype = DType::kU8,
                        .shape = {2},
                        .bytes = {},
                        .file = scratch / file,
                        .file_offset = offset};
  };
  write_safetensors(scratch / "out",
                    {range("1", "x", 0), range("2", "y", 2), range("3", "y", 4), range("4", "x", 4),
                     range("5", "x", 0)},
                    {});
  const SafetensorsFile file(scratch / "out");
  const auto bytes = file.file().bytes().subspan(file.data_offset());
  CHECK(std::vector<std::byte>(bytes.begin(), bytes.end()) == bytes_of("aaBBCCccaa"));
}

TEST_CASE("safetensors: generated tensors are the bytes asked for, beside memory and ranges") {
  const ScratchFolder scratch;
  // Sizes around those of buffers and blocks, and odd ones that leave the next tensor unaligned.
  const std::vector<std::pair<DType, int64_t>> sizes{
      {DType::kU8, 1},       {DType::kU8, 3},       {DType::kBF16, 0},
      {DType::kBF16, 65537}, {DType::kBF16, 99999}, {DType::kF32, 5},
      {DType::kF32, 300001}, {DType::kU8, 9000001}, {DType::kF32, 2500000}};
  const auto byte_at = [](size_t tensor, uint64_t at) {
    return static_cast<std::byte>((at * 31 + at / 256 + tensor * 7) & 255);
  };
  const Tensor in_memory =
      make_f32_tensor("t4 in memory", Shape{2}, std::vector<float>{1.0f, 2.0f});
  std::vector<TensorSource> sources{source_of(in_memory)};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto element = static_cast<uint64_t>(bits_of_dtype(sizes[i].first)) / 8;
    TensorSource source{.name = "t" + std::to_string(i),
                        .dtype = sizes[i].first,
                        .shape = Shape{sizes[i].second},
                        .bytes = {},
                        .file = {},
                        .file_offset = 0};
    source.generate = [=](uint64_t offset, std::span<std::byte> bytes) {
      KVCAL_CHECK(offset % element == 0 && bytes.size() % element == 0 && !bytes.empty());
      for (size_t at = 0; at < bytes.size(); ++at) bytes[at] = byte_at(i, offset + at);
    };
    sources.push_back(source);
  }
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    uint64_t written = 0, generated = 0;
    const fs::path path = scratch / "generated.safetensors";
    write_safetensors(path, sources, {{"format", "pt"}},
                      {.pool = &pool, .written = [&](uint64_t bytes) { written += bytes; }});
    const SafetensorsFile file(path);
    REQUIRE(file.tensors().size() == sources.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      INFO("tensor " << i);
      const TensorView* tensor = file.find("t" + std::to_string(i));
      REQUIRE(tensor);
      generated += tensor->bytes.size();
      size_t wrong = 0;
      for (size_t at = 0; at < tensor->bytes.size(); ++at)
        wrong += tensor->bytes[at] == byte_at(i, at) ? 0 : 1;
      CHECK(wrong == 0);
    }
    CHECK(written == generated);
    CHECK(hex_of(file.find("t4 in memory")->bytes) == hex_of(in_memory.bytes));
  }
}

TEST_CASE("safetensors: an error while tensors are generated comes out of the writer") {
  const ScratchFolder scratch;
  TensorSource source{.name = "t",
                      .dtype = DType::kU8,
                      .shape = Shape{20'000'000},
                      .bytes = {},
                      .file = {},
                      .file_offset = 0};
  source.generate = [](uint64_t offset, std::span<std::byte>) {
    if (offset > 10'000'000) fail("no more");
  };
  ThreadPool pool(3);
  CHECK(message_of([&] {
          write_safetensors(scratch / "t.safetensors", {source}, {}, {.pool = &pool});
        }) == "no more");
}

#include "checkpoint/npz.h"

#include <cstring>
#include <fstream>

#include "core/json.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contains;
using test::message_of;
using test::ScratchFolder;

namespace {

/// Written by numpy. Source: reference/rank_files.py.
const fs::path kFixtures = test::tests_folder() / "fixtures" / "rank_scales";
const std::string kPlain = "npz_dots/llama_tp1_rank0.npz", kZip64 = "npz_zip64/llama_tp1_rank0.npz";

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes)
    for (const int shift : {4, 0})
      text += "0123456789abcdef"[(std::to_integer<int>(byte) >> shift) & 15];
  return text;
}

/// Many small files: nothing waits for the disk.
void write_quickly(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void read_all(const fs::path& path) {
  const NpzFile file(path);
  for (const NpzEntry& entry : file.entries()) file.array(entry);
}

/// A fixture's bytes, to be spoilt.
struct Spoilt {
  explicit Spoilt(const std::string& fixture) : bytes(read_text(kFixtures / fixture)) {}

  /// Writes value at offset from where a signature, "PK" and two bytes, begins; the last one.
  template <class T>
  Spoilt& put(const char* signature, size_t offset, T value) {
    const size_t at = bytes.rfind(std::string("PK") + signature);
    KVCAL_CHECK(at != std::string::npos);
    std::memcpy(bytes.data() + at + offset, &value, sizeof(T));
    return *this;
  }
  std::string message() const {
    const ScratchFolder scratch;
    write_quickly(scratch / "a.npz", bytes);
    return message_of([&] { read_all(scratch / "a.npz"); });
  }

  std::string bytes;
};

constexpr const char *kLocal = "\3\4", *kEntry = "\1\2", *kEnd = "\5\6", *kEnd64 = "\6\6",
                     *kLocator64 = "\6\7";

}  // namespace

TEST_CASE("npz: arrays read as numpy wrote them") {
  const Json listing = parse_json(read_text(kFixtures / "arrays.json"));
  const NpzFile file(kFixtures / "arrays.npz");
  REQUIRE(file.entries().size() == listing.size());
  size_t i = 0;
  for (const auto& item : listing.items()) {
    INFO(item.key());
    const NpzEntry& entry = file.entries()[i++];
    CHECK(entry.name == item.key());
    const TensorView view = file.array(entry);
    CHECK(view.name == item.key());
    CHECK(name_of(view.dtype) == item.value().at("dtype").get<std::string>());
    CHECK(view.shape.dims == item.value().at("shape").get<std::vector<int64_t>>());
    CHECK(hex_of(view.bytes) == item.value().at("hex").get<std::string>());
  }
}

TEST_CASE("npz: arrays of other dtypes and orders are refused by name") {
  const NpzFile file(kFixtures / "refused.npz");
  REQUIRE(file.entries().size() == 5);
  for (const NpzEntry& entry : file.entries()) {
    const std::string message = message_of([&] { file.array(entry); });
    INFO(message);
    CHECK(contains(message, "refused.npz: array '" + entry.name + "': "));
    CHECK(contains(message, "expected "));
  }
}

TEST_CASE("npz: an archive in zip64 form is read") {
  const NpzFile file(kFixtures / kZip64);
  REQUIRE(file.entries().size() == 5);
  for (const NpzEntry& entry : file.entries()) {
    INFO(entry.name);
    CHECK(entry.size < 200);
    CHECK(file.array(entry).bytes.size() == (entry.name == "_np:vocab_embedding:weight" ? 12 : 4));
  }
}

TEST_CASE("npz: a comment after the end record is passed over, files that are no arrays, too") {
  Spoilt file(kPlain);
  file.put(kEnd, 20, uint16_t{7}).bytes += "comment";
  CHECK(file.message() == "no error");
  const size_t at = file.bytes.rfind(".npy");  // in the directory: of the last array
  file.bytes.replace(at, 4, ".txt");
  const ScratchFolder scratch;
  write_quickly(scratch / "a.npz", file.bytes);
  const NpzFile read(scratch / "a.npz");
  CHECK(read.entries().size() == 4);
}

TEST_CASE("npz: a compressed array is refused with what to do") {
  const std::string message =
      message_of([] { read_all(kFixtures / "npz_compressed/llama_tp1_rank0.npz"); });
  INFO(message);
  CHECK(contains(message,
                 "llama_tp1_rank0.npz: array '_np:vocab_embedding:weight': is compressed (zip "
                 "method 8), expected stored arrays; save with numpy.savez instead of "
                 "numpy.savez_compressed"));
}

TEST_CASE("npz: bad archives are refused with what was found") {
  struct Bad {
    std::string message, wanted;
  };
  const auto plain = [] { return Spoilt(kPlain); };
  const auto zip64 = [] { return Spoilt(kZip64); };
  constexpr uint32_t kFar = 0x7fffffff;
  for (const Bad& bad : {
           Bad{plain().put(kEnd, 0, uint32_t{0}).message(), "without a zip archive's end record"},
           {plain().put(kEnd, 20, uint16_t{1}).message(), "without a zip archive's end record"},
           {plain().put(kEnd, 4, uint16_t{1}).message(), "is part of an archive of several files"},
           {plain().put(kEnd, 8, uint16_t{4}).message(), "is part of an archive of several files"},
           {plain().put(kEnd, 16, kFar).message(), "does not end at byte "},
           {plain().put(kEnd, 12, uint32_t{0}).message(), "directory of 0 bytes at byte "},
           {plain().put(kEnd, 12, kFar).message(), "bytes, the limit is 67108864"},
           {plain().put(kEnd, 8, uint32_t{0x00060006}).message(),
            "directory has 5 files, the end record says 6"},
           {plain().put(kEntry, 0, uint32_t{0}).message(),
            "entry 4 of the directory: has no entry's signature"},
           {plain().put(kEntry, 28, uint16_t{0xffff}).message(),
            "entry 4 of the directory: directory's entry at byte 46 needs 65"},
           {plain().put(kEntry, 8, uint16_t{1}).message(), "is encrypted"},
           {plain().put(kEntry, 20, uint32_t{1}).message(), "takes 1 bytes and holds "},
           {plain().put(kEntry, 42, kFar).message(), "header at byte 2147483647 needs 30 bytes"},
           {plain().put(kEntry, 42, uint32_t{1}).message(), "no entry's header at byte 1"},
           {plain().put(kEntry, 24, kFar).put(kEntry, 20, kFar).message(),
            "needs 2147483647 bytes"},
           {plain().put(kEntry, 24, ~0u).message(), "zip64 field is missing or too short"},
           {plain().put(kEntry, 16, uint32_t{0}).message(), "the directory says 0"},
           {plain().put(kLocal, 30, 'X').message(), "has the name 'X"},
           {plain().put(kLocal, 26, uint16_t{0xffff}).message(), "name at byte "},
           {zip64().put(kLocator64, 8, uint64_t{0}).message(), "no zip64 end record at byte 0"},
           {zip64().put(kLocator64, 8, ~uint64_t{0}).message(), "zip64 end record at byte 1844"},
           {zip64().put(kEnd64, 16, uint32_t{2}).message(),
            "is part of an archive of several files"},
           {zip64().put(kEnd64, 48, ~uint64_t{0}).message(), "overflows 64 bits"},
           {zip64().put(kEnd64, 40, ~uint64_t{0}).message(), "the limit is 67108864"},
           {zip64().put(kEntry, 30, uint16_t{0}).message(), "zip64 field is missing or too short"},
       }) {
    INFO(bad.message);
    CHECK(contains(bad.message, bad.wanted));
    CHECK(contains(bad.message, "a.npz: "));
  }
}

TEST_CASE("npz: a file cut short anywhere is refused") {
  for (const std::string& fixture : {kPlain, kZip64}) {
    const ScratchFolder scratch;
    const std::string whole = read_text(kFixtures / fixture);
    for (size_t size = 0; size < whole.size(); ++size) {
      write_quickly(scratch / "a.npz", whole.substr(0, size));
      INFO(size << " bytes of " << fixture);
      CHECK(message_of([&] { read_all(scratch / "a.npz"); }) != "no error");
    }
  }
}

TEST_CASE("npz: a byte that is another is an error or changes no value") {
  for (const std::string& fixture : {kPlain, kZip64}) {
    const ScratchFolder scratch;
    const std::string whole = read_text(kFixtures / fixture);
    for (size_t at = 0; at < whole.size(); ++at)
      for (const char other : {'\0', '\xff', static_cast<char>(whole[at] ^ 1)}) {
        std::string bytes = whole;
        bytes[at] = other;
        write_quickly(scratch / "a.npz", bytes);
        try {
          const NpzFile file(scratch / "a.npz"), good(kFixtures / fixture);
          for (size_t i = 0; i < file.entries().size(); ++i) {
            const auto read = file.array(file.entries()[i]);
            bool is_known = false;
            for (const NpzEntry& entry : good.entries())
              is_known |= hex_of(good.array(entry).bytes) == hex_of(read.bytes);
            INFO("byte " << at << " of " << fixture);
            CHECK(is_known);
          }
        } catch (const Error&) {
        }
      }
  }
}

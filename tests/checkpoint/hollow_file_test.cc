#include "checkpoint/hollow_file.h"

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/file.h"
#include "support/catch.h"
#include "support/scratch_folder.h"
#include "support/tensors.h"

namespace kvcal::test {
namespace {

TEST_CASE("a hollow file has values of the tensors that are present alone") {
  const ScratchFolder scratch;
  const fs::path whole = scratch.path() / "whole.safetensors";
  const Tensor a = make_f32_tensor("a", {2}, std::vector<float>{1, 2});
  const Tensor b = make_f32_tensor("b", {1}, std::vector<float>{3});
  write_safetensors(whole, {source_of(a), source_of(b)}, {});
  const SafetensorsFile file(whole);
  const std::string bytes = read_text(whole);

  const fs::path hollow = scratch.path() / "hollow.safetensors";
  write_hollow_file(hollow, bytes.substr(0, file.data_offset()), bytes.size());
  const uint64_t offset = file.offset_of(*file.find("b"));
  fill_hollow_file(hollow, offset, bytes.substr(offset, 4));
  write_present_tensors(scratch.path(), {{"hollow.safetensors", {"b"}}});

  const SafetensorsFile read(hollow);
  CHECK(read.find("a")->is_hollow());
  CHECK(read.find("a")->bytes.size() == 8);
  CHECK(read.find("a")->shape == Shape{2});
  CHECK_THROWS_AS(read.find("a")->as<float>(), Error);
  CHECK_FALSE(read.find("b")->is_hollow());
  CHECK(read.find("b")->as<float>()[0] == 3);
  // A file of the same folder that the list does not name has no values.
  CHECK(SafetensorsFile(whole).find("b")->is_hollow());
}

TEST_CASE("a hollow file may be shorter than its head") {
  const ScratchFolder scratch;
  write_hollow_file(scratch.path() / "short", "abcdef", 4);
  CHECK(read_text(scratch.path() / "short") == "abcd");
}

}  // namespace
}  // namespace kvcal::test

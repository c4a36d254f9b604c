#include "core/pages.h"

#include <fcntl.h>

#include <algorithm>

#include "core/file.h"
#include "core/posix_file.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("pages of a mapped file are another memory's for a while") {
  const test::ScratchFolder folder;
  const size_t page = PageSubstitute::page_size();
  const fs::path path = folder.path() / "file";
  // The last page is not whole.
  write_file_atomically(path, std::string(page, 'a') + std::string(page, 'b') + "cc", false);
  const MappedFile file(path);
  const Descriptor descriptor(path, O_RDONLY);
  const std::byte* at = file.bytes().data();
  const std::string own = text_of(file.bytes());
  {
    PageSubstitute substitute(3 * page);
    std::ranges::fill(substitute.memory(), std::byte{'x'});
    substitute.memory()[2 * page] = std::byte{'y'};
    CHECK(text_of(file.bytes()) == own);
    substitute.place(substitute.memory().subspan(page, 2 * page), at + page);
    const std::string placed = std::string(page, 'a') + std::string(page, 'x') + "yx";
    CHECK(text_of(file.bytes()) == placed);
    // Released pages come back: what packs a matrix may release it, and its neighbours' pages.
    release_pages(file.bytes());
    release_pages(substitute.memory());
    CHECK(text_of(file.bytes()) == placed);
    restore_pages(descriptor.get(), page, at + page, page);
    CHECK(text_of(file.bytes()) == std::string(page, 'a') + std::string(page, 'b') + "yx");
    restore_pages(descriptor.get(), 2 * page, at + 2 * page, page);
  }
  CHECK(text_of(file.bytes()) == own);
}

TEST_CASE("what is placed outlives its substitute until it is restored") {
  const test::ScratchFolder folder;
  const size_t page = PageSubstitute::page_size();
  write_file_atomically(folder.path() / "file", std::string(page, 'a'), false);
  const MappedFile file(folder.path() / "file");
  {
    PageSubstitute substitute(page);
    substitute.memory()[0] = std::byte{'z'};
    substitute.place(substitute.memory(), file.bytes().data());
  }
  CHECK(file.bytes()[0] == std::byte{'z'});
}

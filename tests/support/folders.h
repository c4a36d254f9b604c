#pragma once

#include <filesystem>

namespace kvcal::test {

/// The folder tests/ and the root of the source tree. Their paths stand in one object file, so that
/// those of the tests are the same in every clone, and a compiler cache serves all.
std::filesystem::path tests_folder();
std::filesystem::path source_folder();

}  // namespace kvcal::test

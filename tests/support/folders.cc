#include "support/folders.h"

namespace kvcal::test {

std::filesystem::path tests_folder() {
  return KVCAL_TESTS_DIR;
}

std::filesystem::path source_folder() {
  return KVCAL_SOURCE_DIR;
}

}  // namespace kvcal::test

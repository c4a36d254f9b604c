#include "terminal/session.h"

#include <map>

#include "support/catch.h"

using namespace kvcal;

namespace {

bool has_unicode_in(const std::map<std::string, std::string>& variables) {
  return has_unicode([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("session: the command that resumes is quoted for a shell, and says --resume once") {
  CHECK(resuming_command_line({"kvcal", "calibrate", "my model"}) ==
        "kvcal calibrate 'my model' --resume");
  CHECK(resuming_command_line({"kvcal", "calibrate", "--resume", "M"}) ==
        "kvcal calibrate --resume M");
}

TEST_CASE("session: the first locale variable that is set says whether Unicode is shown") {
  CHECK(has_unicode_in({{"LANG", "en_US.UTF-8"}}));
  CHECK(has_unicode_in({{"LC_ALL", ""}, {"LC_CTYPE", "C.utf8"}, {"LANG", "C"}}));
  CHECK_FALSE(has_unicode_in({{"LC_ALL", "C"}, {"LANG", "en_US.UTF-8"}}));
  CHECK_FALSE(has_unicode_in({}));
}

TEST_CASE("session: tables of more than 40 rows are printed with --verbose alone") {
  CHECK(most_rows() == 40);
  set_verbosity(Verbosity::kVerbose);
  CHECK(most_rows() > 1'000'000);
  set_verbosity(Verbosity::kQuiet);
  CHECK(is_quiet());
  CHECK(most_rows() == 40);
  set_verbosity(Verbosity::kNormal);
  CHECK_FALSE(is_quiet());
}

#include <ctime>
#include <fstream>
#include <string>

#include "core/file.h"
#include "core/json.h"
#include "support/catch.h"
#include "text/chat_template.h"

using namespace kvcal;

namespace {

std::tm fixed_time() {
  std::tm time{};
  time.tm_year = 124;
  time.tm_mon = 6;
  time.tm_mday = 26;
  time.tm_hour = 15;
  time.tm_min = 4;
  time.tm_sec = 9;
  time.tm_isdst = -1;
  std::mktime(&time);
  return time;
}

}  // namespace

TEST_CASE("jinja: small templates give what Jinja2 gives, or are refused where it refuses") {
  const Json fixture =
      parse_json(read_text(fs::path(KVCAL_TESTS_DIR) / "fixtures/text/templates/expressions.json"));
  const Json& variables = fixture.at("variables");
  size_t num_refused = 0;
  for (const Json& entry : fixture.at("cases")) {
    const std::string source = entry.at("template").get<std::string>();
    INFO("template: " << source);
    std::string text, error;
    try {
      text = ChatTemplate(source).render(variables, fixed_time);
    } catch (const Error& caught) {
      error = caught.message();
    }
    INFO("error: " << error);
    if (!entry.contains("text")) {
      INFO("Jinja2 says: " << entry.value("error", "nothing of use"));
      CHECK_FALSE(error.empty());
      ++num_refused;
    } else {
      CHECK(error == "");
      CHECK(text == entry.at("text").get<std::string>());
    }
  }
  CHECK(fixture.at("cases").size() > 1000);
  CHECK(num_refused > 200);
}

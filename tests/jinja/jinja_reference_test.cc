#include <ctime>
#include <string>

#include "core/file.h"
#include "core/json.h"
#include "datasets/chat_template.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;

namespace {

const fs::path kFolder = test::tests_folder() / "fixtures/text/templates";

/// The clock of reference/chat_template_reference.py.
std::tm fixed_time() {
  std::tm time{};
  time.tm_year = 2024 - 1900;
  time.tm_mon = 6;
  time.tm_mday = 26;
  time.tm_hour = 15;
  time.tm_min = 4;
  time.tm_sec = 9;
  time.tm_isdst = -1;
  std::mktime(&time);
  return time;
}

struct Outcome {
  std::string text, error;
};

Outcome outcome_of(const std::string& source, const Json& variables) {
  try {
    return {ChatTemplate(source).render(variables, fixed_time), ""};
  } catch (const Error& error) {
    return {"", error.message()};
  }
}

/// What raise_exception was given, where the reference failed by it: "TemplateError: …".
std::string raised_message(const Json& entry) {
  const std::string error = entry.at("error").get<std::string>(), prefix = "TemplateError: ";
  return error.starts_with(prefix) ? error.substr(prefix.size()) : "";
}

/// True if entry was refused, by the reference and so by us.
bool check_outcome(const Outcome& outcome, const Json& entry) {
  INFO("our error: " << outcome.error);
  if (entry.contains("text")) {
    CHECK(outcome.error == "");
    CHECK(outcome.text == entry.at("text").get<std::string>());
    return false;
  }
  CHECK(outcome.error != "");
  if (!entry.contains("error")) return true;  // what we do not support says so
  INFO("reference's error: " << entry.at("error").get<std::string>());
  CHECK(outcome.error.find(raised_message(entry)) != std::string::npos);
  return true;
}

}  // namespace

TEST_CASE("jinja: small templates give what Jinja2 gives, or are refused where it refuses") {
  const Json fixture = parse_json(read_text(kFolder / "expressions.json"));
  size_t num_refused = 0;
  for (const Json& entry : fixture.at("cases")) {
    const std::string source = entry.at("template").get<std::string>();
    INFO("template: " << source);
    num_refused += check_outcome(outcome_of(source, fixture.at("variables")), entry);
  }
  CHECK(fixture.at("cases").size() > 1000);
  CHECK(num_refused > 200);
}

TEST_CASE("jinja: templates shaped like published ones render as transformers renders them") {
  const Json shared = parse_json(read_text(kFolder / "conversations.json"));
  size_t num_templates = 0, num_texts = 0, num_refused = 0;
  for (const auto& file : fs::directory_iterator(kFolder)) {
    if (file.path().extension() != ".jinja") continue;
    ++num_templates;
    const std::string source = read_text(file.path());
    fs::path expectations = file.path();
    for (const Json& entry : parse_json(read_text(expectations.replace_extension(".json")))) {
      const std::string conversation = entry.at("conversation").get<std::string>();
      const std::string setting = entry.at("setting").get<std::string>();
      INFO(file.path().filename().string() << ", " << conversation << ", " << setting);
      Json variables = shared.at("settings").at(setting);
      variables["messages"] = shared.at("conversations").at(conversation);
      const bool is_refused = check_outcome(outcome_of(source, variables), entry);
      num_refused += is_refused;
      num_texts += !is_refused;
    }
  }
  CHECK(num_templates >= 30);
  CHECK(num_texts > 1000);
  CHECK(num_refused > 100);
}

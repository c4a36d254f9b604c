#include "core/registry.h"

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::message_of;

TEST_CASE("registry: names are found whatever their case, hyphens and underscores") {
  const Registry<int> registry{"colour", {{"dark-red", 1}, {"blue", 2}}};
  for (const char* name : {"dark-red", "dark_red", "Dark Red", "DARK-RED"}) {
    INFO(name);
    CHECK(registry.at(name) == 1);
    REQUIRE(registry.find(name) != nullptr);
  }
  CHECK(registry.find("dark") == nullptr);
  CHECK(registry.names() == std::vector<std::string>{"dark-red", "blue"});
  CHECK(registry.rows().size() == 2);
}

TEST_CASE("registry: an unknown name is answered with the nearest and with all") {
  const Registry<int> registry{"colour", {{"dark-red", 1}, {"blue", 2}}};
  CHECK(message_of([&] { registry.at("dark-rde"); }) ==
        "unknown colour 'dark-rde' (did you mean 'dark-red'?); known are dark-red, blue");
  CHECK(message_of([&] { registry.at("ultraviolet"); }) ==
        "unknown colour 'ultraviolet'; known are dark-red, blue");
}

TEST_CASE("did_you_mean: suggests what is near, and nothing else") {
  const std::vector<std::string> names{"num_bits", "group_size", "strategy"};
  CHECK(did_you_mean("num_bit", names) == " (did you mean 'num_bits'?)");
  CHECK(did_you_mean("Group-Sise", names) == " (did you mean 'group_size'?)");
  CHECK(did_you_mean("x", {"", "x"}).empty());
  CHECK(did_you_mean("startegy", names) == " (did you mean 'strategy'?)");
  CHECK(did_you_mean("observer", names).empty());
  CHECK(did_you_mean("x", {}).empty());
  CHECK(did_you_mean(std::string(100'000, 'a'), names).empty());
}

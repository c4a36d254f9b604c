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

TEST_CASE("did_you_mean: other numbers mean other things, a name without them may mean any") {
  CHECK(did_you_mean("int4", {"int8"}).empty());
  CHECK(did_you_mean("nvfp8", {"nvfp4"}).empty());
  CHECK(did_you_mean("qwen33", {"qwen3"}) == " (did you mean 'qwen3'?)");
  CHECK(did_you_mean("mes", {"memoryless", "mse"}) == " (did you mean 'mse'?)");
  CHECK(did_you_mean("w4a61", {"w4a16", "w4a8"}) == " (did you mean 'w4a16'?)");
  CHECK(did_you_mean("gsm", {"gsm8k"}) == " (did you mean 'gsm8k'?)");
  CHECK(did_you_mean("int8_kv_tensr", {"int8_kv_tensor"}) == " (did you mean 'int8_kv_tensor'?)");
}

TEST_CASE("did_you_mean: the start of a name, or an abbreviation, means it, the first of several") {
  CHECK(did_you_mean("ultrachat", {"wikitext", "ultrachat_200k"}) ==
        " (did you mean 'ultrachat_200k'?)");
  CHECK(did_you_mean("fp8_kv", {"fp8_kv_tensor", "fp8_kv_head"}) ==
        " (did you mean 'fp8_kv_tensor'?)");
  CHECK(did_you_mean("ppl", {"perplexity", "kl", "gsm8k"}) == " (did you mean 'perplexity'?)");
  // A slip of one letter is nearer than a start.
  CHECK(did_you_mean("fp8_w8a8_kx", {"fp8_w8a8_kv", "fp8_w8a8_kx_long"}) ==
        " (did you mean 'fp8_w8a8_kv'?)");
  CHECK(did_you_mean("pl", {"perplexity"}).empty());
}

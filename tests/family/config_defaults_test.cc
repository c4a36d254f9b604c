#include <optional>
#include <string>

#include "family/config_reader.h"
#include "family/wrapper.h"
#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;

namespace {

/// The file without the key under any name that the family has for it.
Json without(Json config, const Architecture& family, const std::string& key) {
  config.erase(key);
  for (const KeyAlias& alias : family.aliases) {
    if (alias.key == key) config.erase(std::string(alias.alias));
    if (alias.alias == key) config.erase(std::string(alias.key));
  }
  return config;
}

/// nullopt where the config is refused.
std::optional<ModelConfig> parsed(const Json& json) {
  try {
    ModelConfig config = parse_model_config(json);
    config.unread_keys.clear();
    return config;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

// Also where a value shows in no fixture, as a window of 4096 tokens. Source: the classes of
// transformers' configs, by reference/config_keys.py.
TEST_CASE("config_defaults: a key that is missing means what transformers' class has for it") {
  const Json recorded =
      parse_json(read_text(test::tests_folder() / "fixtures" / "config_keys.json"),
                 {.has_python_constants = true});
  size_t compared = 0;
  for (const auto& [fixture, defaults] : recorded.at("defaults").items()) {
    const Json file = parse_json(read_text(test::model_fixture(fixture) / "config.json"),
                                 {.has_python_constants = true});
    const Architecture& family = *text_model_of(file).architecture;
    for (const auto& [key, value] : defaults.items()) {
      // A latent has no heads of K and V, whatever the class says.
      if (family.has_latent_attention && key == "num_key_value_heads") continue;
      INFO(fixture << ": " << key << " is " << value.dump());
      const Json missing = without(file, family, key);
      Json said = missing;
      said[key] = value;
      const auto ours = parsed(missing);
      if (!ours) continue;  // one of the keys that a file must have
      ++compared;
      const bool is_same = ours == parsed(said);
      CHECK(is_same);
    }
  }
  CHECK(compared > 30);
}

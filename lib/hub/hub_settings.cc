#include "hub/hub_settings.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>

#include "core/ascii.h"
#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"

namespace kvcal {
namespace {

/// The first of these variables that is set to anything.
std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value && *value) return value;
  return {};
}

bool is_true(std::string value) {
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

fs::path home_folder() {
  const std::string home = variable({"HOME"});
  return home.empty() ? fs::path("/") : fs::path(home);
}

/// "~/x" in the user's folder, as Python's expanduser.
fs::path expanded(const std::string& path) {
  if (path == "~") return home_folder();
  return path.starts_with("~/") ? home_folder() / path.substr(2) : fs::path(path);
}

fs::path folder_of(std::initializer_list<const char*> names, const fs::path& otherwise) {
  const std::string value = variable(names);
  return value.empty() ? otherwise : expanded(value);
}

std::string token_of(const fs::path& home) {
  constexpr size_t kMostBytes = 10'000;
  if (is_true(variable({"HF_HUB_DISABLE_IMPLICIT_TOKEN"}))) return {};
  const std::string given(ascii_trimmed(variable({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})));
  if (!given.empty()) return given;
  const fs::path file = folder_of({"HF_TOKEN_PATH"}, home / "token");
  return is_there(file) ? std::string(ascii_trimmed(read_text(file, kMostBytes))) : "";
}

std::string endpoint_of() {
  std::string endpoint = variable({"HF_ENDPOINT"});
  if (endpoint.empty()) return "https://huggingface.co";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (!endpoint.starts_with("http://") && !endpoint.starts_with("https://"))
    fail("HF_ENDPOINT is '", endpoint, "', expected an address with http:// or https://");
  return endpoint;
}

}  // namespace

HubSettings hub_settings() {
  const fs::path caches = folder_of({"XDG_CACHE_HOME"}, home_folder() / ".cache");
  const fs::path home = folder_of({"HF_HOME"}, caches / "huggingface");
  return {.cache = folder_of({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}, home / "hub"),
          .endpoint = endpoint_of(),
          .token = token_of(home),
          .is_offline = is_true(variable({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}))};
}

}  // namespace kvcal

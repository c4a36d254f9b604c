#include "hub/hub_id.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/text.h"

namespace kvcal {
namespace {

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

/// An owner or a name.
bool is_word(std::string_view text) {
  const auto is_edge = [](char c) { return c == '-' || c == '.'; };
  return !text.empty() && std::ranges::all_of(text, is_word_character) && !is_edge(text.front()) &&
         !is_edge(text.back()) && text.find("--") == text.npos && text.find("..") == text.npos;
}

bool is_revision(std::string_view text) {
  return !text.empty() && !text.starts_with('/') && !text.ends_with('/') &&
         text.find("..") == text.npos && text.find("//") == text.npos &&
         std::ranges::all_of(text, [](char c) { return is_word_character(c) || c == '/'; });
}

bool take(std::string_view& text, std::string_view beginning) {
  if (!text.starts_with(beginning)) return false;
  text.remove_prefix(beginning.size());
  return true;
}

/// Length of the revision at the beginning of text, before a slash and a path. Those of pull
/// requests and conversions have slashes themselves.
size_t revision_length(std::string_view text) {
  size_t end = text.find('/');
  for (const std::string_view beginning : {"refs/pr/", "refs/convert/"})
    if (text.starts_with(beginning)) end = text.find('/', beginning.size());
  return std::min(end, text.size());
}

}  // namespace

bool is_hex(std::string_view text, size_t num_digits) {
  return text.size() == num_digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_commit_hash(std::string_view text) {
  return is_hex(text, 40);
}

bool HubId::is_commit() const {
  return is_commit_hash(revision);
}

std::string HubId::text() const {
  return has_revision ? name + "@" + revision : name;
}

std::optional<HubId> parse_hub_id(std::string_view given, HubRepo repo) {
  constexpr size_t kMostCharacters = 96;
  HubId id{.repo = repo, .name = {}};
  std::string_view rest = given;
  if (take(rest, "hf://")) {
    if (take(rest, "datasets/") != (repo == HubRepo::kDataset)) return std::nullopt;
  }
  const size_t slash = rest.find('/');
  if (slash == rest.npos) return std::nullopt;
  const size_t end = std::min(rest.find_first_of("@/", slash + 1), rest.size());
  id.name = rest.substr(0, end);
  const std::string_view name = rest.substr(slash + 1, end - slash - 1);
  if (!is_word(rest.substr(0, slash)) || !is_word(name) || name.ends_with(".git") ||
      id.name.size() > kMostCharacters)
    return std::nullopt;
  rest.remove_prefix(end);
  if (take(rest, "@")) {
    const size_t length = repo == HubRepo::kDataset ? revision_length(rest) : rest.size();
    id.revision = rest.substr(0, length);
    id.has_revision = true;
    if (!is_revision(id.revision)) return std::nullopt;
    rest.remove_prefix(length);
  }
  if (take(rest, "/")) id.path = rest;
  const bool has_bad_path = id.path.find("..") != id.path.npos || id.path.starts_with('/');
  if (has_bad_path || (repo == HubRepo::kModel && !id.path.empty())) return std::nullopt;
  return id;
}

namespace {

/// The first of these variables that is set to anything.
std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value && *value) return value;
  return {};
}

bool is_true(const std::string& value) {
  const std::string lower = ascii_lower(value);
  return lower == "1" || lower == "on" || lower == "yes" || lower == "true";
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

/// text without line breaks, which would begin another header of a request, and blanks at its ends.
/// Source: huggingface_hub `_clean_token`.
std::string clean_token(std::string text) {
  std::erase_if(text, [](char c) { return c == '\r' || c == '\n'; });
  return std::string(ascii_trimmed(text));
}

std::string token_of(const fs::path& home) {
  constexpr size_t kMostBytes = 10'000;
  if (is_true(variable({"HF_HUB_DISABLE_IMPLICIT_TOKEN"}))) return {};
  const std::string given = clean_token(variable({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}));
  if (!given.empty()) return given;
  const fs::path file = folder_of({"HF_TOKEN_PATH"}, home / "token");
  return is_there(file) ? clean_token(read_text(file, kMostBytes)) : "";
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

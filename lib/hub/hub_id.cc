#include "hub/hub_id.h"

#include <algorithm>

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

}  // namespace kvcal

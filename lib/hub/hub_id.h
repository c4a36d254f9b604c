#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace kvcal {

enum class HubRepo { kModel, kDataset };

/// Name of a repository of the Hugging Face hub at a revision.
struct HubId {
  HubRepo repo = HubRepo::kModel;
  std::string name;               ///< "owner/name"
  std::string revision = "main";  ///< branch, tag, "refs/pr/1" or commit
  std::string path = {};          ///< of a data set: pattern of its files; empty: all of them
  bool has_revision = false;      ///< as the user gave it

  /// Whether the revision is the hash of a commit, which never changes.
  bool is_commit() const;
  /// "owner/name@revision"; without "@main" where no revision was given.
  std::string text() const;
};

/// Whether text is so many hexadecimal digits in lower case.
bool is_hex(std::string_view text, size_t num_digits);
/// Whether text is a hash as git writes a commit.
bool is_commit_hash(std::string_view text);

/// The id that given is by its form: [hf://][datasets/]owner/name[@revision][/path], the path only
/// of data sets. nullopt for anything else, such as "./a/b", "a", "/a/b". Whether the hub has such
/// a repository, or a folder of that name exists, is not looked at. Source: huggingface_hub 2.4,
/// validate_repo_id; HfFileSystem for the path.
std::optional<HubId> parse_hub_id(std::string_view given, HubRepo repo);

namespace fs = std::filesystem;

/// Where the hub and its cache are. Source of all names and defaults: huggingface_hub 2.4,
/// constants.py.
struct HubSettings {
  fs::path cache;        ///< HF_HUB_CACHE, else hub/ of HF_HOME, which is ~/.cache/huggingface
  std::string endpoint;  ///< HF_ENDPOINT, else https://huggingface.co; no slash at the end
  std::string token;  ///< HF_TOKEN, else the file HF_TOKEN_PATH or token of HF_HOME; may be empty
  bool is_offline = false;  ///< HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE
};

/// Reads them from the environment. Throws Error for an endpoint that is no http(s) address.
HubSettings hub_settings();

}  // namespace kvcal

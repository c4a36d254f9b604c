#pragma once

#include <filesystem>
#include <string>

namespace kvcal {

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

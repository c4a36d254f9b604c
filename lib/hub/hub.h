#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "hub/file_download.h"
#include "hub/hub_files.h"
#include "hub/hub_settings.h"

namespace kvcal {

/// Models and data sets of the Hugging Face hub as local folders: those of its cache without a
/// request, others after a download into it. What another program is downloading is waited for.
class Hub {
 public:
  /// Borrows diagnostics: progress, and which commit was fetched.
  Hub(HubSettings settings, Diagnostics& diagnostics)
      : settings_(std::move(settings)), cache_(settings_.cache), diagnostics_(diagnostics) {}

  /// The snapshot of a model that has its config.json and all its weights. The cache's is taken
  /// where it is whole, whatever the hub has now. Throws Error: id, revision, file, HTTP status,
  /// and what to do.
  fs::path model(const HubId& id);
  /// The same where the model is quantized or has KV scales, or the cache has it whole; else the
  /// config.json of a snapshot without weights, which describes them, and a note that says so.
  fs::path description(const HubId& id);
  /// What open_dataset takes: a file of a snapshot, or a pattern of its shards. Throws Error as
  /// model and data_files do.
  fs::path dataset(const HubId& id);

 private:
  struct Listing {
    std::string commit;
    std::vector<std::string> names;
  };
  Listing list(const HubId& id);
  /// Throws Error where nothing may be requested: lacking says what the cache has not.
  void check_may_download(const HubId& id, const std::string& lacking) const;
  /// Fetches those of the names that the cache lacks; returns the snapshot, complete or not there.
  fs::path fetch(const HubId& id, const Listing& listing, std::span<const std::string> names);
  std::vector<HubFile> look_up(const HubId& id, const Listing& listing,
                               std::span<const std::string> names);
  void download(const HubId& id, const Listing& listing, std::span<const HubFile> files);
  void check_space(const HubId& id, std::span<const HubFile> files) const;

  HubSettings settings_;
  HubCache cache_;
  Diagnostics& diagnostics_;
};

/// The files of the cache that id names, as Hub::dataset; nullopt where it lacks any.
std::optional<fs::path> cached_dataset(const HubCache& cache, const HubId& id);

}  // namespace kvcal

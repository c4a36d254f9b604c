// Ids of the hub become paths before a command runs, so no reader of checkpoints knows of a
// network. A checkpoint of which only headers and scales are needed becomes a folder of files
// with holes; TensorView::is_hollow marks the other tensors. name_of_source gives manifests the
// id back. http.cc alone knows libcurl: one thread runs all transfers, so an interrupt ends them
// at once.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "hub/hub_files.h"
#include "hub/hub_id.h"
#include "hub/hub_request.h"

namespace kvcal {

/// What is known of a model before its weights are fetched.
struct HubModel {
  std::string commit;
  fs::path snapshot;               ///< with the small files, config.json among them
  std::vector<std::string> names;  ///< of the small files
  std::vector<HubFile> weights;
};

/// Some bytes of a file.
struct HubFilePart {
  std::string name;  ///< below the repository
  ByteRange range;   ///< not empty, and within the file
};

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
  /// The cache's snapshot, if it is whole.
  std::optional<fs::path> whole_snapshot(const HubId& id) const;
  /// What stands for a model where nothing may be requested: config.json of a snapshot without
  /// weights, which describes those of 16 bits, and a note that says so. Throws Error where there
  /// is none, or the model is quantized or has KV scales: they are values.
  fs::path offline_description(const HubId& id);
  /// Fetches the files beside a model's weights, but for long ones that say nothing of weights
  /// (tokenizers), into the cache.
  HubModel outline(const HubId& id);
  /// Fetches parts of a commit's files. Throws Error where the hub does not send parts.
  std::vector<std::string> read(const HubId& id, const std::string& commit,
                                std::span<const HubFilePart> parts);
  /// Bytes that this object has requested, without headers.
  uint64_t received() const { return received_; }
  bool is_offline() const { return settings_.is_offline; }
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
  /// Fetches those of the names that the cache lacks; returns the snapshot, with all or none of
  /// them. is_complete: they are all that is wanted of the commit.
  fs::path fetch(const HubId& id, const Listing& listing, std::span<const std::string> names,
                 bool is_complete = true);
  std::vector<HubFile> look_up(const HubId& id, const Listing& listing,
                               std::span<const std::string> names);
  void download(const HubId& id, const Listing& listing, std::span<const HubFile> files);
  void check_space(const HubId& id, std::span<const HubFile> files) const;

  HubSettings settings_;
  HubCache cache_;
  Diagnostics& diagnostics_;
  uint64_t received_ = 0;
};

/// The files of the cache that id names, as Hub::dataset; nullopt where it lacks any.
std::optional<fs::path> cached_dataset(const HubCache& cache, const HubId& id);

}  // namespace kvcal

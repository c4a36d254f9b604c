#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "core/diagnostics.h"
#include "core/file.h"
#include "core/json.h"
#include "family/family_choice.h"
#include "hub/hub.h"

namespace kvcal {

/// A checkpoint of a config.json alone, in a temporary folder that goes with it: the tensors that
/// the family expects, whose bytes are holes in a file. It takes no space on disks with sparse
/// files, and answers every question but those about values. Quantization that config.json
/// describes is left out.
class HollowCheckpoint {
 public:
  /// Throws Error as parse_model_config does, naming the file.
  HollowCheckpoint(const std::filesystem::path& config_file, const FamilyChoice& family);

  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  void write(const Json& given, const FamilyChoice& family) const;

  AtomicDirectory folder_;  ///< never committed
};

/// The config.json that given stands for without weights: a file, or that of a folder that has no
/// file of weights; empty: given is something else.
std::filesystem::path lone_config(const std::filesystem::path& given);

/// A checkpoint of the hub as a folder of hollow files (checkpoint/hollow_file.h), in a temporary
/// folder that goes with it: all headers, and the values of tensors that may be scales of the
/// cache. `inspect` and `verify` say of it what they say of the whole checkpoint, but for the
/// values of weights' own scales, which they do not check.
class RemoteCheckpoint {
 public:
  /// Throws Error as Hub::outline and Hub::read do.
  RemoteCheckpoint(Hub& hub, const HubId& id, Diagnostics& diagnostics);

  const fs::path& path() const { return path_; }

 private:
  AtomicDirectory folder_;  ///< never committed
  fs::path path_;           ///< in folder_, as in the hub's cache
};

/// What `inspect` and `verify` take for a model.
struct CheckpointSource {
  std::string path;  ///< a folder, or a config.json
  std::string name;  ///< for people and their command lines: path, or the id
  std::shared_ptr<const RemoteCheckpoint> remote = {};  ///< where path is, if it is temporary

  /// What is said of the checkpoint, with its name in place of a temporary path.
  std::string named(std::string text) const;
  Json named(Json json) const;
};

/// given: a folder, or an id of the hub; anything else is returned as it is. An id's model is taken
/// from the cache where it is whole, else read by its headers. offline_config: whether a
/// config.json of the cache alone is enough where nothing may be requested. Throws Error as Hub
/// does.
CheckpointSource checkpoint_source(const std::string& given, bool offline_config,
                                   Diagnostics& diagnostics);

/// Runs body; an Error has the checkpoint's name in place of a temporary path.
void in_name_of(const CheckpointSource& source, const std::function<void()>& body);

}  // namespace kvcal

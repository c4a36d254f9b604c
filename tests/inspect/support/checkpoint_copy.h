#pragma once

#include "core/json.h"
#include "export/manifest.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal::test {

/// A fixture's checkpoint in a folder of its own, for a manifest beside it.
class CheckpointCopy {
 public:
  explicit CheckpointCopy(const std::string& fixture) {
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy_file(model_fixture(fixture) / name, folder_ / name);
  }
  void write_manifest(const Json& manifest) const {
    write_file(folder_ / kManifestName, dump_json(manifest));
  }
  std::string path() const { return folder_.path().string(); }

 private:
  ScratchFolder folder_;
};

/// A manifest of two layers; the K of the first has amax 4 and a scale of 0.5.
inline Json sample_manifest() {
  const Json first = {{"layer", 0},
                      {"k_scale", 0.5},
                      {"v_scale", {0.25, 0.125}},
                      {"k_amax", 4.0},
                      {"v_amax", 2.0},
                      {"k_saturated", 0.25},
                      {"v_saturated", 0.0},
                      {"k_head_amax", {4.0, 1.0}}};
  const Json second = {{"layer", 1}, {"k_scale", 1.0}, {"v_scale", 1.0}, {"k_amax", 3.0}};
  return {{"dataset", {{"path", "chats.jsonl"}, {"num_samples", 4}, {"num_tokens", 512}}},
          {"summary", {{"warnings", Json::array({"scales still move"})}}},
          {"layers", {first, second}}};
}

}  // namespace kvcal::test

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/diagnostics.h"
#include "run/devices.h"
#include "support/folders.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal::test {

/// A folder of a small Llama with a tokenizer, and a text beside it.
struct TextCheckpoint {
  TextCheckpoint() {
    const fs::path cli = tests_folder() / "cli" / "data";
    fs::create_directory(folder / "model");
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy_file(model_fixture("llama") / name, folder / "model" / name);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
      fs::copy_file(cli / name, folder / "model" / name);
    write_file(folder / "text.txt",
               "The sea was calm.\n\nThe ship came home in the evening, and nobody was there.\n");
  }
  std::string path() const { return (folder / "model").string(); }
  std::string text() const { return (folder / "text.txt").string(); }

  ScratchFolder folder;
};

/// The slow backend in float32, whose results are the same everywhere.
inline DeviceOptions reference_device() {
  return {.device = "reference", .compute_dtype = "float32"};
}

/// Keeps warnings, and notes as lines.
struct KeptLines : Diagnostics {
  void warn(const std::string& message) override { warnings.push_back(message); }
  void inform(const std::string& lines) override { notes.push_back(lines); }
  void progress(std::string_view stage, int64_t done, int64_t total, std::string_view) override {
    last = {std::string(stage), done == total};
  }

  std::vector<std::string> warnings, notes;
  std::pair<std::string, bool> last;  ///< stage, and whether it is done
};

}  // namespace kvcal::test

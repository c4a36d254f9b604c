#include "done_output.h"

#include <algorithm>

#include "checkpoint/model_dir.h"
#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/hash.h"
#include "core/json.h"
#include "core/output.h"
#include "core/usage_error.h"
#include "datasets/dataset.h"

namespace kvcal {
namespace {

constexpr const char *kRequestKey = "request_sha256", *kFilesKey = "files";

/// Options of these groups change no output.
bool changes_output(const Option& option) {
  for (const char* group : {kPrinting, kMachine, kRanks})
    if (option.group == group) return false;
  return !option.is_written && option.name() != "--overwrite" && option.name() != "--if-done";
}

/// Whether an option asks for what would be written, or for something else.
bool writes_nothing(const Options& options) {
  return std::ranges::any_of(options.all(), [](const auto& option) {
    const std::string& name = option->name();
    return option->is_given &&
           (name == "--dry-run" || name == "--show-samples" || name == "--advise");
  });
}

/// What a word of the command line stands for: the contents of a file, a model or a data set, of
/// which the path says nothing; else the word.
Json meaning_of(const std::string& word, bool is_dataset) {
  const fs::path path(word);
  if (!is_there(path)) return word;
  if (is_dataset && path.extension() == ".yaml")  // a descriptor, and the data that it names
    return {{"sha256", sha256_of_file(path)}, {"data", open_dataset(path)->sha256()}};
  if (!is_folder(path)) return {{"sha256", sha256_of_file(path)}};
  if (is_there(path / "config.json")) return {{"sampled_sha256", sampled_sha256(ModelDir(path))}};
  Sha256 all;
  for (const fs::path& file : dataset_files(path))
    all.update(file.filename().string() + '\n' + sha256_of_file(file) + '\n');
  return {{"sha256", all.hex()}};
}

std::string request_of(const Options& options, const std::string& command,
                       const std::string& version) {
  Json request{{"command", command}, {"kvcal_version", version}};
  for (const auto& option : options.all()) {
    if (!option->is_given || !changes_output(*option)) continue;
    Json& words = request[option->name()] = Json::array();
    for (const std::string& word : option->words)
      words.push_back(meaning_of(word, option->name() == "--dataset"));
  }
  return sha256_hex(request.dump());
}

/// Names and sizes of the files in an output, without the manifest, which holds them.
Json files_of(const fs::path& output) {
  Json files = Json::object();
  for (const auto& entry : fs::recursive_directory_iterator(output))
    if (entry.is_regular_file() && entry.path() != output / kManifestName)
      files[entry.path().lexically_relative(output).string()] = entry.file_size();
  return files;
}

Json read_manifest(const fs::path& output) {
  const fs::path path = output / kManifestName;
  return is_there(path) ? parse_json(read_text(path, size_t{1} << 30)) : Json::object();
}

}  // namespace

DoneOutput::DoneOutput(Options& options, const std::string& output, bool& overwrite)
    : options_(options), output_(output), overwrite_(overwrite) {
  options
      .text("--if-done", choice_,
            "Where the output is there: skip ends with 0 if this command made it of the same "
            "inputs, fail is an error, redo replaces it")
      .only({"skip", "fail", "redo"})
      .excludes({"--overwrite"})
      .program_only();
}

bool DoneOutput::is_done(const std::string& command, const std::string& version) {
  if (!is_asked_for()) return false;
  if (fs::path(output_).extension() == ".json")
    fail_usage("--if-done: ", output_,
               ": a file of scales has no manifest to compare; name a folder");
  request_sha256_ = request_of(options_, command, version);
  overwrite_ = choice_ == "redo";
  if (choice_ != "skip" || !is_there(output_)) return false;
  const Json manifest = read_manifest(output_);
  const Json* made_of = find_field(manifest, kRequestKey);
  const std::string other = "; --if-done redo replaces it";
  if (!made_of) fail(output_, ": is there, and was not made with --if-done", other);
  if (*made_of != request_sha256_)
    fail(output_, ": was made of other inputs, by other options or another version", other);
  const Json* files = find_field(manifest, kFilesKey);
  if (!files || *files != files_of(output_))
    fail(output_, ": is not as it was made: its files have changed", other);
  return true;
}

std::string DoneOutput::told() const {
  if (!options_.is_given("--json")) return "already done: " + output_ + '\n';
  Json manifest = read_manifest(output_);
  manifest["already_done"] = true;
  return dump_json(manifest);
}

void DoneOutput::record() const {
  if (!is_asked_for() || !is_folder(output_) || writes_nothing(options_)) return;
  const fs::path output(output_);
  Json manifest = read_manifest(output);
  manifest[kRequestKey] = request_sha256_;
  manifest[kFilesKey] = files_of(output);
  write_file_atomically(output / kManifestName, dump_json(manifest), true);
}

}  // namespace kvcal

#include "run/state_options.h"

#include <unistd.h>

#include <algorithm>

#include "calib/statistics/observed_statistics.h"
#include "checkpoint/model_dir.h"
#include "core/byte_stream.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/process.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "run/command_paths.h"
#include "run/rank_settings.h"
#include "state/resumable_forward.h"

namespace kvcal {
namespace {

std::string sha256_of(std::span<const Sample> samples) {
  Sha256 hash;
  for (const Sample& sample : samples) {
    ByteWriter head;
    head.put(sample.index);
    head.put(static_cast<uint64_t>(sample.ids.size()));
    hash.update(head.take());
    hash.update(std::as_bytes(std::span(sample.ids)));
  }
  return hash.hex();
}

/// Kind of device with its instructions, which may change the last bits, but without the number of
/// threads.
std::string kind_of_device(const Backend& backend) {
  const std::string text = backend.description();
  const size_t threads = text.rfind(" thread"), comma = text.rfind(", ", threads);
  return threads == std::string::npos || comma == std::string::npos ? text
                                                                    : text.substr(0, comma) + ")";
}

/// Whether the disk has room; the folder need not exist yet.
bool has_room(const fs::path& folder, uint64_t bytes) {
  return free_bytes_at(existing_folder_of(folder)).value_or(bytes) >= bytes;
}

std::string advice(const RunState& state, const std::string& resume_command) {
  const std::optional<Checkpoint> last = state.last();
  if (!last) return "";
  return "how far it was is kept in '" + state.folder().string() + "', " + last->place() +
         "; it goes on with:\n  " + resume_command;
}

/// Whether every rank sees the folder that rank 0 has made. Collective.
bool is_seen_by_all(const fs::path& folder, Communicator& ranks, StatePeers& peers) {
  if (ranks.size() == 1) return true;
  const fs::path sign = folder / "hidden-0" / "sign";
  std::error_code error;
  const bool is_first = ranks.rank() == 0;
  const std::string text = std::to_string(::getpid()) + " " + host_name();
  if (is_first) write_file_atomically(sign, text, true);
  const auto first = ranks.broadcast(std::as_bytes(std::span(text)));
  bool is_seen = false;
  if (fs::exists(sign, error)) {
    const std::string found = read_text(sign);
    is_seen = std::ranges::equal(std::as_bytes(std::span(found)), first);
  }
  const bool all = peers.all(is_seen ? 1 : 0) == 1;
  if (is_first) fs::remove(sign, error);
  return all;
}

/// Reports that no state can be kept: an error where the user asked for a state, else a warning.
void go_without(const StateOptions& options, const std::string& why, Diagnostics& diagnostics) {
  if (options.resumes || !options.folder.empty()) fail(why, "; --state none keeps none");
  diagnostics.warn(why + ": none is kept");
}

std::string beginning(const RunState& state, uint64_t bytes) {
  const std::string folder = "'" + state.folder().string() + "'";
  if (const auto& from = state.resumed())
    return "goes on " + from->place() + ", as " + folder + " has it";
  return "state: up to " + byte_text(bytes) + " in " + folder + " while it runs";
}

}  // namespace

void check_state_options(const StateOptions& options) {
  if (options.resumes && options.folder == StateOptions::kNone)
    fail_usage("--resume needs a state, --state is none");
  in_context("--state-share", [&] { parse_fraction(options.share); });
}

fs::path state_folder(const StateOptions& options, const fs::path& output) {
  if (options.folder == StateOptions::kNone) return {};
  if (!options.folder.empty()) return options.folder;
  fs::path beside = shortened(output);
  if (!beside.has_filename()) beside = beside.parent_path();
  beside += StateOptions::kBesideOutput;
  return beside;
}

Json fingerprint_of(const PlannedModel& subject, const CalibrationRun& run, const Json& options,
                    const std::string& version) {
  Json fingerprint = {{"kvcal_version", version},
                      {"model", sampled_sha256(subject.model_dir)},
                      {"recipe", sha256_hex(subject.recipe.source)},
                      {"samples", std::ssize(run.samples)},
                      {"sample_ids", sha256_of(run.samples)},
                      {"device", kind_of_device(*run.backends.at(0))},
                      {"compute_dtype", name_of(run.layerwise.compute_type)}};
  fingerprint.update(options);
  return fingerprint;
}

std::unique_ptr<RunState> open_state(const StateOptions& options, const OutputOptions& output,
                                     const PlannedModel& subject, const CalibrationRun& run,
                                     Json fingerprint, Communicator& ranks, StatePeers& peers,
                                     Diagnostics& diagnostics) {
  const fs::path folder = state_folder(options, output.output);
  if (folder.empty()) return nullptr;
  const bool is_first = ranks.rank() == 0;
  const uint64_t bytes = RunState::bytes(std::ssize(run.samples), tokens_of(run.samples),
                                         subject.config.carried_width(longest_of(run.samples)));
  const StateSettings settings{.folder = folder,
                               .fingerprint = std::move(fingerprint),
                               .resumes = options.resumes,
                               .replaces = output.overwrite,
                               .share = parse_fraction(options.share),
                               .threads = num_threads({.threads = run.threads})};
  std::unique_ptr<RunState> state;
  bool is_without = false;
  together(ranks, [&] {
    if (!is_first) return;
    if (has_room(folder, bytes)) {
      state = std::make_unique<RunState>(settings, peers, diagnostics);
      return;
    }
    go_without(options,
               "the state of the run may take " + byte_text(bytes) + ", and '" + folder.string() +
                   "' is on a disk with less room",
               diagnostics);
    is_without = true;
  });
  if (peers.all(is_without ? 0 : 1) == 0) return nullptr;
  const bool is_seen = is_seen_by_all(folder, ranks, peers);
  together(ranks, [&] {
    if (is_first && !is_seen)
      go_without(options,
                 "not all ranks see '" + folder.string() + "', where the state of the run would be",
                 diagnostics);
    if (!is_first && is_seen) state = std::make_unique<RunState>(settings, peers, diagnostics);
  });
  if (!is_seen) return nullptr;
  if (is_first) diagnostics.inform(beginning(*state, bytes));
  return state;
}

void with_state(RunState* state, const std::string& resume_command,
                const std::function<void()>& body) {
  if (!state) return body();
  try {
    body();
  } catch (const Interrupted&) {
    state->settle();
    const std::string text = advice(*state, resume_command);
    if (text.empty()) throw;
    throw InterruptedRun("interrupted; " + text);
  } catch (const NotFinite&) {
    state->remove();  // it would come to the same
    throw;
  } catch (DamagedState& damaged) {
    throw Error(damaged.message() + "\nNo run can go on from '" + state->folder().string() +
                "'; --overwrite without --resume begins anew.");
  } catch (const ChangedWeights&) {
    throw;  // the state stays, for the weights that it is of
  } catch (Error& error) {
    state->settle();
    const std::string text = advice(*state, resume_command);
    // Only the message changes: the kind of error determines who reports it.
    if (!text.empty()) error = Error(error.message() + "\n" + text);
    throw;
  }
}

}  // namespace kvcal

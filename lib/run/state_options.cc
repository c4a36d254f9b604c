#include "run/state_options.h"

#include <unistd.h>

#include <algorithm>

#include "calib/observed_statistics.h"
#include "checkpoint/identity.h"
#include "core/byte_stream.h"
#include "core/cpus.h"
#include "core/folder.h"
#include "core/host_name.h"
#include "core/number_text.h"
#include "core/sha256.h"
#include "run/output_files.h"
#include "run/rank_settings.h"
#include "state/weight_hashes.h"

namespace kvcal {
namespace {

constexpr std::string_view kNone = "none";
constexpr std::string_view kBesideOutput = ".kvcal-state";

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

}  // namespace

void check_state_options(const StateOptions& options) {
  if (options.resumes && options.folder == kNone) fail("--resume needs a state, --state is none");
  in_context("--state-share", [&] { parse_fraction(options.share); });
}

fs::path state_folder(const StateOptions& options, const fs::path& output) {
  if (options.folder == kNone) return {};
  if (!options.folder.empty()) return options.folder;
  fs::path beside = output.lexically_normal();
  if (!beside.has_filename()) beside = beside.parent_path();
  beside += kBesideOutput;
  return beside;
}

Json fingerprint_of(const RunFacts& facts) {
  Json fingerprint = {{"kvcal_version", facts.version},
                      {"model", sampled_sha256(facts.subject.model_dir)},
                      {"recipe", sha256_hex(facts.subject.recipe.source)},
                      {"samples", std::ssize(facts.run.samples)},
                      {"sample_ids", sha256_of(facts.run.samples)},
                      {"device", kind_of_device(*facts.run.backends.at(0))},
                      {"compute_dtype", name_of(facts.run.layerwise.compute_type)}};
  fingerprint.update(facts.options);
  return fingerprint;
}

namespace {

/// Whether every rank sees the folder that rank 0 has made. Collective.
bool is_seen_by_all(const fs::path& folder, const StateRanks& ranks) {
  if (ranks.ranks.size() == 1) return true;
  const fs::path sign = folder / "hidden-0" / "sign";
  std::error_code error;
  const bool is_first = ranks.ranks.rank() == 0;
  const std::string text = std::to_string(::getpid()) + " " + host_name();
  if (is_first) write_file_atomically(sign, text, true);
  const auto first = ranks.ranks.broadcast(std::as_bytes(std::span(text)));
  bool is_seen = false;
  if (fs::exists(sign, error)) {
    const std::string found = read_text(sign);
    is_seen = std::ranges::equal(std::as_bytes(std::span(found)), first);
  }
  const bool all = ranks.peers.all(is_seen ? 1 : 0) == 1;
  if (is_first) fs::remove(sign, error);
  return all;
}

StateSettings settings_of(const StateOptions& options, const fs::path& folder, bool overwrite,
                          Json fingerprint, int threads) {
  if (threads == 0) threads = std::max(1, static_cast<int>(allowed_cpus().size()));
  return {.folder = folder,
          .fingerprint = std::move(fingerprint),
          .resumes = options.resumes,
          .replaces = overwrite,
          .share = parse_fraction(options.share),
          .threads = threads};
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
  return "state: up to " + byte_text(static_cast<double>(bytes)) + " in " + folder +
         " while it runs";
}

}  // namespace

std::unique_ptr<RunState> open_state(const StateOptions& options, const fs::path& output,
                                     bool overwrite, const RunFacts& facts, Json fingerprint,
                                     const StateRanks& ranks, Diagnostics& diagnostics) {
  const fs::path folder = state_folder(options, output);
  if (folder.empty()) return nullptr;
  const bool is_first = ranks.ranks.rank() == 0;
  const uint64_t bytes =
      RunState::bytes(std::ssize(facts.run.samples), tokens_of(facts.run.samples),
                      facts.subject.config.carried_width(longest_of(facts.run.samples)));
  const StateSettings settings =
      settings_of(options, folder, overwrite, std::move(fingerprint), facts.run.threads);
  std::unique_ptr<RunState> state;
  bool is_without = false;
  together(ranks.ranks, [&] {
    if (!is_first) return;
    if (has_room(folder, bytes)) {
      state = std::make_unique<RunState>(settings, ranks.peers, diagnostics);
      return;
    }
    go_without(options,
               "the state of the run may take " + byte_text(static_cast<double>(bytes)) +
                   ", and '" + folder.string() + "' is on a disk with less room",
               diagnostics);
    is_without = true;
  });
  if (ranks.peers.all(is_without ? 0 : 1) == 0) return nullptr;
  const bool is_seen = is_seen_by_all(folder, ranks);
  together(ranks.ranks, [&] {
    if (is_first && !is_seen)
      go_without(options,
                 "not all ranks see '" + folder.string() +
                     "', where the state of the run "
                     "would be",
                 diagnostics);
    if (!is_first && is_seen)
      state = std::make_unique<RunState>(settings, ranks.peers, diagnostics);
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

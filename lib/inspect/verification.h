#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engines/verify.h"

namespace kvcal {

/// The requested engines; for "all" those of the table. Throws Error, with the known names, for
/// another.
std::vector<std::string> engine_choice(const std::vector<std::string>& asked);

/// Whether all engines use the checkpoint's scales.
struct Verdict {
  std::vector<std::string> losing;   ///< engines that lose or refuse a scale
  std::vector<std::string> empty;    ///< other engines that load it and hold no scale
  std::vector<std::string> unknown;  ///< other engines that were not run with such models
  std::vector<std::string> idle;     ///< other engines whose cache has 16 bits
  std::vector<std::string> holding;  ///< the rest, which use them
};
Verdict verdict_of(const std::vector<VerifyReport>& reports);
/// The reason why a checkpoint may not be served so: scales that would be lost, or none where some
/// are meant; empty: none. options: of the reports.
std::string problem_of(const Verdict& verdict, const VerifyOptions& options, bool allow_16_bit);

/// A report for each engine, in the order of engine_choice. Throws Error as verify_checkpoint.
std::vector<VerifyReport> verify(const std::filesystem::path& checkpoint,
                                 const std::vector<std::string>& engines,
                                 const VerifyOptions& options);

/// The report of one engine in words and tables, as lines for a terminal. checkpoint: its name;
/// is_whole: notes and a table of the layers, too.
std::string verification_text(const VerifyReport& report, const std::string& checkpoint,
                              bool is_whole);

/// "used", "lost", "not known", "16 bits" or "no scales": the worst of all engines.
std::string_view name_of(const Verdict& verdict);
/// As `verify --json` prints it: report_json of one engine, or {"reports"} of several, with
/// "verdict" and "problem" (null: none) of all.
Json verification_json(const std::vector<VerifyReport>& reports, const std::string& problem);

/// The verdict in one line without its end; for one that problem_of finds no fault with.
std::string verdict_text(const Verdict& verdict);

}  // namespace kvcal

#pragma once

#include <filesystem>
#include <string_view>

namespace kvcal {

/// Name of the file beside every checkpoint and set of scales that says how it was made.
inline constexpr std::string_view kManifestName = "kvcal_manifest.json";
/// Name of the file that marks any other folder as an output of this program.
inline constexpr std::string_view kMarkName = ".kvcal-output";

enum class OutputKind { kFile, kFolder };

/// Throws Error where target exists and an output of this kind may not take its place. Without
/// overwrite nothing may be replaced. With it a file replaces only a regular file, and a folder
/// only one that is empty or that this program wrote: one with kManifestName or kMarkName. Links,
/// devices, pipes and sockets are never replaced. A slash at the end of target changes nothing.
void check_replaceable(const std::filesystem::path& target, OutputKind kind, bool overwrite);

/// Puts kMarkName into a folder that has no manifest. Throws Error as FileWriter does.
void mark_output(const std::filesystem::path& folder);

/// Throws Error where something below a folder that this program keeps for itself is neither a file
/// nor a folder: a link would lead out of it.
void check_holds_no_links(const std::filesystem::path& folder);

}  // namespace kvcal

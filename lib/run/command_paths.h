#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/diagnostics.h"
#include "core/output.h"
#include "report/plot.h"

namespace kvcal {

// Models and data sets may be given as ids of the Hugging Face hub ("owner/name@revision"). These
// functions turn what was given into local paths, which all calls of lib/run take. A file or folder
// that is there wins over an id of the same form. All may download, and throw Error as Hub does.

/// given: a folder or an id of a model; anything else is returned as it is.
std::string local_model(const std::string& given, Diagnostics& diagnostics);

/// given: a path or pattern, a name of datasets/named_dataset.h, or an id of a data set. A name
/// stays as it is: the hub's copy of its data set is then in the cache, where open_dataset finds
/// it.
std::string local_dataset(const std::string& given, Diagnostics& diagnostics);

/// A variant of eval, "NAME=model:FOLDER", with a local folder.
std::string local_variant(const std::string& variant, Diagnostics& diagnostics);

/// The name by which manifests and cards call a model: "owner/name@COMMIT" of one in the hub's
/// cache, else the path as it was given.
std::string name_of_model(const ModelDir& model);

/// A file or folder that a command writes beside its result.
struct OutputFile {
  std::string option;  ///< name of the option that gives it
  std::string path;    ///< empty: not requested
  OutputKind kind = OutputKind::kFile;
};

/// Throws Error where an output equals, contains or lies in something that the command reads:
/// files and folders, of which empty and absent ones are ignored.
void check_keeps_inputs(const std::string& output, const std::vector<std::string>& inputs);

/// Throws Error where one of the paths equals, contains or lies in another.
void check_are_apart(const std::vector<OutputFile>& outputs);

/// Checks outputs before the work, so that nothing is lost at its end. Throws Error naming option
/// and path where an output exists and may not be replaced (core/replaceable.h), has no parent
/// folder, does not keep the inputs, or equals, contains or lies in another output.
void check_output_files(const std::vector<OutputFile>& outputs, bool overwrite,
                        const std::vector<std::string>& inputs);

/// path, or the nearest folder above it that is there; the current one for an empty path.
std::filesystem::path existing_folder_of(const std::filesystem::path& path);
/// Bytes that this process may still write there; nullopt where the system does not tell.
std::optional<uint64_t> free_bytes_at(const std::filesystem::path& folder);

/// Before the work: throws Error where an output at `output` of so many bytes has no room.
void check_room(const std::filesystem::path& output, uint64_t bytes);

/// Files that a command draws its result into; empty: none.
struct ReportFiles {
  std::string page;   ///< an HTML file
  std::string plots;  ///< a folder of SVG files
  bool overwrite = false;

  bool is_asked_for() const { return !page.empty() || !plots.empty(); }
};

/// Before the work: throws Error where something exists that may not be replaced. A folder of plots
/// is replaced only where it holds nothing else.
void check_report_files(const ReportFiles& files);
/// The same, and throws Error where a target lies in the folder of the model.
void check_report_files(const ReportFiles& files, const ModelDir& model);

/// Writes the requested files, which appear with the others of outputs.
void stage_report_files(const ReportFiles& files, const std::string& page,
                        const std::vector<report::Plot>& plots, StagedOutputs& outputs);
void tell_report_files(const ReportFiles& files, size_t num_plots, Diagnostics& diagnostics);
/// Both, one after the other: they appear together or not at all.
void write_report_files(const ReportFiles& files, const std::string& page,
                        const std::vector<report::Plot>& plots, Diagnostics& diagnostics);

}  // namespace kvcal

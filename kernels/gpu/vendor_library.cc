#include "kernels/gpu/vendor_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "core/join.h"

namespace kvcal::gpu {
namespace {

namespace fs = std::filesystem;

/// Folders of Python packages that hold libraries of CUDA and ROCm.
constexpr const char* kPackages[] = {"nvidia/cu13/lib", "nvidia/cublas/lib", "torch/lib"};

/// Folders below a given one that may hold the library: its own, and those of Python packages, as
/// the folder may be a site-packages or the prefix of an installation.
std::vector<fs::path> folders_below(const fs::path& given) {
  std::vector<fs::path> roots{given};
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(given / "lib", none))
    if (entry.path().filename().string().starts_with("python3"))
      for (const char* packages : {"site-packages", "dist-packages"})
        roots.push_back(entry.path() / packages);
  std::sort(roots.begin() + 1, roots.end());
  std::vector<fs::path> folders{given, given / "lib", given / "lib64"};
  for (const fs::path& root : roots)
    for (const char* package : kPackages) folders.push_back(root / package);
  return folders;
}

void add_files(const fs::path& folder, const std::vector<std::string>& names,
               std::vector<std::string>& files) {
  std::error_code none;
  for (const std::string& name : names)
    if (fs::exists(folder / name, none)) files.push_back((folder / name).string());
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(':', begin), list.size());
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

/// Prefixes of the python3 that PATH names: of the place that it lies in, and of those that a link
/// there leads to. An image whose python3 is that of an environment need not activate it.
std::vector<std::string> prefixes_of_python() {
  std::vector<std::string> prefixes;
  std::error_code none;
  for (const std::string& folder : parts_of(value_of("PATH"))) {
    fs::path file = fs::path(folder) / "python3";
    if (!fs::exists(file, none)) continue;
    constexpr int kMostLinks = 8;
    for (int i = 0; i < kMostLinks; ++i) {
      prefixes.push_back(file.parent_path().parent_path().string());
      if (!fs::is_symlink(file, none)) break;
      file = (file.parent_path() / fs::read_symlink(file, none)).lexically_normal();
    }
    break;
  }
  return prefixes;
}

/// Why an opened library does not serve; "" where it does.
std::string missing_function(void* handle, const LibrarySearch& search) {
  for (const std::string& function : search.functions)
    if (!dlsym(handle, function.c_str())) return "has no function " + function;
  return "";
}

/// Names to open, in order.
std::vector<std::string> candidates(const LibrarySearch& search, const LibraryPlaces& places) {
  std::vector<std::string> files;
  if (!places.asked.empty()) {
    std::error_code none;
    for (const std::string& part : parts_of(places.asked)) {
      if (!fs::is_directory(part, none)) files.push_back(part);
      for (const fs::path& folder : folders_below(part)) add_files(folder, search.names, files);
    }
    return files;
  }
  files = search.names;  // the loader knows where
  for (const std::string& folder : places.folders) add_files(folder, search.names, files);
  for (const std::string& prefix : places.python)
    for (const fs::path& folder : folders_below(prefix)) add_files(folder, search.names, files);
  return files;
}

}  // namespace

LibraryPlaces library_places(std::vector<std::string> folders) {
  LibraryPlaces places{
      .asked = value_of(kLibraryPathVariable), .folders = std::move(folders), .python = {}};
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (std::string prefix = value_of(variable); !prefix.empty())
      places.python.push_back(std::move(prefix));
  for (std::string& prefix : prefixes_of_python()) places.python.push_back(std::move(prefix));
  if (const std::string home = value_of("HOME"); !home.empty())
    places.python.push_back(home + "/.local");
  places.python.insert(places.python.end(), {"/usr/local", "/usr"});
  return places;
}

FoundLibrary find_library(const LibrarySearch& search, const LibraryPlaces& places) {
  std::string reason;  // of the first file that exists and does not serve
  for (const std::string& file : candidates(search, places)) {
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char* error = dlerror();
      if (reason.empty() && file.find('/') != std::string::npos)
        reason = error ? error : file + " cannot be opened";
      continue;
    }
    const std::string missing = missing_function(handle, search);
    if (missing.empty()) return {.handle = handle, .path = file, .problem = {}};
    if (reason.empty()) reason = file + " " + missing;
    dlclose(handle);
  }
  if (!places.asked.empty())
    fail(kLibraryPathVariable, "=", places.asked, ": no ", search.title,
         " that can be used is there",
         reason.empty() ? " (looked for " + join(search.names, ", ") + ")" : " (" + reason + ")",
         ": name its file or folder, or unset the variable");
  return {.handle = nullptr,
          .path = {},
          .problem = search.title +
                     (reason.empty() ? " was not found" : " cannot be used (" + reason + ")") +
                     ", so products run in kvcal's own kernel, which is slow: " + search.remedy +
                     ", and set " + kLibraryPathVariable + " to its folder"};
}

}  // namespace kvcal::gpu

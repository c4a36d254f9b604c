#include "kernels/gpu/vendor_library.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "core/error.h"
#include "core/text.h"

namespace kvcal::gpu {
namespace {

namespace fs = std::filesystem;

/// Folders of Python packages that hold libraries of CUDA and ROCm.
constexpr const char* kPackages[] = {"nvidia/cu13/lib", "nvidia/cublas/lib", "torch/lib"};
/// How such folders' names begin that end with chips: _rocm_sdk_libraries_gfx94X_dcgpu/lib. Older
/// and newer packages of ROCm have the name alone.
constexpr const char* kPackagePrefixes[] = {"_rocm_sdk_libraries", "_rocm_sdk_devel"};

std::vector<fs::path> folders_in(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

/// Folders below a given one that may hold the library: its own, and those of Python packages, as
/// the folder may be a site-packages or the prefix of an installation.
std::vector<fs::path> folders_below(const fs::path& given) {
  std::vector<fs::path> roots{given};
  for (const fs::path& python : folders_in(given / "lib", "python3"))
    for (const char* packages : {"dist-packages", "site-packages"})
      roots.push_back(python / packages);
  std::vector<fs::path> folders{given, given / "lib", given / "lib64"};
  for (const fs::path& root : roots) {
    for (const char* package : kPackages) folders.push_back(root / package);
    for (const char* prefix : kPackagePrefixes)
      for (const fs::path& package : folders_in(root, prefix)) folders.push_back(package / "lib");
  }
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
  for (const std::string_view part : split(list, ':'))
    if (!part.empty()) parts.emplace_back(part);
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
      file = file.parent_path() / fs::read_symlink(file, none);
    }
    break;
  }
  return prefixes;
}

/// Why an opened library does not serve; "" where it does.
std::string problem_with(void* handle, const LibrarySearch& search) {
  for (const std::string& function : search.functions)
    if (!dlsym(handle, function.c_str())) return "has no function " + function;
  return search.problem_of ? search.problem_of(handle) : "";
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

namespace {

/// The numbers in a name, to compare versions.
std::vector<int64_t> numbers_in(const std::string& name) {
  std::vector<int64_t> numbers;
  bool is_inside = false;
  for (const char letter : name) {
    const bool is_digit = letter >= '0' && letter <= '9';
    if (is_digit && !is_inside) numbers.push_back(0);
    if (is_digit) numbers.back() = numbers.back() * 10 + (letter - '0');
    is_inside = is_digit;
  }
  return numbers;
}

}  // namespace

std::vector<std::string> rocm_folders(const fs::path& root) {
  std::vector<std::string> folders;
  if (const std::string asked = value_of("ROCM_PATH"); !asked.empty())
    folders.push_back(asked + "/lib");
  folders.push_back((root / "rocm/lib").string());
  for (const auto& [folder, prefix] : {std::pair{root / "rocm", "core-"}, {root, "rocm-"}}) {
    std::vector<fs::path> versions = folders_in(folder, prefix);
    std::ranges::stable_sort(versions, std::greater<>(), [](const fs::path& version) {
      return numbers_in(version.filename().string());
    });
    for (const fs::path& version : versions) folders.push_back((version / "lib").string());
  }
  return folders;
}

std::string version_in(const std::string& text) {
  size_t end = 0;
  int dots = 0;
  for (; end < text.size(); ++end) {
    if (text[end] == '.' && ++dots < 3) continue;
    if (text[end] < '0' || text[end] > '9') break;
  }
  while (end > 0 && text[end - 1] == '.') --end;
  return text.substr(0, end);
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
    const std::string problem = problem_with(handle, search);
    if (problem.empty()) return {.handle = handle, .path = file, .problem = {}};
    if (reason.empty()) reason = file + " " + problem;
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

#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

// Finds the vendor's matrix library, which is loaded at run time. Without one, products run in
// kernels of our own, which are correct and slow: so whoever lacks it is told.
namespace kvcal::gpu {

/// Environment variable: files, or folders to look into, with colons between them.
constexpr const char* kLibraryPathVariable = "KVCAL_GPU_LIBRARY_PATH";

/// Where a library may be, beside the places that the loader knows.
struct LibraryPlaces {
  std::string asked;                 ///< the variable's value; if given, the only places
  std::vector<std::string> folders;  ///< where the vendor's own installer puts it
  std::vector<std::string> python;   ///< prefixes of Python installations, the python3 of PATH too
};
/// folders, and what the process's environment and the system name.
LibraryPlaces library_places(std::vector<std::string> folders);

/// Folders of libraries of AMD's installers: of $ROCM_PATH, then root/rocm and, for several
/// versions side by side, root/rocm/core-VERSION and root/rocm-VERSION, the newest first.
std::vector<std::string> rocm_folders(const std::filesystem::path& root = "/opt");

struct LibrarySearch {
  std::string title;                   ///< "cuBLASLt"
  std::vector<std::string> names;      ///< of files, the best first
  std::vector<std::string> functions;  ///< that it must have
  /// Why an opened library with these functions does not serve, or ""; null: each serves.
  std::function<std::string(void* handle)> problem_of = nullptr;
  std::string remedy;  ///< how to install it, in a few words
};

/// The numbers that a library's text of its version begins with, at most three: of "5.0.2.abcdef12"
/// 5.0.2. The text may end early, at a zero.
std::string version_in(const std::string& text);

/// What the search finds. Without a handle, problem says why and what to do, in one line.
struct FoundLibrary {
  void* handle = nullptr;
  std::string path, problem;

  /// The library's function of that name; null where there is none.
  template <class Function>
  Function* function(const char* name) const {
    return handle ? reinterpret_cast<Function*>(dlsym(handle, name)) : nullptr;
  }
};
/// Opens the first library of the places that has the functions: what the loader finds by its name,
/// then folders, then Python packages. Throws Error where the variable names places without one.
FoundLibrary find_library(const LibrarySearch& search, const LibraryPlaces& places);

}  // namespace kvcal::gpu

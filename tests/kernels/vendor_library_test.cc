// Where the GPU's matrix library is looked for, and what is said when it is not found.
#include "kernels/gpu/vendor_library.h"

#include <dlfcn.h>

#include <algorithm>

#include "support/catch.h"
#include "support/scoped_variable.h"
#include "support/scratch_folder.h"

namespace kvcal::gpu {
namespace {

using test::message_of;
using test::ScratchFolder;

constexpr const char* kName = "libproducts.so.7";
const LibrarySearch kSearch{
    .title = "Products", .names = {kName}, .functions = {"cos"}, .remedy = "install it"};

/// The file of a library that has cos and not cublasLtCreate.
fs::path library_file() {
  void* handle = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(handle);
  Dl_info found{};
  REQUIRE(dladdr(dlsym(handle, "cos"), &found) != 0);
  dlclose(handle);
  return found.dli_fname;
}

/// Puts the library into a folder.
std::string add_library(const fs::path& folder) {
  fs::create_directories(folder);
  fs::create_symlink(library_file(), folder / kName);
  return folder / kName;
}

FoundLibrary find(const LibraryPlaces& places, const LibrarySearch& search = kSearch) {
  FoundLibrary found = find_library(search, places);
  if (found.handle) dlclose(found.handle);
  return found;
}

TEST_CASE("vendor library: packages of Python and the installer's folder are looked into") {
  for (const char* below :
       {"lib/python3.11/site-packages/nvidia/cublas/lib",
        "lib/python3.12/dist-packages/nvidia/cu13/lib", "nvidia/cublas/lib",
        "lib/python3.9/site-packages/torch/lib",
        "lib/python3.12/site-packages/_rocm_sdk_libraries_gfx94X_dcgpu/lib",
        "lib/python3.13/site-packages/_rocm_sdk_libraries/lib", "_rocm_sdk_devel/lib", "lib64"}) {
    INFO(below);
    const ScratchFolder scratch;
    const std::string file = add_library(scratch / below), prefix = scratch.path();
    CHECK(find({.asked = {}, .folders = {}, .python = {prefix}}).path == file);
    CHECK(find({.asked = prefix, .folders = {}, .python = {}}).path == file);
  }
  const ScratchFolder scratch;
  const std::string file = add_library(scratch / "cuda");
  CHECK(find({.asked = {}, .folders = {scratch / "cuda"}, .python = {}}).path == file);
  CHECK(find({.asked = "/nowhere:" + file, .folders = {}, .python = {}}).path == file);
}

TEST_CASE("vendor library: one that is missing or foreign is told with what to do") {
  const std::string after =
      ", so products run in kvcal's own kernel, which is slow: install it, and set "
      "KVCAL_GPU_LIBRARY_PATH to its folder";
  const FoundLibrary missing = find({});
  CHECK(missing.handle == nullptr);
  CHECK(missing.problem == "Products was not found" + after);

  const ScratchFolder scratch;
  const std::string file = add_library(scratch / "cuda");
  const LibraryPlaces places{.asked = {}, .folders = {scratch / "cuda"}, .python = {}};
  LibrarySearch other = kSearch;
  other.functions = {"cos", "cublasLtCreate"};
  CHECK(find(places, other).problem ==
        "Products cannot be used (" + file + " has no function cublasLtCreate)" + after);
}

TEST_CASE("vendor library: AMD's folders are looked into by version") {
  const ScratchFolder scratch;
  for (const char* folder :
       {"rocm-6.4.1", "rocm-7.0.2", "rocm-7.10.0", "rocm/core-7.9", "rocm/core-7.12", "other-8.0"})
    fs::create_directories(scratch / folder);
  const test::ScopedVariable path("ROCM_PATH", nullptr);
  const std::string root = scratch.path().string();
  const std::vector<std::string> expected{root + "/rocm/lib",          root + "/rocm/core-7.12/lib",
                                          root + "/rocm/core-7.9/lib", root + "/rocm-7.10.0/lib",
                                          root + "/rocm-7.0.2/lib",    root + "/rocm-6.4.1/lib"};
  CHECK(rocm_folders(scratch.path()) == expected);
  path.set("/mine");
  CHECK(rocm_folders(scratch.path()).front() == "/mine/lib");
}

TEST_CASE("vendor library: a library of another runtime is refused, and hides none") {
  const ScratchFolder scratch;
  const std::string first = add_library(scratch / "first"),
                    second = add_library(scratch / "second");
  LibrarySearch search = kSearch;
  int asked = 0;
  search.problem_of = [&](void*) { return asked++ == 0 ? "is of another runtime" : ""; };
  const LibraryPlaces places{
      .asked = {}, .folders = {scratch / "first", scratch / "second"}, .python = {}};
  CHECK(find(places, search).path == second);
  asked = 0;
  CHECK(find({.asked = {}, .folders = {scratch / "first"}, .python = {}}, search)
            .problem.starts_with("Products cannot be used (" + first + " is of another runtime)"));
}

TEST_CASE("vendor library: the version that a text begins with") {
  CHECK(version_in("5.0.2.abcdef12") == "5.0.2");
  CHECK(version_in("4.2.0.60200-66~22.04") == "4.2.0");
  CHECK(version_in(std::string("5.1\0\0", 5)) == "5.1");
  CHECK(version_in("2.47.") == "2.47");
  CHECK(version_in("unknown").empty());
}

TEST_CASE("vendor library: a file that does not serve hides none that does") {
  const ScratchFolder scratch;
  const std::string first = scratch / "first", second = scratch / "second";
  test::write_file(scratch / "first" / kName, "no library");
  const std::string file = add_library(second);
  CHECK(find({.asked = {}, .folders = {first, second}, .python = {}}).path == file);
  const FoundLibrary none = find({.asked = {}, .folders = {first}, .python = {}});
  CHECK(none.problem.starts_with("Products cannot be used (" + first + "/" + kName + ": "));
}

TEST_CASE("vendor library: a place that was named and has none is an error") {
  const ScratchFolder scratch;
  const std::string here = scratch / "here", there = scratch / "there";
  add_library(here);
  const LibraryPlaces wrong{.asked = there, .folders = {here}, .python = {}};
  CHECK(message_of([&] { find(wrong); })
            .starts_with("KVCAL_GPU_LIBRARY_PATH=" + there +
                         ": no Products that can be used is there ("));
  const LibraryPlaces empty{.asked = scratch.path(), .folders = {here}, .python = {}};
  CHECK(message_of([&] { find(empty); }) ==
        "KVCAL_GPU_LIBRARY_PATH=" + scratch.path().string() +
            ": no Products that can be used is there (looked for libproducts.so.7): name its file "
            "or folder, or unset the variable");
}

TEST_CASE("vendor library: the variable and Python's environments name places") {
  const ScratchFolder scratch;
  const fs::path interpreter = scratch / "environment/bin/python3",
                 link = scratch / "tools/python3";
  test::write_file(interpreter, "");
  fs::create_directories(link.parent_path());
  fs::create_symlink(interpreter, link);
  const std::string path = "/nowhere::" + link.parent_path().string() + ":/usr/bin";
  const test::ScopedVariable environment("VIRTUAL_ENV", "/some/environment"),
      asked(kLibraryPathVariable, "/a:/b"), searched("PATH", path.c_str());
  const LibraryPlaces places = library_places({"/opt/vendor"});
  asked.set(nullptr);
  CHECK(places.asked == "/a:/b");
  CHECK(places.folders == std::vector<std::string>{"/opt/vendor"});
  REQUIRE(places.python.size() >= 3);
  CHECK(places.python.front() == "/some/environment");
  // The environment of the python3 that a shell would run, whether it is activated or linked to.
  CHECK(std::ranges::count(places.python, (scratch / "environment").string()) == 1);
  CHECK(places.python.back() == "/usr");
  CHECK(library_places({}).asked.empty());
}

}  // namespace
}  // namespace kvcal::gpu

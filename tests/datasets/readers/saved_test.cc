// What a folder of `Dataset.save_to_disk` must hold; its tables are in tables_test.cc.
#include "datasets/data_files.h"
#include "datasets/dataset.h"
#include "datasets/readers/dataset_files.h"

namespace kvcal {
namespace {

namespace fs = std::filesystem;

/// A saved data set without tables.
class Saved {
 public:
  explicit Saved(std::string_view state) {
    scratch_.write("dataset_info.json", "{}");
    scratch_.write("state.json", state);
  }
  std::string error(const std::optional<std::string>& split = {}) const {
    return test::error_of(scratch_.path(), [&] { find_saved_files(scratch_.path(), split); });
  }
  const test::ScratchFolder& scratch() const { return scratch_; }

 private:
  test::ScratchFolder scratch_;
};

TEST_CASE("saved: the files that state.json lists, in its order") {
  const Saved saved(R"({"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}],
                        "_indices_data_files": [], "_split": "train"})");
  const fs::path& folder = saved.scratch().path();
  CHECK(find_saved_files(folder, {}).files ==
        std::vector<fs::path>{folder / "b.arrow", folder / "a.arrow"});
  CHECK(saved.error("train").empty());
  CHECK(saved.error("test") == "state.json: holds split 'train', not 'test'");
}

TEST_CASE("saved: an order kept beside the rows is refused") {
  const Saved saved(R"({"_data_files": [{"filename": "a.arrow"}],
                        "_indices_data_files": [{"filename": "indices.arrow"}]})");
  CHECK(saved.error() ==
        "state.json: key '_indices_data_files' says that the rows are in another order than in "
        "their files, which is not read; save the data set again after flatten_indices()");
}

TEST_CASE("saved: a link out of the folder is refused") {
  const test::ScratchFolder outside;
  const fs::path other = outside.write("other", R"({"_data_files": [{"filename": "a.arrow"}]})");
  for (const char* name : {"a.arrow", "state.json", "dataset_info.json", "dataset_dict.json"}) {
    INFO(name);
    const Saved saved(R"({"_data_files": [{"filename": "a.arrow"}]})");
    const fs::path link = saved.scratch().path() / name;
    fs::remove(link);
    fs::create_symlink(other, link);
    CHECK(saved.error().find(std::string(name) + ": is a symbolic link to " +
                             fs::canonical(other).string() + ", outside of the data folder") !=
          std::string::npos);
  }
  const Saved split("{}");
  fs::create_directory_symlink(outside.path(), split.scratch().path() / "train");
  split.scratch().write("dataset_dict.json", R"({"splits": ["train"]})");
  CHECK(split.error().starts_with("train: is a symbolic link to "));
}

TEST_CASE("saved: what is missing or not understood is named") {
  CHECK(Saved("{").error().starts_with("state.json: not valid JSON at line 1"));
  CHECK(Saved("[]").error() == "state.json: is an array, expected an object");
  CHECK(Saved("{}").error().starts_with("state.json: key '_data_files' is missing"));
  CHECK(Saved(R"({"_data_files": []})").error() ==
        "state.json: key '_data_files' is an empty array, the data set has no rows");
  CHECK(Saved(R"({"_data_files": "a"})").error().starts_with("state.json: key '_data_files' is"));
  CHECK(Saved(R"({"_data_files": ["a.arrow"]})").error() != "");
  for (const char* name : {"../a.arrow", "/etc/passwd", "..", ""})
    CHECK(Saved(R"({"_data_files": [{"filename": ")" + std::string(name) + R"("}]})")
              .error()
              .find("expected a name in the same folder") != std::string::npos);
  const Saved saved("{}");
  fs::remove(saved.scratch().path() / "state.json");
  CHECK(saved.error().find("looks like a data set that save_to_disk wrote, but state.json is "
                           "missing") != std::string::npos);
}

TEST_CASE("saved: splits must lie in the folder") {
  const test::ScratchFolder scratch;
  scratch.write("dataset_dict.json", R"({"splits": ["../x"]})");
  CHECK(test::error_of(scratch.path(), [&] {
          open_dataset(scratch.path());
        }).find("expected a name in the same folder") != std::string::npos);
}

}  // namespace
}  // namespace kvcal

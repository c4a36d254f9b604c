#include "datasets/named_dataset.h"

#include <filesystem>

#include "core/file.h"
#include "core/hash.h"
#include "datasets/dataset.h"
#include "datasets/descriptor.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;

TEST_CASE("named_dataset: every file of datasets/ but its page is a name, with the file's text") {
  size_t num_files = 0;
  for (const auto& entry : fs::directory_iterator(test::source_folder() / "datasets")) {
    if (entry.path().filename() == "README.md") continue;
    ++num_files;
    INFO(entry.path());
    const auto named = named_dataset(entry.path().stem());
    REQUIRE(named);
    CHECK(named->text == read_text(entry.path()));
  }
  CHECK(builtin_datasets().size() == num_files);
}

TEST_CASE("named_dataset: the program's texts read as their files do") {
  for (const auto& [name, file] :
       {std::pair{"calibration", "calibration.jsonl"}, {"evaluation", "evaluation.txt"}}) {
    INFO(name);
    const fs::path path = test::source_folder() / "datasets" / file;
    const auto named = open_dataset(name), from_file = open_dataset(path);
    REQUIRE(named->size() == from_file->size());
    CHECK(named->size() > 10);
    CHECK(named->sha256() == sha256_of_file(path));
    for (int64_t i = 0; i < named->size(); ++i)
      CHECK(named->record(i).content == from_file->record(i).content);
    CHECK(named->record(1).place.starts_with(name));
    CHECK(dataset_files(name).empty());
  }
}

TEST_CASE("named_dataset: a descriptor's copy lies in the working folder") {
  const DatasetDescriptor descriptor = read_descriptor("ultrachat_200k", {});
  CHECK(descriptor.source == "HuggingFaceH4/ultrachat_200k");
  CHECK(descriptor.local_copy == "ultrachat_200k-train_sft.jsonl");
  CHECK(read_descriptor("gsm8k", {.local_copy = {}, .split = "test"}).local_copy ==
        "gsm8k-test.jsonl");
}

TEST_CASE("named_dataset: a file that is there wins, and a path is no name") {
  const test::ScratchFolder folder;
  test::write_file(folder / "calibration", "a file");
  CHECK_FALSE(named_dataset(folder / "calibration"));
  CHECK_FALSE(named_dataset("datasets/calibration"));
  CHECK_FALSE(named_dataset("calibration.jsonl"));
  CHECK_FALSE(named_dataset("calibration", ".yaml"));
  CHECK(dataset_seen_from(folder.path(), "calibration") == folder / "calibration");
  CHECK(dataset_seen_from(folder.path(), "gsm8k") == "gsm8k");
}

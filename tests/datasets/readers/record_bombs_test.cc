// One record that is far too long for every reader of the registry, under a limit of memory that
// the system enforces. Fixtures: reference/make_data.py.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <map>
#include <new>

#include "core/diagnostics.h"
#include "datasets/dataset.h"
#include "datasets/dataset_reader.h"
#include "datasets/readers/dataset_files.h"

namespace kvcal {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTooLong = 90'000'000;
constexpr rlim_t kMostBytes = rlim_t{192} << 20;

fs::path bombs() {
  return test::tests_folder() / "fixtures" / "data" / "bombs";
}

fs::path write_long(const test::ScratchFolder& scratch, const char* name, std::string_view before,
                    std::string_view behind) {
  const fs::path path = scratch.path() / name;
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out << before;
  const std::string part(1'000'000, 'a');
  for (size_t done = 0; done < kTooLong; done += part.size()) out << part;
  out << behind;
  return path;
}

fs::path write_lines(const test::ScratchFolder& scratch, const char* name) {
  return write_long(scratch, name, R"({"text": ")", "\"}\n{\"text\": \"b\"}\n");
}

/// A line that takes no room on the disk; who seeks its end is busy for a minute.
fs::path write_sparse(const test::ScratchFolder& scratch, const char* name) {
  const fs::path path = scratch.write(name, "");
  fs::resize_file(path, uint64_t{100} << 30);
  return path;
}

/// A safetensors file of 25,000,000 token ids, which take no room on the disk.
void write_sparse_ids(const test::ScratchFolder& scratch, const char* name) {
  std::string header =
      R"({"input_ids":{"dtype":"I32","shape":[25000000],"data_offsets":[0,100000000]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string size(8, '\0');
  size[0] = static_cast<char>(header.size());
  const fs::path path = scratch.write(name, size + header);
  fs::resize_file(path, size.size() + header.size() + 100'000'000);
}

using MakeBomb = std::function<std::vector<fs::path>(const test::ScratchFolder&)>;

/// By the name of the reader.
const std::map<std::string_view, MakeBomb>& makers() {
  using Scratch = test::ScratchFolder;
  static const std::map<std::string_view, MakeBomb> kMakers{
      {"jsonl",
       [](const Scratch& scratch) {
         return std::vector{write_lines(scratch, "a.jsonl"), write_sparse(scratch, "b.jsonl")};
       }},
      {"json_array",
       [](const Scratch& scratch) {
         return std::vector{write_long(scratch, "a.json", R"([{"text": ")", "\"}]"),
                            write_long(scratch, "b.json", R"({"text": ")", "\"}")};
       }},
      {"delimited",
       [](const Scratch& scratch) {
         return std::vector{write_long(scratch, "a.csv", "text\n", "\n"),
                            write_long(scratch, "b.csv", "text\n\"", "\"\n"),
                            write_sparse(scratch, "c.csv")};
       }},
      {"plain_text",
       [](const Scratch& scratch) {
         return std::vector{write_long(scratch, "a.txt", "", "\n"), write_sparse(scratch, "b.txt"),
                            write_sparse(scratch, "no-extension")};
       }},
      {"file_set",
       [](const Scratch& scratch) {
         return std::vector{write_lines(scratch, "folder/a.jsonl").parent_path()};
       }},
      {"described",
       [](const Scratch& scratch) {
         write_lines(scratch, "copy.jsonl");
         return std::vector{
             scratch.write("d.yaml", "path: copy.jsonl\nrecord: {text: \"{text}\"}\n")};
       }},
      {"saved",
       [](const Scratch& scratch) {
         scratch.write("dataset_info.json", "{}");
         scratch.write("state.json", R"({"_data_files": [{"filename": "text.arrow"}]})");
         fs::copy_file(bombs() / "text.arrow", scratch.path() / "text.arrow");
         return std::vector{scratch.path()};
       }},
      {"embedded",
       [](const Scratch& scratch) {
         write_sparse_ids(scratch, "a.safetensors");
         scratch.write("index.json",
                       R"({"kvcal_samples": 1, "model": {"model_type": "llava", "hidden_size": 8,
                           "bidirectional_layers": []}, "samples": [{"file": "a.safetensors",
                           "sha256": "", "tokens": 25000000, "embedded": 0}]})");
         return std::vector{scratch.path()};
       }},
      {"parquet",
       [](const Scratch&) {
         std::vector files{bombs() / "text.parquet", bombs() / "ids.parquet"};
         for (const char* codec : {"zstd", "gzip", "brotli", "lz4"})
           files.push_back(bombs() / (std::string(codec) + ".parquet"));
         return files;
       }},
      {"arrow",
       [](const Scratch&) {
         return std::vector{bombs() / "text.arrow", bombs() / "lz4.arrow"};
       }},
  };
  return kMakers;
}

/// Bytes of the process's data, which a limit of RLIMIT_DATA counts.
rlim_t data_bytes() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages[6] = {};
  for (rlim_t& one : pages) statm >> one;
  return pages[5] * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

enum class End { kRefused, kRead, kOutOfMemory };

/// Reads records until there are none, in a process of its own, which may take kMostBytes more than
/// this one has.
int status_of_reading(const fs::path& path) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit{data_bytes() + kMostBytes, data_bytes() + kMostBytes};
    setrlimit(RLIMIT_DATA, &limit);
    End end = End::kRead;
    try {
      const auto dataset = open_dataset(path);
      std::vector<int64_t> all;
      for (int64_t i = 0; i < dataset->size(); ++i) all.push_back(i);
      dataset->will_read(all);
      for (const int64_t i : all) dataset->record(i);
    } catch (const Error& error) {
      const bool names_limit = error.message().find("--max-record-bytes") != std::string::npos;
      end = names_limit ? End::kRefused : End::kOutOfMemory;
    } catch (const std::bad_alloc&) {
      end = End::kOutOfMemory;
    }
    _exit(static_cast<int>(end));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("readers: each refuses a record that is too long before it takes its memory") {
  for (const auto& [name, reader] : dataset_readers().rows()) {
    CAPTURE(name);
    REQUIRE(makers().contains(name));
    const test::ScratchFolder scratch;
    for (const fs::path& path : makers().at(name)(scratch)) {
      CAPTURE(path);
      CHECK(reader_for(path) == name);
#if !KVCAL_HAS_ARROW
      if (name == "parquet" || name == "arrow" || name == "saved") continue;
#endif
      const int status = status_of_reading(path);
      REQUIRE(WIFEXITED(status));
      CHECK(static_cast<End>(WEXITSTATUS(status)) == End::kRefused);
    }
  }
}

}  // namespace
}  // namespace kvcal

#include "hub/hub_cache.h"

#include <stdlib.h>

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "hub/hub_id.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

const std::string kCommit(40, 'c');
const HubId kId{.repo = HubRepo::kModel, .name = "owner/name"};

/// Sets variables of the environment during a test.
class Environment {
 public:
  explicit Environment(std::initializer_list<std::pair<const char*, std::string>> values) {
    for (const char* name :
         {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
          "HF_TOKEN_PATH", "HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
          "HF_HUB_DISABLE_IMPLICIT_TOKEN", "XDG_CACHE_HOME", "HOME"}) {
      const char* value = ::getenv(name);
      if (value) before_[name] = value;
      ::unsetenv(name);
      names_.emplace_back(name);
    }
    for (const auto& [name, value] : values) ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::string> before_;
};

}  // namespace

TEST_CASE("hub settings: the variables of huggingface_hub, and their order") {
  const test::ScratchFolder folder;
  test::write_file(folder / "hf/token", "  from_file\n");
  test::write_file(folder / "other", "from_other");
  const std::string home = (folder / "hf").string();
  {
    const Environment environment({{"HOME", "/home/x"}});
    const HubSettings settings = hub_settings();
    CHECK(settings.cache == "/home/x/.cache/huggingface/hub");
    CHECK(settings.endpoint == "https://huggingface.co");
    CHECK(settings.token.empty());
    CHECK_FALSE(settings.is_offline);
  }
  {
    const Environment environment({{"HOME", "/home/x"}, {"XDG_CACHE_HOME", "~/c"}});
    CHECK(hub_settings().cache == "/home/x/c/huggingface/hub");
  }
  {
    const Environment environment(
        {{"HF_HOME", home}, {"HF_ENDPOINT", "http://h:1/x//"}, {"TRANSFORMERS_OFFLINE", "yes"}});
    CHECK(hub_settings().cache == folder / "hf/hub");
    CHECK(hub_settings().token == "from_file");
    CHECK(hub_settings().endpoint == "http://h:1/x");
    CHECK(hub_settings().is_offline);
  }
  {
    const Environment environment({{"HF_HOME", home},
                                   {"HF_HUB_CACHE", "/c"},
                                   {"HF_TOKEN_PATH", (folder / "other").string()},
                                   {"HF_HUB_OFFLINE", "0"}});
    CHECK(hub_settings().cache == "/c");
    CHECK(hub_settings().token == "from_other");
    CHECK_FALSE(hub_settings().is_offline);
  }
  {
    const Environment environment({{"HF_HOME", home}, {"HF_TOKEN", "given"}});
    CHECK(hub_settings().token == "given");
    ::setenv("HF_TOKEN", " giv\r\nen\n", 1);  // no second header
    CHECK(hub_settings().token == "given");
    ::setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", 1);
    CHECK(hub_settings().token.empty());
    ::setenv("HF_ENDPOINT", "ftp://x", 1);
    CHECK(test::contains(test::message_of([] { hub_settings(); }), "HF_ENDPOINT is 'ftp://x'"));
  }
}

TEST_CASE("hub cache: folders, refs and snapshots") {
  const test::ScratchFolder folder;
  const HubCache cache(folder.path());
  CHECK(cache.folder(kId) == folder / "models--owner--name");
  CHECK(cache.folder({.repo = HubRepo::kDataset, .name = "a/b-c"}) == folder / "datasets--a--b-c");
  CHECK(cache.lock(kId, "e") == folder / ".locks/models--owner--name/e.lock");
  CHECK_FALSE(cache.snapshot(kId));
  test::write_file(cache.ref(kId), kCommit);
  CHECK(cache.commit(kId) == kCommit);
  CHECK_FALSE(cache.snapshot(kId));  // no such folder yet
  test::write_file(cache.snapshot(kId, kCommit) / "x/y", "text");
  CHECK(cache.snapshot(kId) == cache.snapshot(kId, kCommit));
  HubId commit = kId;
  commit.revision = kCommit;
  CHECK(cache.snapshot(commit) == cache.snapshot(kId, kCommit));
  HubId other = kId;
  other.revision = "v1";
  CHECK_FALSE(cache.snapshot(other));
  test::write_file(cache.ref(other), "../../evil");
  CHECK(test::contains(test::message_of([&] { cache.snapshot(other); }),
                       "holds '../../evil', expected the hash of a commit"));
}

TEST_CASE("hub cache: a snapshot's files are those whose blobs are there") {
  const test::ScratchFolder folder;
  const fs::path snapshot = folder / "s";
  test::write_file(folder / "blobs/e", "text");
  test::write_file(snapshot / "data/b.txt", "text");
  fs::create_symlink("../blobs/e", snapshot / "a.txt");
  fs::create_symlink("../blobs/absent", snapshot / "lost.txt");
  CHECK(files_of_snapshot(snapshot) == std::vector<std::string>{"a.txt", "data/b.txt"});
}

TEST_CASE("hub cache: a source in it is called by its id") {
  const std::string root = "/home/u/.cache/huggingface/hub/";
  CHECK(name_of_source(root + "models--a--b/snapshots/" + kCommit) == "a/b@" + kCommit);
  CHECK(name_of_source(root + "models--gpt2/snapshots/" + kCommit) == "gpt2@" + kCommit);
  CHECK(name_of_source(root + "datasets--a--b/snapshots/" + kCommit + "/data/t-*.parquet") ==
        "a/b@" + kCommit + "/data/t-*.parquet");
  for (const std::string path : {"model", "/a/models--a--b", "/models--a/snapshots/x"}) {
    INFO(path);
    CHECK(name_of_source(path) == path);
  }
}

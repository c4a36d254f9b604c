#include "checkpoint/model_dir.h"

#include <sys/stat.h>

#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contains;
using test::message_of;
using test::ScratchFolder;
using test::write_file;

namespace {

const fs::path kFixtures = test::tests_folder() / "fixtures" / "checkpoint";

const Json& models() {
  static const Json json = parse_json(read_text(kFixtures / "models.json"));
  return json;
}

/// A copy of the sharded fixture with its index changed.
class ChangedIndex {
 public:
  template <class Change>
  explicit ChangedIndex(Change change) {
    fs::copy(kFixtures / "sharded", scratch_ / "model");
    Json index = parse_json(read_text(path() / kIndexFileName));
    change(index);
    write_file(path() / kIndexFileName, dump_json(index));
  }
  fs::path path() const { return scratch_ / "model"; }
  std::string message() const {
    const std::string text = message_of([&] { ModelDir model(path()); });
    const std::string prefix = (path() / kIndexFileName).string() + ": ";
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  }

 private:
  ScratchFolder scratch_;
};

constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";
constexpr const char* kTensor = "model.layers.0.self_attn.k_proj.weight";

/// A folder with a config.json and nothing else.
void make_config(const fs::path& folder) {
  write_file(folder / "config.json", "{\"model_type\": \"llama\"}");
}

}  // namespace

TEST_CASE("model_dir: one file and shards give the same tensors, names sorted") {
  const ModelDir single(kFixtures / "single"), sharded(kFixtures / "sharded");
  CHECK(single.tensor_names() == models().at("tensors").get<std::vector<std::string>>());
  CHECK(sharded.tensor_names() == single.tensor_names());
  CHECK(single.shard_names() == std::vector<std::string>{"model.safetensors"});
  CHECK(sharded.shard_names() == std::vector<std::string>{kFirst, kSecond});
  CHECK(single.index() == nullptr);
  REQUIRE(sharded.index() != nullptr);
  for (const std::string& name : single.tensor_names()) {
    const TensorView &a = single.tensor(name), &b = sharded.tensor(name);
    CHECK(a.dtype == b.dtype);
    CHECK(a.shape == b.shape);
    CHECK(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()));
  }
  CHECK(single.config().at("model_type") == "llama");
}

TEST_CASE("model_dir: views stay valid when the model is moved") {
  ModelDir first(kFixtures / "sharded");
  const TensorView* view = first.find(kTensor);
  const ModelDir second = std::move(first);
  CHECK(second.find(kTensor) == view);
  CHECK(view->name == kTensor);
}

TEST_CASE("model_dir: an unknown tensor is named with its nearest neighbour") {
  const ModelDir model(kFixtures / "single");
  CHECK(model.find("model.layers.0.self_attn.k_proj") == nullptr);
  CHECK(message_of([&] { model.tensor("model.layers.0.self_attn.k_prj.weight"); }) ==
        model.path().string() +
            ": has no tensor 'model.layers.0.self_attn.k_prj.weight' (did you mean '" +
            std::string(kTensor) + "'?)");
}

TEST_CASE("model_dir: the hash covers config.json and every shard") {
  for (const char* name : {"single", "sharded"})
    CHECK(ModelDir(kFixtures / name).sha256() == models().at("sha256").at(name).get<std::string>());
}

TEST_CASE("model_dir: sidecar files are all but weights, config.json and what is hidden") {
  CHECK(ModelDir(kFixtures / "single").sidecar_files() ==
        std::vector<std::string>{"README.md", "additional_chat_templates/tool_use.jinja",
                                 "chat_template.jinja", "generation_config.json",
                                 "special_tokens_map.json", "tokenizer.json", "tokenizer.model"});
  CHECK(ModelDir(kFixtures / "sharded").sidecar_files().empty());
}

TEST_CASE("model_dir: generation_config.json is optional, and an object") {
  CHECK(ModelDir(kFixtures / "single").generation_config().at("eos_token_id") == 2);
  CHECK(ModelDir(kFixtures / "sharded").generation_config() == Json::object());
  const ScratchFolder scratch;
  fs::copy(kFixtures / "sharded", scratch / "m");
  write_file(scratch / "m" / "generation_config.json", "[]");
  const ModelDir model(scratch / "m");
  CHECK(message_of([&] { model.generation_config(); }) ==
        (scratch / "m" / "generation_config.json").string() + ": is an array, expected an object");
}

TEST_CASE("model_dir: a hub cache folder is followed to refs/main or the only snapshot") {
  const ScratchFolder scratch;
  const fs::path cache = scratch / "models--org--name";
  const auto add_snapshot = [&](const std::string& revision) {
    const fs::path snapshot = cache / "snapshots" / revision;
    fs::create_directories(snapshot);
    fs::create_directories(cache / "blobs");
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
      fs::copy_file(kFixtures / "single" / name, cache / "blobs" / name,
                    fs::copy_options::skip_existing);
      fs::create_symlink(fs::path("../../blobs") / name, snapshot / name);
    }
  };
  fs::create_directories(cache / "snapshots");
  CHECK(message_of([&] { ModelDir model(cache); }) ==
        (cache / "snapshots").string() + ": holds no snapshot");

  add_snapshot("aaa");
  {
    const ModelDir model(cache);
    CHECK(model.path() == cache / "snapshots" / "aaa");
    CHECK(model.given_path() == cache);
    CHECK(model.find(kTensor) != nullptr);
    CHECK(model.sidecar_files() == std::vector<std::string>{"tokenizer.json"});
  }
  add_snapshot("bbb");
  CHECK(message_of([&] { ModelDir model(cache); }) ==
        cache.string() + ": has no refs/main and 2 snapshots; pass one of them: aaa, bbb");
  CHECK(ModelDir(cache / "snapshots" / "bbb").path() == cache / "snapshots" / "bbb");

  write_file(cache / "refs" / "main", "bbb\n");
  CHECK(ModelDir(cache).path() == cache / "snapshots" / "bbb");
  write_file(cache / "refs" / "main", "ccc");
  CHECK(message_of([&] { ModelDir model(cache); }) ==
        cache.string() + ": refs/main names snapshot ccc, snapshots/ holds aaa, bbb");
  for (const char* hostile : {"../../etc", "..", "", ".hidden"}) {
    write_file(cache / "refs" / "main", hostile);
    CHECK(message_of([&] { ModelDir model(cache); }) == (cache / "refs" / "main").string() +
                                                            ": holds '" + hostile +
                                                            "', expected the name of a snapshot");
  }
  write_file(cache / "refs" / "main", "bbb");
  fs::remove(cache / "snapshots" / "bbb" / "config.json");
  CHECK(contains(message_of([&] { ModelDir model(cache); }), "the download may be incomplete"));
}

TEST_CASE("model_dir: a path that is no model says what is missing") {
  const ScratchFolder scratch;
  const std::string root = scratch.path().string();
  CHECK(message_of([&] { ModelDir model(scratch / "org" / "name"); }) ==
        root + "/org/name: no such folder; give a local model folder or hub cache folder");
  write_file(scratch / "file", "x");
  CHECK(message_of([&] { ModelDir model(scratch / "file"); }) ==
        root + "/file: is a file, expected the model's folder");
  CHECK(message_of([&] { ModelDir model(scratch.path()); }) ==
        root + ": has no config.json and is no hub cache folder (no snapshots/)");
}

TEST_CASE("model_dir: config.json must be an object of sane size") {
  const ScratchFolder scratch;
  const std::string where = (scratch / "config.json").string();
  write_file(scratch / "config.json", "[1]");
  CHECK(message_of([&] { ModelDir model(scratch.path()); }) ==
        where + ": is an array, expected an object");
  write_file(scratch / "config.json", "{\n  \"a\": 1,\n  \"a\": 2\n}");
  CHECK(message_of([&] { ModelDir model(scratch.path()); }) ==
        where + ": key 'a' appears twice in one object");
  write_file(scratch / "config.json", "{\n  \"a\": }");
  CHECK(contains(message_of([&] { ModelDir model(scratch.path()); }),
                 where + ": not valid JSON at line 2, column 8"));
  write_file(scratch / "config.json", std::string((16 << 20) + 1, ' '));
  CHECK(message_of([&] { ModelDir model(scratch.path()); }) ==
        where + ": 16777217 bytes, the limit is 16777216");
}

TEST_CASE("model_dir: weights in another form are named with what is needed") {
  const auto message = [](const std::vector<std::string>& files) {
    const ScratchFolder scratch;
    make_config(scratch.path());
    for (const std::string& name : files) write_file(scratch / name, "x");
    const std::string text = message_of([&] { ModelDir model(scratch.path()); });
    return text.substr(scratch.path().string().size() + 2);
  };
  const std::string wanted = "expected model.safetensors or model.safetensors.index.json";
  CHECK(message({}) == "has no weights, " + wanted);
  for (const char* name : {"pytorch_model.bin", "model-Q4_K_M.gguf", "consolidated.00.pth"})
    CHECK(message({name}) == "has weights only as " + std::string(name) +
                                 "; safetensors is needed (model.safetensors or "
                                 "model.safetensors.index.json)");
  CHECK(message({"adapter_model.safetensors"}) == "has adapter_model.safetensors, " + wanted);
  CHECK(message({kFirst, kSecond}) ==
        "has 2 shards (model-00001-of-00002.safetensors, …) and no "
        "model.safetensors.index.json");
}

TEST_CASE("model_dir: the index must say what the shards hold") {
  CHECK(ChangedIndex([](Json&) {}).message() == "no error");
  CHECK(ChangedIndex([](Json& index) { index.erase("weight_map"); }).message() ==
        "key 'weight_map' is missing, expected an object: tensor name → shard");
  CHECK(ChangedIndex([](Json& index) { index["weight_map"] = Json::array(); }).message() ==
        "key 'weight_map' is an array ([]), expected an object: tensor name → shard");
  CHECK(ChangedIndex([](Json& index) { index["weight_map"] = Json::object(); }).message() ==
        "weight_map is empty");
  CHECK(ChangedIndex([](Json& index) { index["weight_map"][kTensor] = 3; }).message() ==
        "key '" + std::string(kTensor) + "' is an integer (3), expected the name of a shard");
  CHECK(ChangedIndex([](Json& index) { index["weight_map"][kTensor] = kSecond; }).message() ==
        "weight_map puts tensor '" + std::string(kTensor) +
            "' into model-00002-of-00002.safetensors, which does not hold it");
  CHECK(ChangedIndex([](Json& index) { index["weight_map"].erase(kTensor); }).message() ==
        "weight_map lacks tensor '" + std::string(kTensor) + "', which a shard holds");
}

TEST_CASE("model_dir: tensors that the index alone has are told, and leave it") {
  const auto check = [](const std::string& file, const std::string& problem) {
    const ChangedIndex changed([&](Json& index) { index["weight_map"]["x"] = file; });
    const ModelDir model(changed.path());
    REQUIRE(model.absent().size() == 1);
    CHECK(model.absent()[0].name == "x");
    const std::string whole = (changed.path() / kIndexFileName).string() + ": " + problem;
    CHECK(model.absent()[0].problem == whole);
    CHECK(message_of([&] { model.check_complete(); }) == whole);
    CHECK_FALSE(model.index()->at("weight_map").contains("x"));
    CHECK(model.shard_names() == std::vector<std::string>{kFirst, kSecond});
  };
  check("model-00003-of-00003.safetensors",
        "weight_map names shard model-00003-of-00003.safetensors, which does not exist");
  check(kFirst,
        "weight_map puts tensor 'x' into model-00001-of-00002.safetensors, which does not hold it");
  const ModelDir whole(kFixtures / "sharded");
  CHECK(whole.absent().empty());
  CHECK(message_of([&] { whole.check_complete(); }) == "no error");
}

TEST_CASE("model_dir: a shard's name leads nowhere else") {
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "",
                           ".hidden.safetensors", "a\\b.safetensors", "pytorch_model.bin"})
    CHECK(ChangedIndex([&](Json& index) { index["weight_map"]["x"] = name; }).message() ==
          "weight_map names shard '" + std::string(name) +
              "', expected a name like model-00001-of-00002.safetensors");
}

TEST_CASE("model_dir: a tensor in two shards is refused") {
  const ScratchFolder scratch;
  fs::copy(kFixtures / "sharded", scratch / "m");
  fs::copy_file(scratch / "m" / kFirst, scratch / "m" / kSecond,
                fs::copy_options::overwrite_existing);
  CHECK(contains(message_of([&] { ModelDir model(scratch / "m"); }),
                 "is in more than one shard, the second is model-00002-of-00002.safetensors"));
}

TEST_CASE("model_dir: of chosen files the last one with a tensor counts") {
  ScratchFolder scratch;
  fs::copy(kFixtures / "sharded", scratch / "model");
  for (const char* name : {kFirst, kSecond}) {
    const std::vector<float> values{name == kFirst ? 1.0f : 2.0f};
    write_safetensors(scratch / "model" / (std::string("extra-") + name),
                      {{.name = "twice",
                        .dtype = DType::kF32,
                        .shape = Shape({1}),
                        .bytes = std::as_bytes(std::span(values)),
                        .file = {},
                        .file_offset = 0}},
                      {});
  }
  const std::string first = std::string("extra-") + kFirst,
                    second = std::string("extra-") + kSecond;
  const auto value = [&](std::vector<std::string> files) {
    const ModelDir model(scratch / "model", std::move(files));
    CHECK(model.tensor_names() == std::vector<std::string>{"twice"});
    CHECK(model.index() == nullptr);
    return model.tensor("twice").as<float>()[0];
  };
  CHECK(value({first, second}) == 2.0f);
  CHECK(value({second, first}) == 1.0f);
}

TEST_CASE("model_dir: a link that leaves the checkpoint is refused, wherever it is") {
  const ScratchFolder scratch;
  write_file(scratch / "secret", "key");
  fs::create_directory(scratch / "elsewhere");
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "README.md",
                           "additional_chat_templates", "additional_chat_templates/a.jinja"}) {
    INFO(name);
    const fs::path model = scratch / "model";
    fs::remove_all(model);
    fs::copy(kFixtures / "single", model);
    const fs::path link = model / name;
    fs::create_directories(link.parent_path());
    fs::remove(link);
    const bool is_folder = fs::path(name) == kTemplateFolder;
    const fs::path place = scratch.path() / (is_folder ? "elsewhere" : "secret");
    fs::create_symlink(fs::relative(place, link.parent_path()), link);
    CHECK(message_of([&] { ModelDir dir(model); }) ==
          link.string() + ": is a symbolic link to " + fs::canonical(place).string() +
              ", outside of the checkpoint, expected a file in it; if you trust it, set "
              "KVCAL_FOLLOW_LINKS=1, or make a copy with 'cp -rL'");
  }
}

TEST_CASE(
    "model_dir: links within a checkpoint and of a hub cache are followed, others on demand") {
  const ScratchFolder scratch;
  const fs::path model = scratch / "model";
  fs::copy(kFixtures / "single", model);
  fs::rename(model / "model.safetensors", model / "renamed");
  fs::create_symlink("renamed", model / "model.safetensors");
  fs::create_symlink(scratch / "model", scratch / "link");
  CHECK(ModelDir(model).tensor_names().size() == ModelDir(scratch / "link").tensor_names().size());

  const fs::path cache = scratch / "models--a--b", snapshot = cache / "snapshots" / "1";
  fs::create_directories(snapshot);
  fs::copy(kFixtures / "single", cache / "blobs");
  for (const char* name : {"config.json", "model.safetensors"})
    fs::create_symlink(fs::path("../../blobs") / name, snapshot / name);
  CHECK_NOTHROW(ModelDir(cache));
  // huggingface_hub 2.4: a blob may be a link to the store of all repositories, which it marks.
  fs::create_directories(scratch / "blobs" / "ab");
  fs::rename(cache / "blobs" / "config.json", scratch / "blobs" / "ab" / "abcd");
  fs::create_symlink("../../blobs/ab/abcd", cache / "blobs" / "config.json");
  CHECK_THROWS_AS(ModelDir(cache), Error);
  write_file(scratch / "blobs" / ".huggingface-shared-blobs", "1");
  CHECK_NOTHROW(ModelDir(cache));
  write_file(cache / "secret", "key");
  fs::create_symlink("../../secret", snapshot / "README.md");
  CHECK_THROWS_AS(ModelDir(cache), Error);
  REQUIRE(::setenv("KVCAL_FOLLOW_LINKS", "1", 1) == 0);
  CHECK_NOTHROW(ModelDir(cache));
  REQUIRE(::unsetenv("KVCAL_FOLLOW_LINKS") == 0);
  CHECK_THROWS_AS(ModelDir(cache), Error);
}

TEST_CASE("model_dir: an entry that is no file is not left out in silence") {
  const ScratchFolder scratch;
  const fs::path model = scratch / "model", entry = model / "tokenizer_config.json";
  fs::copy(kFixtures / "single", model);
  CHECK_NOTHROW(ModelDir(model).sidecar_files());
  fs::create_symlink("nowhere", entry);
  CHECK(message_of([&] { ModelDir(model).sidecar_files(); }) ==
        entry.string() + ": is a link that leads nowhere");
  fs::remove(entry);
  REQUIRE(::mkfifo(entry.c_str(), 0600) == 0);
  CHECK(message_of([&] { ModelDir(model).sidecar_files(); }) ==
        entry.string() + ": is neither a file nor a folder");
}

TEST_CASE("model_dir: an index beside a single file must be of that file") {
  const ScratchFolder scratch;
  fs::copy(kFixtures / "single", scratch / "model");
  const fs::path folder = scratch / "model";
  const auto message_with = [&](const std::string& file, bool is_whole) {
    Json map = Json::object();
    for (const Json& name : models().at("tensors"))
      if (is_whole || name != kTensor) map[name.get<std::string>()] = file;
    write_file(folder / kIndexFileName, dump_json({{"weight_map", map}}));
    return message_of([&] {
      const ModelDir model(folder);
      CHECK(model.index() == nullptr);
    });
  };
  CHECK(message_with("model.safetensors", true) == "no error");
  CHECK(contains(message_with(kFirst, true),
                 "weight_map names model-00001-of-00002.safetensors, "
                 "and the folder has model.safetensors"));
  CHECK(contains(message_with("model.safetensors", false),
                 "weight_map lacks tensor '" + std::string(kTensor) + "'"));
}

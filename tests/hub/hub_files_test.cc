#include "hub/hub_files.h"

#include <string>
#include <vector>

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using Names = std::vector<std::string>;

namespace {

HubDataFiles chosen(const Names& names, const std::string& path = "") {
  return data_files({.repo = HubRepo::kDataset, .name = "a/b", .path = path}, names);
}

std::string refusal(const Names& names, const std::string& path = "") {
  return test::message_of([&] { chosen(names, path); });
}

}  // namespace

TEST_CASE("hub files: of a model, safetensors and small texts") {
  const Names names{".gitattributes",
                    "LICENSE",
                    "README.md",
                    "config.json",
                    "additional_chat_templates/tool.jinja",
                    "chat_template.jinja",
                    "consolidated.safetensors",
                    "model-00001-of-00002.safetensors",
                    "model-00002-of-00002.safetensors",
                    "model.safetensors.index.json",
                    "modeling_x.py",
                    "onnx/model.onnx",
                    "onnx/config.json",
                    "original/params.json",
                    "pytorch_model.bin",
                    "recipe.yaml",
                    "tekken.json",
                    "tokenizer.json",
                    "tokenizer.model",
                    "x.gguf",
                    "picture.png"};
  CHECK(model_files(names) ==
        Names{"LICENSE", "README.md", "config.json", "additional_chat_templates/tool.jinja",
              "chat_template.jinja", "model-00001-of-00002.safetensors",
              "model-00002-of-00002.safetensors", "model.safetensors.index.json", "modeling_x.py",
              "recipe.yaml", "tekken.json", "tokenizer.json", "tokenizer.model"});
  CHECK(model_files(Names{"config.json", "consolidated.safetensors"}).size() == 2);
  CHECK(test::contains(test::message_of([] {
                         model_files(Names{"config.json", "a.bin", "b.pt"});
                       }),
                       "has no safetensors, but a.bin, b.pt; expected model.safetensors"));
}

TEST_CASE("hub files: what a local copy of a model lacks") {
  const auto needed = [](const Names& names, const Names& indexed = {}) {
    return missing_model_files(names, indexed).needed;
  };
  CHECK(needed({"config.json", "model.safetensors"}).empty());
  CHECK(needed({"config.json"}) == Names{"model.safetensors"});
  CHECK(needed({"model.safetensors"}) == Names{"config.json"});
  CHECK(needed({"config.json", "model-00001-of-00002.safetensors"}) ==
        Names{"model.safetensors.index.json"});
  CHECK(needed({"config.json", "m1.safetensors", "model.safetensors.index.json"},
               {"m1.safetensors", "m2.safetensors"}) == Names{"m2.safetensors"});
  CHECK(missing_model_files(Names{"config.json"}, Names{}).lacks_tokenizer);
  CHECK_FALSE(missing_model_files(Names{"tokenizer.json"}, Names{}).lacks_tokenizer);
}

TEST_CASE("hub files: a data set of one file, or of shards") {
  CHECK(chosen({"README.md", "train.jsonl", ".gitattributes"}).path == "train.jsonl");
  const Names shards{"data/t-00000-of-00002-0a1b.parquet", "data/t-00001-of-00002-2c3d.parquet"};
  CHECK(chosen(shards).names == shards);
  CHECK(chosen(shards).path == "data/t-[0-9][0-9][0-9][0-9][0-9]-of-00002*.parquet");
  CHECK(refusal({shards[1]}) == "a/b: shard 0 of the 2 of 'data/t' is missing");
  CHECK(chosen({"a.jsonl", "b.parquet"}).path == "b.parquet");  // Parquet before other kinds
  CHECK(chosen({"val.jsonl.zst"}).path == "val.jsonl.zst");
}

TEST_CASE("hub files: of several splits the id names one") {
  const Names names{"main/test-00000-of-00001.parquet", "main/train-00000-of-00001.parquet",
                    "x.csv"};
  CHECK(refusal(names) ==
        "a/b: holds 2 splits or parts; choose one: 'a/b/main/test-*', 'a/b/main/train-*'");
  CHECK(chosen(names, "main/train-*").names == Names{names[1]});
  CHECK(chosen(names, "main/train-*.parquet").names == Names{names[1]});
  CHECK(chosen(names, "x.csv").path == "x.csv");
  CHECK(test::contains(refusal(names, "main"), "holds 2 splits"));
  CHECK(refusal(names, "nothing") ==
        "a/b: has no data file (.parquet, .arrow, .jsonl, .json, .csv, .txt) that 'nothing' names");
  CHECK(test::contains(refusal({"README.md", "a.py"}), "has no data file"));
}

TEST_CASE("hub files: the hash is what the ETag says") {
  const std::string text = "hello\n";
  const auto hash_of = [&](const std::string& etag) {
    FileHash hash(etag, text.size());
    hash.update(std::as_bytes(std::span(text).first(2)));
    hash.update(std::as_bytes(std::span(text).subspan(2)));
    return hash.text();
  };
  // sha256sum and git hash-object of the same bytes.
  CHECK(hash_of(std::string(64, '0')) ==
        "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  CHECK(hash_of(std::string(40, '0')) == "ce013625030ba8dba906f756967f9e9ca394464a");
  CHECK(hash_of("d41d8cd98f00b204e9800998ecf8427e").empty());
  CHECK_FALSE(is_hash("d41d8cd98f00b204e9800998ecf8427e"));
  CHECK_FALSE(is_hash(std::string(64, 'G')));
}

TEST_CASE("hub files: what may describe weights") {
  CHECK(describes_weights("config.json", 900));
  CHECK(describes_weights("hf_quant_config.json", 900));
  CHECK(describes_weights("configuration_llama.py", 20'000));
  // An index of 92,000 tensors has 9 MB.
  CHECK(describes_weights("model.safetensors.index.json", 9'000'000));
  CHECK(describes_weights("kvcal_manifest.json", 3'000'000));
  CHECK_FALSE(describes_weights("tokenizer.json", 7'000'000));
  CHECK_FALSE(describes_weights("tokenizer.model", 500'000));
  CHECK_FALSE(describes_weights("README.md", 5'000));
}

#include "hub/hub_id.h"

#include <string>

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("hub id: owner/name, with a revision") {
  const auto plain = parse_hub_id("HuggingFaceTB/SmolLM2-135M", HubRepo::kModel);
  REQUIRE(plain);
  CHECK(plain->name == "HuggingFaceTB/SmolLM2-135M");
  CHECK(plain->revision == "main");
  CHECK(plain->text() == "HuggingFaceTB/SmolLM2-135M");
  CHECK_FALSE(plain->is_commit());
  const auto tagged = parse_hub_id("a/b_1.5@v1.0", HubRepo::kModel);
  REQUIRE(tagged);
  CHECK(tagged->revision == "v1.0");
  CHECK(tagged->text() == "a/b_1.5@v1.0");
  CHECK(parse_hub_id("a/b@refs/pr/7", HubRepo::kModel)->revision == "refs/pr/7");
  CHECK(parse_hub_id("a/b@0123456789012345678901234567890123456789", HubRepo::kModel)->is_commit());
  CHECK(parse_hub_id("hf://a/b", HubRepo::kModel)->name == "a/b");
}

TEST_CASE("hub id: a data set may name its files") {
  const auto id = parse_hub_id("a/b@main/data/train-*.parquet", HubRepo::kDataset);
  REQUIRE(id);
  CHECK(id->name == "a/b");
  CHECK(id->revision == "main");
  CHECK(id->path == "data/train-*.parquet");
  const auto converted = parse_hub_id("a/b@refs/convert/parquet/x/0.parquet", HubRepo::kDataset);
  REQUIRE(converted);
  CHECK(converted->revision == "refs/convert/parquet");
  CHECK(converted->path == "x/0.parquet");
  CHECK(parse_hub_id("hf://datasets/a/b/c.jsonl", HubRepo::kDataset)->path == "c.jsonl");
  CHECK_FALSE(parse_hub_id("hf://datasets/a/b", HubRepo::kModel));
  CHECK_FALSE(parse_hub_id("hf://a/b", HubRepo::kDataset));
}

TEST_CASE("hub id: paths, and names that the hub refuses, are none") {
  for (const char* text :
       {"",     "a",          "/a/b",    "./a/b",          "../a/b", "a/",          "/b",
        "a//b", "a/b/c",      "a/b.git", "a/-b",           "a/b-",   "a--b/c",      "a/b..c",
        "a/.b", "a b/c",      "a/b@",    "a/b@/x",         "a/b@x/", "a/b@../../x", "a/b@x y",
        "~/a",  "model.yaml", "a/b*",    "owner/name@a..b"}) {
    INFO(text);
    CHECK_FALSE(parse_hub_id(text, HubRepo::kModel));
  }
  CHECK_FALSE(parse_hub_id("a/b/../c", HubRepo::kDataset));
  CHECK_FALSE(parse_hub_id("a/" + std::string(95, 'b'), HubRepo::kModel));
  CHECK(parse_hub_id("a/" + std::string(94, 'b'), HubRepo::kModel));
}

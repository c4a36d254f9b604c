#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "convert/support/convert_case.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

/// A source in compressed-tensors; weights as in recipe_text.
void write_source(const fs::path& folder, const std::string& weights,
                  const std::string& strategy = "tensor", const std::string& model = "llama",
                  const std::string& format = "compressed-tensors") {
  const Calibrated run(model_fixture(model), recipe_text(weights, strategy), scales_apart);
  write_calibrated(run.input(), format, folder);
}

std::set<std::string> tensor_names(const fs::path& folder) {
  if (!fs::exists(folder / "config.json")) return {};
  const std::vector<std::string> names = ModelDir(folder).tensor_names();
  return {names.begin(), names.end()};
}

/// dtype, shape and bytes are those that expected has by the same name.
void check_tensors(const ModelDir& actual, const ModelDir& expected) {
  for (const std::string& name : expected.tensor_names()) {
    const TensorView *a = actual.find(name), *b = expected.find(name);
    INFO(name);
    REQUIRE(a);
    CHECK(a->dtype == b->dtype);
    CHECK(a->shape == b->shape);
    CHECK(std::ranges::equal(a->bytes, b->bytes));
  }
}

/// What two formats in one folder have is what each has in its own. Of a key that both have the
/// first one's value counts, but of tgi's, which says of FP8 weights nothing of K and V.
void check_union(const fs::path& source, const std::string& first, const std::string& second) {
  const ScratchFolder scratch;
  INFO(first << "+" << second);
  convert({.checkpoint = source, .formats = {first + "+" + second}, .target = scratch / "joined"});
  convert({.checkpoint = source, .formats = {first}, .target = scratch / "first"});
  convert({.checkpoint = source, .formats = {second}, .target = scratch / "second"});
  const ModelDir joined(scratch / "joined");
  std::set<std::string> names = tensor_names(scratch / "first");
  names.merge(tensor_names(scratch / "second"));
  CHECK(tensor_names(scratch / "joined") == names);
  Json config = Json::object();
  std::set<std::string> files;
  std::vector<const char*> places{"second", "first"};
  if (first == "tgi") std::ranges::reverse(places);
  for (const char* place : places) {
    for (const auto& [name, content] : outputs_of(scratch / place)) files.insert(name);
    if (!fs::exists(scratch / place / "config.json")) continue;
    const ModelDir own(scratch / place);
    check_tensors(joined, own);
    for (const auto& [key, value] : own.config().items()) config[key] = value;
  }
  CHECK(sorted_keys(joined.config()) == sorted_keys(config));
  std::set<std::string> joined_files;
  for (const auto& [name, content] : outputs_of(scratch / "joined")) joined_files.insert(name);
  CHECK(joined_files == files);
}

std::string joined_refusal(const fs::path& source, const std::string& format) {
  return refusal_of({.checkpoint = source, .formats = {format}});
}

ino_t inode_of(const fs::path& file) {
  struct stat status {};
  REQUIRE(::stat(file.c_str(), &status) == 0);
  return status.st_ino;
}

/// All formats at once have one set of files with weights, and each the tensors it has alone.
void check_linked(const fs::path& source, const std::vector<std::string>& formats,
                  const std::vector<std::string>& shards) {
  const ScratchFolder scratch;
  convert({.checkpoint = source, .formats = formats, .target = scratch / "all"});
  for (const std::string& format : formats) {
    INFO(format);
    convert({.checkpoint = source, .formats = {format}, .target = scratch / "alone" / format});
    const fs::path own = scratch / "all" / format, alone = scratch / "alone" / format;
    if (format == "scales-json") {
      CHECK(outputs_of(own) == outputs_of(alone));
      continue;
    }
    for (const std::string& shard : shards)
      CHECK(inode_of(own / shard) == inode_of(scratch / "all" / formats.front() / shard));
    const ModelDir actual(own), expected(alone);
    CHECK(actual.tensor_names() == expected.tensor_names());
    check_tensors(actual, expected);
    CHECK(actual.config() == expected.config());
    CHECK(actual.shard_names().size() == shards.size() + 1);
  }
}

}  // namespace

TEST_CASE("joined formats: the folder has what each of them has") {
  const ScratchFolder source;
  write_source(source.path(), "");
  for (const auto& [first, second] : {std::pair{"compressed-tensors", "tgi"},
                                      {"tgi", "compressed-tensors"},
                                      {"compressed-tensors", "modelopt"},
                                      {"compressed-tensors", "scales-json"},
                                      {"scales-json", "quark"},
                                      {"modelopt", "tgi"},
                                      {"quark", "modelopt"},
                                      {"quark", "tgi"}})
    check_union(source.path(), first, second);
}

TEST_CASE("joined formats: tgi beside FP8 weights leaves it to their form to say what they are") {
  for (const char* stored : {"compressed-tensors", "fp8", "modelopt", "quark"}) {
    const ScratchFolder source;
    write_source(source.path(), "scheme: FP8", "tensor", "llama", stored);
    check_union(source.path(), stored, "tgi");
    check_union(source.path(), stored, "scales-json");
    check_union(source.path(), "tgi", stored);
  }
}

TEST_CASE("joined formats: ModelOpt beside another keeps its own file alone") {
  const ScratchFolder scratch;
  write_source(scratch / "source", "");
  convert({.checkpoint = scratch / "source",
           .formats = {"compressed-tensors+modelopt"},
           .target = scratch / "out"});
  const ModelDir output(scratch / "out");
  CHECK(output.config().at("quantization_config").at("quant_method") == "compressed-tensors");
  const Json file = parse_json(read_text(scratch / "out" / kModelOptFileName));
  CHECK(file.at("quantization").at("kv_cache_quant_algo") == "FP8");
  // In whatever order, and however their names are written.
  convert({.checkpoint = scratch / "source",
           .formats = {"ModelOpt+compressed_tensors"},
           .target = scratch / "turned"});
  CHECK(difference(outputs_of(scratch / "turned"), outputs_of(scratch / "out")) == "");
}

TEST_CASE("joined formats: three in a folder are read back as one") {
  const ScratchFolder scratch;
  write_source(scratch / "source", "");
  convert({.checkpoint = scratch / "source",
           .formats = {"compressed-tensors+modelopt+tgi"},
           .target = scratch / "out"});
  convert({.checkpoint = scratch / "out",
           .formats = {"compressed-tensors"},
           .target = scratch / "back"});
  CHECK(difference(outputs_of(scratch / "back"), outputs_of(scratch / "source")) == "");
}

TEST_CASE("joined formats: what cannot share a folder is refused") {
  const ScratchFolder scratch;
  write_source(scratch / "16bit", "");
  const auto refusal = [&](const std::string& format) {
    return joined_refusal(scratch / "16bit", format);
  };
  CHECK(refusal("compressed-tensors+quark") ==
        "compressed-tensors and quark cannot share a folder: each has a quantization_config of "
        "its own; write them as two formats, which gives two folders");
  CHECK(refusal("compressed-tensors+fp8") ==
        "fp8: is for FP8 weights; the checkpoint has none and none are made; for 16-bit weights "
        "use compressed-tensors");
  CHECK(refusal("tgi+modelopt+tgi") == "format tgi+modelopt+tgi names tgi twice");
  CHECK(contains(refusal("tgi+modlopt"), "modlopt"));
  CHECK(contains(refusal("tgi+modlopt"), "did you mean 'modelopt'?"));
  CHECK(contains(refusal("TGI+tgi"), "names tgi twice"));
  CHECK(refusal("tgi+") == "format 'tgi+' has an empty name beside '+'");

  write_source(scratch / "fp8", "scheme: FP8");
  CHECK(joined_refusal(scratch / "fp8", "compressed-tensors+modelopt") ==
        "each of the formats stores the scales of FP8 weights in its own way; write them as two "
        "formats, "
        "which gives two folders");
  CHECK(joined_refusal(scratch / "fp8", "modelopt+tgi") == "no error");

  // A reader of both would find two scales of the same head.
  write_source(scratch / "heads", "", "attn_head");
  const std::string two =
      " cannot share a folder: one has a scale a head, the other one of all heads; expected "
      "strategy tensor";
  CHECK(joined_refusal(scratch / "heads", "compressed-tensors+modelopt") ==
        "compressed-tensors and modelopt" + two);
  CHECK(joined_refusal(scratch / "heads", "quark+compressed-tensors") ==
        "quark and compressed-tensors" + two);
  CHECK(joined_refusal(scratch / "heads", "compressed-tensors+tgi") == "no error");
  CHECK(joined_refusal(scratch / "heads", "quark+modelopt") == "no error");
}

TEST_CASE("several formats: the weights are one file that all link to") {
  const std::vector<std::string> formats{"compressed-tensors", "modelopt", "quark", "tgi",
                                         "scales-json"};
  const ScratchFolder scratch;
  // A model in one file is written in shards then.
  write_source(scratch / "single", "");
  check_linked(scratch / "single", formats, {"model-00001-of-00001.safetensors"});
  write_source(scratch / "sharded", "", "tensor", "qwen2");
  check_linked(scratch / "sharded", formats,
               {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"});
  // scales-json has no weights, in whatever place it comes.
  write_source(scratch / "heads", "", "attn_head");
  check_linked(scratch / "heads", {"compressed-tensors+tgi", "scales-json", "modelopt"},
               {"model-00001-of-00001.safetensors"});
}

TEST_CASE("several formats: FP8 codes are linked too, with scales in the form of each") {
  const ScratchFolder scratch;
  write_source(scratch / "single", "scheme: FP8");
  check_linked(scratch / "single", {"compressed-tensors", "modelopt", "quark", "fp8"},
               {"model-00001-of-00001.safetensors"});
  write_source(scratch / "sharded", "scheme: FP8_DYNAMIC", "tensor", "qwen2");
  check_linked(scratch / "sharded", {"modelopt", "quark"},
               {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"});
  // Left as they are.
  check_linked(scratch / "single", {"compressed-tensors", "tgi"},
               {"model-00001-of-00001.safetensors"});
}

TEST_CASE("several formats: come back from any of the folders") {
  const ScratchFolder scratch;
  write_source(scratch / "source", "scheme: FP8");
  convert({.checkpoint = scratch / "source",
           .formats = {"modelopt", "quark", "fp8"},
           .target = scratch / "all"});
  for (const char* format : {"modelopt", "quark", "fp8"}) {
    const fs::path back = scratch / "back" / format;
    convert({.checkpoint = scratch / "all" / format,
             .formats = {"compressed-tensors"},
             .target = back});
    // Shards stay shards: there is a model and a file of scales.
    const ModelDir actual(back), expected(scratch / "source");
    CHECK(actual.tensor_names() == expected.tensor_names());
    check_tensors(actual, expected);
    CHECK(actual.config() == expected.config());
  }
}

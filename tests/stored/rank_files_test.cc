#include "stored/stored_format.h"

#include <cstring>
#include <limits>

#include "checkpoint/safetensors.h"
#include "core/json.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"
#include "support/tensors.h"

using namespace kvcal;
using test::contains;
using test::message_of;
using test::ScratchFolder;
using test::write_file;

namespace {

/// Exports by numpy and safetensors. Source: reference/rank_files.py.
const fs::path kFixtures = test::tests_folder() / "fixtures" / "rank_scales";

ModelConfig model_of(int64_t layers, const char* fixture = "llama") {
  Json json = parse_json(read_text(test::model_fixture(fixture) / "config.json"));
  if (layers > 0) json["num_hidden_layers"] = layers;
  return parse_model_config(json);
}

std::string tensor_name(const std::string& layer) {
  return "transformer.layers." + layer + ".attention.kv_cache_scaling_factor";
}

Tensor scale_tensor(const std::string& layer, std::vector<float> values = {0.5f}) {
  const auto count = static_cast<int64_t>(values.size());
  return make_f32_tensor(tensor_name(layer), Shape{count}, values);
}

void write_rank(const fs::path& path, const std::vector<Tensor>& tensors) {
  std::vector<TensorSource> sources;
  for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
  write_safetensors(path, sources, {});
}

/// A checkpoint of a model of two layers.
struct Export {
  Export() { write_rank("rank0.safetensors"); }

  void write_rank(const std::string& name) {
    write_rank(name, {scale_tensor("0"), scale_tensor("1")});
  }
  void write_rank(const std::string& name, const std::vector<Tensor>& tensors) {
    ::write_rank(folder / name, tensors);
  }
  void write_config(const Json& json) { write_file(folder / "config.json", json.dump()); }
  std::string message(int64_t layers = 2) const {
    return message_of([&] { read_rank_files(folder.path(), model_of(layers)); });
  }

  ScratchFolder folder;
};

struct Bad {
  const char* what;
  std::vector<Tensor> tensors;
  const char* message;
};

}  // namespace

TEST_CASE("rank files: scales read as numpy and safetensors wrote them", "[rank_scales]") {
  const Json expected = parse_json(read_text(kFixtures / "expected.json"));
  REQUIRE(expected.size() == 8);
  for (const auto& item : expected.items()) {
    INFO(item.key());
    const fs::path folder = kFixtures / item.key();
    CHECK(has_rank_files(folder));
    const auto layers = item.value().at("layers").get<int64_t>();
    const ScalesBeside scales = read_rank_files(folder, model_of(layers));
    const Json& ranks = item.value().at("ranks");
    REQUIRE(scales.ranks.size() == ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      REQUIRE(scales.ranks[rank].size() == static_cast<size_t>(layers));
      for (size_t layer = 0; layer < scales.ranks[rank].size(); ++layer) {
        INFO("rank " << rank << ", layer " << layer);
        CHECK(scales.ranks[rank][layer].value == ranks[rank][layer].get<float>());
      }
    }
  }
}

TEST_CASE("rank files: a folder of other files has none", "[rank_scales]") {
  const ScratchFolder scratch;
  CHECK(!has_rank_files(scratch.path()));
  CHECK(!has_rank_files(scratch / "missing"));
  for (const char* name : {"model.safetensors", "model-00001-of-00002.safetensors", "rank.npz",
                           "frank0.safetensors", "rank0.json", "rank0.safetensors.bak",
                           "model-rank-0-part-0.safetensors", "rank20240229.npz"})
    write_file(scratch / name, "");
  fs::create_directory(scratch / "rank0.npz");
  CHECK(!has_rank_files(scratch.path()));
  CHECK(contains(
      message_of([&] { read_rank_files(scratch.path(), model_of(2)); }),
      scratch.path().string() + ": no rank files, expected rank0.safetensors or *_rank0.npz"));
  CHECK(contains(message_of([&] { read_rank_files(scratch / "missing", model_of(2)); }),
                 "missing: cannot list the folder: No such file or directory"));
  write_file(scratch / "model_rank3.npz", "");
  CHECK(has_rank_files(scratch.path()));
}

TEST_CASE("rank files: ranks must be there once each", "[rank_scales]") {
  struct Case {
    std::vector<const char*> more;
    const char* message;
  };
  for (const Case& bad :
       {Case{{"rank2.safetensors"}, ": the file of rank 1 of 3 is missing, the next one is rank2"},
        {{"rank00.safetensors"}, ": rank 0 is in both rank0.safetensors and rank00.safetensors"},
        {{"llama_tp1_rank0.npz"}, ": rank 0 is in both llama_tp1_rank0.npz and rank0.safetensors"},
        {{"llama_tp1_rank1.npz"},
         ": rank0.safetensors and llama_tp1_rank1.npz are of two formats, expected one"}}) {
    Export files;
    for (const char* name : bad.more) files.write_rank(name);
    INFO(files.message());
    CHECK(contains(files.message(), files.folder.path().string() + bad.message));
  }
  Export first;
  fs::rename(first.folder / "rank0.safetensors", first.folder / "rank1.safetensors");
  CHECK(contains(first.message(), "rank 0 of 2 is missing, the next one is rank1.safetensors"));
}

TEST_CASE("rank files: config.json says how many ranks there are", "[rank_scales]") {
  const auto mapping = [](const Json& sizes) { return Json{{"mapping", sizes}}; };
  Export files;
  files.write_config(mapping({{"tp_size", 2}}));
  CHECK(contains(files.message(), "rank 1 of 2 is missing, the last one is rank0.safetensors"));
  files.write_rank("rank1.safetensors");
  CHECK(files.message() == "no error");
  files.write_config(mapping({{"world_size", 2}, {"tp_size", 2}, {"pp_size", nullptr}}));
  CHECK(files.message() == "no error");
  files.write_config(mapping(nullptr));
  CHECK(files.message() == "no error");
  files.write_config(mapping({{"world_size", 1}}));
  CHECK(contains(files.message(), "rank1.safetensors is beyond the 1 rank"));

  const auto refused = [&](const Json& json, const char* message) {
    files.write_config(json);
    INFO(files.message());
    CHECK(contains(files.message(), message));
    CHECK(contains(files.message(), files.folder.path().string()));
  };
  refused(mapping({{"world_size", 4}, {"tp_size", 2}}),
          "config.json: mapping: world_size is 4, tp_size 2 times pp_size 1 is 2");
  refused(mapping({{"tp_size", 0}}), "key 'tp_size' is 0, expected 1 to 100000");
  refused(mapping({{"pp_size", int64_t{1} << 62}}), "key 'pp_size' is 4611686018427387904");
  refused(mapping({{"pp_size", 3}}), ": 3 pipeline stages, the model has 2 layers");
  refused(mapping({{"tp_size", "2"}}), "tp_size");
  refused(mapping(7), "mapping");
  refused({{"num_hidden_layers", 32}}, "num_hidden_layers is 32, the model has 2");
  refused(Json::array(), "config.json: is an array, expected an object");
}

TEST_CASE("rank files: scales of another cache are refused", "[rank_scales]") {
  Export files;
  const auto with = [](const Json& algorithm) {
    return Json{{"quantization", {{"quant_algo", "W8A8"}, {"kv_cache_quant_algo", algorithm}}}};
  };
  for (const Json& json : {with("FP8"), with(nullptr), with(""), Json{{"quantization", nullptr}},
                           Json{{"quantization", {{"quant_algo", "FP8"}}}}, Json::object()}) {
    INFO(json.dump());
    files.write_config(json);
    CHECK(files.message() == "no error");
  }
  for (const char* algorithm : {"INT8", "NVFP4"}) {
    files.write_config(with(algorithm));
    CHECK(contains(files.message(), "config.json: key 'kv_cache_quant_algo' is '" +
                                        std::string(algorithm) + "', expected 'FP8'"));
  }
  files.write_config({{"quantization", "FP8"}});
  CHECK(contains(files.message(), "config.json: key 'quantization'"));
}

TEST_CASE("rank files: what AMMO wrote beside npz files is checked, too", "[rank_scales]") {
  const ScratchFolder scratch;
  for (const char* name : {"llama_tp2_rank0.npz", "llama_tp2_rank1.npz"})
    fs::copy_file(kFixtures / "npz_tp2" / name, scratch / name);
  const auto message = [&] {
    return message_of([&] { read_rank_files(scratch.path(), model_of(2)); });
  };
  CHECK(message() == "no error");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = read_text(kFixtures / "npz_tp2" / "llama_tp2.json");
    text.replace(text.rfind(from), from.size(), to);
    write_file(scratch / "llama_tp2.json", text);
    return message();
  };
  CHECK(contains(with("\"FP8\"", "\"INT8\""),
                 "llama_tp2.json: layer 1: key 'kv_cache_dtype' is 'INT8', expected 'FP8'"));
  CHECK(with("\"FP8\"", "null") == "no error");
  CHECK(
      contains(with("\"tensor_parallel\": 2", "\"tensor_parallel\": 3"), "rank 2 of 3 is missing"));
  CHECK(contains(with("\"pipeline_parallel\": 1", "\"pipeline_parallel\": 2"),
                 "rank 2 of 4 is missing"));
  write_file(scratch / "llama_tp1.json", "{}");
  CHECK(contains(message(), ": two exports, llama_tp1.json and llama_tp2.json, expected one"));
}

TEST_CASE("rank files: bad tensors are refused by file and name", "[rank_scales]") {
  const auto named = [](const std::string& name) {
    return make_f32_tensor(name, Shape{1}, std::vector<float>{0.5f});
  };
  const Tensor good = scale_tensor("0");
  Tensor integer = scale_tensor("1");
  integer.dtype = DType::kI32;
  Tensor infinite{.name = tensor_name("1"), .dtype = DType::kF64, .shape = {}, .bytes = {}};
  const double large = 1e300;
  infinite.bytes.resize(8);
  std::memcpy(infinite.bytes.data(), &large, 8);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Bad& bad : {
           Bad{"none",
               {named("lm_head.weight")},
               "holds no tensor named *.kv_cache_scaling_factor"},
           {"reciprocals",
            {named("transformer.layers.0.attention.kv_cache_rcp_scaling_factor")},
            "holds no tensor named *.kv_cache_scaling_factor"},
           {"layer missing", {good}, "rank0.safetensors: layer 1 has no kv_cache_scaling_factor"},
           {"layer beyond",
            {good, scale_tensor("2")},
            "tensor 'transformer.layers.2.attention.kv_cache_scaling_factor': is of layer 2, the "
            "model has 2 layers"},
           {"twice", {good, scale_tensor("00")}, "is the second one of layer 0, expected one"},
           {"no layer", {named("kv_cache_scaling_factor")}, "has no number, expected its layer's"},
           {"two numbers", {scale_tensor("0.1")}, "has two numbers, expected its layer alone"},
           {"large layer",
            {scale_tensor("99999999999999999999")},
            "too large a number for a layer"},
           {"two values",
            {good, scale_tensor("1", {0.5f, 0.5f})},
            "has the shape [2], expected one"},
           {"no value", {good, scale_tensor("1", {})}, "has the shape [0], expected one value"},
           {"dtype", {good, integer}, "is I32, expected F32, F16, BF16 or F64"},
           {"zero",
            {good, scale_tensor("1", {0.0f})},
            "holds 0, expected a scale from 1.2e-38 to 5.9e33"},
           {"negative", {good, scale_tensor("1", {-0.5f})}, "holds -0.5, expected a scale"},
           {"subnormal", {good, scale_tensor("1", {1e-45f})}, "holds 1.4013e-45, expected a scale"},
           {"near the largest float",
            {good, scale_tensor("1", {3.4e38f})},
            "holds 3.4e+38, expected a scale"},
           {"nan",
            {good, scale_tensor("1", {nan})},
            "holds nan, expected a scale from 1.2e-38 to 5.9e33"},
           {"too large", {good, infinite}, "holds inf, expected a scale from 1.2e-38 to 5.9e33"},
           {"K alone",
            {good, named("transformer.layers.1.attention.k_cache_scaling_factor")},
            "layer 1 has a k_cache_scaling_factor and no v_cache_scaling_factor"},
       }) {
    INFO(bad.what);
    Export files;
    files.write_rank("rank0.safetensors", bad.tensors);
    const std::string message = files.message();
    INFO(message);
    CHECK(contains(message, (files.folder / "rank0.safetensors").string() + ": "));
    CHECK(contains(message, bad.message));
  }
}

TEST_CASE("rank files: a stage's layers are told in both numberings", "[rank_scales]") {
  Export files;
  files.write_config({{"mapping", {{"pp_size", 2}}}});
  files.write_rank("rank1.safetensors", {scale_tensor("0")});
  CHECK(contains(files.message(4),
                 "rank1.safetensors: layer 1, the model's layer 3 has no "
                 "kv_cache_scaling_factor"));
  files.write_rank("rank1.safetensors", {scale_tensor("2"), scale_tensor("3")});
  CHECK(contains(files.message(4), "is of layer 2, the stage has 2 layers"));
}

TEST_CASE("rank files: layers of a hybrid that do not attend have no scale", "[rank_scales]") {
  const ModelConfig config = model_of(0, "jamba");  // layer 1 of 3 attends
  const ScratchFolder scratch;
  write_rank(scratch / "rank0.safetensors", {scale_tensor("1")});
  const ScalesBeside scales = read_rank_files(scratch.path(), config);
  REQUIRE(scales.ranks.size() == 1);
  REQUIRE(scales.ranks[0].size() == 3);
  CHECK(scales.ranks[0][0].value == 1.0f);
  CHECK(scales.ranks[0][1].value == 0.5f);
  CHECK(scales.ranks[0][2].value == 1.0f);
  write_rank(scratch / "rank0.safetensors", {scale_tensor("1"), scale_tensor("2")});
  CHECK(contains(message_of([&] { read_rank_files(scratch.path(), config); }),
                 "is of layer 2, which has no attention"));
}

TEST_CASE("rank files: files that are no archives are refused by name", "[rank_scales]") {
  const ScratchFolder scratch;
  for (const char* name : {"rank0.safetensors", "llama_tp1_rank0.npz"}) {
    write_file(scratch / name, "short");
    const std::string message = message_of([&] { read_rank_files(scratch.path(), model_of(2)); });
    INFO(message);
    CHECK(contains(message, (scratch / name).string() + ": "));
    fs::remove(scratch / name);
  }
  CHECK(contains(
      message_of([] { read_rank_files(kFixtures / "npz_compressed", model_of(2)); }),
      "array '_np:layers:0:attention:kv_cache_scaling_factor': is compressed (zip method 8)"));
}

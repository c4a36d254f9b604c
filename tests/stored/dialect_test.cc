#include "stored/kv_scales.h"

#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;

TEST_CASE("dialect: a config names one of three formats, or none") {
  CHECK(read_dialect(Json::object()) == std::nullopt);
  CHECK(read_dialect(Json{{"kv_cache_torch_dtype", nullptr}}) == std::nullopt);
  for (const fp8::Format format :
       {fp8::Format::kE4m3Fn, fp8::Format::kE4m3Fnuz, fp8::Format::kE5m2}) {
    CHECK(read_dialect(Json{{"kv_cache_torch_dtype", fp8::name_of(format)}}) == format);
    CHECK(fp8_format(cache_type_of(format).dtype) == format);
  }
}

TEST_CASE("dialect: another word is refused with file, key and what is known") {
  const test::ScratchFolder folder;
  Json config = parse_json(read_text(test::model_fixture("llama") / "config.json"));
  fs::copy(test::model_fixture("llama") / "model.safetensors", folder / "model.safetensors");
  for (const Json& word : {Json("float8_e8m0fnu"), Json("FLOAT8_E4M3FN"), Json(8)}) {
    config["kv_cache_torch_dtype"] = word;
    test::write_file(folder / "config.json", config.dump());
    CHECK(test::message_of([&] { read_dialect(ModelDir(folder.path())); }) ==
          (folder / "config.json").string() + ": key 'kv_cache_torch_dtype' is " + word.dump() +
              ", expected \"float8_e4m3fn\", \"float8_e4m3fnuz\" or \"float8_e5m2\"");
  }
}

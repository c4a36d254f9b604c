#include "quant/cache_type.h"

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::message_of;

TEST_CASE("KvDType: a name is read as it is printed") {
  for (const KvDType dtype : {KvDType::kFloat32, KvDType::kFloat16, KvDType::kBFloat16,
                              KvDType::kFp8E4m3, KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2})
    CHECK(parse_kv_dtype(name_of(dtype)) == dtype);
}

TEST_CASE("KvDType: the engines' spellings are taken") {
  for (const char* word : {"fp8", "FP8", "fp8_e4m3fn", "fp8-e4m3fn", "float8_e4m3", "float8_e4m3fn",
                           "torch.float8_e4m3fn"})
    CHECK(parse_kv_dtype(word) == KvDType::kFp8E4m3);
  for (const char* word : {"float8_e5m2", "torch.float8_e5m2"})
    CHECK(parse_kv_dtype(word) == KvDType::kFp8E5m2);
  for (const char* word : {"float8_e4m3fnuz", "fp8-e4m3fnuz"})
    CHECK(parse_kv_dtype(word) == KvDType::kFp8E4m3Fnuz);
  for (const char* word : {"bf16", "torch.bfloat16"})
    CHECK(parse_kv_dtype(word) == KvDType::kBFloat16);
  for (const char* word : {"fp16", "half"}) CHECK(parse_kv_dtype(word) == KvDType::kFloat16);
  for (const char* word : {"fp32", "float"}) CHECK(parse_kv_dtype(word) == KvDType::kFloat32);
}

TEST_CASE("KvDType: another word is refused with the names, not with every spelling") {
  CHECK(message_of([] { parse_kv_dtype("int8"); }) ==
        "unknown KV cache dtype 'int8'; known are float32, float16, bfloat16, fp8_e4m3, fp8_e5m2, "
        "fp8_e4m3fnuz");
  CHECK(
      message_of([] { parse_kv_dtype("torch."); }).starts_with("unknown KV cache dtype 'torch.'"));
}

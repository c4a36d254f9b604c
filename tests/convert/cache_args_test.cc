#include "convert/stored_weights.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contains;
using test::message_of;

namespace {

QuantArgs fp8_args(const Json& written, Strategy strategy) {
  return cache_args(written, strategy, fp8::Format::kE4m3Fn);
}

}  // namespace

TEST_CASE("cache_args: the observer is the written one, else the default") {
  const QuantArgs plain = fp8_args(nullptr, Strategy::kTensor);
  CHECK(plain.type == QuantType::kFloat);
  CHECK(plain.strategy == Strategy::kTensor);
  CHECK(plain.observer == "static_minmax");
  const QuantArgs percentile = fp8_args(
      {{"observer", "Percentile"}, {"observer_kwargs", {{"percentile", 99.9}}}, {"dynamic", false}},
      Strategy::kAttnHead);
  CHECK(percentile.strategy == Strategy::kAttnHead);
  CHECK(percentile.observer == "percentile");
  CHECK(percentile.observer_kwargs == Json{{"percentile", 99.9}});
}

TEST_CASE("cache_args: an INT8 cache has integers") {
  const QuantArgs args = cache_args(nullptr, Strategy::kChannel, KvFormat::int8());
  CHECK(args.type == QuantType::kInt);
  CHECK(args.num_bits == 8);
  CHECK(args.strategy == Strategy::kChannel);
}

TEST_CASE("cache_args: settings that the observer does not know stay, as engines let them") {
  const Json written = {{"observer", "static_minmax"}, {"observer_kwargs", {{"smoothing", 3}}}};
  CHECK(fp8_args(written, Strategy::kTensor).observer_kwargs == written.at("observer_kwargs"));
}

TEST_CASE("cache_args: what an FP8 cache cannot have is refused") {
  const auto refusal = [](const Json& written) {
    return message_of([&] { fp8_args(written, Strategy::kTensor); });
  };
  CHECK(contains(refusal({{"observer", "maximum"}}), "maximum"));
  CHECK(contains(refusal({{"observer", 3}}), "observer"));
  CHECK(contains(refusal({{"scale_dtype", "float16"}}), "scale_dtype"));
  CHECK(contains(refusal({{"group_size", 64}}), "group_size"));
}

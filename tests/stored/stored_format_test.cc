#include "stored/stored_format.h"

#include <set>

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("stored forms: a form has weights with a config, names of scales, or scales of ranks") {
  std::set<std::string_view> methods;
  for (const StoredFormat* format : stored_formats()) {
    INFO(format->name);
    const bool has_config = !format->method.empty();
    CHECK(has_config == (format->read_schemes != nullptr));
    CHECK((!format->config_file.empty() || format->nested_key.empty()));
    // vLLM-Ascend's file says of every tensor by its name how it is stored.
    const bool has_keys = !format->weight_keys.empty() || format->name == "ascend";
    CHECK(format->config_file.empty() == !has_keys);
    CHECK((format->find_beside == nullptr) == (format->read_beside == nullptr));
    CHECK((has_config || !format->kv_names.empty() || format->find_beside));
    if (has_config) CHECK(methods.insert(format->method).second);
  }
}

TEST_CASE("stored forms: a quant_method has one form") {
  for (const StoredFormat* format : stored_formats())
    if (!format->method.empty()) CHECK(format_of_method(format->method) == format);
  CHECK(format_of_method("modelopt_fp4") == format_of_method("modelopt"));
  CHECK(format_of_method("fp8_more") == nullptr);
  CHECK(format_of_method("hqq") == nullptr);
  CHECK(format_of_method("") == nullptr);
}

TEST_CASE("stored forms: names of scales are of one form each, ours first") {
  std::set<std::string_view> names, keys;
  for (const KvScaleNames& format : kv_scale_formats()) {
    CHECK(names.insert(format.name).second);
    CHECK(keys.insert(format.k).second);
    CHECK(&kv_scale_format(format.name) == &format);
    // Where vLLM-Ascend's usual writer observes K is not known.
    CHECK((name_of(format.keys) == "not_said") == (format.name == "ascend"));
  }
  CHECK(kv_scale_formats().front().name == "compressed-tensors");
}

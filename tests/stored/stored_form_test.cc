#include "stored/stored_form.h"

#include <set>

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("stored forms: a form has weights with a config, names of scales, or scales of ranks") {
  std::set<std::string_view> methods;
  for (const StoredFormat* form : stored_forms()) {
    INFO(form->name);
    const bool has_config = !form->method.empty();
    CHECK(has_config == (form->read_schemes != nullptr));
    CHECK((!form->config_file.empty() || form->nested_key.empty()));
    CHECK(form->config_file.empty() == form->weight_keys.empty());
    CHECK((form->find_ranks == nullptr) == (form->read_ranks == nullptr));
    CHECK((has_config || !form->kv_names.empty() || form->find_ranks));
    if (has_config) CHECK(methods.insert(form->method).second);
  }
}

TEST_CASE("stored forms: a quant_method has one form") {
  for (const StoredFormat* form : stored_forms())
    if (!form->method.empty()) CHECK(form_of_method(form->method) == form);
  CHECK(form_of_method("modelopt_fp4") == form_of_method("modelopt"));
  CHECK(form_of_method("fp8_more") == nullptr);
  CHECK(form_of_method("hqq") == nullptr);
  CHECK(form_of_method("") == nullptr);
}

TEST_CASE("stored forms: names of scales are of one form each, ours first") {
  std::set<std::string_view> names, keys;
  for (const KvScaleNames& form : kv_forms()) {
    CHECK(names.insert(form.name).second);
    CHECK(keys.insert(form.k).second);
    CHECK(&kv_form(form.name) == &form);
    CHECK(name_of(form.keys) != "not_said");
  }
  CHECK(kv_forms().front().name == "compressed-tensors");
}

// A file that describes a family, its template read again, and a config.json of its type.
#include "descriptors/family_file.h"

#include "family/expected_tensors.h"
#include "family/model_config.h"
#include "support/fuzz.h"

using namespace kvcal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Json kConfig{{"model_type", "of_no_family"}, {"hidden_size", 32},
                            {"intermediate_size", 48},      {"num_hidden_layers", 2},
                            {"num_attention_heads", 4},     {"vocab_size", 64},
                            {"max_position_embeddings", 64}};
  fuzz::accepts([&] {
    const FamilyFile file(fuzz::text_of(data, size), "family.yaml");
    const std::string saved = family_template(file.architecture());
    fuzz::accepts([&] { FamilyFile(saved, "saved.yaml"); });
    fuzz::accepts([&] { expected_tensors(parse_model_config(kConfig, file.choice())); });
  });
  return 0;
}

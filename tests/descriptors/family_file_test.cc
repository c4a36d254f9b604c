// Families that files describe: they are the built-in ones, or differ from them as the file says.
#include "descriptors/family_file.h"

#include "descriptors/descriptor_fields.h"
#include "family/expected_tensors.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

/// A family of the usual tensors, in twelve lines.
constexpr const char* kSmall = R"(name: small
model_types: [small]
attention_class: SmallAttention
model_tensors:
  - {role: embedding, name: emb.weight, shape: [vocab, hidden]}
  - {role: final_norm, name: norm.weight, shape: [hidden]}
  - {role: lm_head, name: head.weight, shape: [vocab, hidden], unless: [tie_word_embeddings]}
layer_tensors:
  - {role: query, name: self_attn.q.weight, shape: [query_width, hidden]}
  - {role: key, name: self_attn.k.weight, shape: [kv_width, hidden]}
  - {role: value, name: self_attn.v.weight, shape: [value_width, hidden]}
  - {role: output, name: self_attn.o.weight, shape: [hidden, attended_width]}
  - {role: up, name: mlp.up.weight, shape: [intermediate, hidden]}
  - {role: down, name: mlp.down.weight, shape: [hidden, intermediate]}
)";

std::string error_of(const std::string& text) {
  return test::message_of([&] { FamilyFile file(text, "f"); });
}

/// kSmall with one piece of text instead of another.
std::string error_with(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return error_of(text.replace(at, from.size(), to));
}

Json fixture_json(const std::string& name) {
  return parse_json(read_text(test::model_fixture(name) / "config.json"),
                    {.has_python_constants = true});
}

std::string shape_text(const ExpectedTensor& tensor) {
  std::string text = tensor.name + " " + std::string(row_of(tensor.row->role).name);
  for (const int64_t size : tensor.shape.dims) text += " " + std::to_string(size);
  return text;
}

/// The resolved configuration: every tensor, multipliers, and the window and rope of each layer.
std::vector<std::string> resolved_text(const ModelConfig& config) {
  std::vector<std::string> all;
  for (const ExpectedTensor& tensor : expected_tensors(config)) all.push_back(shape_text(tensor));
  for (const float value : {config.norm_eps, config.softmax_scale, config.embedding_multiplier,
                            config.residual_multiplier, config.logits_multiplier})
    all.push_back(std::to_string(value));
  for (const LayerConfig& layer : config.layers)
    all.push_back(std::to_string(layer.sliding_window) + " " + std::to_string(layer.rope));
  return all;
}

}  // namespace

TEST_CASE("family file: every built-in family passes the checks of files") {
  for (const Architecture& family : architectures()) {
    INFO(family.name);
    CHECK_NOTHROW(check_architecture(family));
  }
}

TEST_CASE("family file: a built-in family written as a file is the same family") {
  for (const Architecture& family : architectures()) {
    INFO(family.name);
    const std::string text = family_template(family);
    const FamilyFile file(text, "f");
    CHECK(family_template(file.architecture()) == text);
    CHECK(file.architecture().resolve == family.resolve);
    CHECK(file.architecture().model_types == family.model_types);
    CHECK(file.architecture().layer_tensors.size() == family.layer_tensors.size());
  }
}

TEST_CASE("family file: fixtures run by their family's file as by the family") {
  for (const std::string& name : test::model_fixture_names()) {
    INFO(name);
    Json json = fixture_json(name);
    const ModelConfig known = parse_model_config(json);
    if (!known.wrapper_type.empty()) continue;
    const FamilyFile file(family_template(*known.architecture), "f");
    Architecture family = file.architecture();
    family.model_types.clear();
    json["model_type"] = "brandnew";
    const ModelConfig config = parse_model_config(json, {&family, "--family-file", "f", "1"});
    CHECK(resolved_text(config) == resolved_text(known));
  }
}

TEST_CASE("family file: the template has every field of a family") {
  Architecture llama = *choose_family("llama").architecture;
  const std::string text = family_template(llama);
  int count = 0;
  visit_fields(llama, [&](std::string_view name, auto&&, std::string_view comment) {
    INFO(name);
    CHECK(!comment.empty());
    CHECK(text.find(std::string(name) + ":") != std::string::npos);
    ++count;
  });
  CHECK(count > 40);
}

TEST_CASE("family file: the empty template is Llama") {
  const FamilyFile file(empty_family_template(), "f");
  const Architecture& llama = *choose_family("llama").architecture;
  CHECK(file.architecture().name == "my_family");
  CHECK(file.architecture().model_types.empty());
  Architecture same = file.architecture();
  same.name = llama.name;
  same.model_types = llama.model_types;
  same.description = llama.description;
  CHECK(family_template(same) == family_template(llama));
}

TEST_CASE("family file: a family of its own, and one like another") {
  const FamilyFile small(kSmall, "f");
  CHECK(small.architecture().layer_tensors.size() == 6);
  CHECK(small.architecture().model_tensors[2].conditions[0].wanted == false);
  const FamilyFile edited(
      "name: edited\nlike: qwen3\ndrop_tensors: [query_norm, key_norm]\n"
      "rename_tensors: {self_attn.: attn., self_attn.q_proj: attn.wq}\nattention_module: attn\n"
      "defaults: {head_dim: 64, rope_theta: 1e6, hidden_act: relu2, flag: true}\n",
      "f");
  const Architecture& family = edited.architecture();
  std::vector<std::string> names;
  for (const TensorRow& row : family.layer_tensors) names.emplace_back(row.name);
  CHECK(std::ranges::find(names, "attn.wq.weight") != names.end());
  CHECK(std::ranges::find(names, "attn.k_proj.weight") != names.end());
  CHECK(std::ranges::find(names, "self_attn.q_norm.weight") == names.end());
  CHECK(parse_json(family.defaults) ==
        Json{{"head_dim", 64}, {"rope_theta", 1e6}, {"hidden_act", "relu2"}, {"flag", true}});
  CHECK(family.sliding_window == choose_family("qwen3").architecture->sliding_window);
}

TEST_CASE("family file: errors have line and column") {
  CHECK(error_of("name: [a]\n") == "line 1, column 7: name: found a list, expected a text");
  CHECK(error_of("like: qwen33\n")
            .starts_with(
                "line 1, column 7: like: unknown family 'qwen33' (did you mean 'qwen3'?); kvcal "
                "families lists the known"));
  CHECK(error_of("name: a\nlike: llama\ncentres_norm: true\n")
            .starts_with("line 3, column 1: family: unknown key 'centres_norm'"));
  CHECK(test::contains(error_of("name: a\nlike: llama\ncentres_norm: true\n"),
                       "did you mean 'centers_norm'?"));
  CHECK(error_of("name: a\nlike: llama\ncenters_norm: 3\n") ==
        "line 3, column 15: centers_norm: found '3', expected true or false");
  CHECK(error_of("name: a\nlike: llama\npositions: roped\n")
            .starts_with("line 3, column 12: positions: unknown choice of positions 'roped' (did "
                         "you mean 'rope'?); known are rope, none, learned, "));
  CHECK(error_of("name: a\nlike: llama\nswitches: [{key: b, sets: mlp_bia}]\n")
            .starts_with("line 3, column 27: switches[0].sets: unknown switch 'mlp_bia' (did you "
                         "mean 'mlp_bias'?)"));
  CHECK(error_of("name: a\nlike: llama\nswitches: [{key: b}]\n") ==
        "line 3, column 12: switches[0]: 'sets' is missing");
  CHECK(error_of("name: a\nlike: llama\nresolve: llama\n")
            .starts_with("line 3, column 10: resolve: no built-in family 'llama' has a hook"));
  CHECK(error_of("name: a\nlike: llama\ndrop_tensors: [query_norm]\n") ==
        "line 3, column 16: drop_tensors[0]: no tensor has the role query_norm");
  CHECK(error_of("name: a\nlike: llama\nrename_tensors: {x.: y.}\n") ==
        "line 3, column 18: rename_tensors: no tensor's name begins with 'x.'");
  CHECK(error_of("like: llama\n") == "name is missing, expected that of the family");
  CHECK(test::contains(error_of("name: a\nname: b\n"), "line 2, column 1"));
}

TEST_CASE("family file: tensors that no forward pass reads") {
  CHECK(error_with("shape: [kv_width, hidden]", "shape: [hidden, kv_width]")
            .starts_with("line 10, column 5: layer_tensors[1]: shape of role key is [hidden, "
                         "kv_width], expected [kv_width, hidden]"));
  CHECK(error_with("role: up", "role: upp")
            .starts_with("line 13, column 12: layer_tensors[4].role: unknown role 'upp' (did you "
                         "mean 'up'?)"));
  CHECK(error_with("role: up", "role: embedding") ==
        "line 13, column 5: layer_tensors[4]: role embedding is for model_tensors");
  CHECK(error_with("unless: [tie_word_embeddings]", "when: [is_moe]") ==
        "line 7, column 5: model_tensors[2]: condition is_moe is a layer's, and the tensor is "
        "outside of the layers");
  CHECK(error_with("mlp.up.weight", "'mlp.{}.up.weight'") ==
        "line 13, column 5: layer_tensors[4]: name 'mlp.{}.up.weight' has {} for a number, and "
        "there is no repeat");
  CHECK(error_with("role: down, name: mlp.down.weight, shape: [hidden, intermediate]",
                   "role: down_bias, name: b, shape: [hidden]") ==
        "an MLP needs a tensor with the role down, found none");
  CHECK(error_with("self_attn.k.weight", "attn.k.weight") ==
        "attention_module is 'self_attn', and the tensor of the role key is 'attn.k.weight', which "
        "lies outside of it");
  CHECK(error_with("layer_tensors:",
                   "qk_norm: whole\nlayer_tensors:\n  - {role: query_norm, name: self_attn.n, "
                   "shape: [head_dim]}") ==
        "qk_norm is whole, and the tensor 'self_attn.n' is [head_dim], as of per_head");
  CHECK(error_with("attention_class: SmallAttention\n", "") ==
        "attention_class is missing, expected the class of its attention modules");
}

}  // namespace kvcal

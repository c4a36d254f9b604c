#include "export/model_card.h"

#include "support/catch.h"

using namespace kvcal;

namespace {

/// A manifest as calibrate writes it, as far as cards read it.
Json manifest() {
  return parse_json(R"({
    "created_by": "kvcal 1", "model": {"path": "/home/u/models/Llama"},
    "recipe": {"path": "/tmp/r.yaml", "kv_cache_scheme": {"strategy": "attn_head"}},
    "dataset": {"path": "a/b@0123456789012345678901234567890123456789", "num_samples": 2,
                "num_tokens": 30},
    "layers": [{"layer": 0, "k_scale": [0.5, 0.25], "v_scale": null, "k_amax": 2.0}],
    "linears": {"q": {"weight_scale": 0.1}, "k": {"weight_scale": null}}})");
}

SourceCard source() {
  return parse_source_card(
      "---\nlicense: other\nlicense_name: tiny\nlicense_link: LICENSE\nlanguage: no\n"
      "datasets: [a/b]\ntags: [chat, modelopt]\nwidget: x\n---\n# Llama\n");
}

}  // namespace

TEST_CASE("model card: the front matter passes on licence, language, data and tags") {
  ModelCard card = card_of_manifest(manifest(), "Llama", "compressed-tensors+tgi");
  card.base_model = "meta/Llama";
  card.datasets = {"a/b", "c/d"};
  const std::string text = card_text(card, source());
  CHECK(
      text.starts_with("---\nbase_model: meta/Llama\nbase_model_relation: quantized\n"
                       "license: other\nlicense_name: tiny\nlicense_link: LICENSE\n"
                       "language: 'no'\ndatasets:\n- a/b\n- c/d\n"
                       "tags:\n- chat\n- kvcal\n- fp8\n- fp8-kv-cache\n- compressed-tensors\n"
                       "- tgi\n---\n<!-- kvcal: begin -->\n"));
  CHECK(text.ends_with("\n<!-- kvcal: end -->\n\n# Llama\n"));
}

TEST_CASE("model card: it names no folder of a machine, and every layer's scales") {
  const std::string text = card_text(card_of_manifest(manifest(), "/x/Llama", "fp8"), {});
  CHECK(text.find("/home") == text.npos);
  CHECK(text.find("/tmp") == text.npos);
  for (const char* part :
       {"# Llama, weights and KV cache in FP8\n", "- source: `Llama`\n", "- recipe: `r.yaml`\n",
        "- data: `a/b@0123456789012345678901234567890123456789`, 2 samples, 30 tokens\n",
        "- weights: FP8, 1 of them\n", "- scales: of K and V in FP8, one for each head\n",
        "| 0 | 0.25 to 0.5 (2 heads) | - | 2 | - |\n"}) {
    INFO(part);
    CHECK(text.find(part) != text.npos);
  }
  CHECK(text.find("base_model") == text.npos);
}

TEST_CASE("model card: a draft, and a layer that reads another one's cache, are called so") {
  Json marked = manifest();
  marked["layers"] = parse_json(R"([{"layer": 0, "k_scale": 1.0},
      {"layer": 1, "k_scale": 1.0, "reads_cache_of": 0}, {"layer": 2, "draft": true}])");
  const std::string text = card_text(card_of_manifest(marked, "", "fp8"), {});
  CHECK(text.find("| 0 | 1 |") != text.npos);
  CHECK(text.find("| 1, reads the cache of layer 0 | 1 |") != text.npos);
  CHECK(text.find("| 2, a draft | - |") != text.npos);
}

TEST_CASE("model card: a name is text, whatever it says") {
  Json named = manifest();
  named["model"]["path"] = "/x/<img src=x onerror=1> [a](http:b) `c` *d* & e_f";
  const std::string text = card_text(card_of_manifest(named, "", "fp8"), {});
  CHECK(text.find("# \\<img src=x onerror=1\\> \\[a\\](http:b) \\`c\\` \\*d\\* \\& e_f, ") !=
        text.npos);
  CHECK(text.find("\n# <img") == text.npos);
}

TEST_CASE("model card: a manifest of any shape makes a card") {
  for (const char* json : {"{}", "[]", "null", R"({"model": 3, "recipe": [], "layers": [1, {}]})",
                           R"({"linears": {"a": 1}, "layers": {}, "dataset": {"path": 1}})"}) {
    INFO(json);
    const std::string text = card_text(card_of_manifest(parse_json(json), "a/Llama", "fp8"), {});
    CHECK(text.find("# Llama") != text.npos);
  }
}

TEST_CASE("model card: of a card of ours the text below and the base stay, and nothing grows") {
  ModelCard card = card_of_manifest(manifest(), "Llama", "fp8");
  card.base_model = "meta/Llama";
  const std::string first = card_text(card, source());
  card.base_model.clear();
  const std::string second = card_text(card, parse_source_card(first));
  CHECK(second == first);
  // The form of before is no tag any more.
  const std::string other =
      card_text(card_of_manifest(manifest(), "x", "quark"), parse_source_card(first));
  CHECK(other.find("- fp8\n- fp8-kv-cache\n- quark\n---") != other.npos);
}

TEST_CASE("model card: a base that the source was trained from is not the output's") {
  const SourceCard tuned = parse_source_card("---\nbase_model: meta/Llama\n---\n");
  const std::string text = card_text(card_of_manifest(manifest(), "x", "fp8"), tuned);
  CHECK(text.find("base_model") == text.npos);
}

TEST_CASE("model card: front matter that cannot be read stands in a fence that it does not close") {
  const SourceCard broken = parse_source_card("---\na: [```\n---\nText");
  const std::string text = card_text(card_of_manifest(manifest(), "x", "fp8"), broken);
  CHECK(text.ends_with("\n\n````yaml\na: [```\n````\n\nText\n"));
}

TEST_CASE("model card: measurements are added, and replace those of before") {
  const std::string card = card_text(card_of_manifest(manifest(), "x", "fp8"), source());
  const std::string measured = with_accuracy(card, {{"KL", "1"}});
  CHECK(measured.find("in FP8\n\n## Accuracy\n\n- KL: 1\n\n## Facts\n\n- source: ") !=
        measured.npos);
  CHECK(with_accuracy(measured, {{"KL", "2"}}) == with_accuracy(card, {{"KL", "2"}}));
  CHECK(with_accuracy("Text", {{"KL", "1"}}) == "Text");
  CHECK(with_accuracy(measured, {}) == card);
  ModelCard predicted = card_of_manifest(manifest(), "x", "fp8");
  predicted.accuracy = {{"KL", "1"}};
  CHECK(card_text(predicted, source()) == measured);
}

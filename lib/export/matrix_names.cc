#include "export/matrix_names.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>

#include "core/error.h"

namespace kvcal {
namespace {

using Words = std::span<const std::string_view>;

/// One rule: a module is of a kind if one of its name's words, between dots, contains, is or ends
/// with one of these; or if its last word is one of them.
struct Rule {
  std::string_view kind;
  Words contained = {}, equal = {}, endings = {}, last = {};
};

constexpr std::string_view kTowerParts[] = {"vision", "visual",      "audio",      "image",
                                            "speech", "multi_modal", "multimodal", "mm_proj"};
constexpr std::string_view kTowers[] = {"vit",    "vpm",     "apm",       "resampler",
                                        "merger", "aligner", "connector", "perceiver"};
constexpr std::string_view kEmbeddingParts[] = {"embed"};
constexpr std::string_view kEmbeddings[] = {"wte", "wpe", "shared", "relative_attention_bias"};
constexpr std::string_view kHeadEndings[] = {"_head"};
constexpr std::string_view kHeads[] = {"head", "score", "classifier", "qa_outputs"};
constexpr std::string_view kRouters[] = {"router", "gate", "shared_expert_gate", "moe_router"};
constexpr std::string_view kNormEndings[] = {"norm", "ln"};
constexpr std::string_view kNormParts[] = {"layernorm", "LayerNorm", "layer_norm"};

constexpr Rule kRules[] = {
    {.kind = "tower", .contained = kTowerParts, .equal = kTowers},
    {.kind = "embedding", .contained = kEmbeddingParts, .last = kEmbeddings},
    {.kind = "head", .endings = kHeadEndings, .last = kHeads},
    {.kind = "router", .equal = kRouters},
    {.kind = "norm", .contained = kNormParts, .endings = kNormEndings},
};

std::vector<std::string_view> words_of(std::string_view name) {
  std::vector<std::string_view> words;
  for (size_t dot; (dot = name.find('.')) != std::string_view::npos; name.remove_prefix(dot + 1))
    words.push_back(name.substr(0, dot));
  words.push_back(name);
  return words;
}

bool follows(const Rule& rule, const std::vector<std::string_view>& words) {
  const auto has = [](Words known, const auto& test) { return std::ranges::any_of(known, test); };
  return std::ranges::any_of(
             words,
             [&](std::string_view word) {
               return has(rule.contained,
                          [&](std::string_view part) {
                            return word.find(part) != std::string_view::npos;
                          }) ||
                      has(rule.equal, [&](std::string_view part) { return word == part; }) ||
                      has(rule.endings,
                          [&](std::string_view part) { return word.ends_with(part); });
             }) ||
         has(rule.last, [&](std::string_view part) { return words.back() == part; });
}

/// A set of modules with one scale: the ends of its members' names, and of the name before those;
/// no ends: any name.
struct Sharing {
  Words members, parents;
};
constexpr std::string_view kQkv[] = {"q_proj", "k_proj", "v_proj"};
constexpr std::string_view kLatent[] = {"wq_a", "wkv_a_with_mqa"};
constexpr std::string_view kGateUp[] = {"gate_proj", "up_proj"};
constexpr std::string_view kW1W3[] = {"w1", "w3"};
constexpr std::string_view kAttention[] = {"attn", "attention"}, kMlp[] = {"mlp"};
constexpr Sharing kSharings[] = {
    {kQkv, kAttention}, {kLatent, kAttention}, {kGateUp, kMlp}, {kW1W3, {}}};

constexpr std::string_view stacked_name(Stacked kind) {
  return kind == Stacked::kGateUp ? "gate_up_proj" : "down_proj";
}

}  // namespace

std::optional<std::string_view> reason_by_name(std::string_view module) {
  const std::vector<std::string_view> words = words_of(module);
  for (const Rule& rule : kRules)
    if (follows(rule, words)) return rule.kind;
  // Below a layer, "output" is a Linear of an attention or a feed-forward.
  if (words.back() == "output" && words.size() <= 2) return "head";
  return std::nullopt;
}

std::vector<std::vector<std::string>> sharing_modules(const std::vector<std::string>& modules) {
  const std::set<std::string_view> all(modules.begin(), modules.end());
  std::vector<std::vector<std::string>> found;
  for (const std::string& module : modules) {
    const size_t dot = module.rfind('.');
    if (dot == std::string::npos) continue;
    const std::string parent = module.substr(0, dot);
    for (const Sharing& sharing : kSharings) {
      if (module.substr(dot + 1) != sharing.members.front()) continue;
      if (!sharing.parents.empty() &&
          std::ranges::none_of(sharing.parents,
                               [&](std::string_view end) { return parent.ends_with(end); }))
        continue;
      std::vector<std::string> members;
      for (const std::string_view member : sharing.members)
        if (std::string name = parent + "." + std::string(member); all.contains(name))
          members.push_back(std::move(name));
      if (members.size() == sharing.members.size()) found.push_back(std::move(members));
    }
  }
  return found;
}

std::optional<Stacked> stacked_kind(std::string_view tensor) {
  for (const Stacked kind : {Stacked::kGateUp, Stacked::kDown})
    if (tensor.find(stacked_name(kind)) != std::string_view::npos) return kind;
  return std::nullopt;
}

std::string split_module(std::string_view tensor, Stacked kind, int64_t expert, int64_t part) {
  constexpr std::string_view kWeight = ".weight";
  std::string module(tensor.ends_with(kWeight) ? tensor.substr(0, tensor.size() - kWeight.size())
                                               : tensor);
  const std::string_view part_name = kind == Stacked::kDown ? "down_proj"
                                     : part == 0            ? "gate_proj"
                                                            : "up_proj";
  const std::string_view stacked = stacked_name(kind);
  const size_t at = module.find(stacked);
  KVCAL_CHECK(at != std::string::npos);
  return module.replace(at, stacked.size(), std::to_string(expert) + "." + std::string(part_name));
}

}  // namespace kvcal

#include "export/weights_by_name.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <span>

#include "core/error.h"
#include "core/folder.h"
#include "core/pcre2_regex.h"
#include "core/registry.h"
#include "core/text.h"
#include "export/layer_scales.h"
#include "quant/module_target.h"
#include "quant/weight_scales.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kOtherConfig = "hf_quant_config.json";

/// Name of the module whose weight a tensor is; nullopt: it is none.
std::optional<std::string> module_of(std::string_view tensor) {
  if (!tensor.ends_with(kWeight)) return std::nullopt;
  return std::string(tensor.substr(0, tensor.size() - kWeight.size()));
}

/// Which patterns of --ignore match; each must match something.
class IgnorePatterns {
 public:
  explicit IgnorePatterns(const std::vector<std::string>& patterns)
      : patterns_(patterns), has_matched_(patterns.size(), false) {
    for (const std::string& pattern : patterns)
      in_context("--ignore", [&] { check_target(pattern); });
  }

  /// The reason for keeping a module, by its name or that of its tensor.
  std::optional<std::string> reason(std::string_view module, std::string_view tensor) {
    std::optional<std::string> reason;
    for (size_t i = 0; i < patterns_.size(); ++i)
      if (matches_target(patterns_[i], module, "") || matches_target(patterns_[i], tensor, "")) {
        has_matched_[i] = true;
        if (!reason) reason = "--ignore '" + patterns_[i] + "'";
      }
    return reason;
  }

  void check_all_matched(const std::vector<std::string>& names) const {
    for (size_t i = 0; i < patterns_.size(); ++i)
      if (!has_matched_[i])
        fail("--ignore '", patterns_[i], "' matches no module of the checkpoint",
             patterns_[i].starts_with("re:") ? "" : did_you_mean(patterns_[i], names));
  }

 private:
  const std::vector<std::string>& patterns_;
  std::vector<bool> has_matched_;
};

class Search {
 public:
  Search(const ModelDir& model, const std::vector<std::string>& ignore)
      : model_(model), ignore_(ignore) {}

  WeightsByName run() {
    check_is_unquantized(model_);
    if (const auto other = model_.path() / kOtherConfig; is_there(other))
      fail(other.string(), ": the checkpoint is quantized already");
    in_context(model_.path().string(), [&] {
      for (const std::string& name : model_.tensor_names()) see(*model_.find(name));
    });
    ignore_.check_all_matched(modules_);
    if (found_.quantized.empty())
      fail(model_.path().string(), ": has no weight to quantize; ",
           counted(found_.kept.size(), "tensor"), " left alone");
    if (!has_head_) found_.ignore.emplace_back("lm_head");
    return std::move(found_);
  }

 private:
  /// Throws Error for codes, and for scales of codes. Whatever pattern leaves such a module as it
  /// is, the output's config would say that its weight is of 16 bits.
  void check_is_no_code(const TensorView& tensor) const {
    const size_t dot = tensor.name.rfind('.');
    const std::string_view last =
        dot == std::string_view::npos ? tensor.name : tensor.name.substr(dot + 1);
    const auto has_beside = [&](std::string_view end) {
      return dot != std::string_view::npos &&
             model_.find(std::string(tensor.name.substr(0, dot)) + std::string(end)) != nullptr;
    };
    const bool is_code = last == "weight" && tensor.shape.rank() == 2 && !is_float(tensor.dtype);
    const bool is_scale = is_name_of_codes(last) &&
                          (has_beside(kWeight) || std::ranges::any_of(kNamesOfCodes, has_beside));
    if (is_code || is_scale)
      fail(tensor.name, " is ", tensor.dtype, ", ",
           is_scale ? "of a quantized weight" : "expected F16, BF16 or F32",
           "; the checkpoint is quantized already");
  }

  void see(const TensorView& tensor) {
    check_is_no_code(tensor);
    const std::optional<std::string> module = module_of(tensor.name);
    const std::string name = module.value_or(std::string(tensor.name));
    modules_.push_back(name);
    has_head_ = has_head_ || name.ends_with("lm_head");
    const std::optional<std::string> ignored = ignore_.reason(name, tensor.name);
    if (tensor.shape.rank() < 2) return;
    if (const auto kind = stacked_kind(tensor.name); kind && tensor.shape.rank() == 3 && !ignored)
      return see_stack(tensor, *kind);
    const bool is_matrix = module && tensor.shape.rank() == 2;
    if (const auto reason = kept_reason(name, tensor, is_matrix, ignored)) {
      found_.kept.push_back({name, *reason});
      if (is_matrix) found_.ignore.push_back(name);
      return;
    }
    check_dtype(tensor);
    add(name, tensor, tensor.shape, nullptr);
  }

  static std::optional<std::string> kept_reason(const std::string& name, const TensorView& tensor,
                                                bool is_matrix,
                                                const std::optional<std::string>& ignored) {
    if (ignored) return ignored;
    if (const auto reason = reason_by_name(name)) return std::string(*reason);
    if (is_matrix) return std::nullopt;
    if (tensor.shape.rank() > 2) return counted(tensor.shape.rank(), "dimension");
    return "not called weight";
  }

  static void check_dtype(const TensorView& tensor) {
    if (!is_float(tensor.dtype))
      fail(tensor.name, " is ", tensor.dtype,
           ", expected F16, BF16 or F32; the checkpoint is quantized already, or --ignore leaves "
           "this weight as it is");
  }

  void add(std::string module, const TensorView& source, Shape shape, const StackedSlice* slice) {
    found_.quantized.push_back({.module = std::move(module),
                                .source = &source,
                                .shape = std::move(shape),
                                .slice = slice,
                                .shard = shard_of(model_, source.name)});
    found_.replaced.insert(std::string(source.name));
  }

  /// Experts in one tensor. Reasons by name count for the tensor, patterns for each expert's part.
  void see_stack(const TensorView& tensor, Stacked kind) {
    if (const auto reason = reason_by_name(tensor.name)) {
      found_.kept.push_back({std::string(tensor.name), std::string(*reason)});
      return;
    }
    check_dtype(tensor);
    const int64_t parts = kind == Stacked::kGateUp ? 2 : 1;
    check_order(tensor, kind);
    std::vector<CopiedWeight> kept;
    std::vector<RenamedTensor> copies;
    for (int64_t expert = 0; expert < tensor.shape[0]; ++expert)
      for (int64_t part = 0; part < parts; ++part) {
        const std::string module = split_module(tensor.name, kind, expert, part);
        modules_.push_back(module);
        const std::string name = module + std::string(kWeight);
        const StackedSlice& slice = found_.slices.emplace_back(StackedSlice{
            .tensor = std::string(tensor.name), .index = expert, .part = part, .parts = parts});
        if (model_.find(name))
          fail(tensor.name, ": the checkpoint has a tensor ", name, " beside it");
        if (const auto reason = ignore_.reason(module, name)) {
          kept.push_back({module, *reason});
          copies.push_back({name, &tensor, &slice, shard_of(model_, tensor.name)});
        } else {
          add(module, tensor, shape_of(slice, tensor.shape), &slice);
        }
      }
    for (const CopiedWeight& one : kept) found_.ignore.push_back(one.name);
    found_.kept.insert(found_.kept.end(), kept.begin(), kept.end());
    if (found_.replaced.contains(tensor.name))
      std::ranges::move(copies, std::back_inserter(found_.renamed));
  }

  /// Throws Error for a stack whose inputs come before its outputs, as far as the other stack of
  /// the same experts tells: gate_up [experts, 2 · inner, width] goes with down [experts, width,
  /// inner].
  void check_order(const TensorView& tensor, Stacked kind) const {
    const bool is_gate_up = kind == Stacked::kGateUp;
    const std::string own = is_gate_up ? "gate_up_proj" : "down_proj";
    std::string name(tensor.name);
    name.replace(name.find(own), own.size(), is_gate_up ? "down_proj" : "gate_up_proj");
    const TensorView* other = model_.find(name);
    if (!other || other->shape.rank() != 3) return;
    const Shape& gate_up = is_gate_up ? tensor.shape : other->shape;
    const Shape& down = is_gate_up ? other->shape : tensor.shape;
    if (gate_up[1] == 2 * down[2] && gate_up[2] == down[1]) return;
    fail(tensor.name, " is ", tensor.shape, " beside ", name, " ", other->shape,
         ", expected [experts, 2 x inner, width] and [experts, width, inner]; which rows are gate "
         "and which are up is not known, and --ignore leaves such experts as they are");
  }

  const ModelDir& model_;
  IgnorePatterns ignore_;
  WeightsByName found_;
  std::vector<std::string> modules_;
  bool has_head_ = false;
};

/// Reasons by regular expressions that a module's name holds; words stand between dots.
constexpr std::pair<std::string_view, std::string_view> kReasons[] = {
    {"tower",
     "vision|visual|audio|image|speech|multi_modal|multimodal|mm_proj|"
     "(^|\\.)(vit|vpm|apm|resampler|merger|aligner|connector|perceiver)(\\.|$)"},
    {"embedding", "embed|(^|\\.)(wte|wpe|shared|relative_attention_bias)$"},
    {"head", "_head(\\.|$)|(^|\\.)(head|score|classifier|qa_outputs)$"},
    {"vector", "_res_proj$"},  // of Kimi-K3, which scores residual sums
    {"router", "(^|\\.)(router|gate|shared_expert_gate|moe_router)(\\.|$)"},
    {"norm", "layernorm|LayerNorm|layer_norm|(norm|ln)(\\.|$)"},
    // Below a layer, "output" is a Linear of an attention or a feed-forward.
    {"head", "^([^.]*\\.)?output$"},
};

using Words = std::span<const std::string_view>;

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

WeightsByName weights_by_name(const ModelDir& model, const std::vector<std::string>& ignore) {
  return Search(model, ignore).run();
}

void check_fit(const WeightsByName& found, const ModelDir& model, const QuantArgs& args,
               const std::string& scheme) {
  constexpr size_t kMaxShown = 5;
  std::vector<std::string> odd;
  for (const PlannedWeight& weight : found.quantized) try {
      scale_grid(args, weight.shape);
    } catch (const Error& error) {
      odd.push_back(weight.module + ": " + error.message());
    }
  if (odd.empty()) return;
  const size_t count = odd.size();
  odd.resize(std::min(count, kMaxShown));
  fail(model.path().string(), ": ", count, count == 1 ? " weight does" : " weights do", " not fit ",
       scheme, " (--ignore leaves them as they are): ", join(odd, "; "),
       count > kMaxShown ? "; ..." : "");
}

std::optional<std::string_view> reason_by_name(std::string_view module) {
  static const std::vector<Pcre2Regex> kCompiled = [] {
    constexpr RegexOptions kLimits{
        .max_steps = 1'000'000, .max_depth = 10'000, .max_heap_kib = 16 * 1024};
    std::vector<Pcre2Regex> compiled;
    for (const auto& [reason, expression] : kReasons) compiled.emplace_back(expression, kLimits);
    return compiled;
  }();
  for (size_t i = 0; i < kCompiled.size(); ++i)
    if (kCompiled[i].find(module, 0)) return kReasons[i].first;
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
  std::string module = module_of(tensor).value_or(std::string(tensor));
  const std::string_view part_name = kind == Stacked::kDown ? "down_proj"
                                     : part == 0            ? "gate_proj"
                                                            : "up_proj";
  const std::string_view stacked = stacked_name(kind);
  const size_t at = module.find(stacked);
  KVCAL_CHECK(at != std::string::npos);
  return module.replace(at, stacked.size(), std::to_string(expert) + "." + std::string(part_name));
}

}  // namespace kvcal

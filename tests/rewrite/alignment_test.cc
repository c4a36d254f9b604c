#include "rewrite/smoothing.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

#include "support/rewritten_model.h"

using namespace kvcal;
using test::contains;
using test::distance;
using test::is_quantized;
using test::kls_of;
using test::logits_of;
using test::message_of;
using test::model_fixture;
using test::ModelFixture;
using test::RewrittenModel;

namespace {

/// Any turns, factors and offsets that the model's function must survive. pairs: of each KV head,
/// at most, that change.
KvFactors any_factors(const ModelConfig& config, std::mt19937& random, size_t pairs) {
  std::uniform_real_distribution<double> angle(-std::numbers::pi, std::numbers::pi),
      doublings(-2.0, 2.0), offset(-1.0, 1.0);
  KvFactors all(static_cast<size_t>(config.num_hidden_layers));
  for (const int64_t layer : config.cached_layers()) {
    LayerFactors& own = all[static_cast<size_t>(layer)];
    const AttentionSizes& sizes = config.attention(layer);
    const HeadUnits units = key_units(config, layer);
    own.k.assign(static_cast<size_t>(sizes.key_width()), 1.0f);
    const bool can_turn = !reason_against_key_turns(config, layer);
    const bool can_shift = !units.fixed.empty() && can_shift_key(config, layer);
    if (can_shift) own.key_offset.assign(own.k.size(), 0.0f);
    std::vector<float> shared;
    for (int64_t head = 0; head < sizes.kv_heads; ++head) {
      const auto channel_of = [&](int64_t channel) {
        return static_cast<size_t>(head * sizes.head_dim + channel);
      };
      size_t next = 0;
      for (const std::vector<int64_t>& unit : units.all()) {
        const auto drawn = static_cast<float>(std::exp2(doublings(random)));
        if (head == 0) shared.push_back(drawn);
        const float factor = shares_key_factors(config, layer) ? shared[next] : drawn;
        if (next < pairs)
          for (const int64_t channel : unit) own.k[channel_of(channel)] = factor;
        ++next;
      }
      if (can_turn)
        for (size_t i = 0; i < units.turning.size(); ++i)
          own.key_turns.push_back(i < pairs ? angle(random) : 0.0);
      if (can_shift)
        for (const auto& unit : units.fixed)
          own.key_offset[channel_of(unit[0])] = static_cast<float>(offset(random));
    }
  }
  return all;
}

/// A copy of the checkpoint whose weights are float32.
struct WidenedModel {
  explicit WidenedModel(const fs::path& source) {
    const ModelDir model(source);
    for (const auto& entry : fs::directory_iterator(source))
      if (entry.path().extension() != ".safetensors")
        fs::copy(entry.path(), folder / entry.path().filename());
    fs::remove(folder / "model.safetensors.index.json");
    std::vector<Tensor> wide;
    for (const std::string& name : model.tensor_names()) {
      const TensorView& tensor = model.tensor(name);
      Tensor made{.name = name, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = {}};
      if (is_float(tensor.dtype)) {
        const std::vector<float> values = as_float32(std::span(&tensor, 1));
        const auto bytes = std::as_bytes(std::span(values));
        made.dtype = DType::kF32;
        made.bytes.assign(bytes.begin(), bytes.end());
      } else {
        made.bytes.assign(tensor.bytes.begin(), tensor.bytes.end());
      }
      wide.push_back(std::move(made));
    }
    std::vector<TensorSource> sources;
    for (const Tensor& tensor : wide) sources.push_back(source_of(tensor));
    write_safetensors(folder / "model.safetensors", std::move(sources), {{"format", "pt"}});
  }
  test::ScratchFolder folder;
};

/// A sample whose K is as if RoPE turned pair 0 by the position.
KeyRows turning_rows(const ModelConfig& config, double first, double second, double spread,
                     double turn) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0.0, spread);
  const auto width = static_cast<size_t>(config.attention(0).key_width());
  const size_t other = static_cast<size_t>(key_units(config, 0).turning[0][1]);
  KeyRows rows;
  for (int position = 0; position < 400; ++position) {
    std::vector<float> before(width), cached(width);
    for (float& value : before) value = static_cast<float>(noise(random));
    cached = before;
    before[0] += static_cast<float>(first);
    before[other] += static_cast<float>(second);
    const double angle = turn * position;
    cached[0] = static_cast<float>(std::cos(angle) * double{before[0]} -
                                   std::sin(angle) * double{before[other]});
    cached[other] = static_cast<float>(std::sin(angle) * double{before[0]} +
                                       std::cos(angle) * double{before[other]});
    rows.before.insert(rows.before.end(), before.begin(), before.end());
    rows.cached.insert(rows.cached.end(), cached.begin(), cached.end());
  }
  return rows;
}

ChannelAmax amax_of(const ModelConfig& config, const KeyRows& rows) {
  ChannelAmax amax;
  amax.k.assign(static_cast<size_t>(config.attention(0).key_width()), 0.0f);
  for (size_t i = 0; i < rows.cached.size(); ++i)
    amax.k[i % amax.k.size()] = std::max(amax.k[i % amax.k.size()], std::fabs(rows.cached[i]));
  return amax;
}

LayerAlignment aligned(const ModelConfig& config, const KeyRows& rows) {
  return align_layer(config, 0, std::span(&rows, 1), amax_of(config, rows));
}

ModelConfig config_of(const std::string& fixture) {
  return read_model_config(ModelDir(model_fixture(fixture)));
}

}  // namespace

TEST_CASE("alignment: every family's function survives any turn, factor and shift it allows") {
  int64_t turned = 0, scaled = 0, shifted = 0;
  for (const std::string& name : test::model_fixture_names()) {
    // A fixture's draws are its own: a new one changes no other's.
    std::seed_seq seed(name.begin(), name.end());
    std::mt19937 random(seed);
    const fs::path source = model_fixture(name);
    const ModelConfig config = read_model_config(ModelDir(source));
    if (is_quantized(source)) continue;
    INFO(name);
    if (const auto reason = reason_against_key_factors(config)) {
      CHECK(contains(message_of([&] { check_can_be_aligned(config); }),
                     "nothing to align: " + *reason));
      continue;
    }
    const WidenedModel wide(source);
    const KvFactors factors = any_factors(config, random, 1 << 20);
    const RewrittenModel model(wide.folder.path(), factors);
    CHECK(model.made.rounded == 0);
    for (const LayerFactors& own : factors) {
      turned += own.key_turns.empty() ? 0 : 1;
      scaled += own.k.empty() ? 0 : 1;
      shifted += own.key_offset.empty() ? 0 : 1;
    }
    const std::vector<float> before = logits_of(source);
    CHECK(distance(logits_of(model.folder.path()), before) <= 1e-5);
    // In the checkpoint's own dtype, a pair of each head.
    const RewrittenModel narrow(source, any_factors(config, random, 1));
    const size_t tokens = ModelFixture(source).ids.size();
    const std::vector<double> kls = kls_of(logits_of(narrow.folder.path()), before, tokens);
    // A rounding may send a token of these random weights to another expert; most keep theirs.
    const double kl =
        config.architecture->has_experts()
            ? kls[kls.size() / 2]
            : std::accumulate(kls.begin(), kls.end(), 0.0) / static_cast<double>(tokens);
    CHECK(kl < 1e-3);
  }
  CHECK(turned > 100);
  CHECK(scaled > turned);
  CHECK(shifted > 10);
}

TEST_CASE("alignment: a turn of one side alone, or of the wrong pair, changes the function") {
  const WidenedModel wide(model_fixture("llama"));
  const fs::path source = wide.folder.path();
  const ModelConfig config = config_of("llama");
  const KeyUnits pairs = key_units(config, 0).turning;
  const auto heads = static_cast<size_t>(config.attention(0).kv_heads);
  KvFactors factors(static_cast<size_t>(config.num_hidden_layers));
  factors[0].key_turns.assign(pairs.size() * heads, 0.5);
  CHECK(distance(logits_of(RewrittenModel(source, factors).folder.path()), logits_of(source)) <=
        1e-5);
  // Channels that RoPE turns apart.
  KvFactors wrong(factors.size());
  wrong[0].k.assign(static_cast<size_t>(config.attention(0).key_width()), 1.0f);
  wrong[0].k[0] = 1.5f;
  CHECK(distance(logits_of(RewrittenModel(source, wrong).folder.path()), logits_of(source)) > 1e-4);
}

TEST_CASE("alignment: an error that all keys share costs nothing, and one that toggles does") {
  const std::vector<float> constant(100, 300.3f);
  const float one[] = {1.0f};
  CHECK(key_error(constant, {}, {}, one) == 0.0);
  std::vector<float> toggling = constant;
  for (size_t i = 0; i < toggling.size(); i += 2) toggling[i] = 305.0f;  // 304 lies between codes
  CHECK(std::fabs(key_error(toggling, {}, {}, one) - std::pow((32.0 - 4.7) / 2.0, 2)) < 1e-2);
  // Half of the factor is half of the error, and the factor is taken out again.
  CHECK(std::fabs(key_error(toggling, {}, {.factor = 0.5f}, one) -
                  key_error(toggling, {}, {}, one)) < 1e-2);
  CHECK(key_error(toggling, {}, {.offset = -300.0f}, one) < 0.1);
}

TEST_CASE("alignment: a large constant part is turned onto one channel, and codes stay the same") {
  const ModelConfig config = config_of("llama");
  const KeyRows slow = turning_rows(config, 184.0, -304.0, 1.0, 1e-6);
  const LayerAlignment made = aligned(config, slow);
  CHECK(made.turned == 1);
  CHECK(made.error_after < 0.05 * made.error_before);
  const std::vector<double>& turns = made.factors.key_turns;
  REQUIRE_FALSE(turns.empty());
  CHECK(std::fabs(turns[0] - std::atan2(304.0, 184.0)) < 0.05);
  CHECK(made.factors.k[0] < 0.2f);
  CHECK(made.factors.k[0] ==
        made.factors.k[static_cast<size_t>(key_units(config, 0).turning[0][1])]);
  // Other pairs and heads stay.
  CHECK(std::ranges::count(made.factors.k, 1.0f) == std::ssize(made.factors.k) - 2);

  CHECK(aligned(config, turning_rows(config, 0.5, 0.5, 1.0, 1e-6)).changed() == 0);
  // A pair that goes round has no constant part in the cache.
  CHECK(aligned(config, turning_rows(config, 30.0, 0.0, 0.1, 1.0)).changed() == 0);
}

TEST_CASE("alignment: the largest K becomes 448 / 2^n, so a calibrated scale is a power of two") {
  const ModelConfig config = config_of("llama");
  const auto other = static_cast<size_t>(key_units(config, 0).turning[0][1]);
  for (const double length : {150.0, 200.0, 300.0, 355.0, 420.0}) {
    const KeyRows rows = turning_rows(config, length * 0.6, -length * 0.8, 0.5, 1e-6);
    const LayerAlignment made = aligned(config, rows);
    REQUIRE_FALSE(made.factors.key_turns.empty());
    const double cos = std::cos(made.factors.key_turns[0]),
                 sin = std::sin(made.factors.key_turns[0]);
    double largest = 0.0;
    for (size_t row = 0; row < rows.cached.size(); row += made.factors.k.size())
      largest = std::max(largest, std::fabs(cos * double{rows.cached[row]} -
                                            sin * double{rows.cached[row + other]}));
    largest *= double{made.factors.k[0]};
    const double halvings = std::log2(448.0 / largest);
    CHECK(std::fabs(halvings - std::round(halvings)) < 1e-5);
    CHECK(largest >= 2.5 * 0.5 * 3.0);  // well above what varies
  }
}

TEST_CASE("alignment: what scale 1.0 would clip gets into the range by a power of two") {
  const ModelConfig config = config_of("llama");
  const LayerAlignment made = aligned(config, turning_rows(config, 0.0, 0.0, 400.0, 0.1));
  CHECK(made.turned == 0);
  CHECK(made.scaled > 0);
  for (const float factor : made.factors.k) {
    int exponent = 0;
    CHECK(std::frexp(factor, &exponent) == 0.5f);
  }
}

TEST_CASE(
    "alignment: a norm of K allows factors alone, and shared ones are the same in all heads") {
  const ModelConfig config = config_of("qwen3");
  CHECK(contains(reason_against_key_turns(config, 0).value(), "norms Q and K behind"));
  const LayerAlignment made = aligned(config, turning_rows(config, 300.0, 0.0, 0.5, 1e-6));
  CHECK(made.turned == 0);
  CHECK(made.factors.key_turns.empty());
}

TEST_CASE("alignment: channels that do not turn lose their mean where a bias can take it") {
  CHECK(can_shift_key(config_of("gpt2"), 0));
  CHECK_FALSE(can_shift_key(config_of("llama"), 0));    // no bias
  CHECK_FALSE(can_shift_key(config_of("gpt_oss"), 0));  // sinks
  const ModelConfig config = config_of("gpt2");
  KeyRows rows;
  const auto width = static_cast<size_t>(config.attention(0).key_width());
  std::mt19937 random(3);
  std::normal_distribution<float> noise;
  for (size_t i = 0; i < 400 * width; ++i)
    rows.before.push_back(noise(random) + (i % width == 1 ? 300.0f : 0.0f));
  rows.cached = rows.before;
  const LayerAlignment made = aligned(config, rows);
  CHECK(made.shifted == 1);
  CHECK(std::fabs(made.factors.key_offset[1] + 300.0f) < 1.0f);
  CHECK(made.error_after < 0.05 * made.error_before);
}

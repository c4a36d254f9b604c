#include "forward/support/family_check.h"

#include <regex.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "family/wrapper.h"
#include "forward/decoder.h"
#include "forward/layerwise.h"
#include "quant/half.h"
#include "support/catch.h"
#include "support/scratch_folder.h"
#include "support/step_all.h"

namespace kvcal::test {

std::vector<float> all_logits(ModelFixture& fixture, ComputeType type) {
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, type);
  KvCache cache =
      decoder.make_cache(KvDType::kFloat32, {}, static_cast<int64_t>(fixture.ids.size()));
  return step_all(decoder, fixture.ids, cache);
}

/// Largest difference, relative to the largest of expected.
double distance(const std::vector<float>& logits, const std::vector<float>& expected) {
  REQUIRE(logits.size() == expected.size());
  double largest = 0.0, worst = 0.0;
  for (size_t i = 0; i < logits.size(); ++i) {
    largest = std::max(largest, static_cast<double>(std::fabs(expected[i])));
    worst = std::max(worst, static_cast<double>(std::fabs(expected[i] - logits[i])));
  }
  return worst / largest;
}

namespace {

void check_logits(const fs::path& folder, const std::vector<float>& expected) {
  for (const std::string& backend : backend_names()) {
    INFO("float32 on " << backend);
    ModelFixture fixture(folder, backend);
    CHECK(distance(all_logits(fixture, ComputeType::kFloat32), expected) <= kFloat32Tolerance);
  }
}

}  // namespace

/// Of what rounding every input and weight
/// to 8 bits of mantissa may do to all logits together.
double rms_distance(const std::vector<float>& logits, const std::vector<float>& expected) {
  REQUIRE(logits.size() == expected.size());
  double difference = 0.0, total = 0.0;
  for (size_t i = 0; i < logits.size(); ++i) {
    difference += std::pow(static_cast<double>(expected[i] - logits[i]), 2);
    total += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(difference / total);
}

std::vector<double> token_distances(const std::vector<float>& logits,
                                    const std::vector<float>& expected, size_t vocab_size) {
  REQUIRE(logits.size() == expected.size());
  std::vector<double> distances;
  for (size_t at = 0; at < logits.size(); at += vocab_size) {
    const auto row = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(at),
                                all.begin() + static_cast<std::ptrdiff_t>(at + vocab_size));
    };
    distances.push_back(rms_distance(row(logits), row(expected)));
  }
  std::ranges::sort(distances);
  return distances;
}

namespace {

/// 0 where there are no values.
double amax_of(const ObservedRange& range) {
  return range.min > range.max ? 0.0 : std::max(std::fabs(range.min), std::fabs(range.max));
}

/// Names of Linears on disk, without ".weight".
std::string name_of(const TensorRow& row, int64_t index) {
  const std::string name = row.name_of(index);
  if (row.is_stacked()) return name + "." + std::to_string(index);
  return name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
}

}  // namespace

Extremes::Extremes(ModelFixture& fixture, ComputeType type, bool all_experts) : fixture_(fixture) {
  const std::vector<std::span<const TokenId>> samples{fixture.ids};
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples,
                           {.compute_type = type}, silent);
  forward.observe_linear_inputs([&](const LinearInput& input) { fold(input); });
  forward.request(
      {.query = true, .head = true, .all_experts = all_experts, .linears = LinearDetail::kSamples});
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
    if (fixture.config.has_attention(layer)) {
      kv_.push_back(forward.observe_and_advance_exact(layer));
    } else {
      kv_.emplace_back().linears = forward.advance_without_attention(layer).linears;
    }
    check_collected(layer, kv_.back().linears);
  }
  const LinearObservation head = forward.observe_head();
  CHECK(head.role == Role::kLmHead);
  head_amax_ = amax_of(head.ranges.at(0));
}

void Extremes::check_collected(int64_t layer, const std::vector<LinearObservation>& seen) const {
  std::map<std::tuple<int64_t, Role, int64_t>, float> collected, shown;
  for (const LinearObservation& one : seen) {
    CHECK(one.nonfinite == 0);
    CHECK(static_cast<double>(one.amax.value) == amax_of(one.ranges.at(0)));
    collected[{layer, one.role, one.index}] = one.amax.value;
  }
  for (const auto& [place, amax] : inputs_)
    if (std::get<0>(place) == layer) shown[place] = amax;
  const bool same = collected == shown;
  CHECK(same);
}

void Extremes::check_queries(const Json& layers, double tolerance) const {
  REQUIRE(layers.size() == kv_.size());
  for (size_t layer = 0; layer < kv_.size(); ++layer) {
    CHECK(kv_[layer].q.has_value() == !layers.at(layer).is_null());
    if (layers.at(layer).is_null()) continue;
    const KvObservation& seen = kv_[layer].q.value();
    const auto heads = static_cast<size_t>(fixture_.config.layers[layer].attention.heads);
    REQUIRE(layers.at(layer).size() == heads);
    uint64_t values = 0;
    for (size_t head = 0; head < heads; ++head) {
      INFO("layer " << layer << " head " << head);
      const Json& expected = layers.at(layer).at(head);
      const double min = expected.at(0), max = expected.at(1);
      const double largest = std::max(std::fabs(min), std::fabs(max));
      CHECK(std::fabs(static_cast<double>(seen.ranges.at(head).min) - min) <= tolerance * largest);
      CHECK(std::fabs(static_cast<double>(seen.ranges.at(head).max) - max) <= tolerance * largest);
      for (const uint64_t count : seen.histograms.at(head).counts) values += count;
    }
    const int64_t width = fixture_.config.attention(static_cast<int64_t>(layer)).query_width();
    CHECK(values == fixture_.ids.size() * static_cast<uint64_t>(width));
  }
}

void Extremes::check_kv(const Json& layers, double tolerance) const {
  REQUIRE(layers.size() == kv_.size());
  for (size_t layer = 0; layer < kv_.size(); ++layer) {
    const bool attends = fixture_.config.has_own_cache(static_cast<int64_t>(layer));
    CHECK(layers.at(layer).is_null() == !attends);
    if (!attends) continue;
    const auto heads =
        static_cast<size_t>(fixture_.config.cache(static_cast<int64_t>(layer)).heads);
    for (const auto& [key, seen] :
         {std::pair{"k_head_amax", &kv_[layer].k}, std::pair{"v_head_amax", &kv_[layer].v}}) {
      const Json& expected = layers.at(layer).at(key);
      REQUIRE(expected.size() == heads);
      for (size_t head = 0; head < heads; ++head) {
        INFO(key << " of layer " << layer << " head " << head);
        CHECK(relative_error(amax_of(seen->ranges[head]), expected.at(head).get<double>()) <=
              tolerance);
      }
    }
  }
}

void Extremes::check_linear_inputs(const Json& expected) const {
  size_t checked = 0;
  for (const auto& [name, value] : expected.items()) {
    INFO("input of " << name);
    const bool is_of_layer = name.starts_with(
        fixture_.config.backbone_prefix + std::string(fixture_.config.architecture->layers_name));
    const auto found = is_of_layer ? find_linear(name) : find_model_linear(name);
    CHECK(found);
    ++checked;
    if (found) CHECK(relative_error(*found, value.get<double>()) <= kFloat32Tolerance);
  }
  CHECK(checked > 0);
}

void Extremes::fold(const LinearInput& input) {
  Backend& backend = *fixture_.backend;
  const Buffer amax = backend.allocate(sizeof(float)),
               nonfinite = backend.allocate(sizeof(uint64_t));
  backend.fill_zero(amax.data(), amax.size());
  backend.fill_zero(nonfinite.data(), nonfinite.size());
  backend.observe_amax({.x = input.x,
                        .type = input.type,
                        .count = input.rows * input.width,
                        .amax = amax.as<float>(),
                        .nonfinite = nonfinite.as<uint64_t>()});
  float largest = 0.0f;
  uint64_t bad = 0;
  backend.copy_out(amax.data(), std::as_writable_bytes(std::span(&largest, 1)));
  backend.copy_out(nonfinite.data(), std::as_writable_bytes(std::span(&bad, 1)));
  float& entry = inputs_[{input.layer, input.role, input.index}];
  entry = std::max(entry, largest);
  CHECK(bad == 0);
}

std::optional<double> Extremes::find_model_linear(const std::string& name) const {
  for (const TensorRow& row : fixture_.config.architecture->model_tensors)
    for (int64_t i = 0; i < fixture_.config.size_of(row.repeat); ++i)
      if (name == fixture_.config.backbone_prefix + name_of(row, i)) {
        const int64_t last = fixture_.config.num_hidden_layers - 1;
        if (row.is_run_by_layers) return inputs_.at({0, row.role, i});
        if (row.is_run_by_last_layer) return inputs_.at({last, row.role, i});
      }
  return head_amax_;
}

std::optional<double> Extremes::find_linear(const std::string& name) const {
  const ModelConfig& config = fixture_.config;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = config.layer_prefix(layer);
    if (!name.starts_with(prefix)) continue;
    for (const TensorRow& row : config.architecture->layer_tensors) {
      const int64_t count =
          row.repeat == Dim::kOne ? 1 : config.size_of(row.repeat, &config.layer(layer));
      for (int64_t i = 0; i < count; ++i) {
        const auto it = inputs_.find({layer, input_of(row.role), i});
        if (it == inputs_.end()) continue;
        // Experts of a stacked row may have tensors of their own in the file.
        const auto is_part = [&](const SplitRow& part) {
          return name + ".weight" == prefix + numbered(part.name, i);
        };
        if (name == prefix + name_of(row, i) || std::ranges::any_of(row.split, is_part))
          return it->second;
      }
    }
  }
  return std::nullopt;
}

namespace {

void check_greedy(ModelFixture& fixture) {
  const Json& expected = fixture.expected;
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 64);
  const auto prompt = expected.at("greedy_prompt").get<std::vector<TokenId>>();
  std::vector<TokenId> ids;
  std::vector<float> logits = decoder.step(prompt, cache);
  while (ids.size() < expected.at("greedy").size()) {
    ids.push_back(
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    logits = decoder.step(std::span(&ids.back(), 1), cache);
  }
  CHECK(ids == expected.at("greedy").get<std::vector<TokenId>>());
}

/// bytes: of the tensor. value: a number for every element, or {"rows": [period, begin, end],
/// "value": number} for those rows of each period.
void fill(const TensorView& tensor, const Json& value, char* bytes) {
  const bool has_rows = value.is_object();
  const float number = (has_rows ? value.at("value") : value).get<float>();
  const auto rows = static_cast<size_t>(has_rows ? tensor.shape[0] : 1);
  const size_t row_bytes = tensor.bytes.size() / rows;
  const uint16_t half = tensor.dtype == DType::kF16 ? to_f16(number).bits : to_bf16(number).bits;
  const size_t step = tensor.dtype == DType::kF32 ? sizeof(number) : sizeof(half);
  for (size_t row = 0; row < rows; ++row) {
    if (has_rows) {
      const auto period = value.at("rows").at(0).get<size_t>();
      const size_t place = row % period;
      if (place < value.at("rows").at(1).get<size_t>() ||
          place >= value.at("rows").at(2).get<size_t>())
        continue;
    }
    for (size_t at = row * row_bytes; at + step <= (row + 1) * row_bytes; at += step)
      std::memcpy(bytes + at, step == sizeof(number) ? static_cast<const void*>(&number) : &half,
                  step);
  }
}

/// As a merge patch, but null is a value.
void merge(Json& target, const Json& patch) {
  for (const auto& [key, value] : patch.items()) {
    if (value.is_object() && target.contains(key) && target[key].is_object()) {
      merge(target[key], value);
    } else {
      target[key] = value;
    }
  }
}

/// A copy of the fixture with one variation off, as fixture.json's "without" describes it.
void write_without(const fs::path& folder, const Json& change, const fs::path& target) {
  fs::copy(folder, target);
  Json config = parse_json(read_text(folder / "config.json"), {.has_python_constants = true});
  if (change.contains("config")) merge(config, change["config"]);
  fs::remove(target / "config.json");
  write_file(target / "config.json", dump_as_python(config));
  if (!change.contains("fill")) return;
  const ModelDir model_dir(folder);
  size_t hits = 0;
  for (const auto& [pattern, value] : change["fill"].items()) {
    regex_t expression;
    REQUIRE(regcomp(&expression, pattern.c_str(), REG_EXTENDED | REG_NOSUB) == 0);
    for (const SafetensorsFile& shard : model_dir.shards()) {
      const fs::path file = target / shard.file().path().filename();
      std::string bytes = read_text(file);
      for (const std::string& name : model_dir.tensor_names()) {
        const TensorView& tensor = model_dir.tensor(name);
        const auto whole = shard.file().bytes();
        const bool is_here = tensor.bytes.data() >= whole.data() &&
                             tensor.bytes.data() < whole.data() + whole.size();
        if (!is_here || regexec(&expression, name.c_str(), 0, nullptr, 0) != 0) continue;
        ++hits;
        const auto offset = static_cast<size_t>(tensor.bytes.data() - whole.data());
        fill(tensor, value, bytes.data() + offset);
      }
      fs::remove(file);
      write_file(file, bytes);
    }
    regfree(&expression);
  }
  CHECK(hits > 0);
}

/// What transformers' modules hold and no key of config.json says.
void set_attributes(ModelConfig& config, const Json& attributes) {
  for (const auto& [name, value] : attributes.items()) {
    if (name == "limit") config.activation_limit = value.get<float>();
    if (name == "group_size")
      config.recurrent.norm_groups = config.recurrent.inner() / value.get<int64_t>();
    CHECK((name == "limit" || name == "group_size"));
  }
}

void check_fixture(const std::string& name) {
  INFO(name);
  const fs::path folder = model_fixture(name);
  const std::vector<float> expected = read_expected_logits(folder);
  check_logits(folder, expected);
  for (const std::string& backend : backend_names()) {
    if (backend == "reference") continue;
    INFO(backend);
    ModelFixture fixture(folder, backend);
    Extremes extremes(fixture, ComputeType::kFloat32);
    extremes.check_kv(fixture.expected.at("layers"), kFloat32Tolerance);
    if (fixture.expected.contains("linear_input_amax"))
      extremes.check_linear_inputs(fixture.expected["linear_input_amax"]);
    check_greedy(fixture);
    if (fixture.backend->supports(ComputeType::kBFloat16))
      CHECK(rms_distance(all_logits(fixture, ComputeType::kBFloat16), expected) <=
            kBFloat16Tolerance);
  }
}

/// Each variation that fixture.json names moves the logits as far as it does in transformers.
void check_variations(const std::string& name) {
  const fs::path folder = model_fixture(name);
  if (!fs::exists(folder / "fixture.json")) return;
  const Json options =
      parse_json(read_text(folder / "fixture.json"), {.has_python_constants = true});
  if (!options.contains("without")) return;
  const std::vector<float> expected = read_expected_logits(folder);
  const Json recorded = parse_json(read_text(folder / "expected.json"));
  for (const auto& [label, change] : options["without"].items()) {
    INFO(name << " without " << label);
    ScratchFolder scratch;
    write_without(folder, change, scratch / "model");
    double moved = 0.0;
    try {
      ModelFixture fixture(scratch / "model");
      if (change.contains("attribute")) set_attributes(fixture.config, change["attribute"]);
      moved = distance(all_logits(fixture, ComputeType::kFloat32), expected);
    } catch (const Error& error) {
      // A variation that goes with tensors or is not supported is refused without them.
      const std::string message = error.what();
      const bool is_refusal = message.find("unexpected: ") != std::string::npos ||
                              message.find("missing: ") != std::string::npos ||
                              message.find("is not supported for") != std::string::npos;
      CHECK(is_refusal);
      continue;
    }
    CHECK(moved > 100 * kFloat32Tolerance);
    CHECK(std::fabs(moved - recorded.at("moves").at(label).get<double>()) <=
          10 * kFloat32Tolerance);
  }
}

std::vector<std::string> fixtures_of(std::string_view family) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(tests_folder() / "fixtures" / "models")) {
    const Json config =
        parse_json(read_text(entry.path() / "config.json"), {.has_python_constants = true});
    if (text_model_of(config).architecture->name == family)
      names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

void check_family(std::string_view family) {
  INFO("fixtures of " << family << " in tests/fixtures/models");
  const std::vector<std::string> fixtures = fixtures_of(family);
  REQUIRE(!fixtures.empty());
  for (const std::string& name : fixtures) {
    check_fixture(name);
    if (!only_devices()) check_variations(name);  // they run on the CPU
  }
}

}  // namespace kvcal::test

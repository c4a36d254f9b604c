// Where the time of a calibration goes, and how near the needed arithmetic is to the machine's own
// processor's limit in the same run.
//   calibrate_stages MODEL (TOKENS.json | --random SAMPLESxTOKENS) [--compute-dtype D]
//   [--kv-forward exact|quantized] [--threads N] [--layers N] [--batch-tokens N]
//   [--memory-limit BYTES|MiB|GiB] [--runs N] [--json]
// MODEL: a dense model's folder, also of `kvcal synth`. --layers: only the first N of it.
#include <cstdio>
#include <filesystem>
#include <map>
#include <random>

#include "bench/machine_rate.h"
#include "bench/program.h"
#include "bench/timed_backend.h"
#include "calib/calibrator.h"
#include "calib/plan/resolve_plan.h"
#include "checkpoint/model_dir.h"
#include "core/file.h"
#include "core/process.h"
#include "core/registry.h"
#include "forward/layerwise.h"
#include "kernels/backends.h"

namespace kvcal::bench {
namespace {

struct Options {
  std::string model, tokens, random, compute_dtype = "bfloat16", kv_forward = "quantized", limit;
  int64_t threads = 0, layers = 0, batch_tokens = 0, runs = 1;
  bool json = false;
};

/// What a run is made of.
struct Workload {
  const Weights& weights;
  const ModelConfig& config;  ///< of the layers that run
  std::vector<Sample> samples;
  int64_t num_tokens = 0;
  ComputeType type;
  KvForward kv_forward;
  int threads = 1;
  LayerwiseOptions layerwise;
};

/// FLOP that no calibration of K and V can do without, and what quantized mode computes twice.
struct NeededFlop {
  double linears = 0, attention = 0, recomputed = 0;
  double total() const { return linears + attention; }
};

struct Run {
  double seconds = 0, cpu_seconds = 0;
  double observe_cpu_seconds = 0;  ///< of TimedForward
  std::map<std::string, OperationTime> operations, beside;
  uint64_t packed_bytes = 0;
  MachineRate rate;
  double share(const NeededFlop& flop) const {
    return flop.total() / seconds / rate.flop_per_second;
  }
  double cpu_share(const NeededFlop& flop) const {
    return flop.total() / cpu_seconds / rate.flop_per_cpu_second;
  }
};

/// Facts of the process' first run, before anything else took memory.
struct Start {
  double to_first_pack = 0, to_first_layer = 0;
  uint64_t peak_rss = 0;
};

NeededFlop needed_flop(const ModelConfig& config, const std::vector<Sample>& samples) {
  NeededFlop flop;
  const auto hidden = static_cast<double>(config.hidden_size);
  const auto query = static_cast<double>(config.attention(0).query_width());
  const auto key_value = 2 * static_cast<double>(config.attention(0).key_width());
  for (int64_t layer = 0; layer <= config.last_attention_layer(); ++layer) {
    const LayerConfig& here = config.layers[static_cast<size_t>(layer)];
    if (!here.has_attention || here.has_recurrence || !here.has_mlp ||
        config.latent.latent_rank > 0)
      fail("layer ", layer, " is not attention and a dense MLP, of which alone FLOP are counted");
    const bool is_last = layer == config.last_attention_layer();
    for (const Sample& sample : samples) {
      const auto tokens = static_cast<int64_t>(sample.ids.size());
      const double each = 2 * hidden * static_cast<double>(tokens);
      flop.linears += each * key_value;
      if (is_last) continue;
      flop.recomputed += each * key_value;
      flop.linears += each * (2 * query + 3 * static_cast<double>(config.intermediate_size));
      flop.attention +=
          attention_flop(0, tokens, here.sliding_window, 2 * config.attention(0).query_width());
    }
  }
  return flop;
}

std::vector<Sample> make_samples(const Options& options, int64_t vocab_size) {
  std::vector<Sample> samples;
  if (!options.random.empty()) {
    const size_t times = options.random.find('x');
    if (times == std::string::npos) fail("--random ", options.random, ", expected SAMPLESxTOKENS");
    const int64_t count = std::stoll(options.random),
                  length = std::stoll(options.random.substr(times + 1));
    std::mt19937 random(3);
    for (int64_t i = 0; i < count; ++i) {
      Sample& sample = samples.emplace_back(Sample{.index = i, .ids = {}});
      for (int64_t at = 0; at < length; ++at)
        sample.ids.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(vocab_size)));
    }
    return samples;
  }
  const Json json = parse_json(read_text(options.tokens));
  for (const Json& ids : json.at("ids"))
    samples.push_back({.index = std::ssize(samples), .ids = ids.get<std::vector<TokenId>>()});
  return samples;
}

/// As `kvcal calibrate` with recipes/fp8_kv_tensor.yaml.
Recipe tensor_recipe() {
  return parse_recipe(
      "default_stage: {default_modifiers: {QuantizationModifier: {kv_cache_scheme: {num_bits: 8, "
      "type: float, strategy: tensor, dynamic: false, symmetric: true, observer: "
      "static_minmax}}}}");
}

/// Notes what a second pass over K and V costs: observe of every layer that is run again, without
/// packing, which comes with it.
class TimedForward : public LayerForward {
 public:
  TimedForward(LayerForward& inner, const TimedBackend& backend, int64_t last_layer)
      : inner_(inner), backend_(backend), last_layer_(last_layer) {}
  double observe_cpu_seconds = 0;

  LayerResult run(const LayerCall& call) override {
    if (call.pass != LayerPass::kObserve || call.layer == last_layer_) return inner_.run(call);
    const double begin = process_cpu_seconds(), packed = packing();
    LayerResult seen = inner_.run(call);
    observe_cpu_seconds += process_cpu_seconds() - begin - (packing() - packed);
    return seen;
  }
  int64_t num_tokens() const override { return inner_.num_tokens(); }
  void request(const ObservationRequest& request) override { inner_.request(request); }
  void show_hidden(HiddenSink* sink) override { inner_.show_hidden(sink); }
  void restore_hidden(int64_t next_layer, const HiddenSource& source) override {
    inner_.restore_hidden(next_layer, source);
  }

 private:
  double packing() const {
    const auto found = backend_.operations.find("pack");
    return found == backend_.operations.end() ? 0 : found->second.cpu_seconds;
  }
  LayerForward& inner_;
  const TimedBackend& backend_;
  int64_t last_layer_;
};

Run run_once(const Workload& work, TimedBackend& backend) {
  SilentDiagnostics quiet;
  std::vector<std::span<const TokenId>> ids;
  for (const Sample& sample : work.samples) ids.emplace_back(sample.ids);
  backend.clear();
  Run run;
  const double cpu = process_cpu_seconds();
  const auto begin = Clock::now();
  {
    LayerwiseForward forward(work.config, work.weights, backend, ids, work.layerwise, quiet);
    TimedForward timed(forward, backend, work.config.last_attention_layer());
    calibrate(timed, work.config, resolve_plan(tensor_recipe(), work.config, quiet), work.samples,
              {.kv_forward = work.kv_forward}, nullptr, quiet);
    run.observe_cpu_seconds = timed.observe_cpu_seconds;
  }
  run.seconds = seconds_since(begin);
  run.cpu_seconds = process_cpu_seconds() - cpu;
  run.operations = backend.operations;
  run.beside = backend.beside;
  run.packed_bytes = backend.packed_bytes;
  return run;
}

double seconds_in(const std::map<std::string, OperationTime>& operations,
                  double OperationTime::*kind = &OperationTime::seconds) {
  double sum = 0;
  for (const auto& [name, time] : operations) sum += time.*kind;
  return sum;
}

void print_table(const Run& run, const NeededFlop& flop, const Start& start) {
  std::printf("needed %.3f TFLOP (linears %.3f, attention %.3f) in %.2f s, %.2f s of processors\n",
              flop.total() / 1e12, flop.linears / 1e12, flop.attention / 1e12, run.seconds,
              run.cpu_seconds);
  std::printf("needed FLOP/s %.1f G, of the processor's limit %.1f G (%s): %.1f %%\n",
              flop.total() / run.seconds / 1e9, run.rate.flop_per_second / 1e9,
              run.rate.source.c_str(), 100 * run.share(flop));
  std::printf("the same by processor time: %.1f G of %.1f G a thread: %.1f %%\n",
              flop.total() / run.cpu_seconds / 1e9, run.rate.flop_per_cpu_second / 1e9,
              100 * run.cpu_share(flop));
  std::printf("computed twice: %.2f %% of the needed FLOP\n", 100 * flop.recomputed / flop.total());
  std::printf("peak memory %.1f MB, start to first layer %.3f s (to its packing %.3f s)\n\n",
              static_cast<double>(start.peak_rss) / 1e6, start.to_first_layer, start.to_first_pack);
  std::printf("%-16s %7s %9s %7s %8s %9s %7s %14s %8s\n", "operation", "calls", "wall s", "share",
              "of rate", "cpu s", "share", "GF/s a thread", "of rate");
  const auto line = [&](const std::string& name, const OperationTime& time) {
    std::printf("%-16s %7lld %9.3f %6.1f%%", name.c_str(), static_cast<long long>(time.calls),
                time.seconds, 100 * time.seconds / run.seconds);
    if (time.flop > 0)
      std::printf(" %7.1f%%", 100 * time.flop / time.seconds / run.rate.flop_per_second);
    std::printf(time.flop > 0 ? " %9.3f %6.1f%%" : " %18.3f %6.1f%%", time.cpu_seconds,
                100 * time.cpu_seconds / run.cpu_seconds);
    if (time.flop > 0)
      std::printf(" %14.1f %7.1f%%", time.flop / time.cpu_seconds / 1e9,
                  100 * time.flop / time.cpu_seconds / run.rate.flop_per_cpu_second);
    std::printf("\n");
  };
  std::vector<std::pair<std::string, OperationTime>> sorted(run.operations.begin(),
                                                            run.operations.end());
  std::ranges::sort(sorted, std::greater(),
                    [](const auto& entry) { return entry.second.cpu_seconds; });
  for (const auto& [name, time] : sorted) line(name, time);
  line("outside",
       {.calls = 0,
        .seconds = run.seconds - seconds_in(run.operations),
        .cpu_seconds = run.cpu_seconds - seconds_in(run.operations, &OperationTime::cpu_seconds)});
  for (const auto& [name, time] : run.beside) line(name + " beside", time);
}

Json to_json(const Run& run, const NeededFlop& flop, const Start& start, const Workload& work,
             const std::string& device) {
  Json operations = Json::object();
  for (const auto& [name, time] : run.operations)
    operations[name] = {{"calls", time.calls},
                        {"seconds", time.seconds},
                        {"cpu_seconds", time.cpu_seconds},
                        {"flop", time.flop}};
  return {{"device", device},
          {"threads", work.threads},
          {"layers", work.config.num_hidden_layers},
          {"hidden_size", work.config.hidden_size},
          {"samples", work.samples.size()},
          {"tokens", work.num_tokens},
          {"compute_dtype", std::string(name_of(work.type))},
          {"kv_forward", work.kv_forward == KvForward::kExact ? "exact" : "quantized"},
          {"needed_flop", flop.total()},
          {"linears_flop", flop.linears},
          {"attention_flop", flop.attention},
          {"recomputed_flop", flop.recomputed},
          {"seconds", run.seconds},
          {"cpu_seconds", run.cpu_seconds},
          {"observe_cpu_seconds", run.observe_cpu_seconds},
          {"rate_flop_per_second", run.rate.flop_per_second},
          {"rate_flop_per_cpu_second", run.rate.flop_per_cpu_second},
          {"rate_source", run.rate.source},
          {"share_of_rate", run.share(flop)},
          {"share_of_rate_by_cpu_time", run.cpu_share(flop)},
          {"peak_rss_bytes", start.peak_rss},
          {"seconds_to_first_pack", start.to_first_pack},
          {"seconds_to_first_layer", start.to_first_layer},
          {"operations", operations},
          {"packed_bytes", run.packed_bytes},
          {"pack_seconds_beside", seconds_in(run.beside)},
          {"seconds_outside", run.seconds - seconds_in(run.operations)}};
}

uint64_t parse_bytes(const std::string& text) {
  size_t end = 0;
  const uint64_t number = std::stoull(text, &end);
  static const Registry<int> kUnits{"unit", {{"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}}};
  return number << kUnits.at(end == text.size() ? "B" : text.substr(end));
}

ModelConfig cut_config(ModelConfig config, int64_t layers) {
  if (layers > 0 && layers < config.num_hidden_layers) {
    config.num_hidden_layers = layers;
    config.layers.resize(static_cast<size_t>(layers));
  }
  return config;
}

Workload make_workload(const Options& options, const Weights& weights, const ModelConfig& config) {
  static const Registry<ComputeType> kTypes{
      "compute dtype", {{"float32", ComputeType::kFloat32}, {"bfloat16", ComputeType::kBFloat16}}};
  static const Registry<KvForward> kModes{
      "--kv-forward", {{"quantized", KvForward::kQuantized}, {"exact", KvForward::kExact}}};
  Workload work{.weights = weights,
                .config = config,
                .samples = make_samples(options, config.vocab_size),
                .type = kTypes.at(options.compute_dtype),
                .kv_forward = kModes.at(options.kv_forward),
                .threads = static_cast<int>(options.threads),
                .layerwise = {.batch_tokens = options.batch_tokens}};
  if (work.threads == 0) work.threads = static_cast<int>(std::thread::hardware_concurrency());
  work.layerwise.compute_type = work.type;
  work.layerwise.scratch_folder = fs::temp_directory_path();
  if (!options.limit.empty()) work.layerwise.memory_limit = parse_bytes(options.limit);
  for (const Sample& sample : work.samples) work.num_tokens += std::ssize(sample.ids);
  return work;
}

/// The rate around a run is the larger of what was measured before it and after it. Gives the
/// middle run by its share of the rate.
Run run_all(const Workload& work, const NeededFlop& flop, int64_t count, TimedBackend& backend,
            Start& start) {
  std::vector<Run> runs;
  MachineRate before;
  const double process_age = seconds_since_process_start();
  const auto now = Clock::now();
  for (int64_t i = 0; i < count; ++i) {
    Run one = run_once(work, backend);
    if (i == 0) {
      const auto age_at = [&](Clock::time_point time) {
        return process_age + std::chrono::duration<double>(time - now).count();
      };
      start = {age_at(backend.first_pack), age_at(backend.first_operation), peak_resident_bytes()};
    }
    const MachineRate after = machine_rate(work.type, work.threads);
    one.rate = after;
    one.rate.take_larger(before);
    before = after;
    runs.push_back(std::move(one));
  }
  std::ranges::sort(runs, {}, [&](const Run& one) { return one.share(flop); });
  return std::move(runs[runs.size() / 2]);
}

void run(const Options& options) {
  const ModelDir model_dir(options.model);
  const ModelConfig whole = read_model_config(model_dir);
  const Weights weights(model_dir, whole);
  const ModelConfig config = cut_config(whole, options.layers);
  TimedBackend backend(
      kBackends.at("cpu")({.num_threads = static_cast<int>(options.threads), .device_index = 0}));
  const Workload work = make_workload(options, weights, config);
  const NeededFlop flop = needed_flop(config, work.samples);
  Start start;
  const Run middle = run_all(work, flop, options.runs, backend, start);
  if (options.json) {
    std::printf("%s\n", to_json(middle, flop, start, work, backend.description()).dump(2).c_str());
    return;
  }
  std::printf("%s: %lld layers, %zu samples, %lld tokens, %s, %s, middle of %lld runs, %s\n",
              options.model.c_str(), static_cast<long long>(config.num_hidden_layers),
              work.samples.size(), static_cast<long long>(work.num_tokens),
              options.compute_dtype.c_str(), options.kv_forward.c_str(),
              static_cast<long long>(options.runs), backend.description().c_str());
  print_table(middle, flop, start);
}

Options parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::string*> texts{{"--random", &options.random},
                                                  {"--compute-dtype", &options.compute_dtype},
                                                  {"--kv-forward", &options.kv_forward},
                                                  {"--memory-limit", &options.limit}};
  const std::map<std::string, int64_t*> numbers{{"--threads", &options.threads},
                                                {"--layers", &options.layers},
                                                {"--batch-tokens", &options.batch_tokens},
                                                {"--runs", &options.runs}};
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--json") {
      options.json = true;
    } else if (texts.contains(word) && has_value) {
      *texts.at(word) = argv[++i];
    } else if (numbers.contains(word) && has_value) {
      *numbers.at(word) = std::stoll(argv[++i]);
    } else if (word.starts_with("--")) {
      fail("unknown option ", word);
    } else {
      names.push_back(word);
    }
  }
  if (names.size() != (options.random.empty() ? 2u : 1u) || options.runs < 1)
    fail("usage: calibrate_stages MODEL (TOKENS.json | --random SAMPLESxTOKENS) [options]");
  options.model = names[0];
  if (names.size() > 1) options.tokens = names[1];
  return options;
}

}  // namespace
}  // namespace kvcal::bench

int main(int argc, char** argv) {
  return kvcal::bench::run_program([&] { kvcal::bench::run(kvcal::bench::parse(argc, argv)); });
}

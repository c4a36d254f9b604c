#include "export/statistics_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <sstream>

#include "checkpoint/safetensors.h"
#include "core/hash.h"
#include "core/json.h"
#include "quant/observations.h"

namespace kvcal {
namespace {

constexpr std::string_view kFormat = "kvcal-statistics", kVersion = "2";
constexpr std::string_view kRanges = ".ranges", kHistogram = ".histogram", kTokens = ".tokens";
constexpr std::string_view kPositions = ".positions", kKinds = ".kinds", kChannels = ".channels";
constexpr std::string_view kDamage = ".damage", kComparedScales = ".compared_scales";
constexpr int64_t kErrorNumbers = 4;  ///< error, output, KL, queries
constexpr std::string_view kInput = ".input";
constexpr const char *kSha256 = "sha256", *kPiece = "piece", *kLongestSample = "longest_sample";
constexpr int64_t kBins = MagnitudeHistogram::kBins;

struct TextField {
  const char* key;
  std::string Provenance::*field;
  bool is_optional = false;  ///< written only where it is not empty
};
constexpr TextField kTexts[]{{"config", &Provenance::model_config},
                             {"model_path", &Provenance::model_path},
                             {"model_sha256", &Provenance::model_sha256},
                             {"dataset_path", &Provenance::dataset_path},
                             {"dataset_sha256", &Provenance::dataset_sha256},
                             {"compute_dtype", &Provenance::compute_dtype},
                             {"kv_forward", &Provenance::kv_forward},
                             {"family", &Provenance::family, true},
                             {"family_sha256", &Provenance::family_sha256, true},
                             {"inputs", &Provenance::inputs, true},
                             {"dataset_columns", &Provenance::dataset_columns, true}};

using Metadata = std::map<std::string, std::string>;

template <class T>
Tensor tensor_of(std::string name, Shape shape, const std::vector<T>& values) {
  Tensor tensor{
      .name = std::move(name), .dtype = kDTypeOf<T>, .shape = std::move(shape), .bytes = {}};
  tensor.bytes.resize(values.size() * sizeof(T));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

std::vector<float> ends_of(const std::vector<Range>& ranges) {
  std::vector<float> ends;
  for (const Range& range : ranges) {
    ends.push_back(range.min);
    ends.push_back(range.max);
  }
  return ends;
}

void add_tensors(const std::string& name, const TensorStatistics& seen,
                 std::vector<Tensor>& tensors) {
  std::vector<int64_t> counts;
  for (const MagnitudeHistogram& histogram : seen.histograms)
    for (const uint64_t count : histogram.counts) counts.push_back(static_cast<int64_t>(count));
  tensors.push_back(tensor_of(name + std::string(kRanges), Shape{seen.samples(), seen.heads, 2},
                              ends_of(seen.ranges)));
  tensors.push_back(tensor_of(name + std::string(kHistogram), Shape{seen.heads, kBins}, counts));
  if (!seen.positions.empty())
    tensors.push_back(tensor_of(name + std::string(kPositions),
                                Shape{static_cast<int64_t>(seen.positions.size()), 2},
                                ends_of(seen.positions)));
  if (!seen.kinds.empty())
    tensors.push_back(tensor_of(name + std::string(kKinds), Shape{2, 2}, ends_of(seen.kinds)));
  if (!seen.channels.empty())
    tensors.push_back(
        tensor_of(name + std::string(kChannels),
                  Shape{seen.samples(), std::ssize(seen.channels) / seen.samples(), 2},
                  ends_of(seen.channels)));
}

void add_tensors(const std::string& module, const ComparedScales& compared,
                 std::vector<Tensor>& tensors) {
  std::vector<double> numbers;
  for (const auto* heads : {&compared.damage.calibrated, &compared.damage.unit})
    for (const AttentionError& one : *heads)
      for (const double number : {one.error, one.output, one.kl, static_cast<double>(one.queries)})
        numbers.push_back(number);
  std::vector<float> scales;
  for (const auto* side : {&compared.k, &compared.v})
    for (const Scale& scale : *side) scales.push_back(scale.value);
  tensors.push_back(tensor_of(module + std::string(kDamage),
                              Shape{2, std::ssize(compared.damage.unit), kErrorNumbers}, numbers));
  tensors.push_back(
      tensor_of(module + std::string(kComparedScales), Shape{2, std::ssize(compared.k)}, scales));
}

Metadata metadata_of(const Provenance& origin) {
  Metadata metadata{{"format", std::string(kFormat)},
                    {"version", std::string(kVersion)},
                    {"sample_indices", Json(origin.sample_indices).dump()},
                    {"num_tokens", std::to_string(origin.num_tokens)},
                    {"all_experts", origin.all_experts ? "true" : "false"}};
  if (origin.longest_sample > 0)
    metadata.emplace(kLongestSample, std::to_string(origin.longest_sample));
  for (const auto& [key, field, is_optional] : kTexts)
    if (!is_optional || !(origin.*field).empty()) metadata.emplace(key, origin.*field);
  return metadata;
}

/// SHA-256 of all metadata but itself, and of all tensors, both by their names.
std::string sha256_of(const Metadata& metadata, std::vector<TensorView> tensors) {
  Sha256 hash;
  const auto add = [&](std::string_view text) {
    hash.update(std::as_bytes(std::span(text)));
    hash.update(std::as_bytes(std::span("", 1)));
  };
  for (const auto& [key, value] : metadata) {
    if (key == kSha256) continue;
    add(key);
    add(value);
  }
  std::ranges::sort(tensors, {}, &TensorView::name);
  for (const TensorView& tensor : tensors) {
    std::ostringstream type_and_shape;
    type_and_shape << tensor.dtype << ' ' << tensor.shape;
    add(tensor.name);
    add(type_and_shape.str());
    hash.update(tensor.bytes);
  }
  return hash.hex();
}

class StatisticsReader {
 public:
  explicit StatisticsReader(const SafetensorsFile& file) : file_(file) {}

  /// Throws Error for a file of another format or piece, or one that is not as it was written.
  void check(const std::string& piece) const {
    if (text("format", "") != kFormat || text("version", "") != kVersion)
      fail("found format '", text("format", ""), "', version '", text("version", ""),
           "', expected '", kFormat, "', version '", kVersion,
           "', as kvcal calibrate --save-statistics writes it");
    const std::string found = statistics_sha256(file_);
    if (text(kSha256) != found)
      fail("has changed since it was written: its SHA-256 is '", text(kSha256),
           "', that of what it holds ", found);
    if (!piece.empty() && text(kPiece, "") != piece)
      fail("is of piece '", text(kPiece, ""), "' of a sweep, expected '", piece, "'");
  }

  Provenance origin() const {
    Provenance origin;
    for (const auto& [key, field, is_optional] : kTexts)
      origin.*field = is_optional ? text(key, "") : text(key);
    if (!origin.dataset_columns.empty())
      in_context("metadata dataset_columns", [&] { parse_json(origin.dataset_columns); });
    origin.all_experts = text("all_experts") == "true";
    const Json indices = parse_json(text("sample_indices"));
    const Json tokens = parse_json(text("num_tokens"));
    const Json longest = parse_json(text(kLongestSample, "0"));
    if (!indices.is_array() || !tokens.is_number_integer() || !longest.is_number_integer())
      fail("metadata sample_indices, num_tokens or longest_sample is not what it should be");
    for (const Json& index : indices) {
      if (!index.is_number_integer()) fail("metadata sample_indices holds ", index.dump());
      origin.sample_indices.push_back(index.get<int64_t>());
    }
    origin.num_tokens = tokens.get<int64_t>();
    origin.longest_sample = longest.get<int64_t>();
    return origin;
  }

  TensorStatistics statistics(const std::string& name) const {
    const TensorView& ranges = tensor(name + std::string(kRanges), DType::kF32, 3);
    const TensorView& counts = tensor(name + std::string(kHistogram), DType::kI64, 2);
    const int64_t heads = counts.shape[0];
    if (heads < 1 || counts.shape[1] != kBins || ranges.shape[1] != heads || ranges.shape[2] != 2)
      fail(name, ": found ranges ", ranges.shape, " and a histogram ", counts.shape,
           ", expected [samples, heads, 2] and [heads, ", kBins, "]");
    TensorStatistics seen{.heads = heads, .ranges = ranges_of(ranges), .histograms = {}};
    if (file_.find(name + std::string(kPositions))) {
      const TensorView& positions = tensor(name + std::string(kPositions), DType::kF32, 2);
      if (positions.shape[0] > static_cast<int64_t>(kMostPositionBuckets) ||
          positions.shape[1] != 2)
        fail(positions.name, " is ", positions.shape, ", expected [buckets, 2]");
      seen.positions = ranges_of(positions);
    }
    if (file_.find(name + std::string(kKinds))) {
      const TensorView& kinds = tensor(name + std::string(kKinds), DType::kF32, 2);
      if (kinds.shape != Shape{2, 2}) fail(kinds.name, " is ", kinds.shape, ", expected [2, 2]");
      seen.kinds = ranges_of(kinds);
    }
    if (file_.find(name + std::string(kChannels))) {
      const TensorView& channels = tensor(name + std::string(kChannels), DType::kF32, 3);
      if (channels.shape[0] != ranges.shape[0] || channels.shape[1] % heads != 0 ||
          channels.shape[2] != 2)
        fail(channels.name, " is ", channels.shape, ", expected [samples, channels, 2]");
      seen.channels = ranges_of(channels);
    }
    seen.histograms.resize(static_cast<size_t>(heads));
    for (size_t head = 0; head < seen.histograms.size(); ++head)
      read_counts(counts, head, seen.histograms[head]);
    return seen;
  }

  /// nullopt where the run compared no attention of the module.
  std::optional<ComparedScales> compared(const std::string& module) const {
    const std::string name = module + std::string(kDamage);
    if (!file_.find(name)) return std::nullopt;
    const TensorView& damage = tensor(name, DType::kF64, 3);
    const TensorView& scales = tensor(module + std::string(kComparedScales), DType::kF32, 2);
    if (damage.shape[0] != 2 || damage.shape[2] != kErrorNumbers || scales.shape[0] != 2)
      fail(module, ": found damage ", damage.shape, " and compared_scales ", scales.shape,
           ", expected [2, heads, ", kErrorNumbers, "] and [2, scales]");
    ComparedScales compared;
    std::vector<double> numbers(damage.bytes.size() / sizeof(double));
    std::memcpy(numbers.data(), damage.bytes.data(), damage.bytes.size());
    for (size_t i = 0; i < numbers.size(); i += kErrorNumbers) {
      if (!std::ranges::all_of(std::span(numbers).subspan(i, kErrorNumbers),
                               [](double number) { return std::isfinite(number); }) ||
          numbers[i + 3] < 0.0 || numbers[i + 3] > 1e15)
        fail(name, " holds a number that is not finite, or no number of queries");
      auto& heads = i < numbers.size() / 2 ? compared.damage.calibrated : compared.damage.unit;
      heads.push_back({.error = numbers[i],
                       .output = numbers[i + 1],
                       .kl = numbers[i + 2],
                       .queries = static_cast<int64_t>(numbers[i + 3])});
    }
    const auto values = scales.as<float>();
    for (size_t i = 0; i < values.size(); ++i)
      (i < values.size() / 2 ? compared.k : compared.v).push_back({values[i]});
    return compared;
  }

  uint64_t tokens(const std::string& name) const {
    const TensorView& count = tensor(name + std::string(kTokens), DType::kI64, 1);
    if (count.shape[0] != 1) fail(count.name, " is ", count.shape, ", expected [1]");
    int64_t value = 0;
    std::memcpy(&value, count.bytes.data(), sizeof value);
    if (value < 0) fail(count.name, " is ", value);
    return static_cast<uint64_t>(value);
  }

 private:
  static std::vector<Range> ranges_of(const TensorView& tensor) {
    static_assert(sizeof(Range) == 2 * sizeof(float));
    std::vector<Range> ranges(tensor.bytes.size() / sizeof(Range));
    std::memcpy(ranges.data(), tensor.bytes.data(), tensor.bytes.size());
    for (const Range& range : ranges)
      if (!range.empty() && !(std::isfinite(range.min) && std::isfinite(range.max)))
        fail(tensor.name, " holds a range from ", range.min, " to ", range.max,
             ", expected finite numbers");
    return ranges;
  }
  static void read_counts(const TensorView& counts, size_t head, MagnitudeHistogram& histogram) {
    std::array<int64_t, kBins> values;
    std::memcpy(values.data(), counts.bytes.data() + head * sizeof values, sizeof values);
    // Limit that keeps sums in range.
    constexpr int64_t kMost = int64_t{1} << 50;
    for (size_t bin = 0; bin < values.size(); ++bin) {
      if (values[bin] < 0 || values[bin] > kMost)
        fail(counts.name, " holds ", values[bin], ", expected a count");
      histogram.counts[bin] = static_cast<uint64_t>(values[bin]);
    }
  }

  std::string text(const std::string& key, std::optional<std::string> missing = {}) const {
    const auto found = file_.metadata().find(key);
    if (found != file_.metadata().end()) return found->second;
    if (!missing) fail("metadata has no '", key, "'");
    return *missing;
  }
  const TensorView& tensor(const std::string& name, DType dtype, size_t rank) const {
    const TensorView* found = file_.find(name);
    if (!found) fail("has no tensor ", name);
    if (found->dtype != dtype || found->shape.rank() != rank)
      fail(name, " is ", found->dtype, " ", found->shape, ", expected ", dtype, " with ",
           counted(rank, "dimension"));
    return *found;
  }

  const SafetensorsFile& file_;
};

/// name without ending; nullopt where it does not end so.
std::optional<std::string> stem(std::string_view name, std::string_view ending) {
  if (!name.ends_with(ending)) return {};
  return std::string(name.substr(0, name.size() - ending.size()));
}

}  // namespace

void write_statistics(const std::filesystem::path& path, const Statistics& statistics,
                      bool overwrite, const std::string& piece) {
  StagedOutputs alone;
  alone.add(stage_statistics(path, statistics, overwrite, piece));
  alone.commit();
}

std::unique_ptr<StagedOutput> stage_statistics(const std::filesystem::path& path,
                                               const Statistics& statistics, bool overwrite,
                                               const std::string& piece) {
  std::vector<Tensor> tensors;
  for (const AttentionStatistics& attention : statistics.attention) {
    add_tensors(attention.module + ".k", attention.k, tensors);
    add_tensors(attention.module + ".v", attention.v, tensors);
    if (attention.q) add_tensors(attention.module + ".q", *attention.q, tensors);
    if (attention.compared) add_tensors(attention.module, *attention.compared, tensors);
  }
  for (const InputStatistics& input : statistics.inputs) {
    const std::string name = input.name + std::string(kInput);
    add_tensors(name, input.seen, tensors);
    tensors.push_back(tensor_of(name + std::string(kTokens), Shape{1},
                                std::vector{static_cast<int64_t>(input.tokens)}));
  }
  std::vector<TensorSource> sources;
  std::vector<TensorView> views;
  for (const Tensor& tensor : tensors) {
    sources.push_back(source_of(tensor));
    views.push_back(tensor.view());
  }
  Metadata metadata = metadata_of(statistics.origin);
  if (!piece.empty()) metadata.emplace(kPiece, piece);
  metadata.emplace(kSha256, sha256_of(metadata, std::move(views)));
  auto file = std::make_unique<AtomicFile>(path, overwrite);
  write_safetensors(file->path(), std::move(sources), metadata);
  return file;
}

Statistics read_statistics(const std::filesystem::path& path, const std::string& piece) {
  const SafetensorsFile file(path);
  return in_context(path.string(), [&] {
    const StatisticsReader reader(file);
    reader.check(piece);
    Statistics statistics{.origin = reader.origin(), .attention = {}, .inputs = {}};
    for (const TensorView& tensor : file.tensors()) {
      const auto name = stem(tensor.name, kRanges);
      if (!name) continue;
      if (const auto input = stem(*name, kInput)) {
        statistics.inputs.push_back(
            {.name = *input, .seen = reader.statistics(*name), .tokens = reader.tokens(*name)});
      } else if (const auto module = stem(*name, ".k")) {
        AttentionStatistics attention{.module = *module,
                                      .k = reader.statistics(*name),
                                      .v = reader.statistics(*module + ".v")};
        if (file.find(*module + ".q" + std::string(kRanges)))
          attention.q = reader.statistics(*module + ".q");
        attention.compared = reader.compared(*module);
        statistics.attention.push_back(std::move(attention));
      }
    }
    return statistics;
  });
}

std::string statistics_sha256(const SafetensorsFile& file) {
  return sha256_of(file.metadata(), file.tensors());
}

}  // namespace kvcal

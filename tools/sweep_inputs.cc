#include "sweep_inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>

#include "core/posix_file.h"
#include "core/sha256.h"
#include "eval/gsm8k_text.h"
#include "kvcal_version.h"
#include "model/kv_cache.h"
#include "text/dataset.h"

namespace kvcal {
namespace {

/// Hashes of folders by path, with what tells that their files are still the same.
class HashCache {
 public:
  explicit HashCache(const SweepFolder* folder) : folder_(folder) {
    if (!folder_) return;
    if (auto known = folder_->read(file()); known && known->is_object()) known_ = std::move(*known);
  }

  std::string hash(const fs::path& path, const std::vector<fs::path>& files,
                   const std::function<std::string()>& compute) {
    const std::string stamp = stamp_of(files), key = fs::absolute(path).string();
    if (const Json* entry = find_field(known_, key);
        entry && entry->is_object() && optional_string(*entry, "stamp") == stamp)
      return required_string(*entry, "sha256");
    std::string sha256 = compute();
    known_[key] = {{"stamp", stamp}, {"sha256", sha256}};
    if (folder_) folder_->write(file(), known_);
    return sha256;
  }

 private:
  fs::path file() const { return folder_->path() / "hashes.json"; }

  /// Name, size and time of change of each file.
  static std::string stamp_of(const std::vector<fs::path>& files) {
    std::string text;
    for (const fs::path& file : files) {
      struct stat status {};
      if (::stat(file.c_str(), &status) != 0) fail_errno(file, "cannot read");
      text += file.filename().string() + " " + std::to_string(status.st_size) + " " +
              std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec) +
              "\n";
    }
    return sha256_hex(text);
  }

  const SweepFolder* folder_;
  Json known_ = Json::object();
};

std::string model_hash(const ModelDir& model, HashCache& cache) {
  std::vector<fs::path> files{model.path() / "config.json"};
  for (const std::string& shard : model.shard_names()) files.push_back(model.path() / shard);
  return cache.hash(model.path(), files, [&] { return model.sha256(); });
}

/// All files of a folder, or one; scales may be in any of them.
std::string scales_hash(const fs::path& path, HashCache& cache) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.is_regular_file()) files.push_back(entry.path());
    std::ranges::sort(files);
  } else {
    files.push_back(path);
  }
  return cache.hash(path, files, [&] {
    std::string text;
    for (const fs::path& file : files)
      text += file.filename().string() + " " + sha256_of_file(file) + "\n";
    return sha256_hex(text);
  });
}

/// Of the questions that are asked, and of what worked examples are drawn from.
std::string questions_hash(const SweepGsm8k& asked) {
  Sha256 hash;
  const auto add = [&](const fs::path& dataset, const char* split, std::optional<int64_t> limit) {
    for (const GsmRecord& record : read_gsm_records(dataset, split, limit))
      hash.update(dump_json({record.question, record.answer}));
  };
  add(asked.dataset, "test", asked.limit);
  add(asked.fewshot_dataset.empty() ? asked.dataset : asked.fewshot_dataset, "train", {});
  return hash.hex();
}

}  // namespace

Sweep read_planned_sweep(const SweepOptions& options) {
  Sweep sweep{.file = read_sweep(options.file), .plan = {}, .inputs = {}};
  return in_context(options.file, [&] {
    std::vector<KvDType> unquantized;
    for (const SweepModel& model : sweep.file.models)
      unquantized.push_back(unquantized_cache_dtype(read_config(ModelDir(model.path))));
    sweep.plan = expand(sweep.file, unquantized);
    return std::move(sweep);
  });
}

DeviceOptions device_of(const SweepOptions& options, const Sweep& sweep, size_t model) {
  DeviceOptions device = options.device;
  if (!sweep.inputs.compute_dtype.empty()) {
    device.compute_dtype = sweep.inputs.compute_dtype[model];
  } else if (device.compute_dtype == "auto") {
    device.compute_dtype = sweep.file.compute_dtype;
  }
  return device;
}

SweepMachine machine_of(const SweepOptions& options, const Backend& backend, const Sweep& sweep) {
  SweepMachine machine{.device = std::string(backend.name()), .compute_dtype = {}};
  for (size_t i = 0; i < sweep.file.models.size(); ++i) {
    const ModelConfig config = read_config(ModelDir(sweep.file.models[i].path));
    machine.compute_dtype.emplace_back(
        name_of(compute_type_of(device_of(options, sweep, i), backend, config)));
  }
  return machine;
}

void write_machine(const SweepMachine& machine, const Sweep& sweep, const SweepFolder& folder) {
  Json dtypes = Json::object();
  for (size_t i = 0; i < sweep.file.models.size(); ++i)
    dtypes[sweep.file.models[i].name] = machine.compute_dtype[i];
  folder.write(folder.machine(), {{"device", machine.device}, {"compute_dtype", dtypes}});
}

std::optional<SweepMachine> read_machine(const Sweep& sweep, const SweepFolder& folder) {
  const auto kept = folder.read(folder.machine());
  if (!kept) return std::nullopt;
  return in_context(folder.machine().string(), [&]() -> std::optional<SweepMachine> {
    SweepMachine machine{.device = required_string(*kept, "device"), .compute_dtype = {}};
    const Json* dtypes = find_field(*kept, "compute_dtype");
    for (const SweepModel& model : sweep.file.models) {
      const auto dtype = dtypes ? optional_string(*dtypes, model.name) : std::nullopt;
      if (!dtype) return std::nullopt;
      machine.compute_dtype.push_back(*dtype);
    }
    return machine;
  });
}

void add_inputs(const SweepMachine& machine, const SweepFolder* folder, Sweep& sweep) {
  HashCache cache(folder);
  SweepInputs inputs{.version = KVCAL_VERSION,
                     .device = machine.device,
                     .model_sha256 = {},
                     .compute_dtype = machine.compute_dtype,
                     .scales_sha256 = {},
                     .calibration_sha256 = {},
                     .evaluation_sha256 = {},
                     .gsm8k_sha256 = {}};
  for (const SweepModel& model : sweep.file.models)
    inputs.model_sha256.push_back(model_hash(ModelDir(model.path), cache));
  for (const ScaleSource& source : sweep.file.scales)
    inputs.scales_sha256.push_back(
        source.kind == ScaleSource::Kind::kFile ? scales_hash(source.path, cache) : "");
  if (sweep.file.calibration)
    inputs.calibration_sha256 = open_dataset(sweep.file.calibration->dataset)->sha256();
  inputs.evaluation_sha256 = open_dataset(sweep.file.evaluation.dataset)->sha256();
  if (sweep.file.gsm8k) inputs.gsm8k_sha256 = questions_hash(*sweep.file.gsm8k);
  sweep.inputs = std::move(inputs);
  add_fingerprints(sweep.file, sweep.inputs, sweep.plan);
}

}  // namespace kvcal

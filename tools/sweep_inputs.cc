#include "sweep_inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>

#include "core/folder.h"
#include "core/posix_file.h"
#include "core/sha256.h"
#include "datasets/dataset.h"
#include "eval/gsm8k_text.h"
#include "forward/kv_cache.h"
#include "kvcal_version.h"

namespace kvcal {
namespace {

/// Hashes of folders by path, with what tells that their files are still the same.
class HashCache {
 public:
  explicit HashCache(const SweepFolder& folder) : folder_(folder) {
    if (auto known = folder_.read_if_sound(file()); known) known_ = std::move(*known);
  }

  /// what: "model", "files"; a path may have hashes of several kinds.
  std::string hash(const std::string& what, const fs::path& path,
                   const std::vector<fs::path>& files,
                   const std::function<std::string()>& compute) {
    const std::string stamp = stamp_of(files), key = what + ":" + fs::absolute(path).string();
    if (const Json* entry = find_field(known_, key);
        entry && entry->is_object() && optional_string(*entry, "stamp") == stamp)
      if (const auto known = optional_string(*entry, "sha256")) return *known;
    std::string sha256 = compute();
    known_[key] = {{"stamp", stamp}, {"sha256", sha256}};
    if (folder_.may_write()) folder_.write(file(), known_);
    return sha256;
  }
  /// Of files by their names and content.
  std::string hash_of_files(const std::string& what, const fs::path& path,
                            const std::vector<fs::path>& files) {
    return hash(what, path, files, [&] {
      std::string text;
      for (const fs::path& file : files)
        text += file.filename().string() + " " + sha256_of_file(file) + "\n";
      return sha256_hex(text);
    });
  }

 private:
  fs::path file() const { return folder_.path() / "hashes.json"; }

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

  const SweepFolder& folder_;
  Json known_ = Json::object();
};

std::string model_hash(const ModelDir& model, HashCache& cache) {
  std::vector<fs::path> files{model.path() / "config.json"};
  for (const std::string& shard : model.shard_names()) files.push_back(model.path() / shard);
  return cache.hash("model", model.path(), files, [&] { return model.sha256(); });
}

/// Of what decides how text becomes ids, and more.
std::string model_files_hash(const ModelDir& model, HashCache& cache) {
  std::vector<fs::path> files;
  for (const std::string& name : model.sidecar_files()) files.push_back(model.path() / name);
  return cache.hash_of_files("files", model.path(), files);
}

/// Of the file itself, which may be a descriptor, or of a folder's or a pattern's files; by its
/// name it is known how it is read.
std::string dataset_file_hash(const fs::path& dataset, HashCache& cache) {
  return cache.hash_of_files("dataset", dataset, dataset_files(dataset));
}

/// All files of a folder, or one; scales may be in any of them.
std::string scales_hash(const fs::path& path, HashCache& cache) {
  std::vector<fs::path> files;
  if (is_folder(path)) {
    const bool is_hub_cache = is_folder(path / "snapshots");
    const fs::path folder = is_hub_cache ? resolve_model_folder(path) : path;
    for (const fs::path& file : paths_in(folder))
      if (type_of(file) == fs::file_type::regular) files.push_back(file);
    if (files.empty()) fail(folder.string(), ": holds no file, expected scales");
  } else {
    files.push_back(path);
  }
  return cache.hash_of_files("scales", path, files);
}

/// Of the questions that are asked, and of what worked examples are drawn from.
std::string questions_hash(const SweepGsm8k& asked) {
  Sha256 hash;
  const auto add = [&](const fs::path& dataset, const char* split, std::optional<int64_t> limit) {
    for (const GsmRecord& record : read_gsm_records(dataset, split, limit))
      hash.update(dump_json({record.question, record.answer}));
  };
  add(asked.dataset, "test", asked.limit);
  if (asked.num_fewshot > 0)
    add(asked.fewshot_dataset.empty() ? asked.dataset : asked.fewshot_dataset, "train", {});
  return hash.hex();
}

}  // namespace

Sweep read_planned_sweep(const SweepOptions& options) {
  Sweep sweep{.file = read_sweep(options.file), .plan = {}, .inputs = {}};
  return in_context(options.file, [&] {
    std::vector<KvDType> unquantized;
    for (const SweepModel& model : sweep.file.models)
      unquantized.push_back(unquantized_cache_dtype(read_model_config(ModelDir(model.path))));
    sweep.plan = expand(sweep.file, unquantized);
    return std::move(sweep);
  });
}

std::string asked_compute_dtype(const SweepOptions& options, const Sweep& sweep) {
  return options.device.compute_dtype == "auto" ? sweep.file.compute_dtype
                                                : options.device.compute_dtype;
}

DeviceOptions device_of(const SweepOptions& options, const Sweep& sweep, size_t model) {
  DeviceOptions device = options.device;
  device.compute_dtype = sweep.inputs.compute_dtype.empty() ? asked_compute_dtype(options, sweep)
                                                            : sweep.inputs.compute_dtype[model];
  return device;
}

SweepMachine machine_of(const SweepOptions& options, const Backend& backend, const Sweep& sweep) {
  SweepMachine machine{.device = std::string(backend.name()), .compute_dtype = {}};
  for (size_t i = 0; i < sweep.file.models.size(); ++i) {
    const ModelConfig config = read_model_config(ModelDir(sweep.file.models[i].path));
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

void add_inputs(const SweepMachine& machine, const SweepFolder& folder, Sweep& sweep) {
  HashCache cache(folder);
  SweepInputs inputs{.version = KVCAL_VERSION,
                     .device = machine.device,
                     .model_sha256 = {},
                     .model_files_sha256 = {},
                     .compute_dtype = machine.compute_dtype,
                     .scales_sha256 = {},
                     .calibration_sha256 = {},
                     .evaluation_sha256 = {},
                     .gsm8k_sha256 = {},
                     .calibration_file_sha256 = {},
                     .evaluation_file_sha256 = {}};
  for (const SweepModel& one : sweep.file.models) {
    const ModelDir model(one.path);
    inputs.model_sha256.push_back(model_hash(model, cache));
    inputs.model_files_sha256.push_back(model_files_hash(model, cache));
  }
  for (const ScaleSource& source : sweep.file.scales)
    inputs.scales_sha256.push_back(
        source.kind == ScaleSource::Kind::kFile ? scales_hash(source.path, cache) : "");
  if (sweep.file.calibration) {
    inputs.calibration_sha256 = open_dataset(sweep.file.calibration->dataset)->sha256();
    inputs.calibration_file_sha256 = dataset_file_hash(sweep.file.calibration->dataset, cache);
  }
  inputs.evaluation_sha256 = open_dataset(sweep.file.evaluation.dataset)->sha256();
  inputs.evaluation_file_sha256 = dataset_file_hash(sweep.file.evaluation.dataset, cache);
  if (sweep.file.gsm8k) inputs.gsm8k_sha256 = questions_hash(*sweep.file.gsm8k);
  sweep.inputs = std::move(inputs);
  add_fingerprints(sweep.file, sweep.inputs, sweep.plan);
}

}  // namespace kvcal

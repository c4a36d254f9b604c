#include "sweep/sweep_inputs.h"

#include <sys/stat.h>

#include "core/folder.h"
#include "core/hash.h"
#include "datasets/dataset.h"
#include "eval/gsm8k.h"
#include "forward/kv_cache.h"
#include "run/command_paths.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

std::string model_hash(const ModelDir& model, FileHashes& hashes) {
  std::vector<fs::path> files{model.path() / "config.json"};
  for (const std::string& shard : model.shard_names()) files.push_back(model.path() / shard);
  return hashes.hash("model", model.path(), files, [&] { return model.sha256(); });
}

/// The hash of the tokenizer and of the other files beside the weights.
std::string model_files_hash(const ModelDir& model, FileHashes& hashes) {
  std::vector<fs::path> files;
  for (const std::string& name : model.sidecar_files()) files.push_back(model.path() / name);
  return hashes.hash("files", model.path(), files);
}

/// The hash of the data set's file, which may be a descriptor, or of a folder's or a pattern's
/// files. Names count, since they decide how a file is read.
std::string dataset_file_hash(const fs::path& dataset, FileHashes& hashes) {
  return hashes.hash("dataset", dataset, dataset_files(dataset));
}

/// The hash of the records of a section of the sweep.
template <class Section>
std::string dataset_hash(const Section& section) {
  return open_dataset(section.dataset, {.records = section.records})->sha256();
}

/// The hash of one file, or of all files of a folder, any of which may hold scales.
std::string scales_hash(const fs::path& path, FileHashes& hashes) {
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
  return hashes.hash("scales", path, files);
}

/// The hash of the questions, and of the records that worked examples are drawn from.
std::string questions_hash(const GsmOptions& asked) {
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

/// Name, size and time of change of each file.
std::string stamp_of(const std::vector<fs::path>& files) {
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

}  // namespace

void fetch_inputs(SweepFile& sweep, Diagnostics& diagnostics) {
  const auto fetch = [&](fs::path& path, std::string (*local)(const std::string&, Diagnostics&)) {
    if (!path.empty()) path = local(path.string(), diagnostics);
  };
  for (SweepModel& model : sweep.models) fetch(model.path, local_model);
  if (sweep.calibration) fetch(sweep.calibration->dataset, local_dataset);
  fetch(sweep.evaluation.dataset, local_dataset);
  if (!sweep.gsm8k) return;
  fetch(sweep.gsm8k->dataset, local_dataset);
  fetch(sweep.gsm8k->fewshot_dataset, local_dataset);
}

Sweep read_planned_sweep(const fs::path& file, const std::string& version,
                         const FamilyChoice& family) {
  Sweep sweep{.file = read_sweep(file), .inputs = {.version = version, .family = family}};
  return in_context(file.string(), [&] {
    SilentDiagnostics silent;
    fetch_inputs(sweep.file, silent);
    std::vector<KvDType> unquantized;
    for (const SweepModel& model : sweep.file.models)
      unquantized.push_back(
          unquantized_cache_dtype(read_model_config(ModelDir(model.path), family)));
    sweep.plan = expand(sweep.file, unquantized);
    return std::move(sweep);
  });
}

std::string asked_compute_dtype(const DeviceOptions& device, const Sweep& sweep) {
  return device.compute_dtype == "auto" ? sweep.file.compute_dtype : device.compute_dtype;
}

DeviceOptions device_of(const DeviceOptions& device, const Sweep& sweep, size_t model) {
  DeviceOptions own = device;
  own.compute_dtype = sweep.inputs.compute_dtype.empty() ? asked_compute_dtype(device, sweep)
                                                         : sweep.inputs.compute_dtype[model];
  return own;
}

SweepMachine machine_of(const DeviceOptions& device, const Backend& backend, const Sweep& sweep) {
  SweepMachine machine{.device = std::string(backend.name())};
  for (size_t i = 0; i < sweep.file.models.size(); ++i) {
    const ModelConfig config =
        read_model_config(ModelDir(sweep.file.models[i].path), sweep.inputs.family);
    machine.compute_dtype.emplace_back(
        name_of(compute_type_of(device_of(device, sweep, i), backend, config)));
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
    SweepMachine machine{.device = required_string(*kept, "device")};
    const Json* dtypes = find_field(*kept, "compute_dtype");
    for (const SweepModel& model : sweep.file.models) {
      const auto dtype = dtypes ? optional_string(*dtypes, model.name) : std::nullopt;
      if (!dtype) return std::nullopt;
      machine.compute_dtype.push_back(*dtype);
    }
    return machine;
  });
}

std::vector<Sample> calibration_samples(const Sweep& sweep, const PlannedModel& subject,
                                        int64_t count, std::optional<uint64_t> seed,
                                        Diagnostics& diagnostics) {
  const SweepCalibration& text = sweep.file.calibration.value();
  return samples_for(subject, *open_dataset(text.dataset, {.records = text.records}), text.records,
                     {.num_calibration_samples = count,
                      .max_seq_length = text.max_seq_length,
                      .shuffle_seed = seed},
                     diagnostics);
}

void add_inputs(const SweepMachine& machine, const SweepFolder& folder, Sweep& sweep) {
  FileHashes hashes(folder);
  SweepInputs inputs{.version = sweep.inputs.version,
                     .device = machine.device,
                     .family = sweep.inputs.family,
                     .compute_dtype = machine.compute_dtype};
  for (const SweepModel& one : sweep.file.models) {
    const ModelDir model(one.path);
    inputs.model_sha256.push_back(model_hash(model, hashes));
    inputs.model_files_sha256.push_back(model_files_hash(model, hashes));
  }
  for (const ScaleSource& source : sweep.file.scales)
    inputs.scales_sha256.push_back(
        source.kind == ScaleSource::Kind::kFile ? scales_hash(source.path, hashes) : "");
  if (sweep.file.calibration) {
    inputs.calibration_sha256 = dataset_hash(*sweep.file.calibration);
    inputs.calibration_file_sha256 = dataset_file_hash(sweep.file.calibration->dataset, hashes);
  }
  inputs.evaluation_sha256 = dataset_hash(sweep.file.evaluation);
  inputs.evaluation_file_sha256 = dataset_file_hash(sweep.file.evaluation.dataset, hashes);
  if (sweep.file.gsm8k) inputs.gsm8k_sha256 = questions_hash(*sweep.file.gsm8k);
  sweep.inputs = std::move(inputs);
  add_fingerprints(sweep.file, sweep.inputs, sweep.plan);
}

FileHashes::FileHashes(const SweepFolder& folder) : folder_(folder) {
  if (auto known = folder.read_piece(folder.hashes())) known_ = std::move(*known);
}

std::string FileHashes::hash(const std::string& kind, const fs::path& path,
                             const std::vector<fs::path>& files,
                             const std::function<std::string()>& compute) {
  const std::string stamp = stamp_of(files), key = kind + ":" + fs::absolute(path).string();
  if (const Json* entry = find_field(known_, key);
      entry && entry->is_object() && optional_string(*entry, "stamp") == stamp)
    if (const auto known = optional_string(*entry, "sha256")) return *known;
  std::string sha256 = compute();
  known_[key] = {{"stamp", stamp}, {"sha256", sha256}};
  if (folder_.may_write()) folder_.write_piece(folder_.hashes(), known_);
  return sha256;
}

std::string FileHashes::hash(const std::string& kind, const fs::path& path,
                             const std::vector<fs::path>& files) {
  return hash(kind, path, files, [&] {
    std::string text;
    for (const fs::path& file : files)
      text += file.filename().string() + " " + sha256_of_file(file) + "\n";
    return sha256_hex(text);
  });
}

}  // namespace kvcal

#include "hub/hub.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/text.h"
#include "hub/hub_files.h"

namespace kvcal {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";

/// The shards that a snapshot's index names; empty without an index or where it cannot be read,
/// which the reader of the model tells better.
std::vector<std::string> indexed_shards(const fs::path& snapshot) {
  const fs::path path = snapshot / kIndexName;
  if (!is_there(path)) return {};
  try {
    const Json index = parse_json(read_text(path));
    const Json* map = find_field(index, "weight_map");
    std::set<std::string> shards;
    if (map && map->is_object())
      for (const auto& item : map->items())
        if (item.value().is_string()) shards.insert(item.value().get<std::string>());
    return {shards.begin(), shards.end()};
  } catch (const SystemError&) {
    throw;
  } catch (const Error&) {
    return {};
  }
}

MissingModelFiles missing_of(const fs::path& snapshot) {
  return missing_model_files(files_of_snapshot(snapshot), indexed_shards(snapshot));
}

/// Whether the index names KV scales.
bool has_scales(const Json& index) {
  constexpr std::array<std::string_view, 4> kScales{"k_scale", "v_scale", "kv_scale",
                                                    "output_scale"};
  const Json* map = find_field(index, "weight_map");
  if (!map || !map->is_object()) return false;
  for (const auto& item : map->items())
    if (std::ranges::any_of(kScales,
                            [&](std::string_view end) { return item.key().ends_with(end); }))
      return true;
  return false;
}

/// Whether config.json alone does not describe a checkpoint: there may be scales and codes, whose
/// values tell more.
bool is_quantized(const fs::path& snapshot) {
  for (const char* name :
       {"hf_quant_config.json", "quant_model_description.json", "kv_cache_scales.json"})
    if (is_there(snapshot / name)) return true;
  const auto declares = [](const Json& config) {
    return find_field(config, "quantization_config") || find_field(config, "compression_config");
  };
  const Json config = read_model_config(snapshot / "config.json");
  const Json* text = find_field(config, "text_config");
  if (declares(config) || (text && text->is_object() && declares(*text))) return true;
  return is_there(snapshot / kIndexName) &&
         has_scales(read_json_object(snapshot / kIndexName, kTokenizerLimits));
}

/// Throws Error for a name that would lead out of the snapshot.
void check_file_name(const HubId& id, const std::string& name) {
  const fs::path path(name);
  const bool is_plain = !name.empty() && path.is_relative() && name.find('\\') == name.npos &&
                        std::ranges::none_of(path, [](const fs::path& part) {
                          return part.empty() || part == ".." || part == ".";
                        });
  if (!is_plain) fail(id.text(), ": the hub names a file '", name, "', expected a relative path");
}

/// An ETag without its quotes and mark of weakness.
std::string etag_of(const HttpResponse& response) {
  std::string etag = response.header("x-linked-etag");
  if (etag.empty()) etag = response.header("etag");
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  return etag;
}

HubFile file_of(const HubId& id, const std::string& name, const HttpResponse& response) {
  HubFile file{.name = name, .etag = etag_of(response)};
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
  };
  if (file.etag.empty() || file.etag.size() > 200 || !std::ranges::all_of(file.etag, is_plain))
    fail(id.text(), ": ", name, ": the hub gives '", file.etag, "' as ETag, expected a hash");
  std::string size = response.header("x-linked-size");
  if (size.empty() && response.status < 300) size = response.header("content-length");
  const bool is_number = !size.empty() && size.size() < 18 &&
                         std::ranges::all_of(size, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number)
    fail(id.text(), ": ", name, ": the hub gives '", size, "' as its size, expected a number");
  file.size = std::stoull(size);
  return file;
}

std::vector<HttpJob*> borrowed(const auto& jobs) {
  std::vector<HttpJob*> all;
  for (const auto& job : jobs) all.push_back(job.get());
  return all;
}

}  // namespace

fs::path Hub::model(const HubId& id) {
  const auto snapshot = cache_.snapshot(id);
  const auto missing =
      snapshot ? missing_of(*snapshot) : MissingModelFiles{.needed = {"config.json"}};
  const bool is_usable = missing.needed.empty();
  if (is_usable && (!missing.lacks_tokenizer || settings_.is_offline)) return *snapshot;
  check_may_download(
      id, snapshot ? "the snapshot in it lacks " + join(missing.needed, ", ") : std::string());
  try {
    const Listing listing = list(id);
    const std::vector<std::string> wanted =
        in_context(id.text(), [&] { return model_files(listing.names); });
    return fetch(id, listing, wanted);
  } catch (const HubUnreachable& error) {
    if (!is_usable) throw;
    diagnostics_.warn(std::string(error.what()) +
                      "; the copy of the cache is used, which has no tokenizer");
    return *snapshot;
  }
}

std::optional<fs::path> Hub::whole_snapshot(const HubId& id) const {
  auto snapshot = cache_.snapshot(id);
  return snapshot && missing_of(*snapshot).needed.empty() ? snapshot : std::nullopt;
}

fs::path Hub::offline_description(const HubId& id) {
  const auto snapshot = cache_.snapshot(id);
  const bool is_described = snapshot && is_there(*snapshot / "config.json");
  if (!is_described || is_quantized(*snapshot)) return model(id);  // says what the cache lacks
  diagnostics_.note(id.text() + ": weights not fetched, config.json describes them");
  return *snapshot / "config.json";
}

HubModel Hub::outline(const HubId& id) {
  check_may_download(id, "");
  const Listing listing = list(id);
  const std::vector<std::string> wanted =
      in_context(id.text(), [&] { return model_files(listing.names); });
  HubModel model{.commit = listing.commit, .snapshot = {}, .names = {}, .weights = {}};
  for (HubFile& file : look_up(id, listing, wanted)) {
    if (file.name.ends_with(".safetensors"))
      model.weights.push_back(std::move(file));
    else if (describes_weights(file.name, file.size))
      model.names.push_back(file.name);
  }
  model.snapshot = fetch(id, listing, model.names, /*is_complete=*/false);
  return model;
}

std::vector<std::string> Hub::read(const HubId& id, const std::string& commit,
                                   std::span<const HubFilePart> parts) {
  std::vector<std::unique_ptr<SimpleRequest>> requests;
  for (const HubFilePart& part : parts)
    requests.push_back(
        std::make_unique<SimpleRequest>(settings_, id, file_url(settings_, id, commit, part.name),
                                        part.name, SimpleRequest::Wants::kBody, part.range));
  run_http_jobs(borrowed(requests), [] {});
  std::vector<std::string> bodies;
  for (const auto& request : requests) {
    received_ += request->body().size();
    bodies.push_back(request->body());
  }
  return bodies;
}

fs::path Hub::dataset(const HubId& id) {
  if (const auto cached = cached_dataset(cache_, id)) return *cached;
  check_may_download(
      id, cache_.snapshot(id) ? "the snapshot in it does not have all its files" : std::string());
  const Listing listing = list(id);
  const HubDataFiles files = data_files(id, listing.names);
  return fetch(id, listing, files.names) / files.path;
}

void Hub::check_may_download(const HubId& id, const std::string& lacking) const {
  const std::string where =
      id.text() + ": there is no such folder here, and the hub's cache " +
      settings_.cache.string() +
      (lacking.empty() ? " does not have it" : " has only a part: " + lacking);
  if (settings_.is_offline)
    fail(where,
         "; HF_HUB_OFFLINE forbids to download it: unset it, or HF_HUB_CACHE names another "
         "cache");
  if (!has_http())
    fail(where, "; this kvcal was built without libcurl and cannot download it: hf download ",
         id.repo == HubRepo::kDataset ? "--repo-type dataset " : "", id.name, " does");
}

Hub::Listing Hub::list(const HubId& id) {
  SimpleRequest request(settings_, id, revision_url(settings_, id), "",
                        SimpleRequest::Wants::kBody);
  HttpJob* const job = &request;
  run_http_jobs({&job, 1}, [] {});
  received_ += request.body().size();
  return in_context(id.text() + ": the answer of " + settings_.endpoint, [&] {
    const Json answer = parse_json(request.body());
    Listing listing{.commit = required_string(answer, "sha"), .names = {}};
    if (!is_commit_hash(listing.commit))
      fail("key 'sha' is '", listing.commit, "', expected the hash of a commit");
    const Json* files = find_field(answer, "siblings");
    if (!files || !files->is_array()) fail_missing("siblings", "the list of files");
    for (const Json& file : *files) {
      listing.names.push_back(required_string(file, "rfilename"));
      check_file_name(id, listing.names.back());
    }
    std::ranges::sort(listing.names);
    return listing;
  });
}

namespace {

/// The cache keeps a file under its ETag, which only a hash tells from those of others.
void check_tell_apart(const HubId& id, std::span<const HubFile> files) {
  std::map<std::string_view, std::string_view> names;
  for (const HubFile& file : files) {
    if (is_hash(file.etag)) continue;
    const auto [known, is_new] = names.emplace(file.etag, file.name);
    if (!is_new)
      fail(id.text(), ": the hub gives ", known->second, " and ", file.name, " one ETag, '",
           file.etag, "', which is no hash, so that they cannot be told apart");
  }
}

}  // namespace

std::vector<HubFile> Hub::look_up(const HubId& id, const Listing& listing,
                                  std::span<const std::string> names) {
  std::vector<std::unique_ptr<SimpleRequest>> requests;
  for (const std::string& name : names)
    requests.push_back(std::make_unique<SimpleRequest>(
        settings_, id, file_url(settings_, id, listing.commit, name), name,
        SimpleRequest::Wants::kHeaders));
  run_http_jobs(borrowed(requests), [] {});
  std::vector<HubFile> files;
  for (size_t i = 0; i < names.size(); ++i) {
    const HttpResponse& response = requests[i]->response();
    const std::string commit = response.header("x-repo-commit");
    if (!commit.empty() && commit != listing.commit)
      fail(id.text(), ": ", names[i], ": the hub answers for commit ", commit, ", asked was ",
           listing.commit);
    files.push_back(file_of(id, names[i], response));
  }
  check_tell_apart(id, files);
  return files;
}

void Hub::check_space(const HubId& id, std::span<const HubFile> files) const {
  uint64_t needed = 0;
  for (const HubFile& file : files) {
    std::error_code error;
    const fs::path part = cache_.blob(id, file.etag).string() + ".incomplete";
    const uint64_t there = fs::file_size(part, error);
    needed += error ? file.size : file.size - std::min(file.size, there);
  }
  std::error_code error;
  const fs::space_info space = fs::space(cache_.root(), error);
  if (!error && space.available < needed)
    fail(id.text(), ": needs ", byte_text(needed), " in ", cache_.root().string(), ", which has ",
         byte_text(space.available), " left; HF_HUB_CACHE names another folder");
}

void Hub::download(const HubId& id, const Listing& listing, std::span<const HubFile> files) {
  std::vector<std::unique_ptr<FileDownload>> downloads;
  std::set<std::string> etags;  // two names may have one content
  uint64_t total = 0;
  for (const HubFile& file : files) {
    if (!etags.insert(file.etag).second) continue;
    if (!is_hash(file.etag))
      diagnostics_.warn(id.text() + ": " + file.name +
                        ": the hub gives no hash of it, so only its "
                        "size is checked");
    downloads.push_back(std::make_unique<FileDownload>(settings_, id, listing.commit, file));
    total += file.size;
  }
  const std::string stage = "download " + id.name;
  run_http_jobs(borrowed(downloads), [&] {
    uint64_t done = 0;
    for (const auto& download : downloads) done += download->received();
    diagnostics_.progress(stage, static_cast<int64_t>(done), static_cast<int64_t>(total), "B");
  });
  received_ += total;
}

fs::path Hub::fetch(const HubId& id, const Listing& listing, std::span<const std::string> names,
                    bool is_complete) {
  const fs::path snapshot = cache_.snapshot(id, listing.commit);
  std::vector<std::string> absent;
  for (const std::string& name : names)
    if (!is_there(snapshot / name)) absent.push_back(name);
  const std::vector<HubFile> files = look_up(id, listing, absent);
  std::vector<HubFile> lacking;
  for (const HubFile& file : files)
    if (!is_there(cache_.blob(id, file.etag))) lacking.push_back(file);
  make_folders(cache_.root());
  if (!lacking.empty()) {
    mark_cache(cache_);
    check_space(id, lacking);
    download(id, listing, lacking);
    // Without its weights a model is not there.
    if (is_complete)
      diagnostics_.note(id.text() + ": commit " + listing.commit + " is now in " +
                        cache_.folder(id).string());
  }
  link_snapshot(cache_, id, listing.commit, files);
  return snapshot;
}

std::optional<fs::path> cached_dataset(const HubCache& cache, const HubId& id) {
  const auto snapshot = cache.snapshot(id);
  if (!snapshot) return std::nullopt;
  try {
    return *snapshot / data_files(id, files_of_snapshot(*snapshot)).path;
  } catch (const SystemError&) {
    throw;
  } catch (const Error&) {
    return std::nullopt;  // the hub's list of files may say more
  }
}

}  // namespace kvcal

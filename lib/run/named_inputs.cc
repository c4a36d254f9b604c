#include "run/named_inputs.h"

#include "core/folder.h"
#include "core/join.h"
#include "core/registry.h"
#include "datasets/data_files.h"
#include "datasets/descriptor.h"
#include "datasets/named_dataset.h"
#include "hub/hub.h"
#include "hub/hub_cache.h"

namespace kvcal {
namespace {

/// The id that given is, unless a file or folder of that name is there.
std::optional<HubId> id_of(const std::string& given, HubRepo repo) {
  if (given.empty() || is_there(given) || has_files(given)) return std::nullopt;
  return parse_hub_id(given, repo);
}

/// Fetches the parts of a named data set that are read, unless a local copy is there.
void fetch_named(const std::string& name, Diagnostics& diagnostics) {
  const DatasetDescriptor descriptor = read_descriptor(name, {});
  if (is_there(descriptor.local_copy)) return;
  Hub hub(hub_settings(), diagnostics);
  for (const std::string& files : descriptor.hub_files)
    hub.dataset({.repo = HubRepo::kDataset, .name = descriptor.source, .path = files});
}

}  // namespace

std::string local_model(const std::string& given, Diagnostics& diagnostics) {
  const auto id = id_of(given, HubRepo::kModel);
  return id ? Hub(hub_settings(), diagnostics).model(*id).string() : given;
}

std::string local_dataset(const std::string& given, Diagnostics& diagnostics) {
  if (named_dataset(given, ".yaml")) {
    fetch_named(given, diagnostics);
    return given;
  }
  if (named_dataset(given)) return given;
  if (const fs::path path(given);
      !path.has_parent_path() && !path.has_extension() && !is_there(path) && !is_pattern(path)) {
    const std::string meant = did_you_mean(given, dataset_names());
    if (!meant.empty())
      fail("'", given, "' is neither a file nor the name of a data set", meant, "; names are ",
           join(dataset_names(), ", "));
  }
  const auto id = id_of(given, HubRepo::kDataset);
  return id ? Hub(hub_settings(), diagnostics).dataset(*id).string() : given;
}

std::string local_variant(const std::string& variant, Diagnostics& diagnostics) {
  constexpr std::string_view kModel = "=model:";
  const size_t at = variant.find(kModel);
  if (at == variant.npos) return variant;
  const size_t folder = at + kModel.size();
  return variant.substr(0, folder) + local_model(variant.substr(folder), diagnostics);
}

std::string name_of_model(const ModelDir& model) {
  const std::string path = model.path().string(), name = name_of_source(model.path());
  return name == path ? model.given_path().string() : name;
}

}  // namespace kvcal

#pragma once

#include <string>

#include "checkpoint/model_dir.h"
#include "core/diagnostics.h"

namespace kvcal {

// Models and data sets may be given as ids of the Hugging Face hub ("owner/name@revision"). These
// functions turn what was given into local paths, which all calls of lib/run take. A file or folder
// that is there wins over an id of the same form. All may download, and throw Error as Hub does.

/// given: a folder or an id of a model; anything else is returned as it is.
std::string local_model(const std::string& given, Diagnostics& diagnostics);

/// given: a path or pattern, a name of datasets/named_dataset.h, or an id of a data set. A name
/// stays as it is: the hub's copy of its data set is then in the cache, where open_dataset finds
/// it.
std::string local_dataset(const std::string& given, Diagnostics& diagnostics);

/// A variant of eval, "NAME=model:FOLDER", with a local folder.
std::string local_variant(const std::string& variant, Diagnostics& diagnostics);

/// The name by which manifests and cards call a model: "owner/name@COMMIT" of one in the hub's
/// cache, else the path as it was given.
std::string name_of_model(const ModelDir& model);

}  // namespace kvcal

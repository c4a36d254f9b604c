#pragma once

#include <memory>
#include <optional>
#include <string>

#include "arguments.h"
#include "core/diagnostics.h"
#include "datasets/record_columns.h"
#include "descriptors/family_file.h"
#include "run/devices.h"
#include "run/model_session.h"

namespace kvcal {

/// A command of the program as a call: keyword arguments in, a JSON value out. Throws Error and
/// Interrupted. What a gate or a check finds wrong after the work is in the result, as "problem",
/// so that the caller has the numbers, too.
using PythonCommand = Json(Arguments& arguments, Diagnostics& diagnostics);

Json python_calibrate(Arguments& arguments, Diagnostics& diagnostics);
Json python_scales(Arguments& arguments, Diagnostics& diagnostics);
Json python_convert(Arguments& arguments, Diagnostics& diagnostics);
Json python_apply(Arguments& arguments, Diagnostics& diagnostics);
Json python_inspect(Arguments& arguments, Diagnostics& diagnostics);
Json python_verify(Arguments& arguments, Diagnostics& diagnostics);
Json python_evaluate(Arguments& arguments, Diagnostics& diagnostics);
Json python_sweep(Arguments& arguments, Diagnostics& diagnostics);

/// A model that stays loaded, and what it is asked: a call of a session.
std::unique_ptr<ModelSession> open_session(Arguments& arguments, Diagnostics& diagnostics);
using SessionCommand = Json(ModelSession& session, Arguments& arguments, Diagnostics& diagnostics);

Json session_info(ModelSession& session, Arguments& arguments, Diagnostics& diagnostics);
Json session_encode(ModelSession& session, Arguments& arguments, Diagnostics& diagnostics);
Json session_decode(ModelSession& session, Arguments& arguments, Diagnostics& diagnostics);
Json session_chat(ModelSession& session, Arguments& arguments, Diagnostics& diagnostics);
Json session_score(ModelSession& session, Arguments& arguments, Diagnostics& diagnostics);
Json session_generate(ModelSession& session, Arguments& arguments, Diagnostics& diagnostics);

/// Reads a folder or an id of a model, or of a data set; downloads what is not there.
void read_model(Arguments& arguments, const std::string& name, std::string& target,
                Diagnostics& diagnostics);
void read_dataset(Arguments& arguments, const std::string& name, std::string& target,
                  Diagnostics& diagnostics);

/// The family of an unknown model_type, by name or file; owns the file, from which the choice
/// borrows.
class FamilyArgument {
 public:
  FamilyArgument(Arguments& arguments, FamilyChoice& family);

 private:
  std::optional<FamilyFile> file_;
};

/// chat_template and chat_template_kwargs.
void read_chat(Arguments& arguments, ChatOptions& chat);

/// Columns of a data set, text_column and the others, max_record_bytes, skip_bad_records, and those
/// of read_chat.
void read_records(Arguments& arguments, RecordOptions& records);

/// kv_cache_dtype, scales, unit_scales and kv_cache_dtype_skip_layers.
void read_cache(Arguments& arguments, CacheOptions& cache, Diagnostics& diagnostics);

/// device, compute_dtype and threads.
void read_device(Arguments& arguments, DeviceOptions& device);

}  // namespace kvcal

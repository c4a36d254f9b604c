#pragma once

#include <functional>
#include <string>

#include "core/json.h"

/// Results of commands are read so that what is missing stays empty, and what has another type is
/// an Error that names its place.
namespace kvcal::report {

/// NaN where it is missing.
double number_or_nan(const Json& object, std::string_view key);
/// Empty where it is missing.
std::string text_or_empty(const Json& object, std::string_view key);

/// Calls read for every object of a list; none where it is missing. Errors name key and index.
void each_object(const Json& object, std::string_view key,
                 const std::function<void(const Json& entry)>& read);
/// Calls read for every value of a list.
void each_value(const Json& object, std::string_view key,
                const std::function<void(const Json& entry)>& read);

}  // namespace kvcal::report

#pragma once

#include <string>
#include <vector>

#include "report/markup.h"

namespace kvcal::report {

struct Section {
  std::string id, title;
  Markup body = {};
};

/// A page of sections: one file that asks for nothing else, with our style and script inside and a
/// policy that forbids all others.
struct Page {
  std::string title;
  Markup heading = {};  ///< below the title
  std::vector<Section> sections = {};
  std::string footer;
};
std::string html(const Page& page);

/// Hatchings that drawings name; once in a page or file.
Markup drawing_patterns();

/// Base64 of the SHA-256 of text, as a policy names a script.
std::string policy_hash(std::string_view text);

}  // namespace kvcal::report

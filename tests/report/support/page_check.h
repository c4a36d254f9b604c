#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "report/plot.h"

namespace kvcal::test {

/// Checks that a page is sound HTML, asks nothing of the net and could not.
void check_page(const std::string& page);

/// Checks that files of plots are there by these names, each sound XML that needs no other file.
void check_plots(const std::vector<report::Plot>& plots, const std::vector<std::string>& names);

/// tests/fixtures/report/<name>.json
Json result_fixture(const std::string& name);

}  // namespace kvcal::test

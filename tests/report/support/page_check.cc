#include "report/support/page_check.h"

#include "core/file.h"
#include "report/support/html_check.h"
#include "support/catch.h"
#include "support/folders.h"

namespace kvcal::test {

void check_page(const std::string& page) {
  for (const std::string& problem : html_problems(page)) {
    INFO(problem);
    CHECK(problem.empty());
  }
  for (const char* way :
       {"http:", "https:", "//cdn", "src=\"", "@import", "url(h", "fetch(", "xmlns"})
    CHECK(count_of(page, way) == 0);
  CHECK(count_of(page, "default-src &#39;none&#39;") == 1);
  CHECK(count_of(page, "<script>") == 1);
}

void check_plots(const std::vector<report::Plot>& plots, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const report::Plot& plot : plots) found.push_back(plot.name);
  CHECK(found == names);
  for (const report::Plot& plot : plots) {
    INFO(plot.name);
    const std::string svg = plot_svg(plot);
    for (const std::string& problem : xml_problems(svg)) {
      INFO(problem);
      CHECK(problem.empty());
    }
    CHECK(count_of(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\"") == 1);
    CHECK(count_of(svg, "http") == 1);
    // What programs other than browsers do not know.
    for (const char* word : {"var(", "<script", "@media", "NaN", "inf\"", "&nbsp;"})
      CHECK(count_of(svg, word) == 0);
  }
}

Json result_fixture(const std::string& name) {
  return parse_json(read_text(tests_folder() / "fixtures" / "report" / (name + ".json")));
}

}  // namespace kvcal::test

#pragma once

#include <string>
#include <vector>

namespace kvcal::test {

/// What a strict reader of HTML finds wrong with a page: tags that are not closed or closed in the
/// wrong order (but for the end tags that HTML makes optional and that we leave out), ids that
/// repeat, links and labels that lead nowhere, attributes without quotes, drawings without a name,
/// characters that must be escaped. Written apart from what makes pages.
std::vector<std::string> html_problems(const std::string& page);

/// The same of a file of XML: every tag is closed, nothing is left out.
std::vector<std::string> xml_problems(const std::string& file);

/// How often text stands in page.
size_t count_of(const std::string& page, const std::string& text);

/// What stands between the first `from` and the `to` after it.
std::string between(const std::string& page, const std::string& from, const std::string& to);

}  // namespace kvcal::test

#include "report/support/html_check.h"

#include <map>
#include <regex>
#include <set>

namespace kvcal::test {
namespace {

const std::set<std::string> kVoid{"meta", "link", "br", "hr", "img", "input"};
/// Whose end tags HTML makes optional.
const std::set<std::string> kOptional{"tr", "td", "th", "tbody", "thead", "li", "caption"};

struct Tag {
  std::string name;
  std::map<std::string, std::string> attributes;
  bool is_end = false, is_closed = false;
};

/// Walks a page tag by tag.
class Checker {
 public:
  Checker(const std::string& page, bool is_xml) : page_(page), is_xml_(is_xml) {}

  std::vector<std::string> run() {
    const std::string beginning =
        is_xml_ ? "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg " : "<!DOCTYPE html>";
    if (!page_.starts_with(beginning)) problems_.push_back("no " + beginning);
    size_t at = page_.find('>') + 1;
    while (at < page_.size()) {
      const size_t open = page_.find('<', at);
      check_text(page_.substr(at, open - at));
      if (open == std::string::npos) break;
      const size_t close = page_.find('>', open);
      if (close == std::string::npos) {
        problems_.push_back("a tag does not end");
        break;
      }
      at = close + 1;
      handle(parse(page_.substr(open + 1, close - open - 1)), at);
    }
    while (!open_.empty() && may_end_itself(open_.back())) open_.pop_back();
    if (!open_.empty()) problems_.push_back("not closed: " + open_.back());
    for (const std::string& target : targets_)
      if (!ids_.contains(target)) problems_.push_back("nothing has the id " + target);
    return problems_;
  }

 private:
  void check_text(const std::string& text) {
    static const std::regex entity("&(?!(amp|lt|gt|quot|#39);)");
    if (text.find('&') != std::string::npos && std::regex_search(text, entity))
      problems_.push_back("an unescaped & in '" + text.substr(0, 40) + "'");
    for (const char c : text)
      if (static_cast<unsigned char>(c) < 0x20 && c != '\n')
        problems_.push_back("a control character");
  }

  Tag parse(std::string text) {
    Tag tag;
    if (text.starts_with('/')) {
      tag.is_end = true;
      text.erase(0, 1);
    }
    if (text.ends_with('/')) {
      tag.is_closed = true;
      text.pop_back();
    }
    const size_t end = text.find(' ');
    tag.name = text.substr(0, end);
    static const std::regex name("[a-zA-Z][a-zA-Z0-9]*");
    if (!std::regex_match(tag.name, name)) problems_.push_back("no tag: <" + tag.name + ">");
    size_t at = end;
    while (at != std::string::npos && at + 1 < text.size()) {
      const size_t equals = text.find("=\"", at);
      const size_t quote = equals == std::string::npos ? equals : text.find('"', equals + 2);
      if (quote == std::string::npos) {
        problems_.push_back("an attribute without quotes in <" + text + ">");
        break;
      }
      const std::string key = text.substr(at + 1, equals - at - 1);
      const std::string value = text.substr(equals + 2, quote - equals - 2);
      if (!tag.attributes.emplace(key, value).second)
        problems_.push_back("twice the attribute " + key);
      check_text(value);
      at = quote + 1;
    }
    return tag;
  }

  void handle(const Tag& tag, size_t& at) {
    if (tag.is_end) return end(tag.name);
    note(tag);
    if (tag.name == "script" || tag.name == "style") {
      const size_t stop = page_.find("</" + tag.name, at);
      at = page_.find('>', stop) + 1;
      return;
    }
    if (tag.is_closed || (!is_xml_ && kVoid.contains(tag.name))) return;
    if (!is_xml_) begin(tag.name);
    open_.push_back(tag.name);
  }

  bool may_end_itself(const std::string& name) const {
    return !is_xml_ && kOptional.contains(name);
  }

  /// Ends what a tag of this name ends by beginning.
  void begin(const std::string& name) {
    const auto pop_if = [&](std::initializer_list<const char*> names) {
      for (bool found = true; found && !open_.empty();) {
        found = false;
        for (const char* one : names) found = found || open_.back() == one;
        if (found) open_.pop_back();
      }
    };
    if (name == "td" || name == "th") pop_if({"td", "th"});
    if (name == "tr") pop_if({"td", "th", "tr"});
    if (name == "tbody") pop_if({"td", "th", "tr", "thead"});
  }

  void end(const std::string& name) {
    while (!open_.empty() && open_.back() != name && may_end_itself(open_.back())) open_.pop_back();
    if (open_.empty() || open_.back() != name)
      problems_.push_back("</" + name + "> ends " + (open_.empty() ? "nothing" : open_.back()));
    else
      open_.pop_back();
  }

  void note(const Tag& tag) {
    const auto value = [&](const char* key) {
      const auto found = tag.attributes.find(key);
      return found == tag.attributes.end() ? std::string() : found->second;
    };
    if (const std::string id = value("id"); !id.empty() && !ids_.insert(id).second)
      problems_.push_back("twice the id " + id);
    if (const std::string href = value("href"); href.starts_with("#"))
      targets_.insert(href.substr(1));
    std::string labels = value("aria-labelledby");
    for (size_t space; !labels.empty(); labels.erase(0, space == labels.npos ? space : space + 1)) {
      space = labels.find(' ');
      targets_.insert(labels.substr(0, space));
    }
    if (tag.name == "svg" && value("aria-hidden") != "true" &&
        (value("role") != "img" || value("aria-labelledby").empty()))
      problems_.push_back("a drawing without a name");
    for (const auto& [key, unused] : tag.attributes)
      if (key.starts_with("on") || key == "style") problems_.push_back("the attribute " + key);
  }

  const std::string& page_;
  const bool is_xml_;
  std::vector<std::string> open_, problems_;
  std::set<std::string> ids_, targets_;
};

}  // namespace

std::vector<std::string> html_problems(const std::string& page) {
  return Checker(page, false).run();
}

std::vector<std::string> xml_problems(const std::string& file) {
  return Checker(file, true).run();
}

size_t count_of(const std::string& page, const std::string& text) {
  size_t count = 0;
  for (size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) ++count;
  return count;
}

std::string between(const std::string& page, const std::string& from, const std::string& to) {
  const size_t begin = page.find(from);
  if (begin == std::string::npos) return {};
  const size_t end = page.find(to, begin + from.size());
  return page.substr(begin + from.size(), end - begin - from.size());
}

}  // namespace kvcal::test

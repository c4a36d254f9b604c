#include "datasets/delimited_row.h"

#include <algorithm>

#include "core/error.h"
#include "datasets/record_source.h"

namespace kvcal {
namespace {

constexpr char kQuote = '"';

class RowReader {
 public:
  RowReader(std::string_view text, size_t begin, char delimiter)
      : text_(text), at_(begin), delimiter_(delimiter) {}

  size_t read(std::vector<std::string>& fields) {
    fields.clear();
    if (takes_break()) return at_;
    while (true) {
      fields.push_back(at_ < text_.size() && text_[at_] == kQuote ? quoted_field() : plain_field());
      if (at_ == text_.size() || takes_break()) return at_;
      if (text_[at_] != delimiter_)
        fail("text follows the closing quote of field ", fields.size(), ", expected ", shown(),
             " or a line break; a quote inside quotes is written twice");
      ++at_;
    }
  }

 private:
  bool takes_break() {
    const size_t size = text_.substr(at_).starts_with("\r\n")                              ? 2
                        : at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r') ? 1
                                                                                           : 0;
    at_ += size;
    return size > 0;
  }
  std::string plain_field() {
    const char ends[] = {delimiter_, '\r', '\n'};
    const size_t end =
        std::min(text_.find_first_of(std::string_view(ends, std::size(ends)), at_), text_.size());
    std::string field(text_.substr(at_, end - at_));
    at_ = end;
    return field;
  }
  std::string quoted_field() {
    std::string field;
    while (true) {
      const size_t quote = text_.find(kQuote, ++at_);
      if (quote == std::string_view::npos)
        fail("a field in quotes is not closed before the end of the file");
      field += text_.substr(at_, quote - at_);
      at_ = quote + 1;
      if (at_ == text_.size() || text_[at_] != kQuote) return field;
      field += kQuote;
    }
  }
  std::string shown() const { return delimiter_ == '\t' ? "a tab" : "a comma"; }

  std::string_view text_;
  size_t at_;
  char delimiter_;
};

bool has_header(std::string_view text, char delimiter) {
  std::vector<std::string> names, fields;
  try {
    size_t at = read_row(text, 0, delimiter, names);
    const auto is_key = [](const std::string& name) {
      return std::ranges::find(usual_record_keys(), name) != usual_record_keys().end();
    };
    if (std::ranges::none_of(names, is_key)) return false;
    while (at < text.size() && fields.empty()) at = read_row(text, at, delimiter, fields);
  } catch (const Error&) {
    return false;
  }
  return fields.size() == names.size();
}

}  // namespace

size_t read_row(std::string_view text, size_t begin, char delimiter,
                std::vector<std::string>& fields) {
  return RowReader(text, begin, delimiter).read(fields);
}

std::optional<char> delimiter_by_header(std::string_view text) {
  for (const char delimiter : {',', '\t'})
    if (has_header(text, delimiter)) return delimiter;
  return std::nullopt;
}

}  // namespace kvcal

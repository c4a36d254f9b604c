// CSV and TSV: a header that names the columns, and a record a row.

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/byte_units.h"
#include "core/error.h"
#include "core/json_append.h"
#include "core/safe_points.h"
#include "core/text.h"
#include "core/utf8.h"
#include "datasets/dataset_reader.h"

namespace kvcal {
namespace {

constexpr char kQuote = '"';

struct UnclosedQuote : Error {
  using Error::Error;
};

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
        throw UnclosedQuote("a field in quotes is not closed before the end of the file");
      field += text_.substr(at_, quote - at_);
      at_ = quote + 1;
      if (at_ == text_.size() || text_[at_] != kQuote) return field;
      field += kQuote;
    }
  }
  std::string shown() const {
    return delimiter_ == '\t'  ? "a tab"
           : delimiter_ == ',' ? "a comma"
                               : std::string{'\'', delimiter_, '\''};
  }

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

std::string parse_delimiter(const std::string& text) {
  if (text == "tab" || text == "\\t" || text == "\t") return "\t";
  if (text.size() != 1 || text[0] <= ' ' || text[0] > '~' || text[0] == kQuote)
    fail(shown_name(text), " is no delimiter, expected one character such as ';', or tab");
  return text;
}

size_t read_row(std::string_view text, size_t begin, char delimiter,
                std::vector<std::string>& fields) {
  return RowReader(text, begin, delimiter).read(fields);
}

std::optional<char> delimiter_by_header(std::string_view text) {
  // A header has the size of a record at most.
  const std::string_view head = text.substr(0, kDefaultRecordBytes);
  for (const char delimiter : {',', '\t'})
    if (has_header(head, delimiter)) return delimiter;
  return std::nullopt;
}

namespace {

bool is_break(char c) {
  return c == '\n' || c == '\r';
}

/// Line breaks of text from begin to end; "\r\n" is one, where its second byte lies.
int64_t breaks_in(std::string_view text, size_t begin, size_t end) {
  int64_t breaks = 0;
  for (size_t i = begin; i < end; ++i)
    if (text[i] == '\n' || (text[i] == '\r' && !text.substr(i + 1).starts_with('\n'))) ++breaks;
  return breaks;
}

/// The end of the empty rows that begin there, or of so many of them as one step takes.
size_t end_of_empty_rows(std::string_view text, size_t begin) {
  const std::string_view seen = text.substr(begin, size_t{1} << 16);
  return begin + static_cast<size_t>(std::ranges::find_if_not(seen, is_break) - seen.begin());
}

void check_is_text(std::string_view text) {
  if (const auto at = utf8::find_invalid(text)) fail("byte ", *at + 1, " of the row is not UTF-8");
  if (text.find('\0') != std::string_view::npos) fail("holds a NUL byte, expected UTF-8 text");
}

void check_header(const std::vector<std::string>& columns) {
  std::unordered_set<std::string_view> seen;
  for (const std::string& column : columns)
    if (!column.empty() && !seen.insert(column).second)
      fail("column '", column, "' appears twice in the header");
}

/// read_row that looks no further than a row may reach: its end may be most of a disk away.
size_t read_row_within(std::string_view text, size_t begin, char delimiter, size_t max_bytes,
                       std::vector<std::string>& fields) {
  // With a byte more than the longest row and its line break, which tells a longer one.
  const std::string_view seen = text.substr(0, begin + std::min(max_bytes + 3, text.size()));
  const auto check = [&](size_t end) {
    if (end == seen.size() && end < text.size())
      fail("the row has over ", limit_text(max_bytes),
           ", which is the limit; --max-record-bytes sets another");
    check_record_size("the row", end - begin, max_bytes);
    return end;
  };
  try {
    return check(read_row(seen, begin, delimiter, fields));
  } catch (const UnclosedQuote&) {
    check(seen.size());
    throw;
  }
}

/// A header of one column that another delimiter would part.
void check_is_parted(const std::vector<std::string>& columns) {
  const size_t at = columns.size() == 1 ? columns[0].find_first_of(";\t|") : std::string::npos;
  if (at == std::string::npos) return;
  const bool is_tab = columns[0][at] == '\t';
  const std::string other = is_tab ? "tab" : "'" + columns[0].substr(at, 1) + "'";
  fail("the header is one column, ", shown_name(columns[0]), "; where ", is_tab ? "tabs" : other,
       is_tab ? " part" : " parts", " its columns, add --delimiter ", other);
}

class DelimitedRecords : public RecordSource {
 public:
  /// is_guessed: nobody named the delimiter.
  DelimitedRecords(TextFile file, char delimiter, bool is_guessed, size_t max_record_bytes)
      : file_(std::move(file)), delimiter_(delimiter), is_guessed_(is_guessed) {
    const std::string_view text = file_.text();
    std::vector<std::string> fields;
    SafePoints points(4096);
    size_t dropped = 0;
    int64_t line = 1;
    for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      points.pass();
      try {  // no in_context(), which would write the place of every row
        end = end_of_empty_rows(text, begin);
        if (end == begin) {
          end = read_row_within(text, begin, delimiter_, max_record_bytes, fields);
          add({begin, end - begin, line}, fields);
        }
      } catch (Error& error) {
        error.add_context(place_of(line));
        throw;
      }
      line += breaks_in(text, begin, end);
      file_.drop_passed(dropped, end);
    }
    if (columns_.empty()) fail(file_.path().string(), ": is empty, expected a header of columns");
    if (rows_.empty()) fail(file_.path().string(), ": holds no record, only a header");
  }

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  /// An object of the columns that have a name, every value a text.
  Json read(int64_t index) const override {
    const RecordSpan& row = rows_.at(static_cast<size_t>(index));
    const std::string_view text = file_.text().substr(row.begin, row.size);
    std::vector<std::string> fields;
    in_context(place(index), [&] { check_is_text(text); });
    read_row(text, 0, delimiter_, fields);
    Json object = Json::object();
    for (size_t i = 0; i < columns_.size(); ++i)
      if (!columns_[i].empty()) append_field(object, columns_[i], std::move(fields[i]));
    return object;
  }
  std::string place(int64_t index) const override {
    return place_of(rows_.at(static_cast<size_t>(index)).line);
  }
  std::string sha256() const override { return file_.sha256(); }

 private:
  std::string place_of(int64_t line) const {
    return file_.path().string() + ":" + std::to_string(line);
  }
  void add(const RecordSpan& row, std::vector<std::string>& fields) {
    if (columns_.empty()) {
      check_is_text(file_.text().substr(row.begin, row.size));
      check_header(fields);
      if (is_guessed_) check_is_parted(fields);
      columns_ = std::move(fields);
      return;
    }
    if (fields.size() != columns_.size())
      fail("the row has ", counted(fields.size(), "field"), ", the header ", columns_.size(),
           "; a field that holds a delimiter or a line break needs quotes");
    rows_.push_back(row);
  }

  TextFile file_;
  char delimiter_;
  bool is_guessed_;
  std::vector<std::string> columns_;
  std::vector<RecordSpan> rows_;
};

std::unique_ptr<RecordSource> open_delimited(const fs::path& path, const RecordRequest& request) {
  TextFile file(path);
  const std::string extension = data_extension(path, /*is_packed=*/true);
  const char delimiter = !request.delimiter.empty() ? request.delimiter.front()
                         : extension == ".csv"      ? ','
                         : extension == ".tsv"      ? '\t'
                                                    : delimiter_by_header(file.text()).value();
  return std::make_unique<DelimitedRecords>(std::move(file), delimiter, request.delimiter.empty(),
                                            request.max_record_bytes);
}

}  // namespace

DatasetReader delimited_reader() {
  return {.open_records = open_delimited,
          .extensions = {".csv", ".tsv"},
          .reads_text = [](std::string_view text,
                           bool) { return delimiter_by_header(text).has_value(); },
          .takes_delimiter = true};
}

}  // namespace kvcal

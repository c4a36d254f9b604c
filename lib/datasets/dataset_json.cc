
#include <charconv>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"
#include "datasets/dataset_reader.h"

namespace kvcal {
namespace {

/// The parser counts lines and columns from the record's start: names the file's line instead, and
/// no column where the record need not begin its line.
void relocate(Error& error, const RecordSpan& span, bool is_line) {
  constexpr std::string_view kLine = "at line ", kColumn = ", column ";
  std::string message = error.message();
  const size_t at = message.find(kLine), column = message.find(kColumn);
  if (at == std::string::npos || column == std::string::npos) return;
  const size_t number = at + kLine.size(), end = message.find(':', column);
  int64_t line = 0;
  std::from_chars(message.data() + number, message.data() + column, line);
  if (is_line) {
    message.replace(at, column + 2 - at, "at ");
  } else {
    if (line == 1 && end != std::string::npos) message.erase(column, end - column);
    message.replace(number, column - number, std::to_string(line + span.line - 1));
  }
  error = Error(std::move(message));
}

}  // namespace

JsonRecords::JsonRecords(TextFile file, Shape shape, std::vector<RecordSpan> spans)
    : file_(std::move(file)), shape_(shape), spans_(std::move(spans)) {}

std::string JsonRecords::place(int64_t index) const {
  const RecordSpan& span = spans_.at(static_cast<size_t>(index));
  std::string text = file_.path().string() + ":" + std::to_string(span.line);
  if (shape_ != Shape::kLines) text += ", record " + std::to_string(index);
  return text;
}

Json JsonRecords::read(int64_t index) const {
  const RecordSpan& span = spans_.at(static_cast<size_t>(index));
  const std::string_view text = file_.text().substr(span.begin, span.size);
  return in_context(place(index), [&] {
    if (const auto at = utf8::find_invalid(text))
      fail("byte ", *at + 1, " of the record is not UTF-8");
    try {
      return parse_json(text, {.max_bytes = text.size()});
    } catch (Error& error) {
      relocate(error, span, shape_ == Shape::kLines);
      throw;
    }
  });
}

std::string JsonRecords::sha256() const {
  return file_.sha256();
}

}  // namespace kvcal

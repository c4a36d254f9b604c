#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/safe_points.h"
#include "datasets/dataset_reader.h"

namespace kvcal {
namespace {

constexpr size_t kMaxKeyBytes = 4096, kMaxMembers = 10'000;
constexpr int kMaxDepth = 128;

/// Walks over one JSON value without building it, so that a file of any size can be indexed. What
/// lies inside a record is only bracketed here; parse_json judges it when the record is read.
class Scanner {
 public:
  Scanner(const TextFile& file, size_t max_record_bytes)
      : file_(file), text_(file.text()), max_record_bytes_(max_record_bytes) {}

  /// The next character that is no space, 0 at the end.
  char peek() {
    at_ = std::min(text_.find_first_not_of(kJsonBlank, at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted, std::string_view where) {
    if (take(wanted)) return;
    fail("line ", line_of(at_), ": expected '", wanted, "' ", where, ", found ", found());
  }
  [[noreturn]] void fail_here(std::string_view wanted) {
    peek();
    fail("line ", line_of(at_), ": expected ", wanted, ", found ", found());
  }

  /// Passes one value.
  RecordSpan value() {
    peek();
    const RecordSpan start{at_, 0, line_of(at_)};
    if (at_ == text_.size()) fail("the file ends where a value should be");
    if (text_[at_] == '{' || text_[at_] == '[')
      skip_brackets(start.line);
    else if (text_[at_] == '"')
      skip_string(start.line);
    else
      at_ = std::min(text_.find_first_of(" \t\r\n,]}", at_), text_.size());
    const size_t size = at_ - start.begin;
    if (size == 0) fail_here("a value");
    if (text_[start.begin] != '[') check_size("the value", size, start.line);
    return {start.begin, size, start.line};
  }

  std::string_view text(const RecordSpan& span) const {
    return text_.substr(span.begin, span.size);
  }
  void check_size(std::string_view what, uint64_t size, int64_t line) const {
    if (size > max_record_bytes_)
      in_context("line " + std::to_string(line),
                 [&] { check_record_size(what, size, max_record_bytes_); });
  }
  void rewind(const RecordSpan& span) { at_ = dropped_ = span.begin; }

 private:
  void skip_string(int64_t start_line) {
    ++at_;
    while (true) {
      pass_to("\"\\");
      if (at_ < text_.size() && text_[at_] == '"') break;
      if (at_ + 1 >= text_.size())
        fail("the file ends inside the value that begins at line ", start_line);
      at_ += 2;  // a backslash and what it escapes
    }
    ++at_;
  }
  void skip_brackets(int64_t start_line) {
    int depth = 0;
    do {
      pass_to("\"{}[]");
      if (at_ == text_.size())
        fail("the file ends inside the value that begins at line ", start_line);
      const char c = text_[at_];
      if (c == '"') {
        skip_string(start_line);
        continue;
      }
      depth += c == '{' || c == '[' ? 1 : -1;
      if (depth > kMaxDepth)
        fail("line ", line_of(at_), ": JSON nests deeper than ", kMaxDepth, " levels");
      ++at_;
      drop_passed();
    } while (depth > 0);
  }
  /// Goes on to the next of these characters, or to the end of the file.
  void pass_to(std::string_view characters) {
    constexpr size_t kPiece = size_t{1} << 20;
    points_.pass();
    for (at_ = std::min(at_, text_.size()); at_ < text_.size(); throw_if_interrupted()) {
      const size_t found = text_.substr(at_, kPiece).find_first_of(characters);
      at_ = std::min(found == std::string_view::npos ? at_ + kPiece : at_ + found, text_.size());
      if (found != std::string_view::npos) return;
    }
  }
  void drop_passed() {
    if (at_ - dropped_ >= TextFile::kDropEvery) line_of(at_);  // counts before they are dropped
    file_.drop_passed(dropped_, at_);
  }
  /// Counts on from where it was asked last; the scanner seldom goes back.
  int64_t line_of(size_t offset) {
    if (offset < counted_) counted_ = 0, line_ = 1;
    const std::string_view passed = text_.substr(counted_, offset - counted_);
    line_ += std::count(passed.begin(), passed.end(), '\n');
    counted_ = offset;
    return line_;
  }
  std::string found() const {
    if (at_ >= text_.size()) return "the end of the file";
    const char c = text_[at_];
    return c > ' ' && c < '\x7f' ? "'" + std::string(1, c) + "'"
                                 : "byte " + std::to_string(static_cast<unsigned char>(c));
  }

  const TextFile& file_;
  std::string_view text_;
  size_t max_record_bytes_;
  size_t at_ = 0, counted_ = 0, dropped_ = 0;
  int64_t line_ = 1;
  SafePoints points_;
};

/// A top-level member.
struct Member {
  std::string key;
  RecordSpan value;
};

/// The records of an array, each of which begins with opener.
std::vector<RecordSpan> scan_array(Scanner& scanner, char opener) {
  std::vector<RecordSpan> spans;
  scanner.expect('[', "at the start of the array");
  if (scanner.take(']')) return spans;
  do {
    if (scanner.peek() != opener)
      scanner.fail_here(opener == '{' ? "a record, '{'" : "an array of token ids, '['");
    spans.push_back(scanner.value());
    scanner.check_size("the record", spans.back().size, spans.back().line);
  } while (scanner.take(','));
  scanner.expect(']', "or ',' after a record");
  return spans;
}

std::vector<Member> scan_members(Scanner& scanner) {
  std::vector<Member> members;
  scanner.expect('{', "at the start of the object");
  if (scanner.take('}')) return members;
  do {
    if (scanner.peek() != '"') scanner.fail_here("a key in quotes");
    const RecordSpan key = scanner.value();
    if (key.size > kMaxKeyBytes) fail("line ", key.line, ": a key has ", key.size, " bytes");
    scanner.expect(':', "after a key");
    members.push_back({parse_json(scanner.text(key)).get<std::string>(), scanner.value()});
    if (members.size() > kMaxMembers)
      fail("the object has more than ", kMaxMembers, " keys; expected an array of records");
  } while (scanner.take(','));
  scanner.expect('}', "or ',' after a value");
  return members;
}

/// True if the value is an array whose first element begins with opener.
bool is_array_of(std::string_view value, char opener) {
  if (!value.starts_with('[')) return false;
  const size_t first = value.find_first_not_of(kJsonBlank, 1);
  return first != std::string_view::npos && value[first] == opener;
}

std::string list(const std::vector<const Member*>& members) {
  return join(members, ", ", [](const Member* member) { return "'" + member->key + "'"; });
}

struct Index {
  JsonRecords::Shape shape = JsonRecords::Shape::kObjects;
  std::vector<RecordSpan> spans;
};

/// The records of an object's one array. What else the object holds is not used, but must be JSON.
Index scan_member(Scanner& scanner, const std::vector<Member>& members, const Member& member,
                  JsonRecords::Shape shape) {
  for (const Member& other : members)
    if (&other != &member)
      in_context(
          "key '" + other.key + "', whose value begins at line " + std::to_string(other.value.line),
          [&] {
            const Json value = parse_json(scanner.text(other.value));
            if (shape == JsonRecords::Shape::kIds && other.key == "attention_mask")
              check_hides_nothing(value, other.key);
          });
  scanner.rewind(member.value);
  return {shape, scan_array(scanner, shape == JsonRecords::Shape::kIds ? '[' : '{')};
}

const Member* find(const std::vector<Member>& members, std::string_view key) {
  const auto found = std::ranges::find(members, key, &Member::key);
  return found == members.end() ? nullptr : &*found;
}

Index index_object(Scanner& scanner, const TextFile& file, const RecordRequest& request) {
  const auto whole = [&] { return Scanner(file, request.max_record_bytes).value(); };
  const std::vector<Member> members = scan_members(scanner);
  if (scanner.peek() != '\0') scanner.fail_here("the end of the file after the object");
  for (const std::string_view key : {"input_ids", "ids"})
    if (const Member* ids = find(members, key); ids && is_array_of(scanner.text(ids->value), '['))
      return scan_member(scanner, members, *ids, JsonRecords::Shape::kIds);
  for (const std::string_view key : {"input_ids", "messages", "conversations", "text"})
    if (find(members, key)) return {JsonRecords::Shape::kObjects, {whole()}};
  std::vector<const Member*> arrays, all;
  for (const Member& member : members) {
    all.push_back(&member);
    if (is_array_of(scanner.text(member.value), '{')) arrays.push_back(&member);
  }
  if (arrays.size() == 1)
    return scan_member(scanner, members, *arrays.front(), JsonRecords::Shape::kObjects);
  const auto is_member = [&](const std::string& field) { return find(members, field) != nullptr; };
  if (arrays.empty() && std::ranges::any_of(request.fields, is_member))
    return {JsonRecords::Shape::kObjects, {whole()}};
  if (arrays.empty())
    fail("expected an array of records, an object that holds one, or {\"input_ids\": [[…]]}; ",
         all.empty() ? "the object is empty" : "found an object with " + list(all));
  fail("expected one array of records in the object, found ", arrays.size(), ": ", list(arrays));
}

Index index_value(const TextFile& file, const RecordRequest& request) {
  Scanner scanner(file, request.max_record_bytes);
  const char first = scanner.peek();
  if (first == '{') return index_object(scanner, file, request);
  if (first != '[') scanner.fail_here("'[' or '{' at the start");
  Index index{JsonRecords::Shape::kObjects, scan_array(scanner, '{')};
  if (scanner.peek() != '\0') scanner.fail_here("the end of the file after the array");
  return index;
}

std::unique_ptr<RecordSource> open_json_value(const fs::path& path, const RecordRequest& request) {
  TextFile file(path);
  Index index = in_context(path.string(), [&] { return index_value(file, request); });
  if (index.spans.empty()) fail(path.string(), ": holds no record, the array is empty");
  return std::make_unique<JsonRecords>(std::move(file), index.shape, std::move(index.spans));
}

}  // namespace

DatasetReader json_array_reader() {
  return {.open_records = open_json_value,
          .extensions = {".json"},
          .trusts_extension = false,  // JSON lines have it too
          .reads_text = [](std::string_view text, bool has_extension) {
            const size_t start = text.find_first_not_of(kJsonBlank);
            return has_extension ||
                   (start != std::string_view::npos && (text[start] == '{' || text[start] == '['));
          }};
}

}  // namespace kvcal

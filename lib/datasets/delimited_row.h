#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvcal {

/// Reads the row of CSV or TSV that begins at `begin` into fields, without their quotes, and
/// returns where the next one begins. A blank line is a row without fields. A field in quotes may
/// hold the delimiter, line breaks, which stay as they are, and quotes written twice; elsewhere a
/// quote is a character. "\n", "\r\n" and "\r" end a row. Throws Error for a quoted field that is
/// not closed or is followed by other text. Source: Python's csv module, dialects excel and
/// excel-tab, with strict=True.
size_t read_row(std::string_view text, size_t begin, char delimiter,
                std::vector<std::string>& fields);

/// The delimiter, a comma or a tab, where a text begins with a header: its first row names a key of
/// records (usual_record_keys), and the second one has as many fields.
std::optional<char> delimiter_by_header(std::string_view text);

}  // namespace kvcal

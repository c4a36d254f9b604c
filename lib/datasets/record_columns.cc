#include "datasets/record_columns.h"

#include "core/file.h"
#include "core/json_limits.h"
#include "core/sha256.h"

namespace kvcal {

Json identity_of(const RecordOptions& records) {
  Json json = to_json(records.columns);
  json.update(to_json(records.chat));
  if (const std::string& file = records.chat.template_file; !file.empty())
    json["chat_template"] = sha256_hex(read_text(file, kSmallFileLimits.max_bytes));
  if (const SkipLimit& skip = records.skip; skip.records > 0 || skip.part > 0)
    json["skip_bad_records"] = {skip.records, skip.part};
  return json;
}

}  // namespace kvcal

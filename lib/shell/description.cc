#include "shell/description.h"

namespace kvcal {

std::string OptionDescription::placeholder() const {
  switch (kind) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kText:
      return "TEXT";
    case ValueKind::kNumber:
      return "NUMBER";
    case ValueKind::kFile:
      return "FILE";
    case ValueKind::kFolder:
      return "FOLDER";
    case ValueKind::kPath:
      return "PATH";
    case ValueKind::kChoice:
      return are_choices_joined ? "NAME[+NAME]..." : "NAME";
  }
  return "";
}

}  // namespace kvcal

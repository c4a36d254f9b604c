#include "family/roles.h"

#include <algorithm>

#include "core/error.h"
#include "family/words.h"

namespace kvcal {

const std::vector<RoleRow>& role_rows() {
  using enum Dim;
  using Class = TensorClass;
#define KVCAL_ROW(role, ...) {Role::role, word_of_enumerator(#role), __VA_ARGS__},
  static const std::vector<RoleRow> kRows{KVCAL_ROLES(KVCAL_ROW)};
#undef KVCAL_ROW
  return kRows;
}

const RoleRow& row_of(Role role) {
  const RoleRow& row = role_rows().at(static_cast<size_t>(role));
  KVCAL_CHECK(row.role == role);
  return row;
}

Role input_of(Role role) {
  const RoleRow& row = row_of(role);
  return row.input ? *row.input : row.holds.empty() ? role : input_of(row.holds.front());
}

std::vector<Role> fused_roles_of(Role role) {
  std::vector<Role> fused;
  for (const RoleRow& row : role_rows())
    if (std::ranges::find(row.holds, role) != row.holds.end()) fused.push_back(row.role);
  return fused;
}

}  // namespace kvcal

#!/usr/bin/env bash
# Checks clang-format of all sources and clang-tidy of those that changed.
#   tests/style.sh [BASE]     BASE: the commit that changes are counted from; by default where this branch left
#                             origin/main, or the commit before this one
# clang-format -i FILE mends the first; `cmake --workflow --preset tidy` checks all files with clang-tidy.
set -euo pipefail
cd "$(dirname "$0")/.."
MOST_TIDY=40  # files that clang-tidy looks at: about two minutes of two processors
jobs=$(nproc)

sources() {  # GIT ARGUMENT...: their list of names, without what is no source of ours
  "$@" | grep -E '\.(cc|h|c|cu)$'
}

check_format() {
  sources git ls-files lib kernels python tools tests | xargs -d '\n' -n 16 -P "$jobs" clang-format --dry-run --Werror ||
    { echo "error: clang-format -i writes these files otherwise" >&2; return 1; }
}

check_tidy() {  # BASE
  local changed
  # Headers of GPU kernels are a device compiler's.
  mapfile -t changed < <(sources git diff --name-only --diff-filter=d "$1" -- lib kernels python tools ':!kernels/gpu/*.h' | grep -E '\.(cc|h)$')
  [[ ${#changed[@]} -gt 0 ]] || { echo "no file changed since $1"; return; }
  if [[ ${#changed[@]} -gt $MOST_TIDY ]]; then
    echo "clang-tidy: $MOST_TIDY of ${#changed[@]} changed files; cmake --workflow --preset tidy checks all"
    changed=("${changed[@]:0:MOST_TIDY}")
  fi
  # The preset dev names every file by itself; nothing is built. GCC's options are not all clang's.
  cmake --preset dev >/dev/null
  printf '%s\n' "${changed[@]}" | xargs -d '\n' -n 1 -P "$jobs" \
    clang-tidy --quiet -p build/dev --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-error 2>/dev/null
}

check_format
base=${1:-$(tests/find_base.sh)}
if [[ -z $base ]]; then
  echo "clang-tidy: there is no earlier commit to compare with"
else
  check_tidy "$base"
fi

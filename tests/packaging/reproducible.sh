#!/usr/bin/env bash
# Two copies of the sources, built in two folders of different names, without a compiler's cache: the program, the Debian
# package and, with --wheel, the wheel are the same bytes. Two whole builds, so it is no part of the tests that run always.
#   tests/packaging/reproducible.sh [--wheel] [SCRATCH_FOLDER]      KVCAL_CMAKE_ARGS: more for cmake
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
wheel=false
if [[ ${1:-} == --wheel ]]; then
  wheel=true
  shift
fi
if [[ $# -gt 0 ]]; then
  scratch=$(mkdir -p "$1" && cd "$1" && pwd)
else
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
fi
export CCACHE_DISABLE=1 SOURCE_DATE_EPOCH=1700000000

# The files of the sources, as far as they are named: what git knows, else all but build folders.
list_sources() {
  if git rev-parse --git-dir >/dev/null 2>&1; then git ls-files -z --cached --others --exclude-standard
  else find . -path ./build -prune -o -type f -print0; fi
}

# Both copies are made before anything is built: an edit meanwhile would be in the second alone.
copy_sources() {
  local place=$scratch/$1/source
  [[ ! -d $place ]] || return 0
  mkdir -p "$place"
  (cd "$root" && list_sources | tar --null --no-recursion -cf - -T -) | tar -xf - -C "$place"
}

# One build: $1 names its folders, which differ in length.
build() {
  local place=$scratch/$1
  KVCAL_DEB_BUILD=$place/program "$place/source/packaging/deb.sh" "$place/packages"
  if $wheel; then KVCAL_WHEEL_BUILD=$place/wheel "$place/source/packaging/wheel.sh" "$place/packages"; fi
}

copy_sources first
copy_sources another_place
build first >"$scratch/first.log" 2>&1 || { tail -30 "$scratch/first.log"; exit 1; }
build another_place >"$scratch/second.log" 2>&1 || { tail -30 "$scratch/second.log"; exit 1; }
status=0
for file in program/kvcal $(cd "$scratch/first" && ls packages/*.deb packages/*.whl 2>/dev/null); do
  sums=$(sha256sum "$scratch/first/$file" "$scratch/another_place/$file" | cut -d' ' -f1 | sort -u)
  if [[ $(wc -l <<<"$sums") -eq 1 ]]; then echo "same: $sums $file"; else echo "FAILED: $file differs"; status=1; fi
done
exit $status

#!/usr/bin/env bash
# No path of the machine that built it is in the program: neither the sources' folder nor the build's.
#   tests/packaging/no_paths.sh PROGRAM SOURCE_FOLDER BUILD_FOLDER
set -euo pipefail
program=$1
shift
strings_file=$(mktemp)
trap 'rm -f "$strings_file"' EXIT
# Where a build folder's program looks for a library that is not the system's; it is not installed with it.
runpath=$(readelf -d "$program" 2>/dev/null | sed -nE 's/.*\((RUNPATH|RPATH)\).*\[(.*)\]/\2/p')
strings -n 6 "$program" | grep -vxF -e "$runpath" >"$strings_file"
# A path that is in it for certain: else nothing could be found in what strings prints.
grep -qF 'lib/core/' "$strings_file" || { echo "FAILED: not even a path inside the repository is found"; exit 1; }
status=0
for folder in "$@"; do
  if grep -F "$folder/" "$strings_file" | head -5 | grep .; then
    echo "FAILED: '$folder' is in $program"
    status=1
  fi
done
exit $status

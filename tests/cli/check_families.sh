#!/usr/bin/env bash
# Compares the table of families in README.md, between its two marker comments, with what
# `kvcal families --markdown` prints.
#   tests/cli/check_families.sh [--update]       KVCAL names the program
# --update rewrites the table in README.md.

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

update=false
[[ ${1:-} == --update ]] && update=true
find_program ""
make_scratch
README=$SOURCE_FOLDER/README.md
BEGIN='<!-- families begin -->'
END='<!-- families end -->'

for marker in "$BEGIN" "$END"; do
  if [[ $(grep -cxF "$marker" "$README") -ne 1 ]]; then
    echo "README.md must have the line '$marker' once"
    exit 1
  fi
done
"$KVCAL" families --markdown >"$SCRATCH_ROOT/table" || exit 1
{
  sed "/^$BEGIN\$/q" "$README"
  cat "$SCRATCH_ROOT/table"
  sed -n "/^$END\$/,\$p" "$README"
} >"$SCRATCH_ROOT/README.md"

if $update; then
  cp "$SCRATCH_ROOT/README.md" "$README"
  chmod 644 "$README"
  echo "updated README.md"
elif ! diff -u --label README.md --label found "$README" "$SCRATCH_ROOT/README.md"; then
  echo "README.md's table of families is not what the program prints; run tests/cli/check_families.sh --update"
  exit 1
fi

#!/usr/bin/env bash
# Compares the table of families in docs/models.md, between its two marker comments, with what
# `kvcal families --markdown` prints.
#   tests/cli/check_families.sh [--update]       KVCAL names the program
# --update rewrites the table in docs/models.md.

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

update=false
[[ ${1:-} == --update ]] && update=true
find_program ""
make_scratch
PAGE=$SOURCE_FOLDER/docs/models.md
BEGIN='<!-- families begin -->'
END='<!-- families end -->'

for marker in "$BEGIN" "$END"; do
  if [[ $(grep -cxF "$marker" "$PAGE") -ne 1 ]]; then
    echo "docs/models.md must have the line '$marker' once"
    exit 1
  fi
done
"$KVCAL" families --markdown >"$SCRATCH_ROOT/table" || exit 1
{
  sed "/^$BEGIN\$/q" "$PAGE"
  cat "$SCRATCH_ROOT/table"
  sed -n "/^$END\$/,\$p" "$PAGE"
} >"$SCRATCH_ROOT/models.md"

if $update; then
  cp "$SCRATCH_ROOT/models.md" "$PAGE"
  chmod 644 "$PAGE"
  echo "updated docs/models.md"
elif ! diff -u --label docs/models.md --label found "$PAGE" "$SCRATCH_ROOT/models.md"; then
  echo "docs/models.md's table of families is not what the program prints; run tests/cli/check_families.sh --update"
  exit 1
fi

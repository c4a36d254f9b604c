#!/usr/bin/env bash
# Compares the tables of families and of engines in docs/models.md, each between its two marker
# comments, with what `kvcal families --markdown` and `kvcal engines --markdown` print.
#   tests/cli/check_families.sh [--update]       KVCAL names the program
# --update rewrites the tables in docs/models.md.

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

update=false
[[ ${1:-} == --update ]] && update=true
find_program ""
make_scratch
PAGE=$SOURCE_FOLDER/docs/models.md
cp "$PAGE" "$SCRATCH_ROOT/models.md"

for table in families engines; do
  begin="<!-- $table begin -->" end="<!-- $table end -->"
  for marker in "$begin" "$end"; do
    if [[ $(grep -cxF "$marker" "$PAGE") -ne 1 ]]; then
      echo "docs/models.md must have the line '$marker' once"
      exit 1
    fi
  done
  "$KVCAL" $table --markdown >"$SCRATCH_ROOT/table" || exit 1
  {
    sed "/^$begin\$/q" "$SCRATCH_ROOT/models.md"
    cat "$SCRATCH_ROOT/table"
    sed -n "/^$end\$/,\$p" "$SCRATCH_ROOT/models.md"
  } >"$SCRATCH_ROOT/next.md"
  mv "$SCRATCH_ROOT/next.md" "$SCRATCH_ROOT/models.md"
done

if $update; then
  cp "$SCRATCH_ROOT/models.md" "$PAGE"
  chmod 644 "$PAGE"
  echo "updated docs/models.md"
elif ! diff -u --label docs/models.md --label found "$PAGE" "$SCRATCH_ROOT/models.md"; then
  echo "the tables of docs/models.md are not what the program prints; run tests/cli/check_families.sh --update"
  exit 1
fi

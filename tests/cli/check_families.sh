#!/usr/bin/env bash
# Compares the tables of families, of transformers' model types and of engines in docs/models.md,
# each between its two marker comments, with what `kvcal families --markdown [MODEL_TYPE...]` and
# `kvcal engines --markdown` print.
#   tests/cli/check_families.sh [--update]       KVCAL names the program
# --update rewrites the tables in docs/models.md.

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

update=false
[[ ${1:-} == --update ]] && update=true
find_program ""
make_scratch
PAGE=$SOURCE_FOLDER/docs/models.md
cp "$PAGE" "$SCRATCH_ROOT/models.md"

readarray -t types < <(grep -v '^#' "$SOURCE_FOLDER/tests/fixtures/family/model_types.tsv" | cut -f 1)
print_table() {
  case $1 in
    families | engines) "$KVCAL" "$1" --markdown ;;
    types) "$KVCAL" families --markdown "${types[@]}" ;;
  esac
}

for table in families types engines; do
  begin="<!-- $table begin -->" end="<!-- $table end -->"
  for marker in "$begin" "$end"; do
    if [[ $(grep -cxF "$marker" "$PAGE") -ne 1 ]]; then
      echo "docs/models.md must have the line '$marker' once"
      exit 1
    fi
  done
  print_table $table >"$SCRATCH_ROOT/table" || exit 1
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

#!/usr/bin/env bash
# Runs the program on inputs that are made to cost far more than they weigh. Each must end with an error that names the
# file and what is wrong in it, within 2 seconds of processor time and 200 MB of memory.
#   tests/bombs/run.sh [--table FILE] [PATTERN]     KVCAL and MEASURE name the programs
# --table writes what was seen as a Markdown table. PATTERN: only bombs whose title has it.

source "$(dirname "${BASH_SOURCE[0]}")/../cli/support.sh"
source "$CLI_FOLDER/errors/bad_files.sh"
BOMBS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$BOMBS/inputs.sh"

table=/dev/null
[[ ${1:-} == --table ]] && { table=$(realpath -m "$2"); shift 2; }
only=${1:-}
find_program ""
[[ -x ${MEASURE:-} ]] || { echo "no program MEASURE=${MEASURE:-}; build tests/bombs/measure.cc" >&2; exit 1; }
make_scratch
MOST_SECONDS=2 MOST_MEGABYTES=200 DEADLINE=900
CALIBRATE='kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out'
count=0 failed=0

kvcal() { "$MEASURE" $DEADLINE "$SCRATCH_ROOT/cost" "$KVCAL" "$@"; }

# bomb TITLE NAMED <<CASE: lines that make the input in a folder with model/, recipe.yaml and data.jsonl, and a last line
# "$ COMMAND" (calibrate where there is none). NAMED: a file that the error must name.
bomb() {
  local title=$1 named=$2 line setup="" command=$CALIBRATE size status seconds megabytes message verdict=""
  while IFS= read -r line; do
    case $line in
      '$ '*) command=${line#\$ } ;;
      *) setup+="$line"$'\n' ;;
    esac
  done
  [[ -z $only || $title == *"$only"* ]] || return 0
  count=$((count + 1))
  rm -rf "$SCRATCH_ROOT/room" "$SCRATCH_ROOT/cost"
  cp -r "$SCRATCH_ROOT/base" "$SCRATCH_ROOT/room"
  pushd "$SCRATCH_ROOT/room" >/dev/null || exit 1
  (set -e; eval "$setup") || verdict="its setup failed"
  size=$(find . -type f -newer "$SCRATCH_ROOT/base/made" -printf '%s\n' | sort -n | tail -1)
  (eval "$command") >"$SCRATCH_ROOT/stdout" 2>"$SCRATCH_ROOT/stderr" </dev/null
  read -r status seconds megabytes _ <"$SCRATCH_ROOT/cost"
  popd >/dev/null || exit 1
  message=$(stable_text "$SCRATCH_ROOT/room" <"$SCRATCH_ROOT/stderr" | grep -a '^error: ' | head -1 | cut -c 8-)
  [[ $status == 1 || $status == 2 ]] || verdict="exit code $status"
  [[ $message == *"$named"* ]] || verdict+="${verdict:+, }the message does not name $named"
  awk -v a="$seconds" -v b=$MOST_SECONDS 'BEGIN { exit !(a > b) }' && verdict+="${verdict:+, }$seconds seconds"
  ((megabytes > MOST_MEGABYTES)) && verdict+="${verdict:+, }$megabytes MB"
  [[ -e $SCRATCH_ROOT/room/out ]] && verdict+="${verdict:+, }an output was left"
  if [[ -n $verdict ]]; then
    failed=$((failed + 1))
    echo "FAILED '$title': $verdict; it said: $(head -c 400 "$SCRATCH_ROOT/stderr")"
  fi
  printf '| %s | %s | %s | %s | %s |\n' "$title" "$(numfmt --to=si "${size:-0}")" "$seconds" "$megabytes" \
    "$(printf %s "${message:--}" | tr '|\n' '/ ' | cut -c 1-160 | sed 's/`/'"'"'/g; s/.*/`&`/')" >>"$SCRATCH_ROOT/table"
}

make_base "$SCRATCH_ROOT/base"
touch "$SCRATCH_ROOT/base/made"
sleep 0.01
for bombs in "$BOMBS"/*_bombs.sh; do
  source "$bombs"
done
{
  printf '| input | bytes | seconds | MB | error |\n| --- | ---: | ---: | ---: | --- |\n'
  cat "$SCRATCH_ROOT/table"
} >"$table"
echo "$count bombs, $failed failed"
[[ $failed -eq 0 ]]

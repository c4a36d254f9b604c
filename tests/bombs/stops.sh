#!/usr/bin/env bash
# Gives each reader its largest input and stops the program while it reads: after a SIGTERM it must end within 2 seconds
# of processor time, say that it was interrupted and leave no output. The signal comes when the program has opened the
# input and then worked for some milliseconds of processor time; a reader that has ended by then is a fast one.
#   tests/bombs/stops.sh [PATTERN]     KVCAL and MEASURE name the programs. PATTERN: only inputs whose title has it.
# STOPS: the milliseconds, several with blanks between; VERBOSE=1 prints what each stop took.

source "$(dirname "${BASH_SOURCE[0]}")/../cli/support.sh"
source "$CLI_FOLDER/errors/bad_files.sh"
BOMBS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$BOMBS/inputs.sh"

only=${1:-}
find_program ""
[[ -x ${MEASURE:-} ]] || { echo "no program MEASURE=${MEASURE:-}; build tests/bombs/measure.cc" >&2; exit 1; }
make_scratch
MOST_SECONDS=2 DEADLINE=900
STOPS=${STOPS:-250}
stopped=0 titles=""

# large TITLE COMMAND [WATCHED] <<CASE: lines that make the input in a folder with model/, recipe.yaml and data.jsonl.
# COMMAND "calibrate [DATA]" is one with that folder's recipe and data set. WATCHED: the file that must have been opened,
# by default the largest that the lines made.
large() {
  local title=$1 command=$2 watched=${3:-} setup stop
  setup=$(cat)
  titles+="$title"$'\n'
  [[ -z $only || $title == *"$only"* ]] || return 0
  [[ $command == calibrate ]] && command='calibrate data.jsonl'
  [[ $command == "calibrate "* ]] && command="calibrate model --recipe recipe.yaml --dataset ${command#calibrate } --output out"
  rm -rf "$SCRATCH_ROOT/room"
  cp -rp "$SCRATCH_ROOT/base" "$SCRATCH_ROOT/room"
  pushd "$SCRATCH_ROOT/room" >/dev/null || exit 1
  (set -eu; add_tokenizer; eval "$setup") || fail "'$title': its setup failed"
  [[ -n $watched ]] || watched=$(find . -type f -newer "$SCRATCH_ROOT/base/made" -printf '%s %p\n' | sort -n | tail -1 | cut -d ' ' -f 2)
  for stop in $STOPS; do
    stop_once "$title" "$command" "$watched" "$stop" || break
  done
  popd >/dev/null || exit 1
}

# Whether there was something to stop.
stop_once() {  # TITLE COMMAND WATCHED MILLISECONDS
  local status seconds after said verdict=""
  checks=$((checks + 1))
  eval "\"\$MEASURE\" --stop \"\$3\" $4 $DEADLINE \"\$SCRATCH_ROOT/cost\" \"\$KVCAL\" $2" \
    >"$SCRATCH_ROOT/stdout" 2>"$SCRATCH_ROOT/stderr" </dev/null || verdict="not measured"
  read -r status seconds _ after <"$SCRATCH_ROOT/cost"
  said=$(tail -c 600 "$SCRATCH_ROOT/stderr")
  [[ -z ${VERBOSE:-} ]] || echo "$1: $4 ms behind the opening of $3: status $status, $seconds s, $after after; ${said##*$'\n'}"
  [[ $status == [0123] || $status == 130 ]] || verdict+="${verdict:+, }exit code $status"
  awk -v a="$after" -v b=$MOST_SECONDS 'BEGIN { exit !(a != "-" && a > b) }' && verdict+="${verdict:+, }$after seconds"
  [[ $status != 130 || $said == *interrupted* ]] || verdict+="${verdict:+, }no word of it"
  # A calibration that had begun keeps its state, and says so.
  [[ $said != *"is kept in 'out.kvcal-state'"* ]] || rm -rf out.kvcal-state
  [[ $status == 0 || -z $(find . -maxdepth 1 \( -name 'out*' -o -name '.*kvcal*' -o -name '*.partial*' \)) ]] ||
    verdict+="${verdict:+, }an output was left"
  [[ -z $verdict ]] || fail "'$1' $4 ms behind the opening of $3: $verdict; it said: $said"
  rm -rf out out.kvcal-state
  [[ $after != - ]] && stopped=$((stopped + 1))
}

make_base "$SCRATCH_ROOT/base"
touch "$SCRATCH_ROOT/base/made"
source "$BOMBS/large_inputs.sh"
# Each reader of data sets has a largest input.
for reader in $(sed -n 's/^  ROW(\([a-z_]*\)).*/\1/p' "$SOURCE_FOLDER/lib/datasets/dataset.cc"); do
  [[ $'\n'$titles == *$'\n'"$reader: "* ]] || fail "no input for the reader $reader of data sets"
done
echo "$checks stops, $stopped while the program read, $failed failed"
# Many inputs take long enough to be stopped; a fast processor has read the others by then.
[[ $failed -eq 0 && ( -n $only || $((stopped * 3)) -gt $checks ) ]]

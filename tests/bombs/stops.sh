#!/usr/bin/env bash
# Gives each reader its largest input and stops the program while it reads: after a SIGTERM it must end within 2 seconds
# of processor time, say that it was interrupted and leave no output. A reader that has ended before is one that is fast.
#   tests/bombs/stops.sh [PATTERN]     KVCAL and MEASURE name the programs. PATTERN: only inputs whose title has it.

source "$(dirname "${BASH_SOURCE[0]}")/../cli/support.sh"
source "$CLI_FOLDER/errors/bad_files.sh"
BOMBS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$BOMBS/inputs.sh"

only=${1:-}
find_program ""
[[ -x ${MEASURE:-} ]] || { echo "no program MEASURE=${MEASURE:-}; build tests/bombs/measure.cc" >&2; exit 1; }
make_scratch
MOST_SECONDS=2 DEADLINE=900
# Milliseconds of processor time after which the signal comes.
STOPS=${STOPS:-"250 1000 3000"}
count=0 failed=0

# large TITLE COMMAND <<CASE: lines that make the input in a folder with model/, recipe.yaml and data.jsonl. A command
# "calibrate" is one with that folder's recipe and data set.
large() {
  local title=$1 command=$2 stop status after verdict said setup
  setup=$(cat)
  [[ -z $only || $title == *"$only"* ]] || return 0
  [[ $command == calibrate ]] && command='calibrate model --recipe recipe.yaml --dataset data.jsonl --output out'
  [[ $command == "calibrate data"* ]] &&
    command="calibrate model --recipe recipe.yaml --dataset ${command#calibrate } --output out"
  rm -rf "$SCRATCH_ROOT/room"
  cp -r "$SCRATCH_ROOT/base" "$SCRATCH_ROOT/room"
  pushd "$SCRATCH_ROOT/room" >/dev/null || exit 1
  (set -eu; eval "$setup") || { echo "FAILED '$title': its setup failed"; failed=$((failed + 1)); }
  for stop in $STOPS; do
    count=$((count + 1)) verdict=""
    eval "\"\$MEASURE\" --stop $stop $DEADLINE \"\$SCRATCH_ROOT/cost\" \"\$KVCAL\" $command" \
      >"$SCRATCH_ROOT/stdout" 2>"$SCRATCH_ROOT/stderr" </dev/null
    read -r status seconds _ after <"$SCRATCH_ROOT/cost"
    [[ -n ${VERBOSE:-} ]] && echo "$title: $stop: status $status, $seconds s, $after after: $(head -c 200 "$SCRATCH_ROOT/stderr" | head -1)"
    [[ $status == [0123] || $status == 130 ]] || verdict="exit code $status"
    awk -v a="$after" -v b=$MOST_SECONDS 'BEGIN { exit !(a != "-" && a > b) }' && verdict+="${verdict:+, }$after seconds"
    said=$(tail -c 600 "$SCRATCH_ROOT/stderr")
    [[ $after == - || $status != 130 || $said == *interrupted* ]] || verdict+="${verdict:+, }no word of it"
    # A calibration that had begun keeps its state, and says so.
    [[ $said == *"is kept in 'out.kvcal-state'"* ]] && rm -rf out.kvcal-state
    [[ -z $(find . -maxdepth 1 \( -name 'out*' -o -name '.*kvcal*' -o -name '*.partial*' \)) || $status == 0 ]] ||
      verdict+="${verdict:+, }an output was left"
    [[ -z $verdict ]] || { failed=$((failed + 1)); echo "FAILED '$title' after $stop ms: $verdict; it said: $said"; }
    rm -rf out out.kvcal-state
    [[ $after != - ]] || break  # it has ended before, and would again
  done
  popd >/dev/null || exit 1
}

make_base "$SCRATCH_ROOT/base"
source "$BOMBS/large_inputs.sh"
echo "$count stops, $failed failed"
[[ $failed -eq 0 ]]

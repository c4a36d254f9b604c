#!/usr/bin/env bash
# Runs the program while something around it fails: calls to the system, disks, memory, links, other runs. Whatever it is,
# the run ends with exit status 1 and a message that names the file and the reason, or with the bytes of a run without
# faults; what it reads stays as it was, what it writes is there whole or not at all, and nothing else is left.
#   tests/faults/run.sh [--table FILE] [--places N] [PATTERN]     KVCAL and INJECT name the program and the library
# --table writes what was seen as Markdown, into a page between its marks where it has them; --places: how many calls of a
# kind of each command are tried, drawn with a fixed seed where it makes more; PATTERN: only faults whose name has it.

source "$(dirname "${BASH_SOURCE[0]}")/../cli/support.sh"
FAULTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

table= only= MOST_PLACES=5
while [[ ${1:-} == --* ]]; do
  case $1 in
    --table) table=$(realpath -m "$2"); shift ;;
    --places) MOST_PLACES=$2; shift ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
only=${1:-}
find_program ""
[[ -f ${INJECT:-} ]] || { echo "no library INJECT=${INJECT:-}; build tests/faults/inject.c" >&2; exit 1; }
INJECT=$(realpath "$INJECT")
make_scratch
trap 'umount "$SCRATCH_ROOT"/disks/room/{sub,model} 2>/dev/null; rm -rf "$SCRATCH_ROOT"' EXIT
WORKERS=$(nproc)
RANDOM=7  # the seed of the places
shopt -s nullglob dotglob
source "$FAULTS/commands.sh"
source "$FAULTS/judge.sh"
source "$FAULTS/report.sh"

# case_of FAULT COMMAND SETUP [NAMED]: the command runs behind the bash code SETUP. NAMED: texts with | between them, one of
# which the message must have, behind ! where the run may not succeed; where it is empty, file and reason are those of the call
# that failed.
case_of() {
  is_wanted "$1" || return 0
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4:-}" >>"$SCRATCH_ROOT/cases"
}

# What SETUP of a case may say: inject KINDS NTH DO [PATH]
inject() {
  export KVCAL_FAULT_CALL=$1 KVCAL_FAULT_NTH=$2 KVCAL_FAULT_DO=$3 KVCAL_FAULT_PATH=${4:-/room/}
  head -c 8 /dev/zero >"$here/count"
  export KVCAL_FAULT_COUNT=$here/count KVCAL_FAULT_LOG=$here/log LD_PRELOAD=$INJECT
}

# The room is to be made anew behind the case; the source FILE is not to be compared.
fresh() { :; }
spoils() { :; }

# Case after case in a folder of its own; a line of verdict for each.
work() { # work NUMBER
  local fault command setup named
  here=$SCRATCH_ROOT/worker$1
  ROOM=$here/room
  mkdir "$here"
  fresh_room
  while IFS=$'\t' read -r -u 3 fault command setup named; do
    [[ -n $fault ]] && attempt
  done 3< <(awk "NR % $WORKERS == $1" "$SCRATCH_ROOT/cases" | sed 's/\t\t/\t \t/g')
}

make_room "$SCRATCH_ROOT/base"
[[ $failed -eq 0 ]] || exit 1
run_without_faults
: >"$SCRATCH_ROOT/cases"
for faults in "$FAULTS"/*_faults.sh; do
  source "$faults"
done
check_the_checks
for ((worker = 0; worker < WORKERS; worker++)); do work $worker & done
wait
cat "$SCRATCH_ROOT"/worker*/verdicts >"$SCRATCH_ROOT/verdicts" 2>/dev/null
for faults in "$FAULTS"/*_scenes.sh; do
  source "$faults"
  cat "$here/verdicts" >>"$SCRATCH_ROOT/verdicts" 2>/dev/null
done
report
[[ $failed -eq 0 ]]

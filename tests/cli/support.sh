# Shared by run_cases.sh and errors/run.sh: where the program and the models are, scratch folders,
# and texts made comparable. Sourced; needs bash and coreutils only.

set -u
export LC_ALL=C
# No test asks the hub of the world, nor reads a cache of the user.
export HF_HUB_OFFLINE=1 HF_HUB_CACHE=hub

CLI_FOLDER=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SOURCE_FOLDER=$(cd "$CLI_FOLDER/../.." && pwd)
MODELS=$SOURCE_FOLDER/tests/fixtures/models
DATA=$CLI_FOLDER/data
export MODELS DATA

# Absolute path of the program; $1, $KVCAL or the usual build folder.
find_program() {
  local program=${1:-${KVCAL:-$SOURCE_FOLDER/build/cpu/kvcal}}
  if [[ ! -x $program ]]; then
    echo "no program at $program; build it, or name it with KVCAL=..." >&2
    exit 1
  fi
  KVCAL=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")
  export KVCAL
}

# What a script of many checks counts; the last line it prints says so, and it ends with [[ $failed -eq 0 ]].
failed=0 checks=0
fail() {  # MESSAGE
  failed=$((failed + 1))
  echo "FAILED $1"
}

now() {  # nanoseconds
  date +%s%N
}

# Waits until COMMAND succeeds or the process PID has ended, ten minutes at most; whether COMMAND succeeded.
await() {  # PID COMMAND...
  local pid=$1 end=$((SECONDS + 600))
  shift
  until "$@"; do
    kill -0 "$pid" 2>/dev/null || { "$@"; return; }
    ((SECONDS < end)) || { echo "waited ten minutes for: $*" >&2; return 1; }
    sleep 0.01
  done
}
export -f await

# Lets process PID run a few milliseconds at a time until COMMAND succeeds or PID has ended, and leaves it stopped. A
# place in a run is so met on a machine of any speed.
step_until() {  # PID COMMAND...
  local pid=$1
  shift
  while kill -STOP "$pid" 2>/dev/null; do
    "$@" && return
    kill -CONT "$pid" 2>/dev/null
    sleep 0.002
  done
}

# The numbers of processes that were started in this folder and whose command lines match the regular expression $1.
ours() {  # PATTERN
  local one
  for one in $(pgrep -f -- "$1"); do
    grep -qazxs "PWD=$PWD" "/proc/$one/environ" && echo "$one"
  done
  return 0
}
none_of_ours() { [[ -z $(ours "$1") ]]; }

# A scratch folder that goes away with the script; in memory where there is such a place, since every
# output is flushed to its disk.
make_scratch() {
  local place=/dev/shm
  [[ -z ${TMPDIR:-} && -d $place && -w $place ]] || place=${TMPDIR:-/tmp}
  SCRATCH_ROOT=$(cd "$(mktemp -d -p "$place")" && pwd -P)
  trap 'rm -rf "$SCRATCH_ROOT"' EXIT
}

# Copies the fixture $1 to $2, writable and without the expectations that lie in it.
copy_model() {
  cp -r --no-preserve=mode "$MODELS/$1" "$2"
  rm -f "$2"/expected.* "$2/llmcompressor.json" "$2/fixture.json"
}
export -f copy_model

# Replaces what differs between machines and runs, and drops progress lines, of stdin.
stable_text() {
  sed -E -e "s#$1#/home/user#g" -e "s#$MODELS#MODELS#g" -e "s#$DATA#DATA#g" \
    -e 's#cpu \([^)]*\); use (bfloat16 or )?float32#cpu (NAME); use bfloat16 or float32#' \
    -e 's#n{250}#LONG_NAME#g' -e 's#\.partial-[0-9]+#.partial-PID#g' \
    -e 's#\(run [0-9-]{10}\)#(run *)#g' \
    -e 's#(tokens, which take) [0-9.]+ [kMG]?i?B#\1 SIZE#' \
    -e 's/ in [0-9.]+ s, peak memory [0-9.]+ [kMG]?B$/ in TIME, peak memory SIZE/' \
    -e '/^[a-z0-9, ]+: +[0-9]+ %, [0-9.]+ [kM]?.*\/s, [0-9a-z ]+ left$/d'
}

# Whether text $1 is what $2 expects; * stands for any text, also for several lines.
matches() {
  local pattern=$2 special
  for special in '\' '[' ']' '?' '(' ')' '|' '+' '@' '!'; do
    pattern=${pattern//"$special"/"\\$special"}
  done
  # shellcheck disable=SC2053  # a pattern on purpose
  [[ $1 == $pattern ]]
}

# The manifest in the JSON that a command printed: without what was written where, and for whom.
manifest_of() {  # FILE
  sed '/^  "outputs": \[$/,$d' "$1" | sed '$s/,$//'
  echo '}'
}
export -f manifest_of

# What data/sweep.yaml is run on, and the file itself, in the folder one is in.
make_sweep() {
  copy_model llama model
  cp "$DATA/sweep.yaml" "$DATA/data.jsonl" .
  local i
  for i in $(seq 6); do printf '{"input_ids": [%s]}\n' "$(seq -s, "$i" 3 $((i + 60)))"; done >text.jsonl
}
export -f make_sweep

# The first line and the layers of `kvcal inspect`; what it says of the architecture has cases of its own.
inspect_layers() {
  "$KVCAL" inspect --verbose "$@" | sed -n '1p; /^layer /,$p'
}
export -f inspect_layers

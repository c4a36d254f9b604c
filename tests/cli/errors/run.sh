#!/usr/bin/env bash
# Runs every case of *_cases.sh and compares the page of all messages with docs/errors.md.
#   tests/cli/errors/run.sh [--update]       KVCAL names the program
# A case also fails where the exit code is another, the program crashes or hangs, prints to stdout,
# or leaves anything changed in the folder it ran in: model, data and old outputs are as before, and
# no output is there. --update rewrites docs/errors.md.

source "$(dirname "${BASH_SOURCE[0]}")/../support.sh"
source "$CLI_FOLDER/errors/bad_files.sh"

update=false
[[ ${1:-} == --update ]] && update=true
find_program ""
make_scratch
PAGE=$SCRATCH_ROOT/errors.md
BASE=$SCRATCH_ROOT/base
ROOM=$SCRATCH_ROOT/room
CALIBRATE='kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out'

kvcal() { timeout --signal=KILL 30 "$KVCAL" "$@"; }

count=0
failed=0
fail_case() {
  failed=$((failed + 1))
  echo "FAILED '$1': $2"
}

# Names, sizes and contents (of all but the largest files) of the folder a case runs in.
snapshot() {
  find . -printf '%p %y %s %l\n' | sort
  find . -type f -size -2048k -print0 | sort -z | xargs -0 sha256sum
}

topic() {
  printf '\n## %s\n\n%s\n' "$1" "$2" >>"$PAGE"
}

# bad TITLE [EXIT] <<CASE: lines "# ..." say what is wrong, others make the bad input in a folder that
# holds model/, recipe.yaml and data.jsonl, and a last line "$ ..." is the command (default: calibrate).
bad() {
  local title=$1 wanted=${2:-1} line what="" setup="" command=$CALIBRATE status
  while IFS= read -r line; do
    case $line in
      '# '*) what+="${what:+ }${line#\# }" ;;
      '$ '*) command=${line#\$ } ;;
      *) setup+="$line"$'\n' ;;
    esac
  done
  count=$((count + 1))
  rm -rf "$ROOM"
  cp -r "$BASE" "$ROOM"
  pushd "$ROOM" >/dev/null || exit 1
  if ! (set -e; eval "$setup") >"$SCRATCH_ROOT/setup" 2>&1; then
    fail_case "$title" "its setup failed: $(<"$SCRATCH_ROOT/setup")"
  fi
  snapshot >"$SCRATCH_ROOT/before"
  (eval "$command") >"$SCRATCH_ROOT/stdout" 2>"$SCRATCH_ROOT/stderr" </dev/null
  status=$?
  snapshot >"$SCRATCH_ROOT/after"
  popd >/dev/null || exit 1
  [[ $status -eq $wanted ]] || fail_case "$title" "exit code $status, expected $wanted"
  [[ -s $SCRATCH_ROOT/stdout ]] && fail_case "$title" "it printed to stdout"
  diff "$SCRATCH_ROOT/before" "$SCRATCH_ROOT/after" >"$SCRATCH_ROOT/changes" ||
    fail_case "$title" "it changed the folder: $(<"$SCRATCH_ROOT/changes")"
  # Warnings and notes before the error are no part of the message.
  stable_text "$ROOM" <"$SCRATCH_ROOT/stderr" | sed -e '/^warning: /d' -e '/^state: /d' >"$SCRATCH_ROOT/message"
  [[ $(head -c 7 "$SCRATCH_ROOT/message") == "error: " ]] ||
    fail_case "$title" "no error message: $(<"$SCRATCH_ROOT/message")"
  {
    printf '\n### %s\n\n' "$title"
    [[ -n $what ]] && printf '%s\n\n' "$what"
    printf '```\n$ %s\n%s\n```\n' "$command" "$(<"$SCRATCH_ROOT/message")"
  } >>"$PAGE"
}

make_base "$BASE"
cat "$CLI_FOLDER/errors/page_head.md" >"$PAGE"
for cases in "$CLI_FOLDER"/errors/*_cases.sh; do
  source "$cases"
done

DOCUMENT=$SOURCE_FOLDER/docs/errors.md
if $update; then
  cp "$PAGE" "$DOCUMENT"
  chmod 644 "$DOCUMENT"
  echo "updated docs/errors.md"
elif ! diff -u --label docs/errors.md --label found "$DOCUMENT" "$PAGE"; then
  echo "the messages are not those of docs/errors.md; where they are right, run it with --update"
  failed=$((failed + 1))
fi
echo "$count cases, $failed failed"
[[ $failed -eq 0 ]]

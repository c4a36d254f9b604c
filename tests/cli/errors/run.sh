#!/usr/bin/env bash
# Runs every case of *_cases.sh and compares the pages of all messages with docs/errors.md and docs/errors/.
#   tests/cli/errors/run.sh [--update]       KVCAL names the program
# A case also fails where the exit code is another, the program crashes or hangs, prints to stdout,
# or leaves anything changed in the folder it ran in: model, data and old outputs are as before, and
# no output is there. --update rewrites the pages. A command has a page; `calibrate`, which has most cases, one a topic.

source "$(dirname "${BASH_SOURCE[0]}")/../support.sh"
source "$CLI_FOLDER/errors/bad_files.sh"

update=false
[[ ${1:-} == --update ]] && update=true
find_program ""
make_scratch
PAGES=$SCRATCH_ROOT/errors
BASE=$SCRATCH_ROOT/base
ROOM=$SCRATCH_ROOT/room
CALIBRATE='kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out'

kvcal() { timeout --signal=KILL 600 "$KVCAL" "$@"; }

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

COMMANDS=" $("$KVCAL" man --list | sed -n 's/^kvcal-//p' | tr '\n' ' ')"
# topic TITLE TEXT: the heading of the cases that follow.
topic() { TOPIC=$1 TOPIC_TEXT=$2; }

declare -A page_title page_topic page_cases
page_order=()
# page_of COMMAND: sets `page` to the page's name, and begins the page and the topic's heading where they are new.
page_of() {
  local words title
  read -ra words <<<"$1"
  page=${words[1]:-} title="\`kvcal ${words[1]:-}\`"
  if [[ $COMMANDS != *" $page "* ]]; then
    page=command_line title="the command line"
  elif [[ $page == calibrate ]]; then
    page=calibrate_$(tr -cs 'a-z0-9\n' _ <<<"${TOPIC,,}") title+=": $TOPIC"
  fi
  if [[ -z ${page_title[$page]:-} ]]; then
    page_title[$page]=$title page_order+=("$page")
    printf '# Errors of %s\n' "$title" >"$PAGES/$page.md"
  fi
  if [[ ${page_topic[$page]:-} != "$TOPIC" ]]; then
    page_topic[$page]=$TOPIC
    [[ $page == calibrate_* ]] || printf '\n## %s\n' "$TOPIC" >>"$PAGES/$page.md"
    printf '\n%s\n' "$TOPIC_TEXT" >>"$PAGES/$page.md"
  fi
  page_cases[$page]=$((${page_cases[$page]:-0} + 1))
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
  stable_text "$ROOM" <"$SCRATCH_ROOT/stderr" | sed -e '/^warning: /d' -e '/^note: /d' -e '/^state: /d' >"$SCRATCH_ROOT/message"
  [[ $(head -c 7 "$SCRATCH_ROOT/message") == "error: " ]] ||
    fail_case "$title" "no error message: $(<"$SCRATCH_ROOT/message")"
  page_of "$command"
  {
    printf '\n### %s\n\n' "$title"
    [[ -n $what ]] && printf '%s\n\n' "$what"
    printf '```\n$ %s\n%s\n```\n' "$command" "$(<"$SCRATCH_ROOT/message")"
  } >>"$PAGES/$page.md"
}

make_base "$BASE"
mkdir "$PAGES"
for cases in "$CLI_FOLDER"/errors/*_cases.sh; do
  source "$cases"
done

{
  cat "$CLI_FOLDER/errors/page_head.md"
  printf '\n| page | cases |\n| --- | --- |\n'
  for page in "${page_order[@]}"; do
    printf '| [%s](errors/%s.md) | %s |\n' "${page_title[$page]}" "$page" "${page_cases[$page]}"
  done
} >"$SCRATCH_ROOT/errors.md"

DOCS=$SOURCE_FOLDER/docs
if $update; then
  rm -rf "$DOCS/errors"
  cp -r "$PAGES" "$SCRATCH_ROOT/errors.md" "$DOCS"
  chmod -R u=rwX,go=rX "$DOCS/errors" "$DOCS/errors.md"
  echo "updated docs/errors.md and docs/errors/"
elif ! { diff -u --label docs/errors.md --label found "$DOCS/errors.md" "$SCRATCH_ROOT/errors.md" &&
  diff -ru "$DOCS/errors" "$PAGES"; }; then
  echo "the messages are not those of docs/errors/; where they are right, run it with --update"
  failed=$((failed + 1))
fi
echo "$count cases, $failed failed"
[[ $failed -eq 0 ]]

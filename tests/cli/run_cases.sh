#!/usr/bin/env bash
# Runs every commands/<case>/cmd in a fresh scratch folder and compares stdout, stderr and exit with
# the files beside it; a missing stdout or stderr means empty, a missing exit means 0.
#   tests/cli/run_cases.sh [--update] [CASE...]       KVCAL names the program
# In an expectation * stands for any text. --update rewrites the ones that do not match, and keeps their lines with * that
# still do.

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

update=false
if [[ ${1:-} == --update ]]; then
  update=true
  shift
fi
find_program ""
make_scratch

# The lines of $1, each as the first line of $2 with a * that it matches, if there is one and none that is the same.
with_old_lines() {
  local line old lines
  mapfile -t lines < <(grep -F '*' <<<"$2" | grep -vxF '*')
  while IFS= read -r line; do
    for old in ${lines[@]:+"${lines[@]}"}; do
      if grep -qxF -- "$line" <<<"$2"; then break; fi
      matches "$line" "$old" && line=$old && break
    done
    printf '%s\n' "$line"
  done <<<"$1"
}

# Compares one result with its expectation; rewrites it on request.
compare() {
  local found=$1 file=$2 default=$3 wanted
  wanted=$default
  [[ -f $file ]] && wanted=$(<"$file")
  matches "$found" "$wanted" && return 0
  if $update; then
    if [[ $found == "$default" ]]; then rm -f "$file"; else with_old_lines "$found" "$wanted" >"$file"; fi
    echo "updated ${file#"$SOURCE_FOLDER"/}"
    return 0
  fi
  echo "FAILED ${file#"$SOURCE_FOLDER"/} ('-' expected, '+' found)"
  diff -u --label expected --label found <(printf '%s\n' "$wanted") <(printf '%s\n' "$found") | tail -n +3
  return 1
}

run_case() {
  local folder=$1 name scratch status=0
  name=$(basename "$folder")
  scratch=$SCRATCH_ROOT/$name
  mkdir "$scratch"
  (cd "$scratch" && timeout -k 5 600 bash -u "$folder/cmd") >"$scratch.stdout" 2>"$scratch.stderr" </dev/null
  local found=$?
  compare "$found" "$folder/exit" 0 || status=1
  compare "$(stable_text "$scratch" <"$scratch.stdout")" "$folder/stdout" "" || status=1
  compare "$(stable_text "$scratch" <"$scratch.stderr")" "$folder/stderr" "" || status=1
  rm -rf "$scratch"
  return $status
}

count=0
failed=0
if [[ $# -eq 0 ]]; then set -- "$CLI_FOLDER"/commands/*/; fi
for folder in "$@"; do
  folder=$CLI_FOLDER/commands/$(basename "$folder")
  if [[ ! -f $folder/cmd ]]; then
    echo "no case $folder"
    exit 1
  fi
  count=$((count + 1))
  run_case "$folder" || failed=$((failed + 1))
done
echo "$count cases, $failed failed"
[[ $count -gt 0 && $failed -eq 0 ]]

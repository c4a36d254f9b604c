#!/usr/bin/env bash
# Runs the commands whose output README.md shows, on the demo model, and compares.
#   tests/cli/readme.sh [--update]       KVCAL names the program, KVCAL_DEMO_MODEL the folder of SmolLM2-135M-Instruct
# A block stands right below '<!-- output -->': lines "$ COMMAND", each with what it prints to stdout. Numbers differ between processors and
# runs, so words and their order are compared, and of numbers that there is one; --update rewrites the blocks.

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
find_program ""
make_scratch
update=false
[[ ${1:-} == --update ]] && update=true
[[ -f ${KVCAL_DEMO_MODEL:?}/config.json ]] || { echo "no model at $KVCAL_DEMO_MODEL; tools/fetch_demo_model.sh fetches it"; exit 1; }
ln -s "$KVCAL_DEMO_MODEL" "$SCRATCH_ROOT/SmolLM2-135M-Instruct"
cd "$SCRATCH_ROOT" || exit 1
PATH=$(dirname "$KVCAL"):$PATH

# What stands in README.md, with what commands print in place of what it shows.
printed() {
  local line command after=false inside=false
  while IFS= read -r line; do
    if $inside && [[ $line != '```' ]]; then
      [[ $line == '$ '* ]] || continue
      command=${line#\$ }
      printf '%s\n' "$line"
      bash -euc "$command" 2>>stderr || { echo "FAILED: $command" >>failures; cat stderr >>failures; }
      continue
    fi
    $inside && inside=false
    [[ $line == '```' ]] && $after && inside=true
    after=false
    [[ $line == '<!-- output -->' ]] && after=true
    printf '%s\n' "$line"
  done <"$SOURCE_FOLDER/README.md"
}
without_numbers() { sed -E 's/[0-9]+([.][0-9]+)?(e-?[0-9]+)?/N/g; s/N (kB|MB|GB|B)\b/N BYTES/g'; }

printed >README.md
checks=$(grep -cx '<!-- output -->' "$SOURCE_FOLDER/README.md")
[[ ! -s failures ]] || fail "$(<failures)"
if $update && [[ $failed -eq 0 ]]; then
  cp README.md "$SOURCE_FOLDER/README.md"
  echo "updated README.md"
elif ! diff -u --label README.md --label printed <(without_numbers <"$SOURCE_FOLDER/README.md") <(without_numbers <README.md); then
  fail "README.md shows other output; where the program is right, run it with --update"
fi
echo "$checks blocks, $failed failed"
[[ $checks -gt 0 && $failed -eq 0 ]]

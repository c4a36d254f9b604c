# shellcheck shell=bash
# Shared by the tests of packaging: what the program says of its options. Sourced; KVCAL names the program.
set -euo pipefail
export LC_ALL=C
KVCAL=${KVCAL:?names the program}
failed=0
count=0

# Whether the list $2 of words holds the word $3; $1 says where it is looked for.
expect_word() {
  count=$((count + 1))
  grep -qxF -e "$3" <<<"$2" || { echo "FAILED $1: no '$3'"; failed=$((failed + 1)); }
}
# Whether text $2 is $3.
expect_equal() {
  count=$((count + 1))
  [[ $2 == "$3" ]] || { echo "FAILED $1: found '$2', expected '$3'"; failed=$((failed + 1)); }
}

# The commands, as --help lists them.
commands() {
  "$KVCAL" --help | sed -n '/^Commands:/,/^$/p' | sed -nE 's/^  ([a-z-]+) .*/\1/p'
}

# The options of command $1, as its --help lists them: of groups as well.
options_of() {
  "$KVCAL" "$1" --help | sed -nE 's/^ +(-[a-zA-Z], )?(--[a-z0-9-]+).*/\2/p' | sort -u
}
# Their short names, too.
words_of() {
  "$KVCAL" "$1" --help | sed -nE 's/^ +(-[a-zA-Z]), (--[a-z0-9-]+).*/\1/p'
  options_of "$1"
}

finish() {
  echo "$count checks, $failed failed"
  [[ $count -gt ${1:-0} && $failed -eq 0 ]]
}

#!/usr/bin/env bash
# Every page of help: its sections, its width, the options of its examples; and no word that is only kept for old scripts.
#   tests/cli/help_command.sh      KVCAL names the program
source "$(dirname "${BASH_SOURCE[0]}")/../packaging/support.sh"
WIDEST=80

expect_section() {  # PAGE NAME TEXT
  count=$((count + 1))
  grep -q "^$2" <<<"$3" || { echo "FAILED help $1: no '$2'"; failed=$((failed + 1)); }
}

# The command lines of a page's examples, each with what goes on behind a backslash.
examples_of() { sed -n '/^Examples:/,/^$/p' <<<"$1" | sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' | grep -E '^  [^# ]' || true; }

# Options that no group takes, on a page that has groups.
ungrouped() { grep -q '^Printing:' <<<"$1" && sed -n '/^Options:/,/^$/s/^ *\(-.*\)/\1/p' <<<"$1" || true; }

check_examples() {  # PAGE TEXT
  local line word command
  while IFS= read -r line; do
    command=$(grep -oE 'kvcal [a-z]+' <<<"$line" | head -1 | cut -d' ' -f2)
    expect_word "an example of '$1'" "$(commands)" "$command"
    for word in $(grep -oE ' --?[a-z0-9-]+' <<<"$line"); do
      expect_word "an example of '$1', options of $command" "$(words_of "$command")" "$word"
    done
  done <<<"$(examples_of "$2")"
}

for command in "" $(commands); do
  page=$("$KVCAL" help $command)
  expect_equal "kvcal $command --help" "$("$KVCAL" $command --help)" "$page"
  for section in Usage: Examples:; do expect_section "$command" "$section" "$page"; done
  [[ -n $command ]] || expect_section "" Commands: "$page"
  expect_equal "lines of help $command that are too wide" "$(awk -v most=$WIDEST 'length > most' <<<"$page")" ""
  expect_equal "old words in help $command" "$(grep -E -- '--(to|report|num-calibration-samples)\b' <<<"$page" || true)" ""
  expect_equal "old words in man $command" "$("$KVCAL" man $command | grep -E -- '-(to|report|num\\-calibration\\-samples)\b' || true)" ""
  expect_equal "options without a group in help $command" "$(ungrouped "$page")" ""
  check_examples "$command" "$page"
done
environment=$("$KVCAL" help environment)
for section in Environment: 'Exit status:'; do expect_section environment "$section" "$environment"; done
expect_equal "lines of help environment that are too wide" "$(awk -v most=$WIDEST 'length > most' <<<"$environment")" ""
for shell in bash zsh fish; do
  expect_equal "old words in $shell" "$("$KVCAL" completion $shell | grep -oE -- '(--|-l )(to|report|num-calibration-samples)\b' || true)" ""
done
for group in 'Model and data:' Recipe: 'Cache and scales:' Engine: Output: Machine: Printing:; do
  expect_section calibrate "$group" "$("$KVCAL" help calibrate)"
done
finish 200

#!/usr/bin/env bash
# Every command has a page, every option is explained in it, and no page has an error that mandoc or groff knows.
#   tests/packaging/man_pages.sh      KVCAL names the program
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export SOURCE_DATE_EPOCH=1700000000  # 2023-11-14

pages=$("$KVCAL" man --list)
for command in $(commands); do
  expect_word "man --list" "$pages" "kvcal-$command"
  page=$scratch/kvcal-$command.1
  "$KVCAL" man "$command" >"$page"
  # Options as the page sets them: bold, with \- for -.
  shown=$(grep -o '\\fB[^ ]*\\fR' "$page" | sed -e 's/\\fB//; s/\\fR//; s/\\-/-/g' | sort -u)
  for option in $(options_of "$command"); do expect_word "man $command" "$shown" "$option"; done
done
"$KVCAL" man >"$scratch/kvcal.1"
for command in $(commands); do
  expect_word "man" "$(sed -nE 's/^\.BR kvcal\\-(.*) \(1\)$/\1/p' "$scratch/kvcal.1")" "$command"
done
expect_equal "date" "$(sed -n 2p "$scratch/kvcal.1" | cut -d' ' -f4)" '"2023-11-14"'

linted=
for page in "$scratch"/*.1; do
  name=$(basename "$page")
  if command -v groff >/dev/null; then
    linted+=" groff"
    expect_equal "groff $name" "$(groff -man -Tutf8 -ww -z "$page" 2>&1)" ""
  fi
  if command -v mandoc >/dev/null; then
    linted+=" mandoc"
    expect_equal "mandoc $name" "$(mandoc -T lint -W warning "$page" 2>&1)" ""
  fi
done
[[ -n $linted ]] || { echo "neither groff nor mandoc is here, the pages are not checked"; exit 77; }
finish 100

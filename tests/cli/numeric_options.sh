#!/usr/bin/env bash
# Every option and argument that help calls a NUMBER refuses what is none, when it is read: it names the option and exits with 2.
#   tests/cli/numeric_options.sh      KVCAL names the program
source "$(dirname "${BASH_SOURCE[0]}")/../packaging/support.sh"

# An option whose numbers have units, or end with %, refuses these, too.
NONE=(nan NaN -nan inf -inf infinity -1 -0.5 1e400 -1e400 99999999999999999999999 18446744073709551616 0x10 010 08 1_000 1,5 ' 1' '1 ' 5x '' - .)

# What a page says of an option, in one line.
text_of() {  # PAGE OPTION
  awk -v option="$2" '
    /^ +(-[a-zA-Z], )?--[a-z0-9-]+/ || /^[^ ]/ { is_it = match($0, "(^|[ ,])" option " ") }
    is_it { printf "%s ", $0 }' <<<"$1" | tr -s ' '
}

# The numbers beside the limits that a page tells of an option ("0 to 4096", "1 or more").
beside_limits() {  # PAGE OPTION
  text_of "$1" "$2" | grep -oE '[[;] ?-?[0-9.]+ (to [0-9.]+|or more)' | tr -d '[;' | while read -r least word most; do
    awk -v least="$least" 'BEGIN { print least - 1 }'
    [[ $word == or ]] || awk -v most="$most" 'BEGIN { print most + 1 }'
  done
}

numbers=0 limits=0
for command in $(commands); do
  page=$("$KVCAL" help "$command")
  for option in $(grep -oE -- '--[a-z0-9-]+ NUMBER' <<<"$page" | cut -d' ' -f1 | sort -u); do
    numbers=$((numbers + 1))
    mapfile -t beside < <(beside_limits "$page" "$option")
    limits=$((limits + ${#beside[@]}))
    for value in "${NONE[@]}" ${beside[@]+"${beside[@]}"}; do
      # A list of numbers.
      [[ $value == 1,5 && $(text_of "$page" "$option") == *'may be repeated'* ]] && continue
      status=0
      message=$("$KVCAL" "$command" "$option=$value" 2>&1 >/dev/null) || status=$?
      expect_equal "exit status of kvcal $command $option='$value'" "$status" 2
      expect_equal "option that kvcal $command $option='$value' names" "$(grep -oE -- "^error: $option(: | needs a value)" <<<"$message" | cut -d' ' -f1,2 | tr -d :)" "error $option"
    done
  done
done
# What takes a number has NUMBER in its help: these do, whatever else is added.
expect_equal "numeric options, at least 40" "$((numbers >= 40))" 1
expect_equal "limits that help tells, at least 40" "$((limits >= 40))" 1
finish

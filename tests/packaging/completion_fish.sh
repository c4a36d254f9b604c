#!/usr/bin/env bash
# What fish offers, command by command. Skipped (77) where there is no fish.
#   tests/packaging/completion_fish.sh      KVCAL names the program
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
command -v fish >/dev/null || { echo "no fish here, its completion is not tried"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export HOME=$scratch
"$KVCAL" completion fish >"$scratch/kvcal.fish"
fish --no-execute "$scratch/kvcal.fish"
mkdir "$scratch/room" "$scratch/room/folder"
touch "$scratch/room/recipe.yaml"

# Every line of $lines is asked of one fish; the answers follow "> line".
{
  echo 'kvcal '
  for command in $(commands); do echo "kvcal $command --"; done
  printf '%s\n' 'kvcal eval --task per' 'kvcal eval --task=per' 'kvcal convert --format tgi+mod' 'kvcal calibrate --recipe rec' \
    'kvcal calibrate --output ' 'kvcal inspect fol' 'kvcal completion f' 'kvcal --v' 'kvcal calibrate --threads '
} >"$scratch/lines"
(cd "$scratch/room" && fish --no-config -c "
  source $scratch/kvcal.fish
  while read -l --delimiter \n line
    echo \"> \$line\"
    complete -C \"\$line\"
  end <$scratch/lines") >"$scratch/answers"

# The answers to one line, without what describes them.
offered() {
  awk -v line="> $1" '$0 == line { on = 1; next } /^> / { on = 0 } on' "$scratch/answers" | cut -f1 | sort -u
}
for command in $(commands); do
  expect_word "kvcal <TAB>" "$(offered 'kvcal ')" "$command"
  for option in $(options_of "$command"); do
    expect_word "kvcal $command --<TAB>" "$(offered "kvcal $command --")" "$option"
  done
done
expect_equal "choice" "$(offered 'kvcal eval --task per')" perplexity
expect_equal "choice behind =" "$(offered 'kvcal eval --task=per')" --task=perplexity
expect_equal "joined" "$(offered 'kvcal convert --format tgi+mod')" tgi+modelopt
expect_equal "files" "$(offered 'kvcal calibrate --recipe rec')" recipe.yaml
expect_equal "folders alone" "$(offered 'kvcal calibrate --output ')" folder/
expect_equal "argument" "$(offered 'kvcal inspect fol')" folder/
expect_equal "argument of choices" "$(offered 'kvcal completion f')" fish
expect_equal "--version" "$(offered 'kvcal --v')" --version
expect_equal "number" "$(offered 'kvcal calibrate --threads ')" ""
finish 100

#!/usr/bin/env bash
# What bash offers, command by command: every option, and values of their kind.
#   tests/packaging/completion_bash.sh      KVCAL names the program
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$KVCAL" completion bash >"$scratch/kvcal.bash"
bash -n "$scratch/kvcal.bash"
# shellcheck disable=SC1091
source "$scratch/kvcal.bash"
cd "$scratch" || exit 1
mkdir 'a folder' folder
touch recipe.yaml

# What is offered for the last of the words of a command line.
offered() {
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  COMPREPLY=()
  _kvcal || true
  [[ ${#COMPREPLY[@]} -eq 0 ]] || printf '%s\n' "${COMPREPLY[@]}"
}

expect_equal "registered" "$(complete -p kvcal)" "complete -F _kvcal kvcal"
for command in $(commands); do
  expect_word "kvcal <TAB>" "$(offered kvcal '')" "$command"
  for option in $(options_of "$command"); do
    expect_word "kvcal $command --<TAB>" "$(offered kvcal "$command" --)" "$option"
  done
done
expect_equal "command" "$(offered kvcal cali)" calibrate
expect_equal "--version" "$(offered kvcal --v)" --version
expect_equal "choice" "$(offered kvcal eval --task per)" perplexity
expect_equal "choice behind =, which splits words" "$(offered kvcal eval --task = per)" perplexity
expect_equal "empty choice behind =" "$(offered kvcal eval --task =)" $'perplexity\nkl\ngsm8k\nsensitivity'
expect_equal "choice behind =, which does not" "$(offered kvcal eval --task=per)" --task=perplexity
expect_equal "joined" "$(offered kvcal convert --format tgi+mod)" tgi+modelopt
expect_equal "first of joined" "$(offered kvcal convert --format mod)" modelopt
expect_equal "files" "$(offered kvcal calibrate --recipe rec)" recipe.yaml
expect_equal "folders alone" "$(offered kvcal calibrate --output '' | sort)" $'a folder\nfolder'
expect_equal "argument" "$(offered kvcal inspect fol)" folder
expect_equal "argument of choices" "$(offered kvcal completion f)" fish
expect_equal "text" "$(offered kvcal generate --prompt r)" ""
expect_equal "number" "$(offered kvcal calibrate --threads '')" ""
finish 100

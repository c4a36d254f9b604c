#!/usr/bin/env bash
# What zsh offers, command by command, seen by a real zsh whose compadd writes down what it is given. Skipped (77)
# where there is no zsh.
#   tests/packaging/completion_zsh.sh      KVCAL names the program
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
command -v zsh >/dev/null || { echo "no zsh here, its completion is not tried"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/functions" "$scratch/room" "$scratch/room/folder"
touch "$scratch/room/recipe.yaml"
"$KVCAL" completion zsh >"$scratch/functions/_kvcal"
zsh -n "$scratch/functions/_kvcal"

# A zsh in a terminal of its own gets each line of stdin and a tab; what it was offered is printed, one a line, behind "> line".
cat >"$scratch/offered.zsh" <<'ZSH'
zmodload zsh/zpty
cd $1/room
zpty -b shell zsh -f -i
zpty -w shell "PS1= PS2= RPS1=; stty -echo columns 400; fpath=($1/functions \$fpath); autoload -U compinit; compinit -u -d $1/dump"
zpty -w shell 'compadd() {
  local -a found; builtin compadd -O found "$@"
  (( $#found )) && print -rl -- $found >>'$1'/found
  builtin compadd "$@"
}'
zpty -w shell 'mark() { print done >>'$1'/found; zle kill-whole-line 2>/dev/null; BUFFER= }; zle -N mark; bindkey "^X" mark; zle -C offer list-choices _main_complete; bindkey "^O" offer'
zpty -w shell 'print ready >>'$1'/found'
while [[ ! -s $1/found ]]; do sleep 0.02; done
while IFS= read -r line; do
  print -n >$1/found
  zpty -w -n shell "$line"$'\C-o\C-x'
  integer tries=0
  until [[ "$(tail -n 1 $1/found)" == done ]]; do
    while zpty -rt shell shown; do :; done  # a terminal that nobody reads fills up, and the shell waits
    sleep 0.02
    (( ++tries > 30000 )) && { print -u2 "zsh does not answer '$line'"; exit 1; }
  done
  print -r -- "> $line"
  grep -vx done $1/found
done
zpty -d shell
ZSH
{
  echo 'kvcal '
  for command in $(commands); do echo "kvcal $command --"; done
  printf '%s\n' 'kvcal eval --task per' 'kvcal eval --task=per' 'kvcal convert --format tgi+mod' 'kvcal calibrate --recipe rec' \
    'kvcal calibrate --output ' 'kvcal inspect fol' 'kvcal completion f' 'kvcal calibrate --threads 1'
} >"$scratch/lines"
timeout 900 zsh -f "$scratch/offered.zsh" "$scratch" <"$scratch/lines" >"$scratch/answers"

# The answers to one line, without the '=' of options that take a value.
offered() {
  awk -v line="> $1" '$0 == line { on = 1; next } /^> / { on = 0 } on' "$scratch/answers" | sed 's/=$//' | sort -u
}
for command in $(commands); do
  expect_word "kvcal <TAB>" "$(offered 'kvcal ')" "$command"
  for option in $(options_of "$command"); do
    expect_word "kvcal $command --<TAB>" "$(offered "kvcal $command --")" "$option"
  done
done
expect_equal "choice" "$(offered 'kvcal eval --task per')" perplexity
expect_equal "choice behind =" "$(offered 'kvcal eval --task=per')" perplexity
expect_equal "joined" "$(offered 'kvcal convert --format tgi+mod')" modelopt
expect_equal "files" "$(offered 'kvcal calibrate --recipe rec')" recipe.yaml
expect_equal "folders alone" "$(offered 'kvcal calibrate --output ')" folder
expect_equal "argument" "$(offered 'kvcal inspect fol')" folder
expect_equal "argument of choices" "$(offered 'kvcal completion f')" fish
expect_equal "number" "$(offered 'kvcal calibrate --threads 1')" ""
finish 100

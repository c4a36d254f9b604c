#!/usr/bin/env bash
# Makes the examples of docs/formats.md again and compares. Every fenced block of that page stands right
# below a line '<!-- example: NAME -->' and is what NAME.sh beside this file prints.
#   tests/cli/examples/run.sh [--update]       KVCAL names the program
# --update rewrites the blocks. What also fails: a block without a marker, a marker without a script, a
# script without a marker, and an output format that has no section of its name with an example.
#
# A new example is a script, which runs in a folder of its own and may use the functions below, and its
# marker with an empty block; --update fills it.

source "$(dirname "${BASH_SOURCE[0]}")/../support.sh"

EXAMPLES=$CLI_FOLDER/examples
DOCUMENT=$SOURCE_FOLDER/docs/formats.md
RECIPES=$SOURCE_FOLDER/recipes
export RECIPES

# calibrate MODEL RECIPE [OPTION...]: a fixture by a recipe of recipes/, into out/. The reference backend
# gives the same bytes on every machine.
calibrate() {
  copy_model "$1" model
  cp "$RECIPES/$2.yaml" recipe.yaml
  cp "$DATA/small.jsonl" data.jsonl
  "$KVCAL" calibrate model --recipe recipe.yaml --dataset data.jsonl --device reference --reproducible \
    --output out "${@:3}" >&2
}

# keys FILE KEY...: the lines of these keys and their values in an indented JSON file.
keys() {
  awk -v wanted=" ${*:2} " '
    { match($0, /^ */); indent = RLENGTH; split($0, part, "\"") }
    inside { print; inside = indent != depth; next }
    /^ *"[^"]*": / && index(wanted, " " part[2] " ") { print; inside = /[{[]$/; depth = indent }' "$1"
}

# ellipsis KEY... and one_line KEY...: stdin with "…" for the values of these keys, or each in one line.
ellipsis() { shorten "…" "$@"; }
one_line() { shorten "" "$@"; }
shorten() {
  awk -v instead="$1" -v wanted=" ${*:2} " '
    { match($0, /^ */); indent = RLENGTH; text = substr($0, indent + 1); split($0, part, "\"") }
    inside && indent == depth { print begin (instead == "" ? joined : instead) text; inside = 0; next }
    inside { joined = joined (joined ~ /,$/ ? " " : "") text; next }
    /": [{[]$/ && index(wanted, " " part[2] " ") { begin = $0; joined = ""; depth = indent; inside = 1; next }
    { print }'
}

# keep PATTERN: the lines of stdin that match, and one line "…" for those between them.
keep() {
  pattern=$1 awk '
    $0 ~ ENVIRON["pattern"] { print; gap = 0; next }
    !gap { match($0, /^ */); print substr($0, 1, RLENGTH) "…"; gap = 1 }'
}

# header FILE: the header of a safetensors file.
header() {
  dd if="$1" iflag=skip_bytes,count_bytes skip=8 count="$(od -An -tu8 -N8 "$1" | tr -d ' ')" status=none
}

# tensors FILE PATTERN: the entries of that header whose line matches, one a line.
tensors() {
  header "$1" | sed -E 's/\},"/}\n"/g; s/^\{//; s/\}\} *$/}/' | grep -E "$2"
}

export -f calibrate keys ellipsis one_line shorten keep header tensors

update=false
[[ ${1:-} == --update ]] && update=true
find_program ""
make_scratch
PAGE=$SCRATCH_ROOT/formats.md

count=0
failed=0
fail_example() {
  failed=$((failed + 1))
  echo "FAILED $1"
}

# Adds what example $1 prints to the page, or where it fails the old text $2.
make_example() {
  local script=$EXAMPLES/$1.sh scratch=$SCRATCH_ROOT/$1
  count=$((count + 1))
  mkdir "$scratch"
  if (cd "$scratch" && timeout -k 5 600 bash -euo pipefail "$script") >"$scratch.out" 2>"$scratch.err" </dev/null &&
    [[ -s $scratch.out ]]; then
    printf '%s\n' "$(<"$scratch.out")" >>"$PAGE"
  else
    fail_example "$1.sh: it fails or prints nothing"
    stable_text "$scratch" <"$scratch.err"
    printf '%s' "$2" >>"$PAGE"
  fi
  rm -rf "$scratch"
}

declare -A marked described
section="beginning" marker="" fence=""
while IFS= read -r line; do
  if [[ -n $fence ]]; then # inside a block, whose text so far is $block
    if [[ $line != "$fence" ]]; then
      block+=$line$'\n'
      continue
    fi
    if [[ -n $marker ]]; then make_example "$marker" "$block"; else printf '%s' "$block" >>"$PAGE"; fi
    fence="" marker=""
  elif [[ $line =~ ^\ *'```' ]]; then
    fence=${BASH_REMATCH[0]} block=""
    [[ -n $marker ]] || fail_example "section '$section': a block below no '<!-- example: NAME -->'"
  else
    [[ -z $marker ]] || fail_example "$marker: its marker is not right above a block"
    marker=""
    if [[ $line == '## '* ]]; then section=${line#\#\# }; fi
    if [[ $line =~ ^'<!-- example: '([a-z0-9_+-]+)' -->'$ ]]; then
      marker=${BASH_REMATCH[1]}
      described[$section]=yes
      [[ -z ${marked[$marker]:-} ]] || fail_example "$marker: it is marked twice"
      marked[$marker]=yes
    elif [[ $line == *'<!--'*example* ]]; then
      fail_example "section '$section': no marker '$line'; it is '<!-- example: NAME -->', a line of its own"
    fi
  fi
  printf '%s\n' "$line" >>"$PAGE"
done <"$DOCUMENT"
[[ -z $fence$marker ]] || fail_example "section '$section': the page ends within an example"

for script in "$EXAMPLES"/*.sh; do
  name=$(basename "$script" .sh)
  [[ $name == run || -n ${marked[$name]:-} ]] || fail_example "$name.sh: docs/formats.md has no marker of it"
done

# The program names its formats where it is asked for one that it has not.
formats=$("$KVCAL" calibrate "$MODELS/llama" --recipe "$DATA/recipe.yaml" --dataset "$DATA/small.jsonl" \
  --format none --output "$SCRATCH_ROOT/none" 2>&1 | sed -n 's/^error: .*; known are //p')
[[ -n $formats ]] || fail_example "the program does not say which formats it knows"
for format in ${formats//,/ }; do
  [[ -n ${described[$format]:-} ]] || fail_example "docs/formats.md has no section '## $format' with an example"
done

if $update; then
  cp "$PAGE" "$DOCUMENT"
  chmod 644 "$DOCUMENT"
  echo "updated docs/formats.md"
elif ! diff -u --show-function-line='^<!-- example' --label docs/formats.md --label found "$DOCUMENT" "$PAGE"; then
  echo "docs/formats.md is not what the program writes; where that is right, run it with --update"
  failed=$((failed + 1))
fi
echo "$count examples, $failed failed"
[[ $failed -eq 0 ]]

#!/usr/bin/env bash
# No output takes the place of what its command reads, whatever name it goes by: each command must end with an error that
# names the file, and every file must stay as it was.
#   tests/cli/inputs_stay.sh [mounts]     KVCAL names the program; mounts: the names are those of mounts, which need a
#                                         system that lets this user make some. Elsewhere nothing is tested: exit code 77

if [[ ${1:-} == mounts && -z ${HAS_OWN_MOUNTS:-} ]]; then
  for own in "unshare --mount" "unshare --map-root-user --mount"; do
    if $own sh -c 'mount -t tmpfs none /mnt' 2>/dev/null; then HAS_OWN_MOUNTS=1 exec $own "$0" mounts; fi
  done
  echo "not run: this system lets nobody mount"
  exit 77
fi

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
source "$CLI_FOLDER/errors/bad_files.sh"

find_program ""
make_scratch
CALIBRATE='calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --overwrite'

state_of() {
  find . -printf '%p %y %l\n' | sort
  find . -type f -print0 | sort -z | xargs -0 sha256sum
} 2>/dev/null  # find tells of a folder that is mounted in itself, and leaves it out

fresh_room() {
  tac /proc/self/mounts | awk -v room="$SCRATCH_ROOT/room/" 'index($2, room) == 1 {print $2}' | xargs -r umount
  rm -rf --one-file-system "$SCRATCH_ROOT/room"
  cp -r "$SCRATCH_ROOT/base" "$SCRATCH_ROOT/room"
}

# stays WORDS COMMAND <<CASE: lines that prepare a folder with model/, recipe.yaml and data.jsonl. The error has WORDS.
stays() {
  local words=$1 command=$2 setup status said changes
  setup=$(cat)
  checks=$((checks + 1))
  fresh_room
  pushd "$SCRATCH_ROOT/room" >/dev/null || exit 1
  (set -e; eval "$setup") || fail "kvcal $command: its setup failed"
  state_of >"$SCRATCH_ROOT/before"
  eval "\"\$KVCAL\" $command" >/dev/null 2>"$SCRATCH_ROOT/stderr" </dev/null
  status=$?
  said=$(grep -a '^error: ' "$SCRATCH_ROOT/stderr")
  changes=$(state_of | diff "$SCRATCH_ROOT/before" -) || fail "kvcal $command: a file was changed: $changes"
  [[ $status -eq 1 && $said == *"$words"* ]] || fail "kvcal $command: exit code $status, expected '$words': $said"
  popd >/dev/null || exit 1
}

# keeps COMMAND <<CASE: lines that prepare the folder, in which the files of data/ stay, whatever the command does.
keeps() {
  local setup
  setup=$(cat)
  checks=$((checks + 1))
  fresh_room
  pushd "$SCRATCH_ROOT/room" >/dev/null || exit 1
  mkdir data && cp data.jsonl data/a.jsonl
  (set -e; eval "$setup") || fail "kvcal $1: its setup failed"
  eval "\"\$KVCAL\" $1" >/dev/null 2>"$SCRATCH_ROOT/stderr" </dev/null || fail "kvcal $1: $(tail -1 "$SCRATCH_ROOT/stderr")"
  cmp data.jsonl data/a.jsonl || fail "kvcal $1: a file of data/ was changed"
  popd >/dev/null || exit 1
}

end_checks() {
  cd / && fresh_room
  echo "$checks commands, $failed failed"
  [[ $failed -eq 0 ]]
  exit
}

make_base "$SCRATCH_ROOT/base"
(cd "$SCRATCH_ROOT/base" && add_tokenizer)

if [[ ${1:-} == mounts ]]; then
  for read in data.jsonl recipe.yaml model/config.json model/model.safetensors; do
    stays "$read" "$CALIBRATE --html mounted/$read" <<<'mkdir mounted; mount --bind . mounted'
    stays "$read" "${CALIBRATE//data.jsonl/mounted/data.jsonl} --html $read" <<<'mkdir mounted; mount --bind . mounted'
    stays mounted "$CALIBRATE --html mounted" <<<"touch mounted; mount --bind $read mounted"
  done
  for files in mounted "'mounted/*.jsonl'"; do
    stays a.jsonl "calibrate model --recipe recipe.yaml --dataset $files -o out --html data/a.jsonl --overwrite" <<'CASE'
mkdir data mounted
mv data.jsonl data/a.jsonl
mount --bind data mounted
CASE
  done
  stays gsm8k-train.jsonl "calibrate model --recipe recipe.yaml --dataset gsm8k -o out --html mounted/gsm8k-train.jsonl --overwrite" <<'CASE'
echo '{"question": "The sea?", "answer": "Calm."}' >gsm8k-train.jsonl
mkdir mounted
mount --bind . mounted
CASE
  stays copy.jsonl "calibrate model --recipe recipe.yaml --dataset mounted/d.yaml -o out --html copy.jsonl --overwrite" <<'CASE'
mv data.jsonl copy.jsonl
printf 'path: copy.jsonl\nrecord: {input_ids: input_ids}\n' >d.yaml
mkdir mounted
mount --bind . mounted
CASE
  stays family.yaml "inspect model --family-file family.yaml --html mounted/family.yaml --overwrite" <<'CASE'
"$KVCAL" families --template >family.yaml
sed -i 's/"model_type": "llama"/"model_type": "odd"/' model/config.json
mkdir mounted
mount --bind . mounted
CASE
  for place in mounted mounted/out; do
    stays "source folder model" "quantize model -o $place --scheme FP8_DYNAMIC --overwrite" <<'CASE'
touch model/.kvcal-output
mkdir mounted
mount --bind model mounted
CASE
  done
  stays "holds the source folder" "quantize a/model -o mounted/a --scheme FP8_DYNAMIC --overwrite" <<'CASE'
mkdir a mounted
mv model a
touch a/.kvcal-output
mount --bind . mounted
CASE
  # An old output that holds a mount, and a mount in an output's place.
  for kind in '--bind other' '-t tmpfs none'; do
    stays "out/deep/er, where something is mounted" "quantize model -o out --scheme FP8_DYNAMIC --overwrite" <<CASE
mkdir -p out/deep/er other
touch out/.kvcal-output other/file
mount $kind out/deep/er
CASE
    for overwrite in '' --overwrite; do
      stays "out: something is mounted there" "quantize model -o out --scheme FP8_DYNAMIC $overwrite" <<<"mkdir out other; mount $kind out"
    done
  done
  # Folders that kvcal keeps for itself, and what a killed run left.
  keeps "$CALIBRATE --state state" <<<'mkdir -p state/hidden-0; mount --bind data state/hidden-0'
  keeps "$CALIBRATE" <<'CASE'
mkdir -p .out.partial-1/deep .out.partial-2
mount --bind data .out.partial-1/deep
mount --bind data .out.partial-2
printf 'process 1 on host\n.out.partial-1\n.out.partial-2\n' >.out.kvcal-lock
CASE
  end_checks
fi

for read in data.jsonl recipe.yaml model/config.json model/model.safetensors; do
  stays "$read" "$CALIBRATE --html $read" <<<''
  stays "hard-link" "$CALIBRATE --html hard-link" <<<"ln $read hard-link"
done
stays hard-link "calibrate model --recipe recipe.yaml --dataset text.jsonl -o out --html hard-link --overwrite" <<'CASE'
echo '{"text": "The sea was calm."}' >text.jsonl
ln model/tokenizer.json hard-link
CASE
stays data.jsonl "calibrate model --recipe recipe.yaml --dataset 'd*.jsonl' -o out --html data.jsonl --overwrite" <<<''
stays data/a.jsonl "calibrate model --recipe recipe.yaml --dataset data -o out --html data/a.jsonl --overwrite" <<'CASE'
mkdir data
mv data.jsonl data/a.jsonl
CASE
stays target.jsonl "calibrate model --recipe recipe.yaml --dataset data -o out --html data/target.jsonl --overwrite" <<'CASE'
mkdir data
mv data.jsonl data/target.jsonl
ln -s target.jsonl data/link.jsonl
CASE
stays copy.jsonl "calibrate model --recipe recipe.yaml --dataset d.yaml -o out --html copy.jsonl --overwrite" <<'CASE'
mv data.jsonl copy.jsonl
printf 'path: copy.jsonl\nrecord: {input_ids: input_ids}\n' >d.yaml
CASE
stays gsm8k-train.jsonl "calibrate model --recipe recipe.yaml --dataset gsm8k -o out --html gsm8k-train.jsonl --overwrite" <<'CASE'
echo '{"question": "The sea?", "answer": "Calm."}' >gsm8k-train.jsonl
CASE
# link/.. lies above the folder that the link leads to.
stays data.jsonl "calibrate model --recipe recipe.yaml --dataset e/data.jsonl -o out --html link/../data.jsonl --overwrite" <<'CASE'
mkdir -p e/f
mv data.jsonl e/data.jsonl
ln -s e/f link
CASE
stays model "quantize e/model -o link/../model --scheme FP8_DYNAMIC --overwrite" <<'CASE'
mkdir -p e/f
mv model e/model
ln -s e/f link
touch e/model/.kvcal-output
CASE
stays family.yaml "inspect model --family-file family.yaml --html family.yaml --overwrite" <<'CASE'
"$KVCAL" families --template >family.yaml
sed -i 's/"model_type": "llama"/"model_type": "odd"/' model/config.json
CASE
stays scales.json "eval model --scales scales.json --task perplexity --dataset data.jsonl --html scales.json --overwrite" <<'CASE'
"$KVCAL" calibrate model --recipe recipe.yaml --dataset data.jsonl -o scales.json --format scales-json >/dev/null 2>&1
CASE
stays "something else than a sweep's results" "sweep sweep.yaml -o swept" <<'CASE'
mkdir swept
mv data.jsonl swept
echo '{"name": "s", "models": ["model"], "recipes": [{"max": "recipe.yaml"}], "calibration": {"dataset": "swept/data.jsonl"},
 "evaluation": {"dataset": "swept/data.jsonl", "num_samples": 2}, "grid": [{"recipes": "max", "num_calibration_samples": [1]}]}' >sweep.yaml
CASE

end_checks

# The commands that faults are made for, and the folder they run in. Sourced by run.sh.

# Every command works in the folder that make_room makes, with one thread, so that its calls come in one order.
# OUTPUTS: what it writes; nothing where it prints. KEEPS: what an error may leave beside that, and the run that goes on, with
# the option AGAIN, uses.
declare -A COMMANDS OUTPUTS KEEPS AGAIN
command_is() { # command_is NAME OUTPUTS ARGUMENTS
  NAMES+=("$1")
  OUTPUTS[$1]=$2 COMMANDS[$1]=$3
}
NAMES=()
CALIBRATE='calibrate model --recipe recipe.yaml --reproducible --threads 1 --output out'
command_is calibrate out "$CALIBRATE --dataset text.jsonl --state none"
command_is 'calibrate --state' out "$CALIBRATE --dataset data.jsonl --state state --state-share 1"
command_is 'calibrate --resume' out "$CALIBRATE --dataset data.jsonl --state state --state-share 1 --resume"
command_is 'calibrate --save-statistics' 'out made.safetensors page.html' \
  "$CALIBRATE --dataset data.jsonl --state none --kv-forward exact --save-statistics made.safetensors --html page.html"
command_is scales out 'scales --statistics statistics.safetensors --recipe recipe.yaml --model model --output out'
command_is convert out 'convert scaled --format modelopt --format scales-json --output out'
command_is 'convert --overwrite' out 'convert scaled --format modelopt --overwrite --output out'
command_is apply out 'apply overlay model --output out'
command_is sweep out 'sweep sweep.yaml --output out --device cpu --threads 1 --jobs 1'
command_is synth out 'synth --config model/config.json --seed 3 --max-shard-size 60kB --threads 1 out'
command_is inspect page.html 'inspect scaled --html page.html'
command_is eval '' 'eval scaled --task perplexity --dataset text.jsonl --threads 1 --json'
command_is generate '' 'generate scaled --prompt ab --max-new-tokens 4 --threads 1'
command_is verify '' 'verify scaled --engine vllm'
command_is 'calibrate into a folder' sub/out "${CALIBRATE/--output out/--output sub/out} --dataset data.jsonl --state none"
command_is 'data: gzip' out "$CALIBRATE --dataset packed.jsonl.gz --state none"
command_is 'data: folder' out "$CALIBRATE --dataset folder --state none"
command_is 'data: descriptor' out "$CALIBRATE --dataset data.yaml --state none"
command_is 'data: tokenizer.model' out "${CALIBRATE/model/pieces} --dataset text.jsonl --state none"
KEEPS['calibrate --state']='state state.gone' KEEPS['calibrate --resume']='state state.gone'
KEEPS[sweep]=out KEEPS['calibrate into a folder']='sub sub.gone'
AGAIN['calibrate --state']=--resume AGAIN['calibrate --resume']=--resume

command_is 'data: Parquet' out "$CALIBRATE --dataset rows.parquet --state none"

# What an earlier run left: a state to go on from, an output to replace.
prepare() { # prepare NAME
  case $1 in
    'calibrate --resume') cp -r "$SCRATCH_ROOT/kept_state" state ;;
    'calibrate into a folder') mkdir sub ;;
    'convert --overwrite') cp -r "$SCRATCH_ROOT/old_output" out ;;
  esac
}

kvcal_in() { # kvcal_in NAME: in place of the shell, with the program's own words
  # shellcheck disable=SC2086  # several words
  exec timeout --signal=KILL 600 "$KVCAL" ${COMMANDS[$1]} ${2:-}
}

# The folder $1: a model of three layers, one with scales in several shards, an overlay, statistics, data.
make_room() {
  mkdir "$1" "$1/tmp"
  pushd "$1" >/dev/null || exit 1
  copy_model llama model
  sed -i -E 's/("num_hidden_layers": )[0-9]+/\13/' model/config.json
  mv model/config.json config.json
  rm -r model
  "$KVCAL" synth --config config.json --seed 1 --max-shard-size 60kB model >/dev/null 2>&1 || fail "the room has no model"
  rm config.json
  cp --no-preserve=mode "$DATA"/{tokenizer.json,tokenizer_config.json,chat_template.jinja} model
  cp --no-preserve=mode "$DATA"/{recipe.yaml,data.jsonl,sweep.yaml} .
  for text in "ab ba" "a b a b aa" "bab abba" "aaa bbb"; do printf '{"text": "%s"}\n' "$text"; done >text.jsonl
  gzip -nc text.jsonl >packed.jsonl.gz
  mkdir folder
  cp text.jsonl folder/one.jsonl
  echo 'the second file' >folder/two.txt
  printf 'name: rows\nsource: some/rows\nlicence: MIT\nsplits: [train]\nsplit: train\npath: text.jsonl\nrecord: {text: "{text}"}\n' >data.yaml
  cp "$SOURCE_FOLDER/tests/fixtures/data/same/input_ids/datasets.parquet" rows.parquet
  mkdir larger
  sed -E 's/("vocab_size": )[0-9]+/\12000/' model/config.json >larger/config.json
  "$KVCAL" synth --config larger/config.json pieces >/dev/null 2>&1 || fail "the room has no model with many tokens"
  rm -r larger
  cp --no-preserve=mode "$SOURCE_FOLDER/tests/fixtures/text/tokenizers/spm_bpe.model" pieces/tokenizer.model
  sed -i -e '/- head_mse/,$d' -e 's/evaluation:.*//' sweep.yaml
  cat >>sweep.yaml <<'SWEEP'
calibration: {dataset: data.jsonl, max_seq_length: 16}
evaluation: {dataset: text.jsonl, num_samples: 4}
grid: [{recipes: max, num_calibration_samples: 4}]
SWEEP
  {
    "$KVCAL" ${COMMANDS['calibrate --save-statistics']} &&
      mv made.safetensors statistics.safetensors && mv out scaled && rm page.html &&
      "$KVCAL" convert scaled --format compressed-tensors --scales-only --output overlay
  } >"$SCRATCH_ROOT/made" 2>&1 || fail "the room has no scales: $(<"$SCRATCH_ROOT/made")"
  popd >/dev/null || exit 1
}

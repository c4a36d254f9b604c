#!/usr/bin/env bash
# Runs the fuzz targets (docs/fuzzing.md): every parser of files that come from strangers, under both sanitizers.
#   tests/fuzz/run.sh [SECONDS [TARGET...]]    builds them, runs each so long, prints a table; exit 1 where one found something
#   tests/fuzz/run.sh --replay [TARGET...]     runs the committed corpora and the seeds once
#   tests/fuzz/run.sh --coverage [TARGET...]   which lines of each target's parser the corpora reach
#   tests/fuzz/run.sh --keep [TARGET...]       adds to tests/fuzz/corpus the shortest inputs that grew and reach something new
#   tests/fuzz/run.sh --total                  adds up the log of all runs
# FUZZ_BUILD: the build folder (build/fuzz). FUZZ_WORK: grown corpora, findings, table.md, table.json and the log of all
# runs (build/fuzz-work). FUZZ_JOBS: targets at one time (2). FUZZ_NO_BUILD=1: takes the programs as they are.

set -uo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
BUILD=${FUZZ_BUILD:-$ROOT/build/fuzz}
WORK=${FUZZ_WORK:-$ROOT/build/fuzz-work}
JOBS=${FUZZ_JOBS:-2}
SLOW=2 # seconds of processor time that no input of these sizes may take
LOG=$WORK/runs.jsonl

export ASAN_OPTIONS=quarantine_size_mb=16:malloc_context_size=12:allocator_may_return_null=0:detect_stack_use_after_return=0
export UBSAN_OPTIONS=print_stacktrace=1

all_targets() { sed -n 's/^fuzz_target(\([a-z0-9_]*\) .*/\1/p' "$HERE/CMakeLists.txt"; }

# Inputs are as long as the shortest useful ones of the format, and some.
max_len() {
  case $1 in
    tokenizer_json | tekken) echo 49152 ;;
    checkpoint | family_file) echo 32768 ;;
    sentencepiece | vocab_merges | statistics) echo 16384 ;;
    target_pattern | split_regex) echo 2048 ;;
    *) echo 8192 ;;
  esac
}

# The files whose lines a target's coverage is of.
parser_files() {
  case $1 in
    json) echo lib/core/json ;;
    safetensors) echo lib/checkpoint/safetensors.cc ;;
    shard_index) echo lib/checkpoint/model_dir ;;
    npy | npz) echo lib/checkpoint/npz ;;
    recipe) echo 'lib/recipe/' ;;
    target_pattern) echo lib/quant/module_target ;;
    sweep) echo 'lib/sweep/(sweep_file|grid_fields|plan|names|sweep_recipe)' ;;
    tokenizer_json) echo 'lib/tokenizers/(tokenizer_json|bpe|unigram|token_model|normalizers|pre_tokenizers|post_processing|added_tokens|pattern)' ;;
    sentencepiece) echo 'lib/tokenizers/(sentencepiece|bpe|normalizers)' ;;
    vocab_merges) echo lib/tokenizers/vocab_and_merges ;;
    tekken) echo 'lib/tokenizers/tekken' ;;
    split_regex) echo 'lib/tokenizers/(oniguruma|pattern)' ;;
    chat_template) echo 'lib/(jinja/|datasets/chat_template)' ;;
    dataset) echo 'lib/datasets/(dataset|readers/)' ;;
    descriptor) echo lib/datasets/descriptor ;;
    config) echo 'lib/(family/(model_config|config_reader|rope_config|layer_plan|architecture|families/|modules)|synth/synthetic_config)' ;;
    family_file) echo lib/descriptors/ ;;
    checkpoint) echo 'lib/(stored/|engines/)' ;;
    quantized) echo 'lib/(stored/(formats/|coded|integer|weight|fp8)|quant/packed_bits)' ;;
    scales_json) echo 'lib/(stored/kv_scales|engines/scales_file)' ;;
    statistics) echo lib/export/statistics_file ;;
    overlay) echo lib/export/overlay ;;
    resume_state) echo 'lib/(state/(state_folder|hidden_file)|forward/layer_result_bytes)' ;;
    *) echo lib/ ;;
  esac
}

build() { # build FOLDER [CMAKE OPTION...]
  local folder=$1
  shift
  [[ -n ${FUZZ_NO_BUILD:-} ]] && return
  "$ROOT/tools/install_dependencies.sh" --fuzz || exit 2
  (cd "$ROOT" && cmake --preset fuzz -B "$folder" -DKVCAL_INCLUDE_ROOT="$folder/include" "$@") >"$WORK/configure.log" 2>&1 &&
    ninja -C "$folder" -j "${FUZZ_BUILD_JOBS:-2}" "${targets[@]/#/fuzz_}" >"$WORK/build.log" 2>&1 ||
    { tail -n 30 "$WORK/configure.log" "$WORK/build.log" >&2; exit 2; }
}

make_seeds() {
  rm -rf "$WORK/seeds"
  python3 "$HERE/make_seeds.py" "$WORK/seeds" || return 1
  local target
  for target in "${targets[@]}"; do mkdir -p "$WORK/seeds/$target" "$WORK/grown/$target" "$HERE/corpus/$target"; done
}

program() { # program TARGET OPTION...
  local target=$1
  shift
  "$BUILD/tests/fuzz/fuzz_$target" -max_len="$(max_len "$target")" -timeout=300 -rss_limit_mb=768 -malloc_limit_mb=400 \
    -dict="$HERE/dictionaries/$target.dict" "$@"
}

# A unit that took long beside other work is only slow if it takes that processor time again.
is_slow() { # is_slow TARGET FILE
  local seconds
  seconds=$( { TIMEFORMAT=%U; time program "$1" "$2" >/dev/null 2>&1; } 2>&1 | tail -1)
  awk -v s="$seconds" -v most=$SLOW 'BEGIN { exit !(s > most) }'
}

fuzz_one() { # fuzz_one TARGET SECONDS
  local target=$1 seconds=$2 out=$WORK/out/$1 start status unit findings=0
  rm -rf "$out"
  mkdir -p "$out"
  start=$(date +%s.%N)
  {
    TIMEFORMAT='%U %S'
    time program "$target" -max_total_time="$seconds" -print_final_stats=1 -report_slow_units=$SLOW \
      -artifact_prefix="$out/" "$WORK/grown/$target" "$HERE/corpus/$target" "$WORK/seeds/$target" >"$out/log" 2>&1
    status=$?
  } 2>"$out/time"
  for unit in "$out"/*-*; do
    [[ -f $unit ]] || continue
    if [[ $unit == */slow-unit-* ]] && ! is_slow "$target" "$unit"; then
      rm "$unit"
      continue
    fi
    findings=$((findings + 1))
    mkdir -p "$WORK/findings/$target"
    cp "$unit" "$WORK/findings/$target/"
    cp "$out/log" "$WORK/findings/$target/$(basename "$unit").log"
  done
  [[ $status != 0 && $findings == 0 ]] && findings=1
  awk -v target="$target" -v start="$start" -v end="$(date +%s.%N)" -v findings=$findings -v time="$(<"$out/time")" '
    /^#[0-9]+.* cov: / { for (i = 1; i < NF; ++i) { if ($i == "cov:") cov = $(i + 1); if ($i == "ft:") ft = $(i + 1);
                         if ($i == "corp:") { corp = $(i + 1); sub("/.*", "", corp) } }
                         runs = substr($1, 2) + 0 }
    /^stat::number_of_executed_units:/ { runs = $2 }
    END { seconds = end - start
      split(time, used, " ")
      printf "{\"target\": \"%s\", \"seconds\": %.1f, \"processor_seconds\": %.1f, \"executions\": %d, \"executions_per_second\": %d, \"edges\": %d, " \
             "\"features\": %d, \"corpus\": %d, \"findings\": %d}\n",
             target, seconds, used[1] + used[2], runs, runs / seconds, cov, ft, corp, findings }' "$out/log" >"$out/result.json"
}

table() { # table FILE...: one line of JSON a target
  printf '| target | seconds | of processor | executions | a second | edges | features | inputs | findings |\n'
  printf '| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n'
  sed -E 's/[{}"]//g; s/, /|/g; s/[a-z_]+: //g' "$@" | awk -F'|' '{
    printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6, $7, $8, $9 }'
}

run_all() { # run_all SECONDS
  local target
  rm -rf "$WORK/out"
  for target in "${targets[@]}"; do
    while (($(jobs -rp | wc -l) >= JOBS)); do wait -n; done
    fuzz_one "$target" "$1" &
  done
  wait
  local results=("${targets[@]/#/$WORK/out/}")
  cat "${results[@]/%//result.json}" | tee -a "$LOG" >"$WORK/lines.json"
  table "$WORK/lines.json" | tee "$WORK/table.md"
  { echo '['; sed '$!s/$/,/' "$WORK/lines.json"; echo ']'; } >"$WORK/table.json"
  if ! grep -qv '"findings": 0' "$WORK/lines.json"; then return 0; fi
  for target in "${targets[@]}"; do
    grep -q '"findings": 0' "$WORK/out/$target/result.json" || tail -25 "$WORK/out/$target/log" >&2
  done
  echo "findings lie in $WORK/findings" >&2
  return 1
}

replay() {
  local target failed=0
  for target in "${targets[@]}"; do
    program "$target" -runs=0 "$HERE/corpus/$target" "$WORK/seeds/$target" >"$WORK/replay.log" 2>&1 ||
      { failed=1; echo "FAILED $target"; tail -25 "$WORK/replay.log"; }
  done
  ((failed)) || echo "${#targets[@]} corpora hold"
  return $failed
}

coverage() {
  local target folder=$WORK/coverage profdata cov
  profdata=$(command -v llvm-profdata || command -v llvm-profdata-14) cov=$(command -v llvm-cov || command -v llvm-cov-14)
  mkdir -p "$folder"
  printf '| target | lines | reached |\n| --- | ---: | ---: |\n'
  for target in "${targets[@]}"; do
    LLVM_PROFILE_FILE=$folder/$target.profraw "$BUILD/tests/fuzz/fuzz_$target" -runs=0 -timeout=60 -max_len="$(max_len "$target")" \
      "$HERE/corpus/$target" "$WORK/seeds/$target" "$WORK/grown/$target" >"$folder/$target.log" 2>&1 || echo "FAILED $target" >&2
    "$profdata" merge -sparse "$folder/$target.profraw" -o "$folder/$target.profdata"
    "$cov" export -format=lcov -instr-profile="$folder/$target.profdata" "$BUILD/tests/fuzz/fuzz_$target" >"$folder/$target.lcov"
    awk -F: -v root="$ROOT/" -v wanted="^($(parser_files "$target"))" -v target="$target" '
      $1 == "SF" { file = $2; sub(root, "", file); counts = file ~ wanted && file ~ /\.cc$/ }
      counts && $1 == "LF" { all += $2 }
      counts && $1 == "LH" { hit += $2 }
      END { printf "| %s | %d | %.1f %% |\n", target, all, 100 * hit / (all ? all : 1) }' "$folder/$target.lcov"
  done
}

# Whole corpora grow to megabytes. BatchKeysValues are, of the short inputs that reach what seeds and corpus do not, the shortest.
keep() {
  local target base=$WORK/base fresh=$WORK/fresh file
  for target in "${targets[@]}"; do
    rm -rf "$base" "$fresh"
    mkdir -p "$base" "$fresh"
    cp "$WORK/seeds/$target"/* "$HERE/corpus/$target"/* "$base" 2>/dev/null
    find "$WORK/grown/$target" -type f -size -"${FUZZ_KEEP_BYTES:-600}"c -exec cp -t "$fresh" {} +
    touch "$WORK/before"
    sleep 0.01
    program "$target" -merge=1 "$base" "$fresh" >"$WORK/merge.log" 2>&1
    find "$base" -type f -newer "$WORK/before" -printf '%s %p\n' | sort -n | head -n "${FUZZ_KEEP:-16}" |
      while read -r _ file; do cp "$file" "$HERE/corpus/$target/"; done
    echo "$target: $(find "$HERE/corpus/$target" -type f | wc -l) inputs"
  done
}

total() {
  sed -E 's/[{}"]//g; s/, /|/g; s/[a-z_]+: //g' "$LOG" | awk -F'|' '
    { seconds[$1] += $2; used[$1] += $3; runs[$1] += $4; stops[$1] += $9; if ($6 > edges[$1]) edges[$1] = $6 }
    END { for (t in used) printf "| %s | %.1f | %.1f | %d | %d | %d |\n", t, seconds[t] / 60, used[t] / 60, runs[t], edges[t], stops[t] }' |
    sort | sed '1i | target | minutes | of processor | executions | edges | stops |\n| --- | ---: | ---: | ---: | ---: | ---: |'
}

mode=fuzz seconds=20
case ${1:-} in
  --*) mode=${1#--} && shift ;;
  [0-9]*) seconds=$1 && shift ;;
esac
mapfile -t known < <(all_targets)
targets=("$@")
((${#targets[@]})) || targets=("${known[@]}")
mkdir -p "$WORK"
case $mode in
  fuzz) build "$BUILD" && make_seeds && run_all "$seconds" ;;
  replay) build "$BUILD" && make_seeds && replay ;;
  keep) build "$BUILD" && make_seeds && keep ;;
  coverage) BUILD=${FUZZ_COVERAGE_BUILD:-$BUILD-coverage} && build "$BUILD" -DKVCAL_FUZZ_COVERAGE=ON && make_seeds && coverage ;;
  total) total ;;
  *) sed -n '2,10p' "${BASH_SOURCE[0]}" && exit 2 ;;
esac

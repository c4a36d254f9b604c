#!/usr/bin/env bash
# Tests, checks and measures kvcal on the GPU of this machine, in ten minutes at most. Every part has a limit of its own, what
# it found is written when it ends, and the most valuable parts come first: a run that is cut short tells what it found so far.
# The last 60 lines it prints are the summary. docs/gpu.md says what the parts prove. Nothing is downloaded but what
# tools/install_gpu_compilers.sh may need.
# usage: gpu_check.sh [cuda|hip] [--pack FOLDER | --packed FOLDER] [--results FOLDER] [--minutes N] [--only PART,...] [--layers N] [--small]
#   --pack FOLDER     build here, without a device, and put one compressed file of programs and libraries into FOLDER, for a
#                     machine without compilers or packages that has a copy of this source tree. For one chip: 90a, or
#                     KVCAL_GPU_ARCHITECTURES of the environment
#   --packed FOLDER   run what --pack made, from the root of the source tree
#   --results FOLDER  for summary.txt and the log of each part (build/gpu_check)
#   --minutes N       for all parts together, without building (10); their limits grow and shrink with it
#   --only PART,...   of: kernels forward wgmma calib eval rates model parts calibrate sanitize peers
#   --layers N        of the measured model of Llama-3-8B's shape (32, or 8 where there is no room for 20 GB)
#   --small           small shapes, which try this script and prove nothing about speed
# Exits with 1 where a test or a sanitizer failed or did not run to its end.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
vendor=cuda mode=here folder='' only='' layers='' results=build/gpu_check minutes=10 small=''

usage() { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
while [[ $# -gt 0 ]]; do
  case $1 in
    cuda | hip) vendor=$1; shift; continue ;;
    --small) small=--small; shift; continue ;;
  esac
  [[ $# -ge 2 ]] || usage
  case $1 in
    --pack) mode=pack folder=$2 ;;
    --packed) mode=packed folder=$2 ;;
    --results) results=$2 ;;
    --minutes) minutes=$2 ;;
    --only) only=$2 ;;
    --layers) layers=$2 ;;
    *) usage ;;
  esac
  shift 2
done
PROGRAMS=(kvcal tests/test_gpu tests/gpu_device tests/device_kernels tests/device_forward)

# ---- building and packing ----

build() {  # FOLDER, further arguments of cmake
  tools/install_gpu_compilers.sh "$vendor"
  local chips=${KVCAL_GPU_ARCHITECTURES:-}
  cmake --preset "$vendor" -B "$1" -DKVCAL_GPU_ARCHITECTURES="$chips" "${@:2}" >/dev/null
  cmake --build "$1" --target gpu_tests
}

# The libraries that programs need beside those of glibc, which must be the machine's own.
libraries_of() {  # PROGRAM...
  ldd "$@" | awk '$3 ~ /^\// {print $3}' | sort -u | grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|ld-linux[^/]*)\.so'
}

pack() {
  local built=build/gpu_packed staged
  command -v zstd >/dev/null || { echo "error: zstd was not found: apt-get install zstd" >&2; exit 1; }
  [[ $vendor != cuda ]] || : "${KVCAL_GPU_ARCHITECTURES:=90a}"
  # The tests find their files relative to the root of the source tree. Kernels stay uncompressed, because zstd finds those of
  # one program in the next. DT_RPATH, unlike DT_RUNPATH, also serves libraries that libraries need.
  build "$built" -DKVCAL_TESTS_PATH=tests -DKVCAL_SOURCE_PATH=. -DKVCAL_ARROW=OFF -DKVCAL_MPI=OFF -DKVCAL_CURL=OFF -DKVCAL_ONEDNN=OFF \
    -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared -DCMAKE_CUDA_FLAGS=-Xfatbin=-compress=false \
    '-DCMAKE_BUILD_RPATH=$ORIGIN/lib' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags
  staged=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf '$staged'" EXIT
  mkdir "$staged/lib"
  for program in "${PROGRAMS[@]}"; do strip -o "$staged/${program##*/}" "$built/$program"; done
  libraries_of "${PROGRAMS[@]/#/$built/}" | xargs cp -Lt "$staged/lib"
  strip --strip-unneeded "$staged"/lib/*
  echo "$(git describe --always --dirty), $vendor, chips ${KVCAL_GPU_ARCHITECTURES:-all}, $(date -u +%FT%TZ)" >"$staged/build.txt"
  mkdir -p "$folder"
  tar -C "$staged" --sort=name --owner=0 --group=0 --numeric-owner -cf - . |
    zstd --quiet --force -12 --long=28 -T0 -o "$folder/kvcal_gpu.tar.zst"
  cc -O2 -s -static -o "$folder/unzstd" tests/gpu/unzstd.c -lzstd
  ls -l "$folder" | awk 'NR > 1 {all += $5; print $5, $9} END {printf "%.1f MiB in all\n", all / 1048576}'
}

# ---- parts ----

started=$SECONDS failures=0 part_now=''
elapsed() { echo $((SECONDS - started)); }
note() { printf '[%3d s] %s\n' "$(elapsed)" "$1" | tee -a "$results/summary.txt"; }
failed() { failures=$((failures + 1)); note "$1"; }
# Lines of standard input, below a note.
noted_lines() { sed 's/^/        /' | tee -a "$results/summary.txt"; }
wanted() { [[ -z $only || ,$only, == *,$1,* ]]; }

# The seconds that a part may take: its share of the minutes, and no more than are left. A program that is told to end has ten
# seconds more (--kill-after).
limit_of() {  # SECONDS, of ten minutes
  local limit=$(($1 * minutes / 10)) left=$((minutes * 60 - 12 - $(elapsed)))
  limit=$((limit < left ? limit : left))
  echo $((limit > 0 ? limit : 0))
}

# Runs a command within a part's limit, its output in NAME.log. Notes what stands against it: 1 is returned then.
run_part() {  # NAME SECONDS COMMAND...
  local name=$1 limit status=0
  limit=$(limit_of "$2")
  shift 2
  if [[ $limit -lt 2 ]]; then
    note "$name: NOT RUN, no time was left"
    return 1
  fi
  # Waited for, so that a signal ends this script at once.
  timeout --kill-after=10 "$limit" "$@" >"$results/$name.log" 2>&1 &
  wait $! || status=$?
  [[ $status -ne 0 ]] || return 0
  if [[ $status -eq 124 || $status -eq 137 ]]; then
    note "$name: CUT after $limit s; its last lines:"
  else
    failed "$name: FAILED with exit status $status; its last lines:"
  fi
  tail -n 3 "$results/$name.log" | cut -c 1-300 | noted_lines
  return 1
}

# Files of a layer's tests with cases that run on devices. Each family counts as a file (tests/layer_tests.cmake).
device_files() {  # LAYER
  local file
  [[ $1 != forward ]] || sed -nE 's/^    \{"([a-z0-9_]+)", "[a-z0-9_]*",.*/\1_test/p' lib/family/families/*.cc | sort
  grep -rlE 'for_each_backend|for_every_backend|for_each_device|backend_names|device_names|devices\(\)' --include='*_test.cc' "tests/$1" |
    sort | while read -r file; do
    # Not those whose cases are all slow or hidden.
    [[ $(grep -c 'TEST_CASE(' "$file") -le $(grep -cE '"\[(slow|\.)' "$file") ]] || basename "$file" .cc
  done
}

# One process a file: after a fault on the device nothing else of a process runs. The name of the file, the exit status and
# the seconds go to NAME.status.
test_file() {  # NAME FILE SECONDS COMMAND...
  local name=$1 file=$2 limit=$3 status=0 begin=$SECONDS child
  shift 3
  timeout --kill-after=10 "$limit" "$@" --filenames-as-tags "[#$file]~[slow]~[.]" --reporter compact --durations yes \
    >"$results/$name/$file.log" 2>&1 &
  child=$!
  trap 'kill "$child"; exit 143' TERM
  wait "$child" || status=$?
  [[ $status -ne 0 ]] || grep -qE '^(Passed|All tests passed).*[0-9] assertion' "$results/$name/$file.log" || status=no-assertions
  echo "$file $status $((SECONDS - begin))" >>"$results/$name.status"
}

# Runs the tests of files, several at a time, within one limit.
test_files() {  # NAME SECONDS "FILE..." COMMAND...
  local name=$1 limit files=$3 end running=0 file jobs
  limit=$(limit_of "$2")
  shift 3
  end=$((SECONDS + limit)) jobs=$(($(nproc) < 8 ? $(nproc) : 8))
  part_now="$name interrupted"
  rm -rf "${results:?}/$name" "$results/$name.status"
  mkdir -p "$results/$name"
  : >"$results/$name.status"
  for file in $files; do
    if [[ $running -ge $jobs ]]; then
      wait -n || true
      running=$((running - 1))
    fi
    if [[ $((end - SECONDS)) -lt 2 ]]; then
      echo "$file not-run 0" >>"$results/$name.status"
    else
      test_file "$name" "$file" $((end - SECONDS)) "$@" &
      running=$((running + 1))
    fi
  done
  wait
  part_now=''
  tell_tests "$name" "$limit"
}

# One line on a part's tests, and the first assertions that failed.
tell_tests() {  # NAME SECONDS|interrupted
  local name=$1 all passed cut wrong assertions
  sort -o "$results/$name.status" "$results/$name.status"  # they end in any order
  all=$(wc -l <"$results/$name.status")
  passed=$(awk '$2 == "0"' "$results/$name.status" | wc -l)
  cut=$(awk '$2 == "124" || $2 == "137" || $2 == "not-run" {if (++n <= 6) printf " %s", $1} END {if (n > 6) printf " and %d more", n - 6}' "$results/$name.status")
  wrong=$(awk '$2 != "0" && $2 != "124" && $2 != "137" && $2 != "not-run" {printf " %s(%s)", $1, $2}' "$results/$name.status")
  assertions=$(cat "$results/$name"/*.log 2>/dev/null | grep -E '^(Passed|All tests passed)' |
    grep -oE '[0-9]+ assertion' | awk '{n += $1} END {print n + 0}' || true)
  local line="$name: $passed of $all files of tests passed, $assertions assertions"
  [[ $2 != interrupted ]] || line="$line that ended before the interrupt"
  if [[ $passed -eq $all && $all -gt 0 && $2 != interrupted ]]; then
    note "$line"
    return
  fi
  failed "$line${wrong:+; FAILED (exit status):$wrong}${cut:+; CUT after $2 s:$cut}"
  { grep -hE -m 2 'failed: |fatal error|PTX-JUDGE|Invalid|========= (Error|.*[Rr]ace|.*hazard)' "$results/$name"/*.log 2>/dev/null | grep -v SIGTERM || true; } |
    cut -c 1-240 | head -n 6 | noted_lines
}

# ---- the device and the matrix library ----

# Without the vendor's library everything below would measure our own slow kernel.
check_device() {
  local found prefix
  found=$(timeout 60 "$bin/gpu_device" 2>&1) || { note "STOPPED: $found"; exit 1; }
  if [[ $found == *"own matmul"* ]] && prefix=$(python3 -c 'import sys; print(sys.prefix)' 2>/dev/null); then
    found=$(KVCAL_GPU_LIBRARY_PATH=$prefix "$bin/gpu_device" 2>/dev/null) && export KVCAL_GPU_LIBRARY_PATH=$prefix
  fi
  if [[ -z $found || $found == *"own matmul"* ]]; then
    note "STOPPED: the vendor's matrix library was not found; set KVCAL_GPU_LIBRARY_PATH to its file or folder"
    exit 1
  fi
  note "$(date -u +%F) $found"
  [[ -z ${KVCAL_GPU_LIBRARY_PATH:-} ]] || note "KVCAL_GPU_LIBRARY_PATH=$KVCAL_GPU_LIBRARY_PATH"
  note "build: $(cat "$bin/build.txt" 2>/dev/null || git describe --always --dirty 2>/dev/null || echo unknown); $(nproc) CPUs"
  if command -v nvidia-smi >/dev/null; then
    note "$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader | head -n 1)"
  fi
}

# ---- measuring ----

rates() {
  run_part rates 45 "$bin/device_kernels" $small && note "rates of kernels:" && tail -n +2 "$results/rates.log" | noted_lines
  wanted wgmma || return 0
  run_part rates_wgmma 20 env KVCAL_GPU_ATTENTION=wgmma "$bin/device_kernels" $small --only attention && note "attention by wgmma:" &&
    grep 'attention, prefill' "$results/rates_wgmma.log" | noted_lines
}

make_model() {  # FOLDER LAYERS
  [[ ! -d $1 ]] || return 0
  run_part "synth_$2" 60 "$bin/kvcal" synth --config tests/bench/gpu/llama3_8b.json --seed 1 --layers "$2" --dtype bfloat16 "$1"
}

# The measured model, made once for all that need it; of a quarter of its layers where all take too long to write.
need_model() {
  if [[ -z $model_failed ]]; then
    make_model "$model" "$layers" && return
    if [[ $layers -gt 8 ]]; then
      layers=8
      make_model "$model" "$layers" && return
    fi
  fi
  model_failed=yes
  note "$1: NOT RUN, there is no model"
  return 1
}

choose_model() {
  samples=512 tokens=2048 model_failed='' shape="8B shape"
  model=$scratch/llama3_8b
  if [[ -n $small ]]; then
    samples=4 tokens=40 layers=2 shape="a small fixture" model=tests/fixtures/models/llama
  elif [[ -z $layers ]]; then
    layers=32
    [[ $(df --output=avail --block-size=1G "$scratch" | tail -n 1) -ge 20 ]] || layers=8
  fi
}

measure_forward() {  # NAME SECONDS ARGUMENT...
  need_model "$1" || return 0
  run_part "$1" "$2" "$bin/device_forward" "$model" --tokens "$tokens" ${small:+--square 64 --decode 2 --prompt 5} "${@:3}" && note "$1, $shape, $layers layers:" &&
    tail -n +2 "$results/$1.log" | noted_lines
}

measure_calibrate() {
  need_model calibrate || return 0
  awk -v n="$samples" -v length_="$tokens" -v words=$((${#small} ? 100 : 128000)) 'BEGIN { srand(1); for (i = 0; i < n; ++i) {
    printf "{\"input_ids\": ["; for (t = 0; t < length_; ++t) printf "%s%d", t ? ", " : "", int(rand() * words); print "]}" } }' >"$scratch/ids.jsonl"
  run_part calibrate 75 "$bin/kvcal" calibrate "$model" --recipe recipes/fp8_kv_tensor.yaml --dataset "$scratch/ids.jsonl" \
    --device "$vendor" --format scales-json --output "$scratch/out" &&
    note "kvcal calibrate, $samples x $tokens, $layers layers: $(tr -d '\n ' <"$scratch/out/kvcal_manifest.json" | grep -o '"seconds":{[^}]*}')"
}

measure_peers() {
  if ! python3 -c 'import torch, transformers, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    note "peers: NOT RUN, python3 has no torch with a GPU, or no transformers"
    return
  fi
  make_model "$scratch/peer" 4 || return 0
  python3 -c 'import json, random; random.seed(1); print(json.dumps({"ids": [[random.randrange(128000) for _ in range(2048)] for _ in range(32)]}))' \
    >"$scratch/tokens.json"
  run_part peers 75 python3 tests/bench/against_peers.py "$bin/kvcal" "$scratch/peer" "$scratch/tokens.json" --device "$vendor" --runs 1 &&
    note "peers, 8B shape, 4 layers:" && grep -vE '^$|^run ' "$results/peers.log" | noted_lines
}

sanitize() {
  if ! command -v compute-sanitizer >/dev/null; then
    failed "sanitize: NOT RUN, compute-sanitizer was not found"
    return
  fi
  local tool seconds files
  files=$(device_files kernels | sed 's/^attention_warp/0&/' | sort | sed 's/^0//')
  for tool in memcheck:80 racecheck:40 synccheck:20; do
    IFS=: read -r tool seconds <<<"$tool"
    test_files "$tool" "$seconds" "$files" \
      compute-sanitizer --tool "$tool" --error-exitcode 86 "$bin/test_gpu"
  done
}

summary() {
  local status=$?
  trap - EXIT
  # What still runs was started by a timeout, which passes the signal on.
  jobs -p | xargs -r kill 2>/dev/null || true
  # shellcheck disable=SC2086  # a name and a word
  [[ -z $part_now ]] || tell_tests $part_now
  printf '\n== in short (logs: %s)\n' "$results"
  tail -n 58 "$results/summary.txt"
  rm -rf "$scratch"
  exit "$status"
}

if [[ $mode == pack ]]; then
  pack
  exit 0
fi

# Other backends are tested where there is no GPU.
export KVCAL_REQUIRE_GPU=1 KVCAL_TEST_BACKENDS=gpu
scratch=$(mktemp -d)
mkdir -p "$results"
results=$(cd "$results" && pwd)
: >"$results/summary.txt"
trap summary EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
if [[ $mode == packed ]]; then
  bin=$scratch/bin
  mkdir "$bin"
  "$folder/unzstd" <"$folder/kvcal_gpu.tar.zst" | tar -C "$bin" -xf -
else
  build "build/$vendor"
  bin=$scratch/bin
  mkdir "$bin"
  for program in "${PROGRAMS[@]}"; do ln -s "$root/build/$vendor/$program" "$bin/${program##*/}"; done
fi
started=$SECONDS

check_device
if wanted kernels; then test_files kernels 90 "$(device_files kernels)" "$bin/test_gpu"; fi
if wanted forward; then test_files forward 120 "$(device_files forward)" "$bin/test_gpu"; fi
if wanted wgmma; then
  KVCAL_GPU_ATTENTION=wgmma test_files wgmma 45 "$(device_files kernels | grep attention; echo llama_test qwen3_test gemma3_test)" "$bin/test_gpu"
fi
if wanted calib; then test_files calib 60 "$(device_files calib)" "$bin/test_gpu"; fi
if wanted eval; then test_files eval 30 "$(device_files eval)" "$bin/test_gpu"; fi
choose_model
if wanted rates; then rates || true; fi
if wanted model; then measure_forward forward_rate 75 --samples "$samples" || true; fi
if wanted parts; then measure_forward parts 45 --samples $((samples / 8 + 1)) --decode 0 --parts || true; fi
if wanted calibrate; then measure_calibrate || true; fi
if wanted sanitize; then sanitize; fi
if wanted peers; then measure_peers || true; fi
[[ $failures -eq 0 ]]

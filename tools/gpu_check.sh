#!/usr/bin/env bash
# Builds for the GPU of this machine, runs the tests on it with every memory access checked, measures, and prints a short
# table. Nothing is downloaded but what tools/install_gpu_compilers.sh may need.
# usage: gpu_check.sh [cuda|hip] [--pack FOLDER | --packed FOLDER] [--only tests|sanitize|measure] [--layers N]
#   --pack FOLDER     build here (no device needed) and put programs and libraries into FOLDER, for a machine without
#                     compilers or packages, which has a copy of this source tree
#   --packed FOLDER   run what --pack made, from the root of the source tree
#   KVCAL_GPU_ARCHITECTURES in the environment, such as 90a or gfx90a: build for these chips only
#   --layers N        cut the measured models to N layers (default 32 of 8B, 4 of 70B)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
vendor=cuda mode=here folder='' only='' layers=''
while [[ $# -gt 0 ]]; do
  case $1 in
    cuda | hip) vendor=$1; shift ;;
    --pack) mode=pack folder=$2; shift 2 ;;
    --packed) mode=packed folder=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    --layers) layers=$2; shift 2 ;;
    *) sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2 ;;
  esac
done
programs=(kvcal tests/gpu_device tests/test_kernels tests/test_forward tests/test_calib tests/test_eval
  tests/device_kernels tests/device_forward)
export KVCAL_REQUIRE_GPU=1
table=()
note() { table+=("$1"); printf '%s\n' "$1"; }
wanted() { [[ -z $only || $only == "$1" ]]; }

build() {  # folder, further arguments of cmake
  tools/install_gpu_compilers.sh "$vendor"
  local chips=${KVCAL_GPU_ARCHITECTURES:-}
  cmake --preset "$vendor" -B "$1" ${chips:+-DKVCAL_GPU_ARCHITECTURES="$chips"} "${@:2}" >/dev/null
  cmake --build "$1" --target kvcal gpu_device test_kernels test_forward test_calib test_eval device_kernels device_forward
}

if [[ $mode == pack ]]; then
  # The tests find their files relative to the root of the source tree.
  build build/gpu_packed -DKVCAL_TESTS_PATH=tests -DKVCAL_SOURCE_PATH=.
  rm -rf "$folder" && mkdir -p "$folder/tests" "$folder/lib"
  for program in "${programs[@]}"; do
    strip -o "$folder/$program" "build/gpu_packed/$program"
    ldd "build/gpu_packed/$program" | awk '$3 ~ /^\// {print $3}'
  done | sort -u | grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' | xargs cp -Lt "$folder/lib"
  du -sh "$folder"
  exit 0
fi
if [[ $mode == packed ]]; then
  export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
  folder=build/$vendor
  build "$folder"
fi

device=$("$folder/tests/gpu_device") || { echo "$device" >&2; exit 1; }
note "$(date -u +%F) $device"
if [[ $device == *"own matmul"* ]]; then
  note "matrix library: FAILED, none was found (set LD_LIBRARY_PATH); what follows measures our own slow kernel"
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if wanted tests; then
  for test in kernels model calib eval; do
    if "$folder/tests/test_$test" "~[slow]~[.]" >"$scratch/$test.log" 2>&1; then
      note "tests, $test: $(tail -2 "$scratch/$test.log" | head -1)"
    else
      tail -60 "$scratch/$test.log"
      note "tests, $test: FAILED"
    fi
  done
fi

if wanted sanitize && ! command -v compute-sanitizer >/dev/null; then
  note "compute-sanitizer: not installed, memory accesses were not checked"
elif wanted sanitize; then
  for tool in memcheck racecheck synccheck; do
    if compute-sanitizer --tool "$tool" --error-exitcode 1 "$folder/tests/test_kernels" "~[slow]~[.]" \
        >"$scratch/$tool.log" 2>&1; then
      note "$tool: $(grep 'SUMMARY' "$scratch/$tool.log" | tail -1)"
    else
      grep -vE '^=+ *$' "$scratch/$tool.log" | tail -40
      note "$tool: FAILED"
    fi
  done
fi

if wanted measure; then
  "$folder/tests/device_kernels" | tee "$scratch/kernels.log"
  for model in llama3_8b:${layers:-32}:512 llama3_70b:${layers:-4}:64; do
    IFS=: read -r name cut samples <<<"$model"
    "$folder/kvcal" synth --config "tests/bench/gpu/$name.json" --seed 1 --layers "$cut" --dtype bfloat16 "$scratch/$name"
    "$folder/tests/device_forward" "$scratch/$name" --samples "$samples" | while read -r line; do echo "$name, $cut layers: $line"; done |
      tee "$scratch/forward.log"
    while read -r line; do table+=("$line"); done <"$scratch/forward.log"
    if [[ $name == llama3_8b ]]; then
      awk -v n="$samples" 'BEGIN { srand(1); for (i = 0; i < n; ++i) { printf "{\"input_ids\": ["; for (t = 0; t < 2048; ++t)
        printf "%s%d", t ? ", " : "", int(rand() * 128000); print "]}" } }' >"$scratch/ids.jsonl"
      "$folder/kvcal" calibrate "$scratch/$name" --recipe recipes/fp8_kv_tensor.yaml --dataset "$scratch/ids.jsonl" \
        --device "$vendor" --format scales-json --output "$scratch/out" 2>"$scratch/calibrate.log"
      note "kvcal calibrate, $samples x 2048: $(tr -d '\n ' <"$scratch/out/kvcal_manifest.json" | grep -o '"seconds":{[^}]*}')"
    fi
  done
  if python3 -c 'import torch, transformers, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    "$folder/kvcal" synth --config tests/bench/gpu/llama3_8b.json --seed 1 --layers 4 --dtype bfloat16 "$scratch/peer"
    python3 -c 'import json, random; random.seed(1); print(json.dumps({"ids": [[random.randrange(128000) for _ in range(2048)] for _ in range(32)]}))' \
      >"$scratch/tokens.json"
    python3 tests/bench/against_peers.py "$folder/kvcal" "$scratch/peer" "$scratch/tokens.json" --device cuda
  fi
fi

printf '\n== in short\n'
printf '%s\n' "${table[@]}"
[[ -f $scratch/kernels.log ]] && cat "$scratch/kernels.log"
[[ ${table[*]} != *FAILED* ]]

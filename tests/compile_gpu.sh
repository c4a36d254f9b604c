#!/usr/bin/env bash
# Compiles and links the program and every test that runs on a GPU for CUDA and for HIP, runs what these builds do without a
# device, and sees that the program says clearly when there is none. What a device computes is tested where one is
# (tools/gpu_check.sh) and, without one, by the simulated device of the tests.
# usage: compile_gpu.sh [cuda] [hip] [--all-chips]     both by default
#   --all-chips: before a release, for all chips that we support, which takes minutes more. By default for one, with all the
#   instructions that the sources use: sm_90a alone has wgmma, and converts FP8; gfx90a has AMD's matrix cores.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
declare -A chips=([cuda]=90a-real [hip]=gfx90a)
presets=()
for argument; do
  case $argument in
    --all-chips) chips=() ;;
    *) presets+=("$argument") ;;
  esac
done
[[ ${#presets[@]} -gt 0 ]] || presets=(cuda hip)
tools/install_gpu_compilers.sh "${presets[@]}"

for preset in "${presets[@]}"; do
  echo "== $preset"
  # Without oneDNN, as gpu_check.sh packs: nothing else compiles the products of such a build.
  cmake --preset "$preset" -DKVCAL_GPU_ARCHITECTURES="${chips[$preset]:-}" -DKVCAL_ONEDNN=OFF >/dev/null
  cmake --build --preset "$preset" --target gpu_tests
  # What looks for devices, and what a build for a GPU does on the host.
  ctest --preset "$preset" --no-tests=error -R '^(gpu_device|kernels\.(backends|gpu_device|pack_group|vendor_library|attention_warpgroups|matmul))$'
  program=build/$preset/kvcal
  status=0
  message=$("$program" calibrate tests/fixtures/models/llama --recipe recipes/fp8_kv_tensor.yaml \
    --dataset tests/cli/data/small.jsonl --output "build/$preset/no_device" --device "$preset" 2>&1) || status=$?
  echo "$message"
  if [[ $status -eq 0 ]]; then
    echo "there is a device: run tools/gpu_check.sh"
  elif [[ $status -ne 1 || $message != *"device can be used here"* || -e build/$preset/no_device ]]; then
    echo "error: expected exit status 1 and a message that no device can be used, found status $status" >&2
    exit 1
  fi
done

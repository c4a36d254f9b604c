#!/usr/bin/env bash
# Compiles and links the program for CUDA and for HIP, and sees that each says clearly when there is no device. What a
# device computes is tested where one is (ctest -L gpu in these builds; tools/gpu_check.sh) and, without one, by the
# simulated device of the tests.
# usage: compile_gpu.sh [cuda] [hip]     both by default
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
[[ $# -gt 0 ]] || set -- cuda hip
tools/install_gpu_compilers.sh "$@"

for preset in "$@"; do
  echo "== $preset"
  cmake --preset "$preset" -DKVCAL_TESTS=OFF >/dev/null
  cmake --build --preset "$preset" --target kvcal
  program=build/$preset/kvcal
  status=0
  message=$("$program" calibrate tests/fixtures/models/llama --recipe recipes/fp8_kv_tensor.yaml \
    --dataset tests/cli/data/small.jsonl --output build/$preset/no_device --device "$preset" 2>&1) || status=$?
  echo "$message"
  if [[ $status -eq 0 ]]; then
    echo "there is a device: run tools/gpu_check.sh"
  elif [[ $status -ne 1 || $message != *"device can be used here"* || -e build/$preset/no_device ]]; then
    echo "error: expected exit status 1 and a message that no device can be used, found status $status" >&2
    exit 1
  fi
done

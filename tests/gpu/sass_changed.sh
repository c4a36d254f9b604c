#!/usr/bin/env bash
# Compares the machine code of the GPU's kernels with tests/gpu/sass_table.txt, for the files that a change reaches (CI) or
# for all of them (before a release). It needs no device.
# usage: sass_changed.sh [COMMIT | --all]
#   COMMIT: that changes are counted from; by default where this branch left origin/main, or the commit before this one
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/install_gpu_compilers.sh cuda sass
cmake --preset dev >/dev/null
if [[ ${1:-} == --all ]]; then
  # Labels of entries that skip are no success here.
  ctest --preset dev -L sass --no-tests=error --output-on-failure | tee build/sass.log
  if grep -q 'Skipped' build/sass.log; then exit 1; fi
  exit
fi
base=${1:-$(tests/find_base.sh)}
if [[ -z $base ]]; then
  echo "there is no earlier commit to compare with"
  exit
fi
find_tool() {  # NAME FOLDER...: its path
  PATH=$PATH:$(IFS=:; echo "${*:2}") command -v "$1"
}
mapfile -t files < <(grep -l __global__ kernels/gpu/*.cu | grep -v '/attention_waves\.cu$')  # AMD's alone
exec python3 -B tests/gpu/sass_guard.py --nvcc "$(find_tool nvcc /usr/local/cuda/bin "$PWD/build/cuda-toolkit/bin")" \
  --nvdisasm "$(find_tool nvdisasm /usr/local/cuda/bin "$PWD/build/sass-tools/nvidia/cu13/bin")" \
  --include build/include --scratch build/sass --changed-since "$base" "${files[@]}"

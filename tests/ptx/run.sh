#!/usr/bin/env bash
# Compiles the kernels to PTX, executes it on the CPU, and runs the tests of kernels and models on that; then tells which
# kernels ran. It needs nvcc, which tools/install_gpu_compilers.sh installs where it is missing, and no device.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/install_gpu_compilers.sh cuda
build=build/ptx
cmake --preset ptx >/dev/null
cmake --build --preset ptx --target kvcal test_gpu test_ptx ptx_cublaslt ptx_parse_all
export KVCAL_PTX_LAUNCHED=$PWD/$build/launched.txt
rm -f "$KVCAL_PTX_LAUNCHED"
ctest --preset ptx --no-tests=error
$build/tests/ptx/ptx_parse_all --names >$build/kernels.txt
python3 -B tests/ptx/coverage.py $build/kernels.txt "$KVCAL_PTX_LAUNCHED"

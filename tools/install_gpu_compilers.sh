#!/usr/bin/env bash
# Finds or installs what compiling kernels/gpu takes; no driver and no device. CUDA: nvcc 12.8 or later, from PATH, from
# /usr/local/cuda, or from PyPI into build/cuda-toolkit. HIP: hipcc from PATH, /opt/rocm or Debian's package. sass: nvdisasm,
# which the tests labelled sass read machine code with, from PyPI into build/sass-tools.
# usage: install_gpu_compilers.sh [cuda] [hip] [sass]     cuda and hip by default; prints nothing when all is there
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
[[ $# -gt 0 ]] || set -- cuda hip

install_cuda() {
  command -v nvcc >/dev/null && return
  [[ -x /usr/local/cuda/bin/nvcc || -x $root/build/cuda-toolkit/bin/nvcc ]] && return
  echo "installing: CUDA compiler from PyPI into build/cuda-toolkit"
  python3 -m venv "$root/build/cuda-venv"
  "$root/build/cuda-venv/bin/pip" install --quiet nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \
    nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.1.0.3
  ln -sfn "$(echo "$root"/build/cuda-venv/lib/python3*/site-packages/nvidia/cu13)" "$root/build/cuda-toolkit"
}

install_hip() {
  command -v hipcc >/dev/null && return
  [[ -x /opt/rocm/bin/hipcc ]] && return
  echo "installing: hipcc"
  local run=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || { echo "error: run as root: apt-get install hipcc" >&2; exit 1; }
    run=(sudo)
  fi
  "${run[@]}" apt-get update -qq
  "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends hipcc libamdhip64-dev >/dev/null
}

install_sass() {
  command -v nvdisasm >/dev/null && return
  [[ -x /usr/local/cuda/bin/nvdisasm || -x $root/build/sass-tools/nvidia/cu13/bin/nvdisasm ]] && return
  echo "installing: nvdisasm from PyPI into build/sass-tools"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$root/build/sass-tools" nvidia-cuda-nvdisasm==13.2.78
}

for compiler in "$@"; do
  case $compiler in
    cuda) install_cuda ;;
    hip) install_hip ;;
    sass) install_sass ;;
    *) echo "usage: install_gpu_compilers.sh [cuda] [hip] [sass]" >&2; exit 2 ;;
  esac
done

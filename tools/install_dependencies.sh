#!/usr/bin/env bash
# Installs what building kvcal takes on Debian 12 or later, unless it is all there. Needs root (or sudo) only then.
# usage: install_dependencies.sh [--fuzz]    --fuzz: also what the fuzz targets take
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkg-config
  nlohmann-json3-dev libcli11-dev libyaml-cpp-dev libsentencepiece-dev libpcre2-dev libutf8proc-dev
  zlib1g-dev libzstd-dev libcurl4-openssl-dev libdnnl-dev ocl-icd-opencl-dev libhwy-dev libssl-dev openssl libxxhash-dev catch2 valgrind zstd
  python3 python3-dev python3-numpy python3-venv chromium
  clang-format clang-tidy
  zsh fish mandoc dpkg-dev file
  openmpi-bin libopenmpi-dev slurm-wlm munge procps python3-yaml python3-jsonschema
)
if [[ ${1:-} == --fuzz ]]; then packages+=(clang libclang-rt-14-dev llvm); fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ $status == "install ok installed" ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

echo "installing: ${missing[*]}"
run=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || { echo "error: run as root: apt-get install ${missing[*]}" >&2; exit 1; }
  run=(sudo)
fi
"${run[@]}" apt-get update -qq
"${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

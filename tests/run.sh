#!/usr/bin/env bash
# Installs what is missing, builds everything with warnings as errors, and runs all tests, the slow ones too.
# usage: run.sh [PRESET]    PRESET: cpu (default) or asan
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
preset=${1:-cpu}
cd "$root"
tools/install_dependencies.sh
tools/install_arrow.sh
tools/fetch_demo_model.sh build/demo/SmolLM2-135M-Instruct
cmake --preset "$preset" -DKVCAL_ARROW=ON >/dev/null
cmake --build --preset "$preset"
ctest --preset "$preset"

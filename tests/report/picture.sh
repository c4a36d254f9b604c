#!/usr/bin/env bash
# Makes docs/pictures/report.png: the page of a calibrated model, as headless Chromium shows it.
#   tests/report/picture.sh KVCAL MODEL      MODEL: SmolLM2-135M-Instruct, which tools/fetch_demo_model.sh fetches
set -euo pipefail
out=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../docs/pictures" && pwd)
kvcal=$(realpath "$1") model=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$kvcal" calibrate "$model" --num-samples 16 --output "$scratch/SmolLM2-135M-Instruct-FP8-KV"
"$kvcal" inspect "$scratch/SmolLM2-135M-Instruct-FP8-KV" --html "$scratch/report.html" >/dev/null
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile" --window-size=1200,860 \
  --screenshot="$out/report.png" "file://$scratch/report.html" 2>/dev/null

#!/usr/bin/env bash
# Makes the picture of README: the page of a calibrated model, as headless Chromium shows it. report_browser makes it of a fixture.
#   tests/report/picture.sh KVCAL MODEL [OUT [OPTION...]]      MODEL: SmolLM2-135M-Instruct, which tools/fetch_demo_model.sh fetches
# OUT: default docs/pictures/report.png; OPTION: of kvcal calibrate, default --num-samples 16.
set -euo pipefail
kvcal=$(realpath "$1") model=$(realpath "$2")
out=$(realpath "${3:-$(dirname "${BASH_SOURCE[0]}")/../../docs/pictures/report.png}")
options=("${@:4}")
[[ ${#options[@]} -gt 0 ]] || options=(--num-samples 16)
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
name=$(basename "$model")-FP8-KV
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"  # the page names the checkpoint as the command does
"$kvcal" calibrate "$model" "${options[@]}" --output "$name"
"$kvcal" inspect "$name" --html report.html >/dev/null
"$chromium" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile" --window-size=1200,860 \
  --screenshot="$out" "file://$scratch/report.html" 2>/dev/null

#!/usr/bin/env bash
# From nothing to calibrated scales: installs what is missing, builds, makes a float16 checkpoint of a 135M chat model,
# calibrates it on datasets/, writes three formats, converts to a fourth, generates with the 16-bit and the FP8
# cache side by side and measures what FP8 does to the predictions.
# usage: demo.sh [--samples N] [--max-new-tokens N] [--windows N]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
samples=128 new_tokens=64 windows=4
while [[ $# -gt 0 ]]; do
  case $1 in
    --samples) samples=$2; shift 2 ;;
    --max-new-tokens) new_tokens=$2; shift 2 ;;
    --windows) windows=$2; shift 2 ;;
    *) echo "usage: demo.sh [--samples N] [--max-new-tokens N] [--windows N]" >&2; exit 2 ;;
  esac
done
step() { printf '\n== %s\n' "$*"; }

step "Installing what is missing"
"$root/tools/install_dependencies.sh"

step "Building"
cd "$root"
cmake --preset cpu >/dev/null
cmake --build --preset cpu --target kvcal
kvcal=$root/build/cpu/kvcal

step "Making the model"
model=$root/build/demo/SmolLM2-135M-Instruct
"$root/tools/fetch_demo_model.sh" "$model"

output=$root/build/demo/calibrated
started=$SECONDS
step "Calibrating on $samples conversations"
"$kvcal" calibrate "$model" --recipe recipes/fp8_kv_tensor.yaml --dataset datasets/calibration.jsonl \
  --num-samples "$samples" --format compressed-tensors --format tgi --format scales-json \
  --output "$output" --overwrite

step "What the checkpoint holds now"
"$kvcal" inspect "$output/compressed-tensors"

step "The same prompt with the 16-bit and the FP8 cache"
"$kvcal" generate "$output/compressed-tensors" --chat --prompt "What is the capital of France, and what is it known for?" \
  --max-new-tokens "$new_tokens" --compare

step "What FP8 does to the predictions, beside scale 1.0"
"$kvcal" eval "$output/compressed-tensors" --task kl --dataset datasets/evaluation.txt --num-samples "$windows" \
  --max-seq-length 512 --variant calibrated=fp8_e4m3:checkpoint --variant unit=fp8_e4m3:unit --texts 1 \
  --html "$root/build/demo/report.html" --overwrite

step "Where scales matter: the same function with outliers of 1024 in K"
"$kvcal" synth --from "$model" --outliers k:pairs=2,factor=1024 --output "$root/build/demo/outliers" --overwrite
"$kvcal" calibrate "$root/build/demo/outliers" --dataset datasets/calibration.jsonl --num-samples 8 --scales-only \
  --output "$root/build/demo/outliers-scales" --overwrite --quiet
"$kvcal" eval "$root/build/demo/outliers" --task kl --dataset datasets/evaluation.txt --num-samples 1 --max-seq-length 512 \
  --variant calibrated=fp8_e4m3:"$root/build/demo/outliers-scales" --variant unit=fp8_e4m3:unit

step "The same scales for ModelOpt's readers, and what vLLM would load"
"$kvcal" convert "$output/compressed-tensors" --format modelopt --output "$root/build/demo/modelopt" --overwrite
"$kvcal" verify "$root/build/demo/modelopt" --engine vllm

step "Done in $((SECONDS - started)) s after building"
cat <<END
  compressed-tensors (vLLM, SGLang, transformers): $output/compressed-tensors
  TGI:                                             $output/tgi
  kv_cache_scales.json (SGLang):                   $output/scales-json/kv_cache_scales.json
  ModelOpt (vLLM, SGLang):                         $root/build/demo/modelopt
  accuracy as a page:                              $root/build/demo/report.html
  how it was made:                                 $output/kvcal_manifest.json
  try:  $kvcal generate $output/compressed-tensors --chat --prompt "..." --compare
END

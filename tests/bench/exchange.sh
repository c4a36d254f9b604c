#!/usr/bin/env bash
# Ranks that read each layer once together (--weights exchange) against a process alone, on a model of random weights: what each
# reads, what it holds, that the bytes are the same. The passes over the model count; rank 0 then hashes the files for the manifest,
# as a process alone does. Exit 1 where a rank reads more than its part of the layers by 5 %, where all
# together fetch files more than once, or where a rank's peak passes that of a process alone by 15 % and what MPI takes.
#   tests/bench/exchange.sh [--ranks "2 3"] [--layers 8] [--hidden 512] [--intermediate 1536] [--heads 8] [--kv-heads 2] [--vocab 1024]
#     [--samples 4] [--tokens 32] [--mpi-megabytes 24] [--drop-caches] [--folder FOLDER]
# KVCAL names the program, MPIRUN what starts ranks. --folder keeps the model for the next time; --drop-caches: before each run
# the page cache is emptied, so that what comes from storage counts (needs root).
set -euo pipefail
ranks="2 3" layers=8 hidden=512 intermediate=1536 heads=8 kv_heads=2 vocab=1024 samples=4 tokens=32 mpi_megabytes=24
drop_caches=false folder=
while [[ $# -gt 0 ]]; do
  case $1 in
    --ranks | --layers | --hidden | --intermediate | --heads | --kv-heads | --vocab | --samples | --tokens | --mpi-megabytes | --folder)
      name=${1#--}
      printf -v "${name//-/_}" %s "${2:?"$1 takes a value"}"
      shift 2
      ;;
    --drop-caches) drop_caches=true && shift ;;
    *) echo "error: unknown argument '$1'" >&2 && exit 2 ;;
  esac
done
source "$(dirname "${BASH_SOURCE[0]}")/ranks_support.sh"
model=${folder:-$scratch}/model
failed=0

fail() {
  echo "FAILED: $*"
  failed=$((failed + 1))
}

make_model() {
  [[ -d $model ]] && return
  mkdir -p "$(dirname "$model")"
  cat >"$scratch/config.json" <<JSON
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": $hidden, "intermediate_size": $intermediate,
 "num_hidden_layers": $layers, "num_attention_heads": $heads, "num_key_value_heads": $kv_heads, "vocab_size": $vocab,
 "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
 "tie_word_embeddings": false, "torch_dtype": "bfloat16"}
JSON
  "$KVCAL" synth --config "$scratch/config.json" --seed 1 "$model" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
}

make_text() {
  for sample in $(seq "$samples"); do
    printf '{"input_ids": [%s]}\n' "$(awk -v s="$sample" -v n="$tokens" -v v="$vocab" \
      'BEGIN { for (i = 0; i < n; i++) printf "%s%d", i ? ", " : "", (s * 7919 + i * 104729) % v }')"
  done >"$scratch/text.jsonl"
}

# Bytes of the tensors of all layers, as the headers of the files say.
layer_bytes() {
  python3 - "$model" <<'PY'
import glob, json, struct, sys
total = 0
for name in glob.glob(sys.argv[1] + "/*.safetensors"):
    with open(name, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    total += sum(t["data_offsets"][1] - t["data_offsets"][0] for k, t in header.items() if k.startswith("model.layers."))
print(total)
PY
}

# peak_of RANKS NAME: MB of the largest process of a calibration with --weights $weights.
peak_of() {
  if $drop_caches; then sync && echo 3 >/proc/sys/vm/drop_caches; fi
  measured "$1" "$2" "$model" --dataset "$scratch/text.jsonl" --max-seq-length 8192 ${weights:+--weights "$weights"} | cut -d ' ' -f 2
}

# The same command on as many ranks; --weights is $weights.
check_ranks() {
  local count=$1 name=$weights-$1 rows most
  most=$(peak_of "$count" "$name")
  diff -r "$scratch/alone" "$scratch/$name" >"$scratch/difference" || fail "$name gives other bytes: $(head -3 "$scratch/difference")"
  rows=$(told "$name" 1 6 7 9)  # rank, MB of layers read, MB from storage, peak MB
  [[ $(wc -l <<<"$rows") -eq $count ]] || fail "$name: found $(wc -l <<<"$rows") rows, expected $count"
  awk -v weights="$weights" -v count="$count" -v most="$most" '{ printf "| %s | %d | %d | %.1f | %.1f | %.1f | %s |\n", weights, count, $1, $2, $3, $4,
    NR == 1 ? sprintf("%.1f", most) : "" }' <<<"$rows"
  judge "$name" "$count" "$most" <<<"$rows" || failed=$((failed + 1))
}

judge() {
  awk -v name="$1" -v count="$2" -v most="$3" -v layers="$layers_mb" -v alone="$alone_mb" -v mpi="$mpi_megabytes" -v files="$files_mb" '
    { all += $2; storage += $3 }
    name ~ /^exchange/ && $2 > layers / count * 1.05 {
      printf "FAILED: %s: rank %d reads %.1f MB of layers, expected at most %.1f\n", name, $1, $2, layers / count * 1.05; bad = 1 }
    END {
      if (name ~ /^exchange/ && all < layers * 0.995) { printf "FAILED: %s: only %.1f of %.1f MB of layers are read\n", name, all, layers; bad = 1 }
      if (most > alone * 1.15 + mpi) { printf "FAILED: %s: a rank holds %.1f MB, a process alone %.1f\n", name, most, alone; bad = 1 }
      if (storage > files * 1.05 + 16) { printf "FAILED: %s: %.1f MB come from storage, the files have %.1f\n", name, storage, files; bad = 1 }
      exit bad }'
}

make_model
make_text
layers_mb=$(awk -v bytes="$(layer_bytes)" 'BEGIN { print bytes / 1e6 }')
files_mb=$(stat -c %s "$model"/*.safetensors | awk '{ all += $1 } END { print all / 1e6 }')
alone_mb=$(weights='' peak_of 0 alone)
printf 'layers: %.1f MB; files: %.1f MB; %d samples of %d tokens; a process alone holds %.1f MB\n\n' "$layers_mb" "$files_mb" "$samples" \
  "$tokens" "$alone_mb"
echo "| weights | ranks | rank | MB of layers read | MB from storage | peak MB of the passes | of the whole run, largest rank |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
for count in $ranks; do
  for weights in exchange shared; do check_ranks "$count"; done
done
[[ $failed -eq 0 ]] && echo && echo "each rank reads its part, holds what a process alone holds, and all give its bytes"
exit $((failed > 0))

#!/usr/bin/env bash
# What each of N ranks has to do, as a table: chats of uneven length, divided over 1, 2, ... ranks of one thread. Exit 1 where
# tokens or FLOP of a rank are further from even than --limit percent, or where the outputs are not the same bytes.
#   tests/bench/ranks_work.sh MODEL DATASET [--ranks "2 4"] [--samples 64] [--limit 5]
# KVCAL names the program, MPIRUN what starts ranks. Processor seconds are those of the passes over the model, which also hold what each
# rank does whole: packing every layer. On fewer processors than ranks they tell a rank's work, the clock does not. What one
# process alone takes counts from its start.
set -euo pipefail
[[ $# -ge 2 ]] || { sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
model=$1 dataset=$2 ranks="2 4" samples=64 limit=5
shift 2
while [[ $# -gt 0 ]]; do
  case $1 in
    --ranks | --samples | --limit) printf -v "${1#--}" %s "${2:?"$1 takes a value"}" && shift 2 ;;
    *) echo "error: unknown argument '$1'" >&2 && exit 2 ;;
  esac
done
source "$(dirname "${BASH_SOURCE[0]}")/ranks_support.sh"

calibrate() { # calibrate RANKS NAME
  measured "$@" "$model" --dataset "$dataset" --num-samples "$samples"
}

rows() {
  told "$1" 1 3 4 5 8 9  # rank, samples, tokens, TFLOP, processor seconds, peak MB
}

failed=0
read -r seconds peak < <(calibrate 0 alone)
printed=false
for count in $ranks; do
  calibrate "$count" "$count" >/dev/null
  if ! $printed; then
    echo "| ranks | rank | chats | tokens | TFLOP | of an even share: tokens | FLOP | processor s | peak MB |"
    echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    rows "$count" | awk -v seconds="$seconds" -v peak="$peak" '{ chats += $2; tokens += $3; flop += $4 }
      END { printf "| 1 | 0 | %d | %d | %.4f | 100.0 %% | 100.0 %% | %.1f | %.0f |\n", chats, tokens, flop, seconds, peak }'
    printed=true
  fi
  rows "$count" | awk -v count="$count" -v limit="$limit" '
    { rank[NR] = $1; chats[NR] = $2; tokens[NR] = $3; flop[NR] = $4; seconds[NR] = $5; peak[NR] = $6; all += $3; work += $4 }
    function far(share) { return share > 1 + limit / 100 || share < 1 - limit / 100 }
    END {
      if (NR != count) { printf "FAILED: found %d rows of %d ranks\n", NR, count; exit 1 }
      for (i = 1; i <= NR; i++) {
        t = tokens[i] * count / all; f = flop[i] * count / work
        printf "| %d | %d | %d | %d | %.4f | %.1f %% | %.1f %% | %.1f | %.0f |\n", count, rank[i], chats[i], tokens[i], flop[i],
          100 * t, 100 * f, seconds[i], peak[i]
        if (far(t) || far(f)) { printf "FAILED: rank %d of %d is not within %s %% of even\n", rank[i], count, limit; bad = 1 }
      }
      exit bad }' || failed=1
  diff -r "$scratch/alone" "$scratch/$count" >"$scratch/difference" || {
    echo "FAILED: $count ranks give other bytes: $(head -3 "$scratch/difference")"
    failed=1
  }
done
exit $failed

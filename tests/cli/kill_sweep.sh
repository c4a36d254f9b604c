#!/usr/bin/env bash
# Kills a sweep (SIGKILL) at KILLS places from its start to its end, counted in cells that are done, some of them twice. The
# same command then goes on, and its results are the bytes of one that was never killed. No task outlives the sweep.
#   tests/cli/kill_sweep.sh [KILLS]       KVCAL names the program

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

KILLS=${1:-8}
LEAST_HITS=$((KILLS / 3))  # kills that must have met a sweep that had some cells done and others not
find_program ""
make_scratch
cd "$SCRATCH_ROOT" || exit 1

# Several models, each with an evaluation of its own, and text enough that they take their time.
make_sweep
for seed in 1 2 3; do "$KVCAL" synth --config model/config.json --seed $seed "model$seed" >/dev/null 2>&1 || exit 1; done
for i in $(seq 8); do printf '{"input_ids": [%s]}\n' "$(seq -s, "$i" $((i + 120)))"; done >text.jsonl
sed -i -e 's/models: .*/models: [model1, model2, model3]/' -e 's/kv_forward: \[quantized, exact\]/kv_forward: exact/' \
  -e 's/num_samples: 6/num_samples: 8/' sweep.yaml

sweep() {
  exec "$KVCAL" sweep sweep.yaml --output "$1" --device reference --threads 1 >sweep.table 2>sweep.log
}

for name in whole again; do
  (sweep $name) || { cat sweep.log; exit 1; }
  mv sweep.table $name.table
done
cmp -s whole/results.json again/results.json || fail "two whole runs differ"
rm -r again

# The check is of use only if it sees what it is for.
sed 's/"kl_mean": 0.0/"kl_mean": 0.1/' whole/results.json >changed.json
cmp -s whole/results.json changed.json && fail "a result that differs is not noticed"

is_same() {
  cmp -s whole/results.json out/results.json && cmp -s whole/results.csv out/results.csv && cmp -s whole.table sweep.table
}

cells() {
  find out/cells -name '*.json' 2>/dev/null | wc -l
}

has_cells() { [[ -d out ]] && (($(cells) >= $1)); }

# Its tasks are stopped before it dies, so none can end by itself: one that lives on is there for good.
kill_at() {  # CELLS
  (sweep out) &
  local pid=$!
  step_until $pid has_cells "$1"
  local task early=()
  for task in $(ours '--task'); do
    kill -STOP "$task" 2>/dev/null
    grep -qs /model "/proc/$task/maps" || early+=("$task")
  done
  kill -9 $pid 2>/dev/null
  wait $pid 2>/dev/null
  # A task that has not mapped a model may not have asked yet to end with the sweep: it must see for itself that its parent
  # is gone.
  [[ ${#early[@]} -eq 0 ]] || kill -CONT "${early[@]}" 2>/dev/null
  await $$ none_of_ours '--task' || fail "killed at $1 cells: a task lives on: $(ours '--task')"
  ours '--task' | xargs -r kill -9 2>/dev/null
}

# A task whose parent ended before the task could ask to end with it: no process is its own parent.
(exec "$KVCAL" sweep sweep.yaml --output orphan --task any --parent "$BASHPID" 2>orphan.log) &
wait $! 2>/dev/null
status=$?
[[ $status -eq 137 ]] || fail "a task without its parent ends with $status, expected 137: $(<orphan.log)"

hits=0
all_cells=$(find whole/cells -name '*.json' | wc -l)
for ((i = 0; i < KILLS; i++)); do
  rm -rf out
  goal=$((all_cells * i / (KILLS - 1)))
  kill_at "$goal"
  found=$(cells)
  ((i % 3 != 2)) || kill_at $((found + 1))  # once more, early in what is left
  ((found > 0 && found < all_cells)) && hits=$((hits + 1))
  (sweep out) || fail "killed at $goal cells: the run that follows fails: $(<sweep.log)"
  is_same || fail "killed at $goal cells: the results differ"
  [[ -z $(find out -name '.*.partial-*') ]] || fail "killed at $goal cells: $(find out -name '.*.partial-*') is left"
  echo "killed at $goal cells: $found of $all_cells cells were done"
done

echo "$KILLS kills: $hits with some cells done; $failed checks failed"
[[ $hits -ge $LEAST_HITS ]] || fail "only $hits of $KILLS kills met a sweep that had begun, at least $LEAST_HITS are needed"
[[ $failed -eq 0 ]]

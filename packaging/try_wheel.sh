#!/usr/bin/env bash
# Installs the wheel in a virtual environment of an empty Debian 12 that has Python and nothing else, with no network for pip,
# and runs its program and its module. Needs root, debootstrap and a Debian mirror.
#   packaging/try_wheel.sh kvcal-*.whl      KVCAL_CHROOT_BASE: a folder that keeps the empty Debian for the next time
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
[[ ${KVCAL_UNSHARED:-} ]] || KVCAL_UNSHARED=1 exec unshare --mount "$0" "$@"
wheel=$(realpath "${1:?usage: try_wheel.sh WHEEL}")
debian=$(mktemp -d)
trap 'umount "$debian/proc" 2>/dev/null || true; rm -rf --one-file-system "$debian"' EXIT
make_debian "$debian"
make_model "$debian/srv/model"
cp "$wheel" "$debian/srv"
python3 -m zipfile -e "$wheel" "$debian/srv/unpacked"
mkdir -p "$debian"/srv/tests/{cli,fixtures/models}
cp -r "$SOURCE_FOLDER"/tests/cli/{hub,data} "$debian/srv/tests/cli"
cp -r "$SOURCE_FOLDER"/tests/fixtures/models/llama "$debian/srv/tests/fixtures/models"
cp "$SOURCE_FOLDER"/tests/python/sweep_notebook.py "$SOURCE_FOLDER"/tests/cli/data/small.jsonl "$debian/srv"
cp "$SOURCE_FOLDER"/tests/fixtures/data/same/input_ids/zstd_groups.parquet "$debian/srv/ids.parquet"
for file in "$debian"/srv/unpacked/kvcal/{bin/kvcal,_kvcal.abi3.so} "$debian"/srv/unpacked/kvcal.libs/*; do refuse_machine_paths "$file"; done
cat >"$debian/srv/try.sh" <<'TRY'
set -Eeuo pipefail
trap 'echo "failed: $BASH_COMMAND"' ERR
refused() { if "$@" >log 2>&1; then echo "not refused: $*"; exit 1; fi; }
cd /srv
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3-venv >log 2>&1 || { cat log; exit 1; }
python3 -m venv env
env/bin/pip install -q --no-index --no-deps kvcal-*.whl
export PATH=/srv/env/bin:$PATH
kvcal --version
python3 -m kvcal --version --json | tee facts
grep -q '"mpi": false' facts
grep -q '"arrow": true' facts
grep -q '"curl": true' facts
KVCAL=/srv/env/bin/kvcal env/bin/python tests/cli/hub/check_hub.py download
test -s env/share/man/man1/kvcal-calibrate.1
test -s env/share/bash-completion/completions/kvcal
kvcal calibrate model --recipe env/share/kvcal/recipes/fp8_kv_tensor.yaml --dataset env/share/kvcal/datasets/calibration.jsonl \
  --num-samples 4 --max-seq-length 64 --output out >log 2>&1 || { cat log; exit 1; }
kvcal generate out --prompt "The sea was calm" --max-new-tokens 12 >/dev/null
status=0
kvcal inspect nothing 2>/dev/null || status=$?
[[ $status -eq 1 ]] || { echo "found exit $status, expected 1"; exit 1; }
again=(calibrate model --recipe env/share/kvcal/recipes/fp8_kv_tensor.yaml --output none)
refused env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 kvcal "${again[@]}" --dataset env/share/kvcal/datasets/calibration.jsonl
grep -q "built without MPI, as the wheel is" log
kvcal calibrate model --dataset ids.parquet --output of-parquet >log 2>&1 || { cat log; exit 1; }
env/bin/python - <<'PYTHON'
import filecmp
import kvcal

told = []
out = kvcal.calibrate("model", output="of-call", dataset="ids.parquet", progress=lambda *event: told.append(event))
assert told and filecmp.cmp("of-call/model.safetensors", "of-parquet/model.safetensors", shallow=False)
assert kvcal.verify(out.path, engine="vllm").holding == ["vllm"]
try:
    kvcal.inspect("nothing")
except kvcal.Error as error:
    print(error)
else:
    raise SystemExit("a model that is not there is no error")
PYTHON
MODEL=/srv/model TEXTS=/srv/small.jsonl env/bin/python sweep_notebook.py
kvcal generate model --prompt "The sea was calm" --device reference --max-new-tokens 12 | tee text
cmp text model.expected
env/bin/pip uninstall -q -y kvcal
[[ ! -e env/bin/kvcal && ! -e env/share/kvcal/recipes/fp8_kv_tensor.yaml ]] || { echo "files are left behind"; exit 1; }
TRY
in_debian "$debian" bash /srv/try.sh
echo "the wheel installs, runs and leaves nothing behind"

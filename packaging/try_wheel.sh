#!/usr/bin/env bash
# Installs the wheel in a virtual environment of an empty Debian 12 that has Python and nothing else, with no network for pip,
# and runs it. Needs root, debootstrap and a Debian mirror.
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
for file in "$debian"/srv/unpacked/kvcal/bin/kvcal "$debian"/srv/unpacked/kvcal.libs/*; do refuse_machine_paths "$file"; done
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
grep -q '"arrow": false' facts
grep -q '"curl": false' facts
refused kvcal inspect owner/name
grep -q "hf download owner/name" log
test -s env/share/man/man1/kvcal-calibrate.1
test -s env/share/bash-completion/completions/kvcal
kvcal calibrate model --recipe env/share/kvcal/recipes/fp8_kv_tensor.yaml --dataset env/share/kvcal/datasets/calibration.jsonl \
  --num-calibration-samples 4 --max-seq-length 64 --output out >log 2>&1 || { cat log; exit 1; }
kvcal generate out --prompt "The sea was calm" --max-new-tokens 12 >/dev/null
status=0
kvcal inspect nothing 2>/dev/null || status=$?
[[ $status -eq 1 ]] || { echo "found exit $status, expected 1"; exit 1; }
again=(calibrate model --recipe env/share/kvcal/recipes/fp8_kv_tensor.yaml --output none)
refused env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 kvcal "${again[@]}" --dataset env/share/kvcal/datasets/calibration.jsonl
grep -q "built without MPI, as the wheel is" log
printf 'PAR1\0\0\0\0PAR1' >data.parquet
refused kvcal "${again[@]}" --dataset data.parquet
grep -q "build kvcal with Apache Arrow" log
kvcal generate model --prompt "The sea was calm" --device reference --max-new-tokens 12 | tee text
cmp text model.expected
env/bin/pip uninstall -q -y kvcal
[[ ! -e env/bin/kvcal && ! -e env/share/kvcal/recipes/fp8_kv_tensor.yaml ]] || { echo "files are left behind"; exit 1; }
TRY
in_debian "$debian" bash /srv/try.sh
echo "the wheel installs, runs and leaves nothing behind"

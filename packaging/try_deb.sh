#!/usr/bin/env bash
# Installs the package in an empty Debian 12 and runs what it brings; then removes it, and nothing may be left. Needs root,
# debootstrap and a Debian mirror.
#   packaging/try_deb.sh kvcal_*.deb      KVCAL_CHROOT_BASE: a folder that keeps the empty Debian for the next time
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
[[ ${KVCAL_UNSHARED:-} ]] || KVCAL_UNSHARED=1 exec unshare --mount "$0" "$@"
package=$(realpath "${1:?usage: try_deb.sh PACKAGE}")
debian=$(mktemp -d)
trap 'umount "$debian/proc" 2>/dev/null || true; rm -rf --one-file-system "$debian"' EXIT
make_debian "$debian"
make_model "$debian/srv/model"
cp "$package" "$debian/srv/kvcal.deb"
cp "$SOURCE_FOLDER/tests/fixtures/data/same/text/large.parquet" "$debian/srv/texts.parquet"
dpkg-deb -x "$package" "$debian/srv/unpacked"
refuse_machine_paths "$debian/srv/unpacked/usr/bin/kvcal"
cat >"$debian/srv/try.sh" <<'TRY'
set -Eeuo pipefail
trap 'echo "failed: $BASH_COMMAND"' ERR
refused() { if "$@" >log 2>&1; then echo "not refused: $*"; exit 1; fi; }
cd /srv
apt-get update -qq
apt-get install -y -qq --no-install-recommends ./kvcal.deb >log 2>&1 || { cat log; exit 1; }
kvcal --version
kvcal --version --json | tee facts
grep -q '"mpi": true' facts
grep -q '"arrow": true' facts
grep -q '"curl": true' facts
refused env HF_ENDPOINT=http://127.0.0.1:1 kvcal inspect owner/name
grep -q "cannot reach http://127.0.0.1:1" log
for file in recipes/fp8_kv_tensor.yaml datasets/calibration.jsonl sweeps/kv_observers.yaml; do test -s /usr/share/kvcal/$file; done
test -s /usr/share/bash-completion/completions/kvcal
dpkg -L kvcal | sort >files
for page in $(kvcal man --list); do grep -qx "/usr/share/man/man1/$page.1.gz" files; done
kvcal calibrate model --recipe /usr/share/kvcal/recipes/fp8_kv_tensor.yaml --dataset /usr/share/kvcal/datasets/calibration.jsonl \
  --num-samples 4 --max-seq-length 64 --reproducible --output out >log 2>&1 || { cat log; exit 1; }
apt-get install -y -qq --no-install-recommends openmpi-bin >log 2>&1 || { cat log; exit 1; }
mpirun --allow-run-as-root --oversubscribe -n 2 \
  kvcal calibrate model --recipe /usr/share/kvcal/recipes/fp8_kv_tensor.yaml --dataset /usr/share/kvcal/datasets/calibration.jsonl \
  --num-samples 4 --max-seq-length 64 --reproducible --output ranks >log 2>&1 || { cat log; exit 1; }
diff -r out ranks
kvcal calibrate model --recipe /usr/share/kvcal/recipes/fp8_kv_tensor.yaml --dataset texts.parquet \
  --num-samples 4 --max-seq-length 64 --output parquet >log 2>&1 || { cat log; exit 1; }
kvcal generate out --prompt "The sea was calm" --max-new-tokens 12 >/dev/null
kvcal synth --config model/config.json --seed 1 random
kvcal generate model --prompt "The sea was calm" --device reference --max-new-tokens 12 | tee text
cmp text model.expected
apt-get remove -y -qq kvcal >log 2>&1 || { cat log; exit 1; }
while read -r file; do [[ -d $file || ! -e $file ]] || { echo "left behind: $file"; exit 1; }; done <files
[[ ! -e /usr/share/kvcal ]] || { echo "left behind: /usr/share/kvcal"; exit 1; }
TRY
in_debian "$debian" bash /srv/try.sh
echo "the package installs, runs and leaves nothing behind"

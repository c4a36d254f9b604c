#!/usr/bin/env bash
# Builds the wheel, puts the libraries it needs into it and prints its path. It runs where the C library is as new as here;
# auditwheel checks that.
#   packaging/wheel.sh [OUTPUT_FOLDER]      default: build/packages; KVCAL_CMAKE_ARGS: more for cmake
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
output=$(mkdir -p "${1:-$SOURCE_FOLDER/build/packages}" && cd "${1:-$SOURCE_FOLDER/build/packages}" && pwd)
venv=$SOURCE_FOLDER/build/wheel-venv
glibc=$(ldd --version | sed -nE '1s/.* ([0-9]+)\.([0-9]+)$/\1_\2/p')
set_source_date
[[ -x $venv/bin/auditwheel ]] || {
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q -r "$SOURCE_FOLDER/packaging/wheel_tools.txt" >&2
}
"$SOURCE_FOLDER/tools/install_arrow.sh" >&2
plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT
export CMAKE_ARGS="${KVCAL_CMAKE_ARGS:-} -DKVCAL_COMMIT=$(commit_of_source)"
export PATH=$venv/bin:$PATH
(umask 022 && "$venv/bin/python" -m build --no-isolation --wheel --outdir "$plain" "$SOURCE_FOLDER" \
  ${KVCAL_WHEEL_BUILD:+-Cbuild-dir="$KVCAL_WHEEL_BUILD"} >&2)
auditwheel repair --strip --plat "manylinux_${glibc}_$(uname -m)" -w "$output" "$plain"/kvcal-*.whl >&2
ls "$output"/kvcal-*.whl

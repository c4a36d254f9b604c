#!/usr/bin/env bash
# Builds the Debian package and prints its path. Its dependencies are found by dpkg-shlibdeps, so it fits the release it
# is built on.
#   packaging/deb.sh [OUTPUT_FOLDER]      default: build/packages; KVCAL_CMAKE_ARGS: more for cmake
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
output=$(mkdir -p "${1:-$SOURCE_FOLDER/build/packages}" && cd "${1:-$SOURCE_FOLDER/build/packages}" && pwd)
build=${KVCAL_DEB_BUILD:-$SOURCE_FOLDER/build/deb}
set_source_date
"$SOURCE_FOLDER/tools/install_arrow.sh" >&2
# shellcheck disable=SC2086  # several arguments
cmake -S "$SOURCE_FOLDER" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DKVCAL_TESTS=OFF \
  -DKVCAL_UNITY=ON -DKVCAL_MPI=ON -DKVCAL_ARROW=ON -DKVCAL_BUNDLE_ARROW=ON -DKVCAL_CURL=ON -DKVCAL_PYTHON=OFF \
  "-DKVCAL_COMMIT=$(commit_of_source)" ${KVCAL_CMAKE_ARGS:-} >&2
cmake --build "$build" >&2
(umask 022 && cd "$build" && cpack -G DEB -B "$output" >&2)
rm -rf "$output/_CPack_Packages"
ls "$output"/kvcal_*.deb

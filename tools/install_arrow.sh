#!/usr/bin/env bash
# Puts Apache Arrow's C++ library, which Debian has no package of, into build/arrow-venv: the headers and libraries of
# the wheel pyarrow (Apache-2.0), unless they are there. CMake looks for them there (cmake/arrow.cmake).
set -euo pipefail
version=26.0.1
folder=$(cd "$(dirname "$0")/.." && pwd)/build/arrow-venv

installed=("$folder"/lib/python3*/site-packages/pyarrow-"$version".dist-info)
[[ -d ${installed[0]} ]] && exit 0

echo "installing: pyarrow $version into $folder"
rm -rf "$folder"
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps "pyarrow==$version"

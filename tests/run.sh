#!/usr/bin/env bash
# Installs what is missing, builds with warnings as errors, and runs tests.
#   tests/run.sh              everything, by the preset cpu
#   tests/run.sh --quick      without the tests labelled slow
#   tests/run.sh asan         everything under address and undefined behaviour sanitizers
#   tests/run.sh FILTER       only the tests whose names match the regular expression FILTER, and only the programs that
#                             they need, by the preset dev: one changed file is compiled alone. `ctest -N` lists the names,
#                             such as forward.kv_scales for tests/forward/kv_scales_test.cc
# A preset (cpu, asan, dev) may stand before --quick and FILTER.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

preset='' filter='' options=()
for argument; do
  case $argument in
    cpu | asan | dev) preset=$argument ;;
    --quick) options+=(--label-exclude '^slow$') ;;
    -*) echo "error: unknown option '$argument', expected --quick" >&2 && exit 2 ;;
    *) filter=$argument options+=(--tests-regex "$argument") ;;
  esac
done
: "${preset:=${filter:+dev}}" "${preset:=cpu}"
build=$root/build/$preset

# Words of the chosen tests' commands and environments that name what the build makes. A test of the whole build folder
# needs all.
needed_targets() {
  sed '/^Test project /d' <<<"$chosen" | grep -oE "$build(/[^\" ;]*)?" | sort -u |
    sed -e "s#^$build/##" -e "s#^$build\$#all#" |
    grep -xFf <(echo all; ninja -C "$build" -t targets all | sed -n 's/: [^:]*$//p')
}

if [[ -z $filter || ! -f $build/build.ninja ]]; then
  tools/install_dependencies.sh
  tools/install_arrow.sh
  cmake --preset "$preset" -DKVCAL_ARROW=ON >/dev/null
fi
chosen=$(ctest --preset "$preset" --show-only --verbose "${options[@]}")
[[ $chosen != *KVCAL_DEMO_MODEL* ]] || tools/fetch_demo_model.sh build/demo/SmolLM2-135M-Instruct
targets=()
if [[ -n $filter ]]; then
  mapfile -t targets < <(needed_targets)
  # A new file of tests is known to ctest behind the next configuration only, which building anything does.
  [[ ${#targets[@]} -gt 0 ]] || targets=(build.ninja)
fi
cmake --build --preset "$preset" ${targets[@]:+--target "${targets[@]}"}
# Outputs are flushed to the disk as they are written, which thousands of small models need not wait for: scratch folders are
# in memory where it has room for the largest of them.
memory=/dev/shm
if [[ -z ${TMPDIR:-} && -w $memory && $(df --output=avail --block-size=1G "$memory" | tail -n 1) -ge 8 ]]; then
  export TMPDIR=$memory
fi
# One more than there are processors, since some tests wait for daemons and for time limits.
ctest --preset "$preset" --no-tests=error --parallel $(($(nproc) + 1)) "${options[@]}"

#!/usr/bin/env bash
# tools/gpu_check.sh with programs that only pretend: what it says of tests that pass, fail, check nothing or have no time, and
# that it stops where the matrix library is missing.
# usage: check_script.sh
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/pack" "$scratch/path"

program() {  # NAME, its text at standard input
  { echo '#!/usr/bin/env bash'; cat; } >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}
program gpu_device <<'END'
if [[ ${KVCAL_GPU_LIBRARY_PATH:-} == *environment ]]; then echo 'cuda:0 (pretended, cuBLASLt)'; else echo 'cuda:0 (pretended, own matmul)'; fi
END
program test_gpu <<'END'
[[ $KVCAL_TEST_BACKENDS == gpu && $KVCAL_REQUIRE_GPU == 1 ]] || exit 99
case $* in
  *'#matmul_test]'*) echo 'matmul_test.cc:7: failed: 1 == 2'; echo 'Failed 1 test case, failed 1 assertion.'; exit 1 ;;
  *'#norm_test]'*) echo 'Passed 2 test cases (no assertions).' ;;
  *) echo 'Passed all 2 test cases with 11 assertions.' ;;
esac
END
for name in device_kernels device_forward kvcal; do program "$name" <<<'echo head; echo 12 TFLOP/s; exit 3'; done
echo pretended >"$scratch/bin/build.txt"
tar -C "$scratch/bin" -cf - . | zstd --quiet -o "$scratch/pack/kvcal_gpu.tar.zst"
cc -O2 -Wall -Wextra -Werror -o "$scratch/pack/unzstd" "$root/tests/gpu/unzstd.c" -lzstd
printf '#!/bin/sh\necho "%s"\n' "$scratch/environment" >"$scratch/path/python3"
chmod +x "$scratch/path/python3"

check() {  # STATUS ARGUMENT...: its summary is $said
  local expected=$1 status=0
  shift
  env -u KVCAL_GPU_LIBRARY_PATH PATH="$scratch/path:$PATH" "$root/tools/gpu_check.sh" --packed "$scratch/pack" --results "$scratch/results" --small "$@" \
    >"$scratch/said" 2>&1 || status=$?
  said=$(<"$scratch/results/summary.txt")
  [[ $status -eq $expected ]] || fail "exit status $status, expected $expected"
}
fail() {
  printf 'error: %s; it said:\n' "$1" >&2
  cat "$scratch/said" >&2
  exit 1
}
says() { [[ $said == *"$1"* ]] || fail "nothing says '$1'"; }

check 0 --only calib,eval
says 'cuda:0 (pretended, cuBLASLt)'
says "KVCAL_GPU_LIBRARY_PATH=$scratch/environment"
says 'build: pretended'
says 'calib: 2 of 2 files of tests passed, 22 assertions'
[[ $(tail -n 1 "$scratch/said") == *'eval: '* ]] || fail 'the summary is not the end'

check 1 --only kernels
says '; FAILED (exit status): matmul_test(1) norm_test(no-assertions)'
says 'matmul_test.cc:7: failed: 1 == 2'

check 1 --only rates,calib
says 'rates: FAILED with exit status 3'
says '12 TFLOP/s'
says 'calib: 2 of 2'  # goes on

check 1 --only calib,rates --minutes 0
says 'calib: 0 of 2 files of tests passed, 0 assertions; CUT after 0 s: device_calibration_test images_test'
says 'rates: NOT RUN, no time was left'

printf '#!/bin/sh\necho /elsewhere\n' >"$scratch/path/python3"
check 1
says "STOPPED: the vendor's matrix library was not found"
[[ $said != *kernels:* ]] || fail 'it went on without the library'

# Calibrations by several ranks, measured. Sourced by exchange.sh and ranks_work.sh.

KVCAL=$(realpath "${KVCAL:?names the program}")
MPIRUN=${MPIRUN:-mpirun}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/recipes/fp8_kv_tensor.yaml
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# measured RANKS NAME OPTION...: calibrates by so many ranks, or by a process alone (0), each of one thread, into $scratch/NAME, and
# says what it says into NAME.log; prints processor seconds of all processes and the peak in MB of the largest one. mpirun
# carries standard output by itself, and would put results between the lines of the log.
measured() {
  local ranks=$1 name=$2 start=()
  shift 2
  ((ranks == 0)) || start=("$MPIRUN" --oversubscribe --bind-to none -n "$ranks")
  python3 - "$scratch/$name.log" "${start[@]}" "$KVCAL" calibrate "$@" --recipe "$recipe" --output "$scratch/$name" --scales-only \
    --reproducible --state none --threads 1 <<'PY'
import resource, subprocess, sys
with open(sys.argv[1], "w") as log:
    status = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=log).returncode
if status:
    sys.exit(f"error: {' '.join(sys.argv[2:])}: exit {status}\n" + open(sys.argv[1]).read())
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6)
PY
}

# The table that rank 0 tells, of these columns: told NAME COLUMN...
told() {
  awk -v columns="${*:2}" '$1 == "rank" && $2 == "host" { on = 1; next } on && !/^ *[0-9]+ / { if (seen) exit; next }  # a heading may have several rows
    on { seen = 1; n = split(columns, c, " "); for (i = 1; i <= n; i++) printf "%s%s", $c[i], i < n ? " " : "\n" }' "$scratch/$1.log"
}

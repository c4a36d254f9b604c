#!/bin/bash
# What lib/ranks does over a real MPI, on ranks of this machine: the same bytes on any number of them, and one message
# and the right exit status however a rank goes wrong. MPI_CHECK, MPI_ALONE: the programs; MPIRUN: the launcher.
set -u
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
options=()  # of the launcher
wrapper=()  # of the program

# start RANKS ARGS...: output in $scratch/out and $scratch/err, the status in $status.
start() {
  local ranks=$1
  shift
  local more=()
  "$MPIRUN" --version 2>/dev/null | grep -q "Open MPI\|OpenRTE" && more=(--oversubscribe)
  timeout -k 5 900 "$MPIRUN" "${more[@]}" "${options[@]}" -n "$ranks" "${wrapper[@]}" "$MPI_CHECK" "$@" >"$scratch/out" 2>"$scratch/err"
  status=$?
}

complain() {
  echo "FAILED: $*"
  sed 's/^/  /' "$scratch/out" "$scratch/err"
  failures=$((failures + 1))
}

# expect NAME STATUS MESSAGE: of the last start; MESSAGE is said once and nothing else is; empty: nothing.
expect() {
  local said
  said=$(grep -o 'error: .*' "$scratch/err")
  if [ "$status" != "$2" ]; then
    complain "$1: exit status $status, expected $2"
  elif [ "$said" != "${3:+error: $3}" ]; then
    complain "$1: said '$said', expected '${3:+error: $3}'"
  else
    echo "ok: $1"
  fi
}

host=${SLURMD_NODENAME:-$(hostname)}
first=
for ranks in 1 2 3 4; do
  start "$ranks" communicate
  expect "communication of $ranks" 0 ""
  for weights in shared exchange local; do
    start "$ranks" forward 60 1 $weights
    expect "forward pass of $ranks, weights $weights" 0 ""
    seen=$(cat "$scratch/out")
    [ "${#seen}" = 64 ] && [ "$seen" = "${first:=$seen}" ] || complain "$ranks ranks see '$seen', one sees '$first'"
  done
done

start 3 works
expect "a run that works" 0 ""
start 3 shared 600 2
expect "an error of one rank" 1 "rank 2 on host $host, layer 7: what all are told"
start 3 alone 600 2
expect "an error that the others do not wait for" 1 "rank 2 on host $host, layer 7: what only this rank knows"
start 3 alone 600 0
expect "the same of the first rank" 1 "what only this rank knows"
for rank in 1 0; do
  start 3 silent 15 $rank
  said=$(grep -o 'error: .*' "$scratch/err" | sed 's/ for \(1[5-9]\|[2-9][0-9]\|[0-9]\{3,\}\) s / for at least 15 s /')
  [ "$said" = "error: rank $rank on host $host has not answered for at least 15 s in layer 7" ] && [ "$status" = 1 ] &&
    echo "ok: rank $rank does not answer" || complain "rank $rank does not answer: status $status, said '$said'"
  start 3 killed 600 $rank
  said=$(grep -o 'error: .*' "$scratch/err")
  [ "$said" = "error: rank $rank on host $host died in layer 7" ] && [ "$status" != 0 ] &&
    echo "ok: rank $rank is killed" || complain "rank $rank is killed: status $status, said '$said'"
done
start 3 interrupted 600 1
expect "one rank is interrupted" 130 ""

# A rank that is stopped before it has found the others: they are inside MPI_Init.
cat >"$scratch/stopped" <<'STOPPED'
#!/bin/bash
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}" = "$STOPPED_RANK" ] && kill -STOP $$
exec "$@"
STOPPED
chmod +x "$scratch/stopped"
wrapper=("$scratch/stopped")
for rank in 1 0; do
  export STOPPED_RANK=$rank
  start 2 works 2
  expect "rank $rank is stopped at the start" 1 "a rank has not answered for 2 s in the start, and MPI waits for it"
done
wrapper=()
# Whatever MPI makes of a stranger's byte, the run ends.
start 3 stray 60
[ "$status" = 0 ] || [ "$status" = 1 ] && grep -q "sent a byte to [1-9]" "$scratch/err" && echo "ok: a stray byte" ||
  complain "a stray byte: status $status"

# Why lib/ranks keeps connections beside MPI: where the launcher does not end a job of which a rank dies (Open MPI's
# --enable-recovery, srun without --kill-on-bad-exit), the ranks that are left stay in MPI_Allreduce; with lib/ranks they
# end, and say which rank died.
if "$MPIRUN" --version | grep -q "Open MPI\|OpenRTE"; then
  options=(--enable-recovery)
  start 3 killed 600 1
  said=$(grep -o 'error: .*' "$scratch/err")
  [ "$said" = "error: rank 1 on host $host died in layer 7" ] && echo "ok: a death that the launcher lets pass" ||
    complain "a death that the launcher lets pass: status $status, said '$said'"
  timeout -k 5 900 "$MPIRUN" --oversubscribe --enable-recovery -n 3 "$MPI_ALONE" "$scratch" >"$scratch/out" 2>"$scratch/err" &
  launcher=$!
  until [ -e "$scratch/waits.0" ] && [ -e "$scratch/waits.2" ] || ! kill -0 $launcher 2>/dev/null; do sleep 0.05; done
  sleep 3  # A slower machine can only make them stay longer.
  if kill -0 $launcher 2>/dev/null && ! ls "$scratch"/ends.* >/dev/null 2>&1; then
    echo "ok: MPI alone waits for a dead rank"
  else
    complain "MPI alone notices a dead rank: lib/ranks/lifeline.h is no longer needed"
  fi
  kill $launcher
  wait $launcher
fi 2>/dev/null
exit $((failures > 0))

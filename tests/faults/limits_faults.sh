# Limits of the process: sizes of files, how many are open, memory.

for name in "${WRITERS[@]}" 'data: gzip'; do
  for kilobytes in 0 1 4 16 40 64 128; do
    case_of "RLIMIT_FSIZE (ulimit -f)" "$name" "ulimit -f $kilobytes" "File too large"
  done
done

for name in "${ALL[@]}"; do
  [[ -n ${COMMANDS[$name]:-} ]] || continue
  for files in 7 8 9 10 12 16; do
    case_of "RLIMIT_NOFILE (ulimit -n)" "$name" "ulimit -n $files" "Too many open files"
  done
done

# Kilobytes of addresses with which command $1 can do what it does, found by halving: least_memory NAME FROM TO
least_memory() {
  local from=$2 to=$3 middle
  while ((to - from > 4096)); do
    middle=$(((from + to) / 2))
    prepare "$1"
    if (ulimit -v $middle; kvcal_in "$1") >/dev/null 2>&1 </dev/null; then to=$middle; else from=$middle; fi
    # shellcheck disable=SC2086  # several words
    rm -rf ${OUTPUTS[$1]} ${KEEPS[$1]:-}
  done
  echo $to
}

# From what the system's loader and the libraries need to start (Arrow's allocator ends a process that it cannot set itself
# up in, at some sizes and not at smaller ones) up to what the command needs.
starts() { (ulimit -v "$1"; exec "$KVCAL" --version) >/dev/null 2>&1; }
least_to_start() {
  local from=0 to=1000000 middle above
  while ((to - from > 1024)); do
    middle=$(((from + to) / 2))
    if starts $middle; then to=$middle; else from=$middle; fi
  done
  for ((above = to; above < to + 24576; above += 1024)); do starts $above || to=$above; done
  echo $to
}

memory_cases() {
  local name start enough kilobytes places
  here=$SCRATCH_ROOT/memory ROOM=$here/room
  mkdir -p "$here"
  fresh_room
  start=$(($(least_to_start) + 1024))  # with less, nothing can be opened any more to clean up
  for name in calibrate 'calibrate --state' convert sweep synth inspect generate; do
    enough=$(least_memory "$name" "$start" 4000000)
    places=9
    # They need little more than their start: steps of 64 KiB, in one of which every library sets itself up.
    [[ $name != inspect && $name != convert ]] || places=$(((enough - start) / 64 + 1))
    for ((i = 0; i <= places; ++i)); do
      kilobytes=$((start + (enough - start) * i / places))
      case_of "RLIMIT_AS (ulimit -v)" "$name" "ulimit -v $kilobytes" "out of memory|Cannot allocate memory|no memory for|error allocating|cannot start a thread"
    done
  done
}
[[ -n $only && "RLIMIT_AS (ulimit -v)" != *"$only"* ]] || memory_cases

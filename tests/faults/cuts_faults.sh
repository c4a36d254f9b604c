# Files that become shorter while the program has them mapped, and folders that are moved away while it works.

# Not what the program writes itself: who changes that is no fault around it.
SIZES=(0 half -30) turn=0
for name in "${ALL[@]}"; do
  [[ -n ${COMMANDS[$name]:-} ]] || continue
  mapfile -t sources < <(grep '^mmap ' "$SCRATCH_ROOT/calls/$name" | grep -vnE '/room/(sub/)?(tmp|out|\.out|page|made)' | cut -d : -f 1)
  for place in $(places ${#sources[@]}); do
    case_of "a mapped file is cut: to nothing, to half, by 30 bytes" "$name" \
      "inject mmap ${sources[place - 1]} cut:${SIZES[turn++ % 3]}" ""
  done
done

vanishing() { # vanishing FAULT FOLDER COMMAND...: the folder is renamed at a call that writes
  local fault=$1 folder=$2 name count nth
  shift 2
  for name in "$@"; do
    count=$(grep -cE "^(write|pwrite|copy|open|rename) " "$SCRATCH_ROOT/calls/$name")
    for nth in $(places "$count"); do
      case_of "$fault" "$name" "inject write,pwrite,copy,open,rename $nth vanish:$folder /room/; fresh" "No such file|no such|Input/output|not there|was moved or removed|cannot|found neither"
    done
  done
}
vanishing "the model's folder is moved away" model calibrate 'calibrate --state' scales apply
vanishing "the output's folder is moved away" sub 'calibrate into a folder'
vanishing "the state's folder is moved away" state 'calibrate --state' 'calibrate --resume'

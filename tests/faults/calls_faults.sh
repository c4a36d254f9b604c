# Calls to the system that fail, one at a time or from one on, and calls that do less than they were asked.

# calls FAULT DO KINDS PATH SUFFIX COMMAND...: each of the command's calls of these kinds on a path that has PATH in turn;
# MOST_PLACES drawn ones where there are more. SUFFIX: +, where all later ones fail, too.
calls() {
  local fault=$1 do=$2 kinds=$3 path=$4 suffix=$5 name count nth
  shift 5
  for name in "$@"; do
    [[ -n ${COMMANDS[$name]:-} ]] || continue
    count=$(grep -cE "^(${kinds//,/|}) .*${path//./\\.}" "$SCRATCH_ROOT/calls/$name")
    for nth in $(places "$count"); do
      case_of "$fault" "$name" "inject $kinds $nth$suffix $do $path" ""
    done
  done
}

places() { # places COUNT: numbers from 1, MOST_PLACES of them at most
  if (($1 <= MOST_PLACES)); then
    seq "$1"
  else
    for ((i = 0; i < MOST_PLACES; i++)); do echo $((1 + ($1 * i + RANDOM % $1) / MOST_PLACES)); done
  fi
}

WRITERS=(calibrate 'calibrate --state' 'calibrate --save-statistics' scales convert 'convert --overwrite' apply sweep synth inspect)
ALL=("${NAMES[@]}")

calls "EIO: open" EIO open /room/ "" "${ALL[@]}"
calls "EIO: read" EIO read,pread /room/ "" "${ALL[@]}"
calls "EIO: map" EIO mmap /room/ "" "${ALL[@]}"
calls "EIO: look, list" EIO stat,list /room/ "" "${ALL[@]}"
# Where what cannot be looked at was once taken for absent.
unseen() { # unseen COMMAND PATH
  case_of "EIO: look, list" "$1" "inject stat 1+ EIO $2" "!Input/output error"
}
unseen inspect /room/scaled/hf_quant_config.json
unseen 'calibrate --save-statistics' hf_quant_config.json
unseen 'convert --overwrite' /room/out
unseen 'data: gzip' /room/tmp
calls "EIO: write, copy" EIO write,pwrite,copy /room/ "" "${ALL[@]}"
calls "EIO: flush" EIO fsync,fdatasync,close /room/ "" "${ALL[@]}"
calls "EIO: rename, make folder, cut, reserve" EIO rename,mkdir,ftruncate,fallocate /room/ "" "${ALL[@]}"
calls "ENOSPC from a call on" ENOSPC write,pwrite,copy,fallocate,mkdir /room/ + "${WRITERS[@]}" 'calibrate --resume' 'data: gzip'
calls "EDQUOT from a call on" EDQUOT write,pwrite,copy,fallocate,mkdir /room/ + calibrate 'calibrate --state' convert sweep
calls "EROFS from a call on" EROFS mkdir,rename,write /room/ + "${WRITERS[@]}"
calls "EMFILE: open, list" EMFILE open,list /room/ "" "${ALL[@]}"
calls "ENOMEM: map" ENOMEM mmap /room/ "" "${ALL[@]}"
for name in "${ALL[@]}"; do
  [[ -n ${COMMANDS[$name]:-} ]] || continue
  for seed in 1 2 3; do
    case_of "short reads and writes" "$name" "export KVCAL_FAULT_SEED=$seed; inject read,pread,write,pwrite,copy 0+ short" "nothing"
  done
  case_of "EINTR at every other call" "$name" "inject read,pread,write,pwrite,copy,open,fsync,fdatasync,ftruncate,fallocate 0+ interrupt" "nothing"
done

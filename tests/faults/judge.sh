# One run with a fault, and what is to be said of it. Sourced by run.sh.

declare -A REASONS=([EIO]="Input/output error" [ENOSPC]="No space left on device" [EROFS]="Read-only file system"
  [EDQUOT]="Disk quota exceeded" [EMFILE]="Too many open files" [EACCES]="Permission denied" [ENOMEM]="Cannot allocate memory"
  [ESTALE]="Stale file handle")

fresh_room() {
  cd "$here" || exit 1
  rm -rf "$ROOM" "$here/elsewhere"
  cp -r "$SCRATCH_ROOT/base" "$ROOM"
  cd "$ROOM" || exit 1
  export TMPDIR=$ROOM/tmp
}

# Every command once without a fault: what it makes, and which calls it needs for that.
run_without_faults() {
  local name file
  here=$SCRATCH_ROOT/quiet ROOM=$here/room
  mkdir "$here" "$SCRATCH_ROOT/whole" "$SCRATCH_ROOT/calls"
  mkdir "$SCRATCH_ROOT/old_output"
  echo precious >"$SCRATCH_ROOT/old_output/old"
  touch "$SCRATCH_ROOT/old_output/.kvcal-output"  # --overwrite replaces only what the program made
  fresh_room
  find . -type f -print0 | sort -z | xargs -0 sha256sum >"$SCRATCH_ROOT/sources"
  printf '%s\n' * >"$SCRATCH_ROOT/names"
  # A state to go on from: all layers are behind it, the output has no room.
  (inject write 0+ ENOSPC .out.partial; kvcal_in 'calibrate --state') >/dev/null 2>&1
  mv state "$SCRATCH_ROOT/kept_state" || fail "a run that fails behind its layers keeps no state"
  for name in "${NAMES[@]}"; do
    prepare "$name"
    (inject "" 0 ""; kvcal_in "$name") >"$here/stdout" 2>"$here/stderr" </dev/null || {
      [[ $name == *Parquet* ]] && grep -q Arrow "$here/stderr" && { unset "COMMANDS[$name]"; continue; }
      fail "'$name' without a fault: $(tail -n 3 "$here/stderr")"
    }
    mv "$here/log" "$SCRATCH_ROOT/calls/$name"
    mkdir "$SCRATCH_ROOT/whole/$name"
    for file in ${OUTPUTS[$name]}; do mv "$file" "$SCRATCH_ROOT/whole/$name/"; done
    # shellcheck disable=SC2086  # several words
    rm -rf ${KEEPS[$name]:-}
    [[ -n ${OUTPUTS[$name]} ]] || cp "$here/stdout" "$SCRATCH_ROOT/whole/$name/stdout"
    whats_left=$(what_is_left "$name")
    [[ -z $whats_left ]] || fail "'$name' without a fault leaves $whats_left"
  done
}

# Names that no run may leave.
what_is_left() { # what_is_left NAME
  local names=(* tmp/* sub/.[!.]*) known=" $(tr '\n' ' ' <"$SCRATCH_ROOT/names") ${OUTPUTS[$1]} ${KEEPS[$1]:-} " name
  for name in "${names[@]}"; do
    [[ $known == *" $name "* ]] || printf '%s ' "$name"
  done
}

# absent, old, whole or broken: what there is of the output $2 of command $1.
state_of() {
  local whole=$SCRATCH_ROOT/whole/$1/${2##*/} name
  [[ $2 != sub/out || ! -d sub.gone/out ]] || set -- "$1" sub.gone/out  # moved away when it was done
  if [[ ! -e $2 && ! -L $2 ]]; then
    echo absent
  elif [[ $1 == sweep ]]; then
    for name in results.json results.csv; do cmp -s "$2/$name" "$whole/$name" || { echo broken; return; }; done
    echo whole
  elif diff -r "$2" "$whole" >/dev/null 2>&1; then
    echo whole
  elif [[ $1 == *--overwrite ]] && diff -r "$2" "$SCRATCH_ROOT/old_output" >/dev/null 2>&1; then
    echo old
  else
    echo broken
  fi
}

# The message must name one of $2 (with | between them), or, where that is blank, the file of the call that failed and why.
is_named() { # is_named MESSAGE NAMED
  local one line path reason
  if [[ -n ${2// /} ]]; then
    while IFS= read -r one; do [[ $1 == *"$one"* ]] && return; done < <(tr '|' '\n' <<<"${2#!}")
    return 1
  fi
  while read -r _ _ line; do
    path=${line% (deleted)}
    [[ $1 == *"${path##*/}"* || $1 == *"$(basename "${path%/*}")"* ]] && is_reasoned "$1" && return
  done < <(grep '^FAULT' "$here/log")
  return 1
}

is_reasoned() {
  local reason=${REASONS[${KVCAL_FAULT_DO_SAID:-none}]:-}
  [[ -z $reason || $1 == *"$reason"* ]]
}

# Sources as they were, but for what the fault itself did to one of them.
changed_sources() {
  grep -v "  ${spoiled:-nothing}\$" "$SCRATCH_ROOT/sources" | sha256sum --check --quiet 2>/dev/null
}

# One case: runs it, writes "fault, command, verdict, message" as a line, and tells of what is wrong.
attempt() {
  local status message wrong="" file state spoiled="" whole=true verdict
  prepare "$command"
  rm -f "$here/log"
  KVCAL_FAULT_DO_SAID=$(sed -nE 's/.*inject [^ ]+ [^ ]+ ([A-Z]+).*/\1/p' <<<"$setup")
  # Through a pipe, since limits of files are for those of messages, too.
  (eval "$setup" && kvcal_in "$command") 2>&1 >"$here/stdout" </dev/null | cat >"$here/stderr"
  status=${PIPESTATUS[0]}
  message=$(grep -a -A 30 '^error: ' "$here/stderr")
  # A sweep says so where it keeps what became of its cells.
  [[ $message == *results.json* ]] && message+=$(cat out/results.json 2>/dev/null)
  if [[ $setup == *inject* ]] && ! grep -q '^FAULT' "$here/log" 2>/dev/null; then
    verdict="not reached"
    [[ $status -eq 0 ]] || wrong="exit status $status without a fault"
  fi
  [[ $setup == *cut:* ]] && spoiled=./$(sed -nE "s#^FAULT mmap $ROOM/##p" "$here/log" | head -1)
  [[ $setup == *spoils* ]] && spoiled=./$(sed -E 's/.*spoils ([^ ;]+).*/\1/' <<<"$setup")
  [[ $setup == *vanish:model* && -d model.gone ]] && mv model.gone model
  for file in ${OUTPUTS[$command]}; do
    state=$(state_of "$command" "$file")
    [[ $state == whole ]] || whole=false
    [[ $state == broken && -z ${KEEPS[$command]:-} ]] && wrong+="${wrong:+, }$file is not whole"
  done
  if [[ -z ${OUTPUTS[$command]} && $status -eq 0 ]] && ! cmp -s "$here/stdout" "$SCRATCH_ROOT/whole/$command/stdout"; then
    wrong+="${wrong:+, }it prints something else"
  fi
  case $status in
    0)
      $whole || wrong+="${wrong:+, }exit status 0 without a whole output"
      : "${verdict:=whole}"
      [[ $named != '!'* ]] || wrong+="${wrong:+, }it was to be refused"
      ;;
    1)
      : "${verdict:=refused}"
      [[ -n $message ]] || wrong+="${wrong:+, }no error message"
      is_named "$message" "$named" || wrong+="${wrong:+, }the message does not name file and reason"
      ;;
    137)
      if [[ $setup == *cgroup* ]]; then  # by the kernel, whose message it is
        verdict=refused message="killed by the kernel: out of memory"
        # shellcheck disable=SC2086  # several words
        if $whole; then verdict=whole message="" && rm -rf ${OUTPUTS[$command]}; fi
        go_on
      else
        wrong+="${wrong:+, }exit status 137, killed"
      fi
      ;;
    *) wrong+="${wrong:+, }exit status $status" ;;
  esac
  [[ -z $(changed_sources) ]] || wrong+="${wrong:+, }a source changed: $(changed_sources)"
  file=$(what_is_left "$command")
  # Where a hidden folder itself cannot be opened or listed, nobody can take it away; the next run does.
  [[ -z $file || -n $(grep -E '^FAULT (open|list) .*/\.out\.partial-[0-9]+(/|$)' "$here/log" 2>/dev/null) ]] ||
    wrong+="${wrong:+, }it leaves $file"
  [[ -n ${KEEPS[$command]:-} && -z $spoiled && $status -eq 1 && $setup != *mount* ]] && go_on
  conclude
  clean_up
}

# The same command again, without a fault: it must make the whole output.
go_on() {
  local file
  (kvcal_in "$command" "${AGAIN[$command]:-}") >"$here/stdout" 2>"$here/again" </dev/null ||
    wrong+="${wrong:+, }the run that goes on fails: $(tail -n 2 "$here/again")"
  for file in ${OUTPUTS[$command]}; do
    [[ $(state_of "$command" "$file") == whole ]] || wrong+="${wrong:+, }the run that goes on makes something else"
  done
  [[ $command == sweep || ! -e state ]] || wrong+="${wrong:+, }the run that goes on leaves its state"
}

conclude() {
  if [[ -n $wrong ]]; then
    verdict=wrong
    printf 'FAILED %s: %s (%s): %s; it said: %s\n' "$command" "$fault" "$setup" "$wrong" "$(tail -n 3 "$here/stderr" | cut -c 1-400)"
    grep '^FAULT' "$here/log" 2>/dev/null | head -2
  fi
  printf '%s\t%s\t%s\t%s\n' "$fault" "$command" "$verdict" "$(head -1 <<<"${message#error: }" | tr '\t' ' ' |
    sed -E -e "s#$ROOM/##g" -e 's#partial-[0-9]+#partial-PID#g')" >>"$here/verdicts"
}

clean_up() {
  if [[ -n $wrong || -n $spoiled || -n $(what_is_left "$command") || $setup == *fresh* ]]; then
    chmod -R u+w "$ROOM" 2>/dev/null
    fresh_room
    return
  fi
  # shellcheck disable=SC2086  # several words
  rm -rf ${OUTPUTS[$command]} ${KEEPS[$command]:-}
}

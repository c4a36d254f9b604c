# Runs to one target at the same time, and what a killed one leaves.

here=$SCRATCH_ROOT/locks ROOM=$here/room
mkdir -p "$here"
fresh_room

# start COMMAND HELD [MORE]: in the background; it waits before it writes to a path that has HELD until there is $here/go.
start() {
  (
    inject write,copy,rename 1+ "until:$here/go" "$2"
    # shellcheck disable=SC2086  # several words
    exec "$KVCAL" ${COMMANDS[$1]} ${3:-} >"$here/said.$BASHPID" 2>&1 </dev/null
  ) &
  pids+=($!)
}

# Whether a run waits for $here/go, which the library of faults logs.
is_held() { grep -qs '^FAULT' "$here/log"; }
only_one_runs() { (($(jobs -rp | wc -l) <= 1)); }

# One of them must win and all others be refused with a message that has NAMED and, where HOLDER is true, the winner's number;
# of many at the same moment one may come before the winner has written it down. Of two the second comes later.
contend() { # contend FAULT COMMAND COUNT HELD NAMED HOLDER [MORE]
  local fault=$1 command=$2 pids=() pid won="" lost=0 wrong="" i message=""
  is_wanted "$fault" || return 0
  fresh_room
  prepare "$command"
  rm -f "$here"/go "$here"/said.* "$here/log"
  for ((i = 0; i < $3; i++)); do
    start "$command" "$4" "${7:-}"
    (($3 > 2 || i > 0)) || await "${pids[0]}" is_held
  done
  await $$ only_one_runs
  touch "$here/go"
  for pid in "${pids[@]}"; do
    wait "$pid"
    case $? in
      0) won+=" $pid" ;;
      1) lost=$((lost + 1)) ;;
      *) wrong+="a run ends with a signal, " ;;
    esac
  done
  [[ $won =~ ^\ [0-9]+$ && $lost -eq $(($3 - 1)) ]] || wrong+="won:${won:- none}, refused: $lost of $3, "
  for pid in "${pids[@]}"; do
    [[ " $won" == *" $pid"* ]] && continue
    message=$(grep '^error: ' "$here/said.$pid")
    [[ $message == *out*"$5"* ]] || wrong+="the message does not say '$5': $message, "
    [[ $6 == false || $message == *"process${won} on "* || ($3 -gt 2 && $message == *"another process"*) ]] || wrong+="the message does not name process$won: $message, "
  done
  [[ $(state_of "$command" out) == whole ]] || wrong+="the output is $(state_of "$command" out), "
  [[ -z $(what_is_left "$command") ]] || wrong+="left: $(what_is_left "$command"), "
  note "$fault" "$command" "$(verdict_of "$wrong" refused)" "${message#error: }" "$wrong"
}

for count in 2 8; do
  for name in calibrate convert 'convert --overwrite' apply synth scales; do
    contend "$count runs to one target at once" "$name" $count .out.partial "is being written by" true
  done
  contend "$count runs to one target at once" sweep $count /out/ "is in use by another run" false
done

# A run that is killed while it writes leaves a lock and a hidden folder; the next one takes both over.
take_over() { # take_over COMMAND PATH
  local fault="a lock whose holder was killed" command=$1 pids=() i wrong=""
  is_wanted "$fault" || return 0
  fresh_room
  prepare "$command"
  rm -f "$here/go" "$here/log"
  start "$command" .out.partial
  await "${pids[0]}" is_held
  kill -9 "${pids[0]}"
  wait "${pids[0]}" 2>/dev/null
  [[ -e .out.kvcal-lock && -n $(echo .out.partial*) ]] || wrong+="the killed run leaves no lock or no hidden folder, "
  (kvcal_in "$command") >/dev/null 2>"$here/stderr" </dev/null || wrong+="the next one fails: $(tail -n 1 "$here/stderr"), "
  [[ $(state_of "$command" out) == whole ]] || wrong+="the next one's output is $(state_of "$command" out), "
  [[ -z $(what_is_left "$command") ]] || wrong+="left: $(what_is_left "$command"), "
  note "$fault" "$command" "$(verdict_of "$wrong" whole)" "" "$wrong"
}
for name in calibrate convert 'convert --overwrite' apply synth scales; do take_over "$name"; done

# Two calibrations of two outputs that keep their state in one folder.
share_state() {
  local fault="2 runs with one --state" command='calibrate --state' pids=() wrong="" message
  is_wanted "$fault" || return 0
  fresh_room
  rm -f "$here/go"
  start "$command" .out.partial
  await "${pids[0]}" test -e state/journal.bin
  # shellcheck disable=SC2086  # several words
  message=$("$KVCAL" ${COMMANDS[$command]/output out/output other} 2>&1 >/dev/null | grep '^error: ')
  [[ $message == *"state: another run keeps its state there"* ]] || wrong+="the second one is not refused: $message, "
  touch "$here/go"
  wait "${pids[0]}" || wrong+="the first one fails, "
  [[ $(state_of "$command" out) == whole ]] || wrong+="the output is not whole, "
  [[ -z $(what_is_left "$command") ]] || wrong+="left: $(what_is_left "$command"), "
  note "$fault" "$command" "$(verdict_of "$wrong" refused)" "${message#error: }" "$wrong"
}
share_state

# What was seen, counted, and checks of the checks. Sourced by run.sh.

declare -A GROUPS_OF

# What a scene, which judges itself, gives: note FAULT COMMAND VERDICT [MESSAGE [WRONG]]
note() {
  [[ -z ${5:-} ]] || echo "FAILED $2: $1: $5"
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$(head -1 <<<"${4:-}" | tr '\t' ' ')" >>"$SCRATCH_ROOT/verdicts"
}
verdict_of() { # verdict_of WRONG VERDICT
  if [[ -n $1 ]]; then echo wrong; else echo "$2"; fi
}
is_wanted() { [[ -z $only || $1 == *"$only"* ]]; }

# The table of docs/reliability.md, and how often the program did something else.
report() {
  local wrong places
  cut -f 1-3 "$SCRATCH_ROOT/verdicts" | sort | uniq -c >"$SCRATCH_ROOT/counts"
  wrong=$(grep -c $'\twrong\t' "$SCRATCH_ROOT/verdicts")
  failed=$((failed + wrong))
  places=$(grep -c -v -e $'\tnot reached\t' -e $'\tnot run\t' "$SCRATCH_ROOT/verdicts")
  echo "$places places: $(grep -c $'\trefused\t' "$SCRATCH_ROOT/verdicts") refused, $(grep -c $'\twhole\t' "$SCRATCH_ROOT/verdicts") whole;" \
    "$(grep -c $'\tnot reached\t' "$SCRATCH_ROOT/verdicts") not reached, $(grep -c $'\tnot run\t' "$SCRATCH_ROOT/verdicts") not run; $failed failed"
  [[ -z $table ]] || put_table "$table"
}

# Rows of the table are of commands that do alike.
group_of() {
  sed -E -e 's/^(calibrate|data:).*/calibrate/' -e 's/^(scales|convert|apply).*/scales, convert, apply/' \
    -e 's/^(synth|inspect)$/synth, inspect/' -e 's/^(eval|generate|verify)$/eval, generate, verify/' <<<"$1"
}

write_table() {
  local name fault verdict message
  while IFS=$'\t' read -r fault name verdict _; do
    printf '%s\t%s\t%s\n' "$fault" "${GROUPS_OF[$name]:=$(group_of "$name")}" "$verdict"
  done <"$SCRATCH_ROOT/verdicts" >"$SCRATCH_ROOT/rows"
  printf '| fault | command | places | refused with its error | whole | anything else |\n| --- | --- | ---: | ---: | ---: | ---: |\n'
  sort -s -t $'\t' -k 1,2 "$SCRATCH_ROOT/rows" | awk -F '\t' '
    $3 == "not reached" { next }
    { key = $1 " | " $2; if (!(key in seen)) { seen[key] = 1; order[++n] = key } count[key, $3]++ }
    END {
      for (i = 1; i <= n; i++) {
        key = order[i]; a = count[key, "refused"] + 0; b = count[key, "whole"] + 0; c = count[key, "wrong"] + 0
        if (count[key, "not run"]) printf "| %s | not run here | | | |\n", key
        else printf "| %s | %d | %d | %d | %d |\n", key, a + b + c, a, b, c
      }
    }'
  printf '\nOne message of each kind:\n\n| fault | message |\n| --- | --- |\n'
  sort -s -t $'\t' -k 1,1 "$SCRATCH_ROOT/verdicts" | awk -F '\t' '$3 == "refused" && $4 != "" && !($1 in seen) { seen[$1] = 1; print }' |
    while IFS=$'\t' read -r fault _ _ message; do
      printf '| %s | `%s` |\n' "$fault" "$(sed -e "s#$SCRATCH_ROOT/[a-z0-9]*/\\(room\\|elsewhere\\)/##g" -e 's#|#/#g' -e "s#\`#'#g" -e 's#\(process\) [0-9]* on [^ ;]*#\1 PID on HOST#' <<<"$message" | cut -c 1-200)"
    done
}

# Into the file $1: between its marks, if it has them.
put_table() {
  if ! grep -q '<!-- faults begin -->' "$1" 2>/dev/null; then
    write_table >"$1"
    return
  fi
  write_table >"$SCRATCH_ROOT/table"
  awk -v table="$SCRATCH_ROOT/table" '
    /<!-- faults begin -->/ { print; while ((getline line <table) > 0) print line; skips = 1 }
    /<!-- faults end -->/ { skips = 0 }
    !skips' "$1" >"$SCRATCH_ROOT/page"
  cat "$SCRATCH_ROOT/page" >"$1"
}

# The checks are of use only if they see what they are for: each of these must be found wrong.
check_the_checks() {
  local seen told
  here=$SCRATCH_ROOT/checks ROOM=$here/room
  mkdir "$here"
  fresh_room
  must_see() { # must_see TITLE COMMAND SETUP [NAMED]
    told=$(fault=$1 command=$2 setup=$3 named=${4:-}; attempt)
    [[ $told == *FAILED* ]] || fail "the checks do not see $1"
    fresh_room
  }
  must_see "a message that names another file" convert 'inject open 5 EIO' 'another file'
  must_see "a killed run" convert 'kill -9 $BASHPID'
  must_see "a changed source" generate 'echo >>text.jsonl'
  must_see "a changed output" convert 'mkdir out; exec true'
  must_see "an output that lacks a file" apply 'cp -r "$SCRATCH_ROOT/whole/apply/out" .; rm out/config.json; exec true'
  must_see "a missing output" convert 'exec true'
  must_see "a hidden folder that is left" convert '(kvcal_in convert); mkdir .out.partial-1; exit 0'
  must_see "a scratch file that is left" convert '(kvcal_in convert); touch tmp/scratch; exit 0'
  must_see "another text" generate 'echo other; exec true'
  must_see "a run that goes on elsewhere" 'calibrate --state' 'mkdir state; echo x >state/x; echo "error: state" >&2; exit 1' state
  rm -f "$here/verdicts"
}

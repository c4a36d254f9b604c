#!/usr/bin/env bash
# Looks at the report pages in headless Chromium: light, dark, narrow, printed, and used by a script.
#   KVCAL=<program> TEST_REPORT=<test_report> tests/report/browser.sh [OUT] [PAGE...]
# Fails on any message of the console, on any request beyond the file, where a page does not do what drive.js wants, and where text or marks
# overlap, leave their frame or are faint (layout.js).
# Plots (*.svg) are looked at as files of their own.
# Pictures and PDFs are left in OUT (default: a scratch folder). Without PAGEs it makes its own.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [[ -z $chromium ]]; then
  echo "no chromium; tools/install_dependencies.sh installs it" >&2
  exit 1
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
out=${1:-$scratch/pictures}
mkdir -p "$out"
out=$(cd "$out" && pwd)
shift || true
failed=0
problem() {
  echo "FAILED $*"
  failed=1
}

# Chromium on a page; its own traffic is off, and names resolve to nothing.
browse() {
  rm -rf "$scratch/profile"
  timeout -k 5 600 "$chromium" --headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run \
    --user-data-dir="$scratch/profile" --disable-background-networking --disable-component-update --disable-sync \
    --disable-default-apps --disable-extensions --disable-domain-reliability --metrics-recording-only \
    --host-resolver-rules='MAP * ~NOTFOUND' --enable-logging=stderr --log-net-log="$scratch/net.json" \
    --virtual-time-budget=20000 "$@" 2>"$scratch/stderr"
}

# What the page of the last browse said and asked for.
messages() {
  grep -a 'CONSOLE' "$scratch/stderr" || true
}
requests() {
  grep -aoE '"url":"(https?|wss?|ftp):[^"]*"' "$scratch/net.json" | grep -avE 'google(apis)?\.com|gstatic\.com' | sort -u || true
}
check_quiet() {
  local found
  found=$(messages)
  [[ -z $found ]] || problem "$1: the console says: $found"
  found=$(requests)
  [[ -z $found ]] || problem "$1: asks for $found"
}

# A picture that is not there, or is of one colour, is a failure.
check_picture() {
  [[ -s $1 && $(stat -c %s "$1") -gt 20000 ]] || problem "$1: no picture"
}

look_at() {
  local page=$1 name
  name=$(basename "$page" .html)
  browse --window-size=1320,3600 --screenshot="$out/$name-light.png" "file://$page"
  check_quiet "$name, light"
  check_picture "$out/$name-light.png"
  browse --window-size=1320,3600 --blink-settings=preferredColorScheme=0 --screenshot="$out/$name-dark.png" "file://$page"
  check_quiet "$name, dark"
  check_picture "$out/$name-dark.png"
  ! cmp -s "$out/$name-light.png" "$out/$name-dark.png" || problem "$name: dark is as light"
  # Windows cannot be so narrow; frames can.
  printf '<!DOCTYPE html><title>n</title><iframe src="file://%s" width="390" height="3000" style="border:0"></iframe>' \
    "$page" >"$scratch/narrow.html"
  browse --window-size=520,3050 --screenshot="$out/$name-narrow.png" "file://$scratch/narrow.html"
  check_quiet "$name, narrow"
  check_picture "$out/$name-narrow.png"
  browse --no-pdf-header-footer --print-to-pdf="$out/$name.pdf" "file://$page"
  check_quiet "$name, printed"
  [[ -s $out/$name.pdf && $(head -c 5 "$out/$name.pdf") == %PDF- ]] || problem "$name: no PDF"
}

# The page is used by drive.js, for which its policy has to go.
use() {
  local page=$1 width=$2 name lines
  name=$(basename "$page" .html)
  { sed -E 's/<meta http-equiv="Content-Security-Policy"[^>]*>//' "$page" && printf '<script>' && cat "$here/drive.js" &&
    printf '</script>\n'; } >"$scratch/driven.html"
  browse --window-size="$width,1400" --dump-dom "file://$scratch/driven.html" >"$scratch/dom.html"
  check_quiet "$name, used at $width"
  lines=$(sed -n '/<pre id="driven">/,/<\/pre>/p' "$scratch/dom.html")
  [[ $lines == *done* ]] || problem "$name: drive.js did not finish"
  [[ $lines != *FAILED* ]] || problem "$name, used at $width: $lines"
  echo "$name at $width: $(grep -c 'ok ' <<<"$lines") checks"
}

# What a reader sees, measured by layout.js in frames of three widths; doubts: true lets it break the page, too.
measure() {
  local page=$1 doubts=$2 name scheme lines
  name=$(basename "$page" .html)
  {
    printf '<!DOCTYPE html><meta charset="utf-8"><title>l</title><body><script>const widths = [390, 1200, 1400], doubts = %s, page = ' "$doubts"
    sed -E 's/<meta http-equiv="Content-Security-Policy"[^>]*>//' "$page" |
      python3 -c 'import json, sys; print(json.dumps(sys.stdin.read()).replace("</", "<\\/") + ";")'
    cat "$here/layout.js"
    printf '</script>\n'
  } >"$scratch/layout.html"
  for scheme in 1 0; do # light, dark
    browse --window-size=1500,1000 --blink-settings=preferredColorScheme=$scheme --dump-dom "file://$scratch/layout.html" >"$scratch/dom.html"
    lines=$(sed -n '/<pre id="driven">/,/<\/pre>/p' "$scratch/dom.html")
    [[ $lines == *done* ]] || problem "$name: layout.js did not finish"
    [[ $lines != *FAILED* ]] || problem "$name, measured: $lines"
    echo "$name measured: $(grep -c 'ok ' <<<"$lines") checks"
  done
}

# A plot is a picture that says nothing and asks for nothing.
look_at_plot() {
  local plot=$1 name
  name=$(basename "$plot" .svg)
  browse --window-size=760,900 --screenshot="$out/$name-plot.png" "file://$plot"
  check_quiet "$name.svg"
  [[ -s $out/$name-plot.png && $(stat -c %s "$out/$name-plot.png") -gt 5000 ]] || problem "$name.svg: no picture"
}

# The checks above must be able to fail.
doubt() {
  local page=$scratch/bad.html
  printf '<!DOCTYPE html><title>b</title><script>throw new Error("on purpose")</script>' >"$page"
  browse --dump-dom "file://$page" >/dev/null
  [[ $(messages) == *"on purpose"* ]] || problem "an exception was not noticed"
  printf '<!DOCTYPE html><title>b</title><img src="http://example.invalid/x.png">' >"$page"
  browse --dump-dom "file://$page" >/dev/null
  [[ $(requests) == *example.invalid* ]] || problem "a request was not noticed"
  # The policy of our pages stops both, and says so.
  sed 's#</main>#<img src="http://example.invalid/x.png"><script>throw 1</script></main>#' "$1" >"$page"
  browse --dump-dom "file://$page" >/dev/null
  [[ -z $(requests) ]] || problem "the policy lets a request pass"
  [[ $(messages) == *"Content Security Policy"* ]] || problem "the policy says nothing"
}

make_pages() {
  local data=$here/../cli/data models=$here/../fixtures/models
  KVCAL_REPORT_PAGES=$scratch "${TEST_REPORT:?}" "[pages]" >/dev/null
  "${KVCAL:?}" calibrate "$models/llama" --recipe "$data/recipe.yaml" --dataset "$data/small.jsonl" --device reference \
    --output "$scratch/llama-fp8" >/dev/null 2>&1
  "$KVCAL" inspect "$scratch/llama-fp8" --html "$scratch/llama.html" >/dev/null 2>&1
  "$KVCAL" inspect "$models/llama" --html "$scratch/bare.html" >/dev/null 2>&1
}

# The picture of README, by the script that makes it: a PNG has width and height behind its first 16 bytes.
check_picture() {
  local data=$here/../cli/data picture=$out/picture.png
  "$here/picture.sh" "$KVCAL" "$here/../fixtures/models/llama" "$picture" --recipe "$data/recipe.yaml" --dataset "$data/small.jsonl" \
    >/dev/null 2>&1 || problem "picture.sh"
  [[ $(od -An -tx1 -j16 -N8 "$picture" | tr -d ' ') == 000004b00000035c ]] || problem "picture.sh: no picture of 1200 times 860"
}

if [[ $# -eq 0 ]]; then
  make_pages
  check_picture
  set -- "$scratch"/{llama,bare,engines,wide,kl,sensitivity,gsm8k,sweep}.html "$scratch"/*.svg
fi
doubt "$1"
measure "$(realpath "$1")" true
for page in "$@"; do
  page=$(realpath "$page")
  if [[ $page == *.svg ]]; then
    look_at_plot "$page"
    continue
  fi
  look_at "$page"
  measure "$page" false
  use "$page" 1320
  use "$page" 640
done
[[ $failed -eq 0 ]] && echo "pages are sound; pictures in $out"
exit $failed

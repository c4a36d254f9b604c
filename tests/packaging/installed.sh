#!/usr/bin/env bash
# `cmake --install` into a scratch folder: everything is there, and nothing else.
#   tests/packaging/installed.sh BUILD_FOLDER
set -euo pipefail
export LC_ALL=C
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$1" --prefix "$scratch/usr" >/dev/null
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
kvcal=$scratch/usr/bin/kvcal
"$kvcal" --version >/dev/null
{
  echo bin/kvcal
  "$kvcal" man --list | sed 's#.*#share/man/man1/&.1#'
  echo share/bash-completion/completions/kvcal
  echo share/zsh/site-functions/_kvcal
  echo share/fish/vendor_completions.d/kvcal.fish
  (cd "$root" && find recipes datasets sweeps -type f | sed 's#^#share/kvcal/#')
  (cd "$root" && find LICENSE README.md CHANGELOG.md docs -type f | sed 's#^#share/doc/kvcal/#')
} | sort >"$scratch/expected"
(cd "$scratch/usr" && find . -type f | sed 's#^\./##') | sort >"$scratch/found"
diff -u --label expected --label installed "$scratch/expected" "$scratch/found"
for shell in bash:bash-completion/completions/kvcal zsh:zsh/site-functions/_kvcal fish:fish/vendor_completions.d/kvcal.fish; do
  "$kvcal" completion "${shell%%:*}" | cmp - "$scratch/usr/share/${shell#*:}"
done
echo "$(wc -l <"$scratch/found") files are installed"

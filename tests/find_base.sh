#!/usr/bin/env bash
# Prints the commit that changes are counted from: where this branch left origin/main, or the commit before this one. Prints
# nothing where there is neither.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$(git merge-base HEAD origin/main 2>/dev/null || true)
[[ -n $base && $base != "$(git rev-parse HEAD)" ]] || base=$(git rev-parse --verify --quiet HEAD~1 || true)
echo "$base"

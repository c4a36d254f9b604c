# shellcheck shell=bash
# Shared by the scripts of this folder. Sourced; needs bash.
set -euo pipefail
SOURCE_FOLDER=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# The time that all files of a package bear: what SOURCE_DATE_EPOCH says, the last commit's, or, in an archive of the
# sources, that of the change log, which is the commit's too.
set_source_date() {
  [[ -n ${SOURCE_DATE_EPOCH:-} ]] ||
    SOURCE_DATE_EPOCH=$(git -C "$SOURCE_FOLDER" log -1 --format=%ct 2>/dev/null || stat -c %Y "$SOURCE_FOLDER/CHANGELOG.md")
  export SOURCE_DATE_EPOCH
}

# The commit, where the sources are a checkout in which nothing has changed since; else nothing.
commit_of_source() {
  [[ -e $SOURCE_FOLDER/.git ]] || return 0
  [[ -n $(git -C "$SOURCE_FOLDER" status --porcelain 2>/dev/null) ]] || git -C "$SOURCE_FOLDER" rev-parse HEAD 2>/dev/null || true
}

# An empty Debian 12 in the folder $1, made once in KVCAL_CHROOT_BASE where that is set.
make_debian() {
  local base=${KVCAL_CHROOT_BASE:-} folder=$1
  command -v debootstrap >/dev/null || { echo "error: debootstrap is needed" >&2; exit 1; }
  if [[ -n $base ]]; then
    [[ -e $base/etc/debian_version ]] || debootstrap --variant=minbase bookworm "$base" http://deb.debian.org/debian >/dev/null
    cp -a "$base/." "$folder"
  else
    debootstrap --variant=minbase bookworm "$folder" http://deb.debian.org/debian >/dev/null
  fi
  chmod 755 "$folder"
  cp /etc/resolv.conf "$folder/etc/resolv.conf"
}

# A small model of random weights with a tokenizer, in the folder $1, and what it says next in $1.expected.
make_model() {
  local cli=$SOURCE_FOLDER/tests/cli
  mkdir -p "$1"
  cp "$SOURCE_FOLDER"/tests/fixtures/models/llama/{config.json,model.safetensors} "$cli"/data/{tokenizer*,chat_template.jinja} "$1"
  head -n 2 "$cli/commands/generate/stdout" >"$1.expected"  # the first of its two texts
}

# Whether the program $1 looks for libraries where it was built: an absolute path, which is no place of another machine.
refuse_machine_paths() {
  local paths
  paths=$(readelf -d "$1" | sed -nE 's/.*\((RUNPATH|RPATH)\).*\[(.*)\]/\2/p')
  case $paths in
    /* | *:/*) echo "error: $1 looks for libraries in '$paths'" >&2 && return 1 ;;
  esac
}

# Runs its arguments in the Debian of folder $1, with /proc.
in_debian() {
  local folder=$1
  shift
  mountpoint -q "$folder/proc" || mount -t proc proc "$folder/proc"
  env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    chroot "$folder" "$@"
}

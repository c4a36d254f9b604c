# Compressed text that unpacks to far more than it weighs.

# Doubles the file $1 $2 times.
double() {
  local i
  for ((i = 0; i < $2; i++)); do cat "$1" "$1" >"$1.twice" && mv "$1.twice" "$1"; done
}

bomb "4 GB of blanks in gzip members" data.jsonl.gz <<'CASE'
head -c 67108864 /dev/zero | tr '\0' ' ' | gzip -9n >data.jsonl.gz
double data.jsonl.gz 6
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl.gz --output out
CASE

bomb "32 GB of empty lines in gzip members" data.jsonl.gz <<'CASE'
yes '' | head -c 67108864 | gzip -9n >data.jsonl.gz
double data.jsonl.gz 9
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl.gz --output out
CASE

# A frame without a length, a window of 128 kB: BEFORE raw, then 2^DOUBLINGS blocks that repeat CHARACTER 131072 times.
zstd_frame() { # zstd_frame CHARACTER DOUBLINGS [BEFORE]
  local before=${3:-}
  printf '\x02\x00\x10%s' "$1" >blocks
  double blocks "$2"
  {
    printf '\x28\xb5\x2f\xfd\x00\x38'
    # shellcheck disable=SC2059  # the format is made: the head of a raw block has its length times 8
    [[ -z $before ]] || printf "\\x$(printf %02x $((${#before} * 8)))\\x00\\x00%s" "$before"
    cat blocks
    printf '\x01\x00\x00'
  } >data.jsonl.zst
  rm blocks
}

bomb "4 GB of blanks in one zstd frame" data.jsonl.zst <<'CASE'
zstd_frame ' ' 15
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl.zst --output out
CASE

bomb "1 TB of blanks in one zstd frame" data.jsonl.zst <<'CASE'
zstd_frame ' ' 23
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl.zst --output out
CASE

bomb "One record of 8 GB in zstd" data.jsonl.zst <<'CASE'
zstd_frame a 16 '{"text": "'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl.zst --output out
CASE

bomb "A zstd frame that says it has 2^63 bytes" data.jsonl.zst <<'CASE'
printf '\x28\xb5\x2f\xfd\xe0\xff\xff\xff\xff\xff\xff\xff\x7f\x01\x00\x00' >data.jsonl.zst
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl.zst --output out
CASE

bomb "A zstd window of 2^41 bytes" data.jsonl.zst <<'CASE'
printf '\x28\xb5\x2f\xfd\x00\xf8\x0a\x00\x20a\x01\x00\x00' >data.jsonl.zst
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl.zst --output out
CASE

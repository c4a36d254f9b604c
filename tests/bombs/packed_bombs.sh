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

# A frame without a length, a window of 128 kB, blocks that repeat one byte 131072 times.
bomb "4 GB of blanks in one zstd frame" data.jsonl.zst <<'CASE'
printf '\x02\x00\x10 ' >blocks
double blocks 15
{ printf '\x28\xb5\x2f\xfd\x00\x38'; cat blocks; printf '\x01\x00\x00'; } >data.jsonl.zst
rm blocks
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl.zst --output out
CASE

bomb "1 TB of blanks in one zstd frame" data.jsonl.zst <<'CASE'
printf '\x02\x00\x10 ' >blocks
double blocks 23
{ printf '\x28\xb5\x2f\xfd\x00\x38'; cat blocks; printf '\x01\x00\x00'; } >data.jsonl.zst
rm blocks
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl.zst --output out
CASE

bomb "One record of 8 GB in zstd" data.jsonl.zst <<'CASE'
printf '\x02\x00\x10a' >blocks
double blocks 16
{ printf '\x28\xb5\x2f\xfd\x00\x38\x50\x00\x00{"text": "'; cat blocks; printf '\x01\x00\x00'; } >data.jsonl.zst
rm blocks
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

topic "Data sets" "Records are named by file and line."

bad "The data set does not exist" <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.json --output out
CASE

bad "The data set is a folder" <<'CASE'
mkdir data
$ kvcal calibrate model --recipe recipe.yaml --dataset data --output out
CASE

bad "An empty data set" <<'CASE'
: >data.jsonl
CASE

bad "An empty JSON list" <<'CASE'
echo '[]' >data.json
$ kvcal calibrate model --recipe recipe.yaml --dataset data.json --output out
CASE

bad "Only empty records" <<'CASE'
printf '{"input_ids": []}\n{"input_ids": []}\n' >data.jsonl
CASE

bad "A malformed line" <<'CASE'
sed -i '3s/]}$//' data.jsonl
CASE

bad "A malformed JSON array" <<'CASE'
printf '[\n  {"input_ids": [1, 2]},\n  {"input_ids": [1, 2,]}\n]\n' >data.json
$ kvcal calibrate model --recipe recipe.yaml --dataset data.json --output out
CASE

bad "A line nested 100,000 levels deep" <<'CASE'
printf '{"input_ids": %s\n' "$(repeat 100000 '[')" >>data.jsonl
CASE

bad "A record without a usable key" <<'CASE'
printf '{"txt": "The sea was calm."}\n' >data.jsonl
CASE

bad "Ids outside the vocabulary" <<'CASE'
printf '{"input_ids": [5, 6, 160]}\n' >>data.jsonl
CASE

bad "A negative id" <<'CASE'
printf '{"input_ids": [5, -6]}\n' >>data.jsonl
CASE

bad "Ids that are not integers" <<'CASE'
printf '{"input_ids": ["The", "sea"]}\n' >>data.jsonl
CASE

bad "A message without a role" <<'CASE'
add_tokenizer
printf '{"messages": [{"content": "The sea was calm."}]}\n' >data.jsonl
CASE

bad "An unknown ShareGPT speaker" <<'CASE'
add_tokenizer
printf '{"conversations": [{"from": "narrator", "value": "The sea was calm."}]}\n' >data.jsonl
CASE

bad "Text that is not UTF-8" <<'CASE'
add_tokenizer
printf '{"text": "caf\xe9"}\n' >data.jsonl
CASE

bad "A Parquet file" <<'CASE'
printf 'PAR1....PAR1' >data.parquet
$ kvcal calibrate model --recipe recipe.yaml --dataset data.parquet --output out
CASE

bad "A compressed file" <<'CASE'
printf '\x1f\x8b\x08\x00' >data.jsonl.gz
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl.gz --output out
CASE

bad "A descriptor without its local copy" <<'CASE'
cat >set.yaml <<'END'
name: A small set
source: example/small-set
licence: CC0-1.0
splits: [train]
split: train
path: small_set.{split}.jsonl
record:
  text: "{question}"
END
$ kvcal calibrate model --recipe recipe.yaml --dataset set.yaml --output out
CASE

bad "A descriptor with an unknown key" <<'CASE'
printf 'name: A small set\nsource: example/small-set\nlicense: CC0-1.0\n' >set.yaml
$ kvcal calibrate model --recipe recipe.yaml --dataset set.yaml --output out
CASE

topic "Data sets" "Records are named by file and line."

bad "The data set does not exist" <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.json --output out
CASE

bad "Neither a file nor the name of a data set" <<'CASE'
$ kvcal calibrate model --dataset ultrachat_200 --output out
CASE

bad "The start of the name of a data set" <<'CASE'
$ kvcal calibrate model --dataset ultrachat --output out
CASE

bad "CSV with another delimiter" <<'CASE'
printf 'question;reply\nIs the sea calm?;It is.\n' >data.csv
$ kvcal calibrate model --recipe recipe.yaml --dataset data.csv --prompt-column question --response-column reply --output out
CASE

bad "A delimiter of data that has none" <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --delimiter ';' --output out
CASE

bad "A delimiter of two characters" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.csv --delimiter ', ' --output out
CASE

bad "A folder without a data file" <<'CASE'
mkdir data
echo '# About' >data/README.md
$ kvcal calibrate model --recipe recipe.yaml --dataset data --output out
CASE

bad "A pattern that no file matches" <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset 'data-*.jsonl' --output out
CASE

bad "A file of another kind in a folder of data" <<'CASE'
mkdir data
mv data.jsonl data/a.jsonl
echo 'id,text' >data/b.bin
$ kvcal calibrate model --recipe recipe.yaml --dataset data --output out
CASE

bad "A folder of several splits" <<'CASE'
mkdir data
cp data.jsonl data/train-00000-of-00001.jsonl
cp data.jsonl data/test-00000-of-00001.jsonl
$ kvcal calibrate model --recipe recipe.yaml --dataset data --output out
CASE

bad "A folder that lacks a shard" <<'CASE'
mkdir data
cp data.jsonl data/train-00000-of-00002.jsonl
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

bad "A Parquet file that is cut short" <<'CASE'
printf 'PAR1........' >data.parquet
$ kvcal calibrate model --recipe recipe.yaml --dataset data.parquet --output out
CASE

bad "A file named .parquet that is none" <<'CASE'
cp data.jsonl data.parquet
$ kvcal calibrate model --recipe recipe.yaml --dataset data.parquet --output out
CASE

bad "An Arrow file that is cut short" <<'CASE'
printf 'ARROW1\0\0....' >data.arrow
$ kvcal calibrate model --recipe recipe.yaml --dataset data.arrow --output out
CASE

bad "A saved data set with several splits" <<'CASE'
mkdir data
echo '{"splits": ["train", "test"]}' >data/dataset_dict.json
$ kvcal calibrate model --recipe recipe.yaml --dataset data --output out
CASE

bad "A saved data set without its state" <<'CASE'
mkdir data
echo '{}' >data/dataset_info.json
$ kvcal calibrate model --recipe recipe.yaml --dataset data --output out
CASE

bad "A saved data set whose order lies beside its rows" <<'CASE'
mkdir data
echo '{}' >data/dataset_info.json
echo '{"_data_files": [{"filename": "dataset.arrow"}], "_indices_data_files": [{"filename": "indices.arrow"}]}' >data/state.json
$ kvcal calibrate model --recipe recipe.yaml --dataset data --output out
CASE

bad "A compressed file that is cut short" <<'CASE'
gzip -n -c data.jsonl | head -c 40 >data.jsonl.gz
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl.gz --output out
CASE

bad "A compressed file with a changed byte" <<'CASE'
gzip -n -c data.jsonl | head -c -8 >data.jsonl.gz
printf '12345678' >>data.jsonl.gz
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl.gz --output out
CASE

bad "An archive" <<'CASE'
printf 'PK\x03\x04' >data.zip
$ kvcal calibrate model --recipe recipe.yaml --dataset data.zip --output out
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

bad "A table whose columns are not recognized" <<'CASE'
printf 'id,question,reply\n1,"Is the sea calm, today?",It is.\n' >data.csv
$ kvcal calibrate model --recipe recipe.yaml --dataset data.csv --output out
CASE

bad "A column that is not there" <<'CASE'
printf 'id,question,reply\n1,Is the sea calm?,It is.\n' >data.csv
$ kvcal calibrate model --recipe recipe.yaml --dataset data.csv --prompt-column question --response-column answer --output out
CASE

bad "Columns of two kinds" 2 <<'CASE'
printf 'id,question,reply\n1,Is the sea calm?,It is.\n' >data.csv
$ kvcal calibrate model --recipe recipe.yaml --dataset data.csv --text-column reply --prompt-column question --output out
CASE

bad "A column of a text that has none" <<'CASE'
printf 'The sea was calm.\n' >notes.txt
$ kvcal calibrate model --recipe recipe.yaml --dataset notes.txt --text-column body --output out
CASE

bad "A column without a data set" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --text-column body --output out
CASE

bad "A row with more fields than the header" <<'CASE'
printf 'id,text\n1,"Calm, at first."\n2,Calm, then not.\n' >data.csv
$ kvcal calibrate model --recipe recipe.yaml --dataset data.csv --output out
CASE

bad "A field in quotes that is not closed" <<'CASE'
printf 'id,text\n1,"Calm.\n2,Not calm.\n' >data.csv
$ kvcal calibrate model --recipe recipe.yaml --dataset data.csv --output out
CASE

bad "A table under the name of a text" <<'CASE'
printf 'id,text\n1,Calm.\n' >data.txt
$ kvcal calibrate model --recipe recipe.yaml --dataset data.txt --output out
CASE

bad "A web page" <<'CASE'
printf '<!DOCTYPE html>\n<html><p>404</p></html>\n' >data.jsonl
CASE

bad "A descriptor that lacks what is used" <<'CASE'
printf 'name: A small set\nlicence: CC0-1.0\n' >set.yaml
$ kvcal calibrate model --recipe recipe.yaml --dataset set.yaml --output out
CASE

bad "Samples with images of another model" <<'CASE'
# `python -m kvcal.images` made them with a LLaVA checkpoint.
cp -r --no-preserve=mode "$MODELS/../images/llava/samples" samples
$ kvcal calibrate model --recipe recipe.yaml --dataset samples --output out
CASE

bad "A sample with images that was changed" <<'CASE'
rm -r model && cp -r --no-preserve=mode "$MODELS/../images/llava" model && mv model/samples samples && rm model/expected.*
printf 'x' | dd of=samples/00001.safetensors bs=1 seek=900 conv=notrunc 2>/dev/null
$ kvcal calibrate model --recipe recipe.yaml --dataset samples --output out
CASE

bad "Samples with images that are evaluated" <<'CASE'
rm -r model && cp -r --no-preserve=mode "$MODELS/../images/llava" model && mv model/samples samples && rm model/expected.*
$ kvcal eval model --task kl --dataset samples
CASE

# Files of tensors and archives.

bomb "A safetensors header of 2^63 bytes" model.safetensors <<'CASE'
{ le64 9223372036854775807; head -c 100 /dev/zero; } >model/model.safetensors
$ kvcal inspect model
CASE

bomb "A safetensors header of 100 MB of spaces" model <<'CASE'
{ printf '{}'; head -c 99999998 /dev/zero | tr '\0' ' '; } >header
safetensors_of model/model.safetensors header 0
rm header
$ kvcal inspect model
CASE

bomb "A safetensors header of 100 MB in one name" model <<'CASE'
{ printf '{"'; head -c 99000000 /dev/zero | tr '\0' a; printf '":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}'; } >header
safetensors_of model/model.safetensors header 4
rm header
$ kvcal inspect model
CASE

bomb "A safetensors header of 100 MB of metadata" model <<'CASE'
{ printf '{"__metadata__":{"a":"'; head -c 99000000 /dev/zero | tr '\0' a; printf '"}}'; } >header
safetensors_of model/model.safetensors header 0
rm header
$ kvcal inspect model
CASE

bomb "A safetensors header of 1,500,000 tensors" model.safetensors <<'CASE'
seq -f '"%.0f":{"dtype":"U8","shape":[],"data_offsets":[0,0]}' 1500000 | paste -sd , | sed 's/.*/{&}/' >header
safetensors_of model/model.safetensors header 0
rm header
$ kvcal inspect model
CASE

bomb "A safetensors header with one shape of 30,000,000 dimensions" model.safetensors <<'CASE'
{ printf '{"a":{"dtype":"U8","shape":[1'; many 30000000 ',1'; printf '],"data_offsets":[0,1]}}'; } >header
safetensors_of model/model.safetensors header 1
rm header
$ kvcal inspect model
CASE

bomb "A safetensors shape whose product is 2^64" model.safetensors <<'CASE'
write_safetensors model/model.safetensors '{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}' 0
$ kvcal inspect model
CASE

bomb "A sparse safetensors file of 1 TB" model.safetensors <<'CASE'
write_safetensors model/model.safetensors '{"a":{"dtype":"U8","shape":[1000000000000],"data_offsets":[0,1000000000000]}}' 0
truncate -s 1000000000090 model/model.safetensors
$ kvcal inspect model
CASE

bomb "A tokenizer.model whose piece says that it has 2^63 bytes" tokenizer.model <<'CASE'
use_text hi
rm model/tokenizer.json
printf '\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f' >model/tokenizer.model
CASE

bomb "A tokenizer.model of 20,000,000 empty pieces" tokenizer.model <<'CASE'
use_text hi
rm model/tokenizer.json
yes $'\x0a' | head -c 0 >model/tokenizer.model
head -c 40000000 /dev/zero | sed 's/\x00\x00/\x0a\x00/g' >model/tokenizer.model
CASE

bomb "vocab.json of 10,000,000 tokens" vocab.json <<'CASE'
use_text hi
rm model/tokenizer.json
seq -f '"%.0f":1' 10000000 | paste -sd , | sed 's/.*/{&}/' >model/vocab.json
echo >model/merges.txt
CASE

bomb "merges.txt of 10,000,000 merges" model <<'CASE'
use_text hi
rm model/tokenizer.json
echo '{"tokenizer_class": "GPT2Tokenizer"}' >model/tokenizer_config.json
echo '{"a": 0, "b": 1}' >model/vocab.json
yes 'a b' | head -n 10000000 >model/merges.txt
CASE

topic "Synthetic checkpoints" "What \`kvcal synth\` cannot make; nothing is left behind."

bad "A config that does not exist" <<'CASE'
$ kvcal synth --config config.json out
CASE

bad "A config of an unknown family" <<'CASE'
sed -i 's/"llama"/"lama"/' model/config.json
$ kvcal synth --config model/config.json out
CASE

bad "A config that is no object" <<'CASE'
printf '[1]\n' >list.json
$ kvcal synth --config list.json out
CASE

bad "More layers than the config has" <<'CASE'
$ kvcal synth --config model/config.json --layers 3 out
CASE

bad "No layers" 2 <<'CASE'
$ kvcal synth --config model/config.json --layers 0 out
CASE

bad "A cut that leaves no attention" <<'CASE'
use_model jamba
$ kvcal synth --config model/config.json --layers 1 out
CASE

bad "A synthetic checkpoint where something is" <<'CASE'
$ kvcal synth --config model/config.json model
CASE

bad "A dtype that weights cannot have" 2 <<'CASE'
$ kvcal synth --config model/config.json --dtype float64 out
CASE

bad "A shard size that is none" <<'CASE'
$ kvcal synth --config model/config.json --max-shard-size big out
CASE

bad "A shard size of nothing" <<'CASE'
$ kvcal synth --config model/config.json --max-shard-size 0 out
CASE

bad "A synthetic checkpoint without a config" 2 <<'CASE'
$ kvcal synth out
CASE

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

bad "A shard size that is none" 2 <<'CASE'
$ kvcal synth --config model/config.json --max-shard-size big out
CASE

bad "A shard size of nothing" 2 <<'CASE'
$ kvcal synth --config model/config.json --max-shard-size 0 out
CASE

bad "A synthetic checkpoint without a config" 2 <<'CASE'
$ kvcal synth out
CASE

bad "Outliers of a model that caches a latent" <<'CASE'
use_model deepseek_v3
$ kvcal synth --from model --outliers 'k:pairs=1,factor=1024' -o out
CASE

bad "Outliers by a factor that would round the weights" <<'CASE'
$ kvcal synth --from model --outliers 'k:pairs=1,factor=1000' -o out
CASE

bad "More outliers than a head has pairs" <<'CASE'
$ kvcal synth --from model --outliers 'k:pairs=64,factor=2' -o out
CASE

bad "Outliers of a layer that is not there" <<'CASE'
$ kvcal synth --from model --outliers 'v:channels=1,factor=2;layers=0,9' -o out
CASE

bad "A bias of K where a norm would undo it" <<'CASE'
use_model qwen3
$ kvcal synth --from model --outliers 'bias:norm=750' -o out
CASE

bad "A bias of K in a family that has none" <<'CASE'
use_model phi3
$ kvcal synth --from model --outliers 'bias:norm=750' -o out
CASE

bad "Outliers in V of a family that norms it" <<'CASE'
use_model gemma3n_text
$ kvcal synth --from model --outliers 'v:channels=1,factor=16' -o out
CASE

bad "A text that names no outliers" <<'CASE'
$ kvcal synth --from model --outliers 'q:pairs=1' -o out
CASE

bad "A model without outliers to put into it" 2 <<'CASE'
$ kvcal synth --from model -o out
CASE

bad "Outliers beside random weights" 2 <<'CASE'
$ kvcal synth --config model/config.json --outliers 'k:pairs=1,factor=2' -o out
CASE

topic "New models" "A \`model_type\` that is not known runs by \`--family\` or \`--family-file\`, with every check ([families.md](../families.md))."

# new_model SED: model/ is Llama's fixture with an unknown type, changed by a sed script.
new_model() {
  use_model llama
  edit_config "s/\"model_type\": \"llama\"/\"model_type\": \"brandnew\"/; ${1:-}"
}

# described TITLE: model/ has an unknown type, and my.yaml is stdin.
described() {
  bad "$1" <<CASE
new_model
cat >my.yaml <<'YAML'
$(cat)
YAML
$ kvcal calibrate model --family-file my.yaml --recipe recipe.yaml --dataset data.jsonl --output out
CASE
}

bad "A family with a slip" <<'CASE'
$ kvcal calibrate model --family lama --recipe recipe.yaml --dataset data.jsonl --output out
CASE

bad "A family for a type of another" <<'CASE'
$ kvcal calibrate model --family qwen3 --recipe recipe.yaml --dataset data.jsonl --output out
CASE

bad "A family for a type that is refused by name" <<'CASE'
edit_config 's/"model_type": "llama"/"model_type": "ctrl"/'
$ kvcal calibrate model --family llama --recipe recipe.yaml --dataset data.jsonl --output out
CASE

bad "A key that the family does not read" <<'CASE'
new_model 's/"attention_bias": false/&, "gated_attention": true/'
$ kvcal calibrate model --family llama --recipe recipe.yaml --dataset data.jsonl --output out
CASE

bad "Tensors that the family does not have, and one that it needs" <<'CASE'
new_model
$ kvcal calibrate model --family qwen3 --recipe recipe.yaml --dataset data.jsonl --output out
CASE

bad "Both options" 2 <<'CASE'
$ kvcal calibrate model --family llama --family-file my.yaml --recipe recipe.yaml --dataset data.jsonl --output out
CASE

bad "A family's file that is not there" <<'CASE'
new_model
$ kvcal calibrate model --family-file my.yaml --recipe recipe.yaml --dataset data.jsonl --output out
CASE

described "A family's file with an unknown field" <<'YAML'
name: mine
like: llama
centres_norm: true
YAML

described "A family's file with an unknown choice" <<'YAML'
name: mine
like: llama
positions: roped
YAML

described "A family's file like a family with a slip" <<'YAML'
name: mine
like: lama
YAML

described "A family's file with a shape that nothing reads" <<'YAML'
name: mine
like: llama
model_tensors:
  - {role: embedding, name: embed_tokens.weight, shape: [hidden, vocab]}
YAML

described "A family's file without the tensors that a variation needs" <<'YAML'
name: mine
like: llama
has_query_gate: true
YAML

described "A family's file that renames what is not there" <<'YAML'
name: mine
like: llama
rename_tensors: {attn.: attention.}
YAML

described "A family's file for other types" <<'YAML'
name: mine
like: llama
model_types: [othernew]
YAML

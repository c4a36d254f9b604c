# What large inputs are made with. Every function works in a folder with model/, recipe.yaml and data.jsonl.

# N copies of a text, quickly. The text may not hold a line end.
many() { yes -- "$2" | head -n "$1" | tr -d '\n'; }
# "PREFIX0SUFFIX,PREFIX1SUFFIX,...", N of them.
numbered() { seq -f "$2%.0f$3" 0 $(($1 - 1)) | paste -sd ,; }
# config.json with keys of the JSON object $1 in place of its own; sed does for flat ones.
set_config() { # set_config KEY VALUE
  sed -i -E "s/\"$1\": [^,]*(,?)\$/\"$1\": $2\1/" model/config.json
}
# A chat template for a model with a tokenizer, and a conversation to render.
use_template() {
  add_tokenizer
  printf %s "$1" >model/chat_template.jinja
  echo '{"messages": [{"role": "user", "content": "Hi"}]}' >data.jsonl
}
use_text() {
  add_tokenizer
  printf '{"text": "%s"}\n' "$1" >data.jsonl
}
# The safetensors file $1 whose header is the file $2 and that has $3 bytes of data.
safetensors_of() {
  { le64 "$(stat -c %s "$2")"; cat "$2"; head -c "$3" /dev/zero; } >"$1"
}

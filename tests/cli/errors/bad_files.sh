# What the cases make bad input with. Every function works in the current folder.

# The folder every case starts from: a good model, recipe and data set.
make_base() {
  mkdir "$1"
  copy_model llama "$1/model"
  cp --no-preserve=mode "$DATA/recipe.yaml" "$DATA/data.jsonl" "$1"
}

# Replaces model/ by another fixture.
use_model() {
  rm -rf model
  copy_model "$1" model
}

# Puts tokenizer.json, tokenizer_config.json and chat_template.jinja of ours into model/.
add_tokenizer() {
  cp --no-preserve=mode "$DATA"/tokenizer.json "$DATA"/tokenizer_config.json "$DATA"/chat_template.jinja model
}

# The integer $1 as eight bytes, lowest first.
le64() {
  local n=$1 i
  for i in 1 2 3 4 5 6 7 8; do
    # shellcheck disable=SC2059  # the format is the byte
    printf "\\$(printf %03o $((n & 255)))"
    n=$((n >> 8))
  done
}

# $1 copies of the text $2.
repeat() {
  local text
  printf -v text '%*s' "$1" ''
  printf %s "${text// /$2}"
}

# Writes the safetensors file $1 with header $2 and $3 bytes of zeros.
write_safetensors() {
  { le64 ${#2}; printf %s "$2"; head -c "$3" /dev/zero; } >"$1"
}

header_length() {
  od -An -tu8 -N8 "$1" | tr -d ' '
}

# The header of the safetensors file $1.
header_of() {
  tail -c +9 "$1" | head -c "$(header_length "$1")"
}

# Changes the header of the safetensors file $1 with the sed script $2; the data stay.
edit_header() {
  local header length
  length=$(header_length "$1")
  header=$(header_of "$1" | sed -E "$2")
  { le64 ${#header}; printf %s "$header"; tail -c +$((length + 9)) "$1"; } >"$1.new"
  mv "$1.new" "$1"
}

# Overwrites the 16-bit element $3 of tensor $2 in file $1 with the two bytes $4 (as for printf).
set_element() {
  local begin
  begin=$(header_of "$1" | grep -o "\"$2\":{[^}]*}" | sed -E 's/.*"data_offsets":\[([0-9]+),.*/\1/')
  # shellcheck disable=SC2059  # the format is the bytes
  printf "$4" | dd of="$1" bs=1 conv=notrunc status=none \
    seek=$((8 + $(header_length "$1") + begin + 2 * $3))
}

# Changes model/config.json (or the file $2) with the sed script $1.
edit_config() {
  sed -E -i "$1" "${2:-model/config.json}"
}

# A recipe whose kv_cache_scheme holds the lines of $1 too.
write_recipe() {
  {
    printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      kv_cache_scheme:\n'
    printf '%s\n' "$1" | sed 's/^/        /'
  } >recipe.yaml
}

topic "Tokenizers and chat templates" \
  "Data sets of already tokenized \`input_ids\` need neither. Here the model has a tokenizer and a template that are otherwise sound."

TEXT='printf "{\"text\": \"The sea was calm.\"}\n" >data.jsonl'
CHAT='printf "{\"messages\": [{\"role\": \"user\", \"content\": \"The sea was calm.\"}]}\n" >data.jsonl'

bad "No tokenizer" <<'CASE'
eval "$TEXT"
CASE

bad "A malformed tokenizer.json" <<'CASE'
add_tokenizer
truncate -s 2000 model/tokenizer.json
eval "$TEXT"
CASE

bad "A tokenizer.json without a model" <<'CASE'
add_tokenizer
printf '{"version": "1.0", "added_tokens": []}\n' >model/tokenizer.json
eval "$TEXT"
CASE

bad "A tokenizer of an unknown kind" <<'CASE'
add_tokenizer
edit_config 's/"type": "BPE"/"type": "BPEE"/' model/tokenizer.json
eval "$TEXT"
CASE

bad "A vocabulary entry that is no id" <<'CASE'
add_tokenizer
edit_config 's/^( *"f": ).*,$/\1-4,/' model/tokenizer.json
eval "$TEXT"
CASE

bad "A merge of tokens that do not exist" <<'CASE'
add_tokenizer
edit_config 's/^( *)"h"$/\1"hh"/' model/tokenizer.json
eval "$TEXT"
CASE

bad "A broken tokenizer.model" <<'CASE'
printf 'not a protobuf' >model/tokenizer.model
eval "$TEXT"
CASE

bad "Another model's tokenizer" <<'CASE'
# It gives ids that the model has no embedding for.
add_tokenizer
edit_config 's/("m": )[0-9]+/\14000/' model/tokenizer.json
eval "$TEXT"
CASE

bad "Another model's tokenizer, to generate with" <<'CASE'
add_tokenizer
edit_config 's/("m": )[0-9]+/\14000/' model/tokenizer.json
$ kvcal generate model --prompt calm
CASE

bad "A chat template that is not there" <<'CASE'
add_tokenizer
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --chat-template qwen.jinja --output out
CASE

bad "Variables of a template that are no object" 2 <<'CASE'
add_tokenizer
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --chat-template-kwargs '[1]' --output out
CASE

bad "A part of a message that is no text" <<'CASE'
add_tokenizer
printf '{"messages": [{"role": "user", "content": [{"type": "drawing", "drawing": "a.svg"}]}]}\n' >parts.jsonl
$ kvcal calibrate model --dataset parts.jsonl --output out
CASE

bad "More bad records than may be skipped" <<'CASE'
add_tokenizer
printf '{"text": "a b"}\n{"text": 1}\n{"text": 2}\n' >mixed.jsonl
$ kvcal calibrate model --dataset mixed.jsonl --skip-bad-records 1 --output out
CASE

bad "A number of records to skip that is none" 2 <<'CASE'
$ kvcal calibrate model --dataset data.jsonl --skip-bad-records few --output out
CASE

bad "A template with a syntax error" <<'CASE'
add_tokenizer
printf '{%% for message in messages %%}\n{{ message.content }}\n{%% endif %%}\n' >model/chat_template.jinja
eval "$CHAT"
CASE

bad "A template that ends inside a block" <<'CASE'
add_tokenizer
printf '{%% for message in messages %%}\n{{ message.content }}\n' >model/chat_template.jinja
eval "$CHAT"
CASE

bad "A template with an unknown filter" <<'CASE'
add_tokenizer
printf '{{ messages[0].content | shout }}\n' >model/chat_template.jinja
eval "$CHAT"
CASE

bad "A template that refuses the conversation" <<'CASE'
add_tokenizer
printf '{%% if messages[0].role != "system" %%}\n{{ raise_exception("A system message is needed") }}\n{%% endif %%}\n' >model/chat_template.jinja
eval "$CHAT"
CASE

bad "A template that reaches for Python's inner parts" <<'CASE'
add_tokenizer
printf '{{ messages.__class__.__mro__ }}\n' >model/chat_template.jinja
eval "$CHAT"
CASE

bad "A template that loops without end" <<'CASE'
add_tokenizer
printf '{%% for i in range(99999) %%}{%% for j in range(99999) %%}{%% endfor %%}{%% endfor %%}\n' >model/chat_template.jinja
eval "$CHAT"
CASE

bad "A template that asks for a huge range" <<'CASE'
add_tokenizer
printf '{%% for i in range(1000000000) %%}{{ i }}{%% endfor %%}\n' >model/chat_template.jinja
eval "$CHAT"
CASE

bad "A template that calls itself without end" <<'CASE'
add_tokenizer
printf '{%% macro again() %%}{{ again() }}{%% endmacro %%}{{ again() }}\n' >model/chat_template.jinja
eval "$CHAT"
CASE

bad "A template that writes gigabytes" <<'CASE'
add_tokenizer
printf '{{ "calm" * 10000000000 }}\n' >model/chat_template.jinja
eval "$CHAT"
CASE

bad "A chat prompt and no chat template" <<'CASE'
add_tokenizer
rm model/chat_template.jinja
$ kvcal generate model --prompt Hello --chat
CASE

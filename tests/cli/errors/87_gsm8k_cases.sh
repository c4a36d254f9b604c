topic "GSM8K" "Questions and examples are records with \`question\` and \`answer\`; here the model has a tokenizer and both files are otherwise sound."

# A tokenizer, questions and examples.
add_questions() {
  add_tokenizer
  cp "$MODELS/../eval/gsm8k_questions.jsonl" questions.jsonl
  cp "$MODELS/../eval/gsm8k_examples.jsonl" examples.jsonl
}
GSM='$ kvcal eval model --task gsm8k --dataset questions.jsonl --fewshot-dataset examples.jsonl --max-gen-toks 16'

bad "A question without an answer" <<CASE
add_questions
printf '{"question": "What is 1+1?"}\n' >>questions.jsonl
$GSM
CASE

bad "Questions that are text" <<CASE
add_questions
printf 'What is 1+1?\n' >questions.txt
\$ kvcal eval model --task gsm8k --dataset questions.txt --fewshot-dataset examples.jsonl --max-gen-toks 16
CASE

bad "Fewer examples than are wanted" <<CASE
add_questions
$GSM --num-fewshot 8
CASE

bad "Examples that are not given" 2 <<CASE
add_questions
\$ kvcal eval model --task gsm8k --dataset questions.jsonl
CASE

bad "Answers that are longer than the model's positions" <<CASE
add_questions
\$ kvcal eval model --task gsm8k --dataset questions.jsonl --fewshot-dataset examples.jsonl --max-gen-toks 128
CASE

bad "Turns without a chat template" 2 <<CASE
add_questions
$GSM --fewshot-as-multiturn true
CASE

bad "A chat template that is not there" <<CASE
add_questions
rm -f model/chat_template.jinja
$GSM --apply-chat-template
CASE

bad "A chat template that is not applied" 2 <<CASE
add_questions
$GSM --chat-template model/chat_template.jinja
CASE

bad "A token at the beginning that the tokenizer does not have" <<CASE
add_questions
echo '{}' >model/tokenizer_config.json
$GSM --add-bos-token true
CASE

bad "A repetition penalty that is no penalty" <<CASE
add_questions
printf '{"repetition_penalty": -1}\n' >model/generation_config.json
$GSM
CASE

bad "A gate that is no fraction" 2 <<CASE
add_questions
$GSM --min-exact-match most
CASE

bad "A cache memory that is no size" 2 <<CASE
add_questions
$GSM --cache-memory some
CASE

bad "NaN in the weights, when questions are answered" <<CASE
add_questions
set_element model/model.safetensors lm_head.weight 5 '\\x00\\x7e'
$GSM --num-fewshot 0
CASE

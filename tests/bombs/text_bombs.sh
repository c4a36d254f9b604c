# Templates that never end, regular expressions that backtrack, texts that are too long.

template_bomb() { # template_bomb TITLE TEMPLATE
  local quoted=${2//\'/\'\\\'\'}
  bomb "$1" "chat template" <<CASE
use_template '$quoted'
CASE
}
template_bomb "Three nested loops over range(10**9)" \
  '{% for a in range(10**9) %}{% for b in range(10**9) %}{% for c in range(10**9) %}{{ a }}{% endfor %}{% endfor %}{% endfor %}'
template_bomb "Three nested loops over range(5000)" \
  '{% for a in range(5000) %}{% for b in range(5000) %}{% for c in range(5000) %}{% endfor %}{% endfor %}{% endfor %}'
template_bomb "A macro that calls itself" '{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}'
template_bomb "A macro that calls itself twice" \
  '{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(900) }}'
template_bomb "A string that doubles" \
  '{% set n = namespace(s="xxxxxxxxxxxxxxxx") %}{% for i in range(64) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}'
template_bomb "A list that doubles" \
  '{% set n = namespace(l=[1]) %}{% for i in range(64) %}{% set n.l = n.l + n.l %}{% endfor %}{{ n.l }}'
template_bomb "A list that holds itself twice, 64 levels deep" \
  '{% set n = namespace(l=[1]) %}{% for i in range(64) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}'
template_bomb "A string times 10^12" '{{ "x" * 10**12 }}'
template_bomb "A list times 2^63" '{{ [1, 2, 3] * 9223372036854775807 }}'
template_bomb "A list times 9,999,000" '{{ [1] * 9999000 }}'
template_bomb "A tower of powers" '{{ 9**9**9**9 }}'
template_bomb "A width of 10^9" '{{ "%1000000000d" % 1 }}'
template_bomb "A format width of 10^9" '{{ "{:>1000000000}".format(1) }}'
template_bomb "An indentation of 10^9 on each line" '{{ ("a\n" * 1000)|indent(1000000000) }}'
template_bomb "A join of a million long texts" '{{ range(100000)|join("x" * 100000) }}'
template_bomb "A replacement that grows" '{{ ("a" * 100000)|replace("a", "b" * 100000) }}'
template_bomb "A sort of large ranges, again and again" \
  '{% for i in range(10**6) %}{% set x = range(100000)|sort(reverse=true)|list %}{% endfor %}'
template_bomb "100,000 opened parentheses" "{{ $(many 100000 '(')1"
template_bomb "100,000 times not" "{{ $(many 100000 'not ')1 }}"
template_bomb "20,000 nested ifs" "$(many 20000 '{% if 1 %}')"
template_bomb "A sum of 100,000 numbers" "{{ 1$(many 100000 '+1') }}{{ missing.x.y }}"
template_bomb "A chain of 100,000 attributes" "{{ messages$(many 100000 '.a') }}"
template_bomb "A chain of 100,000 filters" "{{ 1$(many 100000 '|abs') }}{{ missing.x.y }}"

template_bomb "A search of 100,000 characters in 16 million, again and again" \
  '{% set b = "a" * 100000 ~ "b" %}{% set a = "a" * 16000000 %}{% for i in range(100000) %}{{ b in a }}{% endfor %}'
template_bomb "A filter whose name has 500,000 parts" "{{ x|a$(many 500000 '.a') }}"
template_bomb "Half a million statements" "{% print $(many 500000 'a,')a %}"
template_bomb "A path of half a million attributes for each of 100,000 items" \
  '{% set p = "0." * 500000 ~ "0" %}{{ (["a"] * 100000)|sum(attribute=p) }}'
template_bomb "30 MB of lines" '{{ ("a\n" * 15000000).splitlines()|length }}{{ missing.x.y }}'
template_bomb "Twelve texts of 30 MB, one in the other" \
  "$(many 12 '{% set a %}{{ "x" * 30000000 }}')$(many 12 '{% endset %}')"

recipe_with() { # a recipe whose target is $1
  printf 'default_stage: {default_modifiers: {QuantizationModifier: {targets: ["%s"], scheme: FP8_DYNAMIC}}}\n' "$1" >recipe.yaml
}
bomb "A target that backtracks" recipe.yaml <<'CASE'
recipe_with 're:(([a-z._0-9]+)+)+!$'
CASE

bomb "A target of 4,000 nested groups" recipe.yaml <<'CASE'
recipe_with "re:$(many 2000 '(')$(many 2000 ')')"
CASE

bomb "A target whose repetitions multiply" recipe.yaml <<'CASE'
recipe_with 're:((((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}){1,1000})'
CASE

split_bomb() { # split_bomb TITLE REGEX TEXT
  bomb "$1" "$4" <<CASE
add_tokenizer
cat >model/tokenizer.json <<'JSON'
{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [], "unk_token": "a"},
 "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "$2"}, "behavior": "Isolated", "invert": false}}
JSON
$3
CASE
}
split_bomb "A Split that backtracks on a long text" '(a+)+\$' "{ printf '{\"text\": \"'; head -c 1000000 /dev/zero | tr '\\0' a; echo 'b\"}'; } >data.jsonl" ""
split_bomb "A Split that looks back from every place" '(?=(a+)+b)a' "{ printf '{\"text\": \"'; head -c 1000000 /dev/zero | tr '\\0' a; echo '\"}'; } >data.jsonl" ""
split_bomb "A Split whose repetitions multiply" '((((a{1,1000}){1,1000}){1,1000}){1,1000})' "echo '{\"text\": \"a\"}' >data.jsonl" "tokenizer.json"
split_bomb "A Split of 100,000 nested groups" "$(many 100000 '(')" "echo '{\"text\": \"a\"}' >data.jsonl" "tokenizer.json"

bomb "Merges that lead in a circle" tokenizer.json <<'CASE'
use_text abab
cat >model/tokenizer.json <<'JSON'
{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b", "ab a", "a ab"]}}
JSON
CASE

bomb "One record of 120 MB" data.jsonl <<'CASE'
add_tokenizer
{ printf '{"text": "'; head -c 120000000 /dev/zero | tr '\0' a; echo '"}'; } >data.jsonl
CASE

for kind in jsonl csv txt; do
  bomb "A data set of 100 MB of empty lines, .$kind" data.$kind <<CASE
head -c 100000000 /dev/zero | tr '\\0' '\\n' >data.$kind
$ kvcal calibrate model --recipe recipe.yaml --dataset data.$kind --output out
CASE
done

steps_bomb() { # steps_bomb TITLE KEY LIST STEP: 60 times the step
  bomb "$1" "the tokenizer makes more than" <<CASE
use_text 'a\u00e9'
{ printf '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "a"}, "$2": {"type": "Sequence", "$3": [%s' '$4'
  many ${5:-59} ',$4'; echo ']}}'; } >model/tokenizer.json
CASE
}
steps_bomb "A tokenizer of 60 normalizers that each double a text" normalizer normalizers \
  '{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}'
steps_bomb "A tokenizer of 60 pre-tokenizers that each double a text" pre_tokenizer pretokenizers \
  '{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}'
steps_bomb "A tokenizer of 16 templates that each repeat a text" post_processor processors \
  '{"type": "TemplateProcessing", "special_tokens": {}, "single": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}]}' 15

bomb "A tekken.json of 4,000,000 special tokens" tekken.json <<'CASE'
use_text hi
rm model/tokenizer.json
echo '{"config": {"pattern": "a", "default_num_special_tokens": 4000000}, "vocab": []}' >model/tekken.json
CASE

bomb "A WordPiece of words without end" tokenizer.json <<'CASE'
use_text "$(many 20000 a)"
{ printf '{"model": {"type": "WordPiece", "unk_token": "a", "max_input_chars_per_word": 1000000000, "vocab": {"a": 0, "'; many 20000 b; echo '": 1}}}'; } >model/tokenizer.json
CASE

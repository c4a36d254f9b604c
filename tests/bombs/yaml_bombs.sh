# YAML whose aliases multiply, that nests, or whose grid is too large.

laughs() { # laughs KEY: nine levels of ten aliases each
  local level
  printf '%s: &a0 [x, x, x, x, x, x, x, x, x, x]\n' "$1"
  for level in 1 2 3 4 5 6 7 8 9; do
    printf 'b%d: &a%d [%s]\n' $level $level "$(many 9 "*a$((level - 1)), ")*a$((level - 1))"
  done
}

bomb "A billion laughs in a recipe" recipe.yaml <<'CASE'
laughs default_stage >recipe.yaml
CASE

bomb "A billion laughs in a sweep" sweep.yaml <<'CASE'
laughs models >sweep.yaml
$ kvcal sweep sweep.yaml --output out
CASE

bomb "A billion laughs in a descriptor" data.yaml <<'CASE'
laughs name >data.yaml
$ kvcal calibrate model --recipe recipe.yaml --dataset data.yaml --output out
CASE

bomb "A million brackets in a recipe" recipe.yaml <<'CASE'
many 1000000 '[' >recipe.yaml
CASE

bomb "A list in a list, 500,000 times, in a sweep" sweep.yaml <<'CASE'
many 500000 '- ' >sweep.yaml
$ kvcal sweep sweep.yaml --output out
CASE

bomb "30,000 brackets in a descriptor" data.yaml <<'CASE'
many 30000 '[' >data.yaml
$ kvcal calibrate model --recipe recipe.yaml --dataset data.yaml --output out
CASE

bomb "A map of 200,000 keys in a recipe" recipe.yaml <<'CASE'
seq -f 'k%.0f:' 200000 | head -c 1000000 >recipe.yaml
CASE

bomb "A recipe of 1 GB" recipe.yaml <<'CASE'
truncate -s 1G recipe.yaml
CASE

bomb "A sweep of 1,000,000,000,000 cells" sweep.yaml <<'CASE'
cp "$DATA/sweep.yaml" .
sed -i -e 's/text.jsonl/data.jsonl/' -e '/^grid:/,$d' sweep.yaml
printf 'grid: {recipes: [max], num_samples: [%s], shuffle_seeds: [%s]}\n' "$(seq -s, 1 40000)" "$(seq -s, 1 40000)" >>sweep.yaml
$ kvcal sweep sweep.yaml --output out
CASE

bomb "A sweep of 2^40 samples" sweep.yaml <<'CASE'
cp "$DATA/sweep.yaml" .
sed -i -e 's/text.jsonl/data.jsonl/' -e '/^grid:/,$d' sweep.yaml
printf 'grid: {recipes: [max], num_samples: 2000000000000}\n' >>sweep.yaml
$ kvcal sweep sweep.yaml --output out
CASE

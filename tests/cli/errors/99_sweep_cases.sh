topic "Sweeps" \
  "What is wrong with a sweep's file stops it before anything runs. A cell that fails stops nothing: its error is in the table (docs/sweep.md)."

# A sweep beside model/ and data.jsonl, of which $1 replaces the grid.
write_sweep() {
  cp "$DATA/sweep.yaml" .
  sed -i -e 's/text.jsonl/data.jsonl/' -e '/^grid:/,$d' sweep.yaml
  printf 'grid: %s\n' "$1" >>sweep.yaml
}

bad "A sweep without a grid" <<'CASE'
write_sweep '{}'
sed -i '/^grid:/d' sweep.yaml
$ kvcal sweep sweep.yaml --output out
CASE

bad "An unknown key of a sweep" <<'CASE'
write_sweep '{}'
echo 'repeats: 3' >>sweep.yaml
$ kvcal sweep sweep.yaml --output out
CASE

bad "A chat template of a sweep that is not there" <<'CASE'
write_sweep '{}'
sed -i 's/^calibration: {/&chat_template: chat.jinja, /' sweep.yaml
$ kvcal sweep sweep.yaml --output out
CASE

bad "Records of a sweep to pass over that are no number" <<'CASE'
write_sweep '{}'
sed -i 's/^calibration: {/&skip_bad_records: some, /' sweep.yaml
$ kvcal sweep sweep.yaml --output out
CASE

bad "A dimension that a grid does not have" <<'CASE'
write_sweep '{kv_dtypes: fp8_e5m2}'
$ kvcal sweep sweep.yaml --output out
CASE

bad "A recipe that the sweep does not list" <<'CASE'
write_sweep '{recipes: [max, head_max]}'
$ kvcal sweep sweep.yaml --output out
CASE

bad "A mistake in a recipe that stands in the sweep" <<'CASE'
write_sweep '{}'
sed -i 's/observer: mse/observer: mes/' sweep.yaml
$ kvcal sweep sweep.yaml --output out
CASE

bad "A source of scales that is not there" <<'CASE'
write_sweep '{scales: kv_cache_scales.json}'
$ kvcal sweep sweep.yaml --output out
CASE

bad "A recipe for weights alone, whose scales of K and V are asked for" <<'CASE'
write_sweep '{recipes: static}'
sed -i 's/, kv_cache_scheme: {num_bits: 8, type: float, strategy: tensor}}}}}/}}}}/' sweep.yaml
$ kvcal sweep sweep.yaml --output out
CASE

bad "Scales to calibrate and no text" <<'CASE'
write_sweep '{}'
sed -i '/^calibration:/d' sweep.yaml
$ kvcal sweep sweep.yaml --output out
CASE

bad "A sweep of too many combinations" <<'CASE'
write_sweep "{num_samples: [$(seq -s, 1 200)], shuffle_seeds: [$(seq -s, 1 100)]}"
$ kvcal sweep sweep.yaml --output out
CASE

bad "A metric that the Pareto picture cannot show" <<'CASE'
write_sweep '{}'
echo 'pareto: {y: kl}' >>sweep.yaml
$ kvcal sweep sweep.yaml --output out
CASE

bad "A model of a sweep that is not there" <<'CASE'
write_sweep '{}'
mv model elsewhere
$ kvcal sweep sweep.yaml --output out
CASE

bad "A sweep without a folder for its results" 2 <<'CASE'
write_sweep '{}'
$ kvcal sweep sweep.yaml
CASE

bad "A folder for a sweep's results that holds something else" <<'CASE'
write_sweep '{}'
mkdir out
echo precious >out/old
$ kvcal sweep sweep.yaml --output out
CASE

bad "Results of a sweep in the model's folder" <<'CASE'
write_sweep '{}'
$ kvcal sweep sweep.yaml --output model/sweep
CASE

bad "Two things to do with a sweep" 2 <<'CASE'
write_sweep '{}'
$ kvcal sweep sweep.yaml --output out --list --collect
CASE

bad "Nothing to collect" <<'CASE'
write_sweep '{}'
$ kvcal sweep sweep.yaml --output out --collect
CASE

topic "Even channels" "\`smooth\` changes weights where it can undo the change; nothing is left behind."

bad "Smoothing of a model that caches a latent" <<'CASE'
use_model deepseek_v3
$ kvcal smooth model --dataset data.jsonl --output out
CASE

bad "Smoothing of quantized weights" <<'CASE'
use_model deepseek_v3_fp8
$ kvcal smooth model --dataset data.jsonl --output out
CASE

bad "Smoothing into the model's folder" <<'CASE'
$ kvcal smooth model --dataset data.jsonl --output model/even
CASE

bad "Smoothing without text to run" <<'CASE'
printf '' >empty.jsonl
$ kvcal smooth model --dataset empty.jsonl --output out
CASE

bad "Rewriting for a calibration whose output has no weights" 2 <<'CASE'
$ kvcal calibrate model --dataset data.jsonl --smooth --scales-only --output out
CASE

bad "Rewriting for an FP8 cache of another type" 2 <<'CASE'
$ kvcal calibrate model --dataset data.jsonl --smooth --kv-cache-dtype fp8_e5m2 --output out
CASE

bad "Statistics of a rewritten model" 2 <<'CASE'
$ kvcal calibrate model --dataset data.jsonl --smooth --kv-forward exact --save-statistics kept --output out
CASE

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

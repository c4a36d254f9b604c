topic "Checkpoints in front of engines" \
  "\`verify\` tells what is wrong with scales as findings on stdout and ends with 1; what is here stops it before."

bad "No engine" 2 <<'CASE'
$ kvcal verify model
CASE

bad "An unknown engine" 2 <<'CASE'
$ kvcal verify model --engine vlm
CASE

bad "A cache that no engine is asked for" 2 <<'CASE'
$ kvcal verify model --engine vllm --kv-cache-dtype int8
CASE

bad "A scales file for engines that is not there" <<'CASE'
$ kvcal verify model --engine sglang --kv-cache-dtype fp8 --scales scales.json
CASE

bad "A ModelOpt configuration that is no object" <<'CASE'
echo '[]' >model/hf_quant_config.json
$ kvcal verify model --engine vllm
CASE

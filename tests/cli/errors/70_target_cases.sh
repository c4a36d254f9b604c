topic "Targets and disks" "An output appears complete or not at all; nothing is left of one that failed."

bad "The target exists" <<'CASE'
mkdir out
echo precious >out/notes.txt
CASE

bad "The target to overwrite is a file" <<'CASE'
echo precious >out
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --overwrite
CASE

bad "The target to overwrite is a folder of somebody else" <<'CASE'
mkdir out
echo years of work >out/thesis.txt
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --overwrite
CASE

bad "The target to overwrite is a link" <<'CASE'
mkdir elsewhere
ln -s elsewhere out
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --overwrite
CASE

bad "The target holds the data" <<'CASE'
mkdir out
mv data.jsonl out
echo '{}' >out/kvcal_manifest.json
$ kvcal calibrate model --recipe recipe.yaml --dataset out/data.jsonl --output out --overwrite
CASE

bad "The target of another output is a named pipe" <<'CASE'
mkfifo page.html
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --html page.html --overwrite
CASE

bad "Plots to overwrite are a file" <<'CASE'
echo precious >plots
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --plots plots --overwrite
CASE

bad "The target lies below a file" <<'CASE'
echo precious >notes
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output notes/out
CASE

LONG_NAME=$(repeat 250 n)
bad "The target's name is too long" <<'CASE'
# It has 250 letters, and the folder it is made in some more.
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output $LONG_NAME
CASE

bad "A target in folders that do not exist, and bad data" <<'CASE'
# The folders on the way are made, and taken away again.
: >data.jsonl
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output new/folder/out
CASE

bad "The target is the model" <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output model --overwrite
CASE

bad "The target lies in the model folder" <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output model/fp8
CASE

bad "The target holds the model" <<'CASE'
mkdir out
mv model out
$ kvcal calibrate out/model --recipe recipe.yaml --dataset data.jsonl --output out --overwrite
CASE

bad "The target is the model by another name" <<'CASE'
ln -s model link
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output link/fp8
CASE

bad "The disk takes no more" <<'CASE'
# A limit of 32 KiB a file stands for the full disk.
$ (ulimit -f 32; kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --state none)
CASE

bad "The disk takes no scratch file" <<'CASE'
# --memory-limit moves hidden states to a scratch file beside the output. The limit is a little over what is needed without them.
for i in $(seq 200); do cat "$DATA/data.jsonl"; done >data.jsonl
least=$(kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --threads 1 --memory-limit 1 2>&1 | sed -n 's/.* which take \([0-9.]*\) MB$/\1/p')
awk "BEGIN { print $least + 1 \"MB\" }" >limit
$ (ulimit -f 32; kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --threads 1 --memory-limit "$(<limit)")
CASE

bad "A memory limit below one layer" <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --threads 1 --compute-dtype float32 --memory-limit 16KiB
CASE

bad "The state of an earlier run" <<'CASE'
# It is there because the disk took no more while the output was written.
(ulimit -f 32; kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out) 2>/dev/null || true
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out
CASE

bad "The state of another run" <<'CASE'
# What --resume finds was made with other options.
(ulimit -f 32; kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out) 2>/dev/null || true
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --resume --kv-forward exact --num-samples 1
CASE

bad "A state folder that holds other things" <<'CASE'
mkdir notes
echo years of work >notes/thesis.txt
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --state notes --overwrite
CASE

bad "A link in the state's folder" <<'CASE'
mkdir out.kvcal-state
ln -s ../model/config.json out.kvcal-state/journal.bin
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --overwrite
CASE

bad "A state folder that is another output, too" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --kv-forward exact --state kept --save-statistics kept
CASE

bad "A state folder in the output" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --state out/state
CASE

bad "A state folder in the model" <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --state model/state
CASE

bad "Going on without a state" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --state none --resume
CASE

bad "A share of the time that is none" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --state-share much
CASE

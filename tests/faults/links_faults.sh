# Links in a checkpoint, things that are no files, and indices that lead elsewhere. The setups say what becomes of a good room.

READERS=(calibrate convert scales generate inspect)
model_of() { # the checkpoint that command $1 reads
  case $1 in
    calibrate | scales) echo model ;;
    *) echo scaled ;;
  esac
}

checkpoint_case() { # checkpoint_case FAULT NAMED SETUP: MODEL in the setup is each command's checkpoint
  local name
  for name in "${READERS[@]}"; do
    case_of "$1" "$name" "fresh; ${3//MODEL/$(model_of "$name")}" "$2"
  done
}

for file in tokenizer.json config.json model-00002-of-00003.safetensors; do
  checkpoint_case "a link that leaves the checkpoint" "!$file: is a symbolic link to" \
    "mkdir ../elsewhere; mv MODEL/$file ../elsewhere/; ln -s ../../elsewhere/$file MODEL/$file"
  checkpoint_case "a link to a file of the system" "!$file: is a symbolic link to /etc/passwd" \
    "ln -sf /etc/passwd MODEL/$file; spoils MODEL/$file"
  checkpoint_case "the same with KVCAL_FOLLOW_LINKS=1" "nothing" \
    "export KVCAL_FOLLOW_LINKS=1; mkdir ../elsewhere; mv MODEL/$file ../elsewhere/; ln -s ../../elsewhere/$file MODEL/$file"
  checkpoint_case "a link within the checkpoint" "nothing" "mv MODEL/$file MODEL/.$file; ln -s .$file MODEL/$file"
  checkpoint_case "a link that leads nowhere" "$file|MODEL: has no config.json" "ln -sf nowhere MODEL/$file; spoils MODEL/$file"
  checkpoint_case "a link to itself" "$file|MODEL: has no config.json" "ln -sf $file MODEL/$file; spoils MODEL/$file"
  [[ $file == tokenizer.json ]] ||  # a folder of that name is nothing that a conversion would copy
    checkpoint_case "a folder in the place of a file" "$file" "rm MODEL/$file; mkdir MODEL/$file; spoils MODEL/$file"
  checkpoint_case "a named pipe in the place of a file" "$file" "rm MODEL/$file; mkfifo MODEL/$file; spoils MODEL/$file"
done
READERS=(calibrate convert scales generate)  # inspect shows which snapshot it is
checkpoint_case "a folder of the Hugging Face cache" "nothing" \
  'mkdir -p ../elsewhere/{blobs,snapshots/one}; for f in MODEL/*; do mv $f ../elsewhere/blobs/; ln -s ../../blobs/${f##*/} ../elsewhere/snapshots/one/; done; rmdir MODEL; ln -s ../elsewhere/snapshots/one MODEL'
for shard in ../MODEL/model-00001-of-00003.safetensors /etc/passwd ../../elsewhere.safetensors 'model\\u0000.safetensors' model.safetensors/; do
  checkpoint_case "a weight_map that leaves the checkpoint" "!weight_map names shard" \
    "sed -i 's#\"model-00001-of-00003.safetensors\"#\"$shard\"#' MODEL/model.safetensors.index.json; spoils MODEL/model.safetensors.index.json"
done
for file in recipe.yaml data.jsonl; do
  case_of "a named pipe in the place of a file" 'calibrate --state' "fresh; rm $file; mkfifo $file; spoils $file" "!$file"
  case_of "a folder in the place of a file" 'calibrate --state' "fresh; rm $file; mkdir $file; spoils $file" "!$file"
done

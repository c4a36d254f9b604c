#!/usr/bin/env python3
"""Runs kvcal with ids of the hub against a hub on this machine, with every fault that one may have.

    KVCAL=build/cpu/kvcal tests/cli/hub/check_hub.py [NAME...]       NAME: of a check, without "check_"
"""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hub_server import Fault, Hub, Repository, etag_of  # noqa: E402

TESTS = pathlib.Path(__file__).resolve().parents[2]
KVCAL = os.path.abspath(os.environ["KVCAL"])
WEIGHTS = "model.safetensors"
ID = "tiny-org/llama"
FETCH = ("generate", "--prompt", "The", "--max-new-tokens", "1")  # a command that reads weights


def model_files():
    files = {path.name: path.read_bytes() for path in (TESTS / "fixtures/models/llama").iterdir()
             if path.name in ("config.json", WEIGHTS)}
    for path in (TESTS / "cli/data").iterdir():
        if path.name.startswith("tokenizer") or path.name == "chat_template.jinja":
            files[path.name] = path.read_bytes()
    return files | {"README.md": b"# A card\n", "pytorch_model.bin": b"no", "onnx/model.onnx": b"no", ".gitattributes": b""}


def quantized_files():
    return {path.name: path.read_bytes() for path in (TESTS / "fixtures/fp8/static_kv").iterdir()
            if path.name in ("config.json", WEIGHTS)}


CHATS = b'{"messages": [{"role": "user", "content": "The sea was calm."}]}\n' * 4
USED = sorted(name for name in model_files() if name not in ("pytorch_model.bin", "onnx/model.onnx", ".gitattributes"))


class Trial:
    """One check's hub and cache."""

    def __init__(self, hub, folder):
        self.hub, self.folder = hub, folder
        self.cache = folder / "home/hub"
        hub.repositories["models/" + ID] = Repository(model_files())
        self.model = hub.repositories["models/" + ID]

    @property
    def repository(self):
        return self.cache / "models--tiny-org--llama"

    @property
    def snapshot(self):
        return self.repository / "snapshots" / self.model.commit

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith("HF_") and not name.lower().endswith("_proxy")}
        return kept | {"HF_HOME": str(self.folder / "home"), "HF_ENDPOINT": self.hub.endpoint} | more

    def start(self, *words, **environment):
        return subprocess.Popen([KVCAL, *words], env=self.environment(**environment), cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *words, status=0, **environment):
        process = self.start(*words, **environment)
        out, err = process.communicate(timeout=600)
        assert process.returncode == status, f"{words}: status {process.returncode}, expected {status}\n{out}{err}"
        return out if status == 0 else out + err

    def refused(self, *words, parts=(), **environment):
        said = self.run(*words, status=1, **environment)
        for part in parts:
            assert part in said, f"'{part}' is not in:\n{said}"
        return said

    def fetch(self, name=ID, **environment):
        return json.loads(self.run(*FETCH, name, "--json", **environment))

    def forget(self):
        """Empties the cache."""
        shutil.rmtree(self.cache)

    def nothing_visible(self):
        assert not self.snapshot.exists(), "a snapshot is there"
        assert not (self.repository / "refs").exists(), "a ref is there"

    def check_snapshot(self):
        """All used files are links to blobs that are named by their hash, and nothing else is there."""
        found = sorted(str(path.relative_to(self.snapshot)) for path in self.snapshot.rglob("*") if not path.is_dir())
        assert found == USED, found
        for name in USED:
            link = os.readlink(self.snapshot / name)
            assert link == "../../blobs/" + etag_of(name, self.model.files[name]), link
            assert (self.snapshot / name).read_bytes() == self.model.files[name]
        assert (self.repository / "refs/main").read_text() == self.model.commit
        assert not list(self.repository.rglob("*.incomplete")) and not list(self.repository.rglob("*.tmp"))


def check_download(t):
    t.fetch()
    t.check_snapshot()
    assert (t.cache / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    t.hub.log.clear()
    t.fetch()
    t.fetch(ID + "@main")
    t.fetch(ID + "@" + t.model.commit)
    t.fetch("hf://" + ID)
    assert not t.hub.log, "the cache was not enough"
    assert t.hub.repositories.pop("models/" + ID) and t.fetch(HF_HUB_OFFLINE="1")


def check_inspect(t):
    """Headers tell more than config.json, which is enough where nothing may be requested; scales are values."""
    found = json.loads(t.run("inspect", ID, "--json", "--html", "page.html"))
    assert "weights" not in found and found["path"] == ID, found
    names = sorted(path.name for path in t.snapshot.iterdir())
    assert names == ["config.json", "tokenizer.json", "tokenizer_config.json"], names
    t.hub.log.clear()
    process = t.start("inspect", ID, HF_HUB_OFFLINE="1")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and "without weights" in out, out + err
    assert f"note: {ID}: weights not fetched, config.json describes them" in err, err
    assert not t.hub.log, "the cache was not enough"
    t.fetch()
    t.check_snapshot()
    t.hub.log.clear()
    whole = json.loads(t.run("inspect", ID, "--json"))
    assert whole.pop("path") == str(t.snapshot) and found.pop("path") and whole == found, "the cache has them"
    assert not t.hub.log, "the cache was not enough"
    t.hub.repositories["models/" + ID + "-FP8"] = Repository(quantized_files())
    t.run("inspect", ID + "-FP8", "--json")
    t.refused("inspect", ID + "-FP8", HF_HUB_OFFLINE="1", parts=["has only a part: the snapshot in it lacks model.safetensors"])


def check_revisions(t):
    t.model.revisions = ("main", "v1", "refs/pr/3")
    t.fetch(ID + "@v1")
    assert (t.repository / "refs/v1").read_text() == t.model.commit
    assert not (t.repository / "refs/main").exists()
    t.fetch(ID + "@refs/pr/3")
    assert (t.repository / "refs/refs/pr/3").read_text() == t.model.commit
    t.refused(*FETCH, ID + "@v9", parts=[ID + "@v9: HTTP 404", "(Invalid rev id: v9)", "no revision 'v9'"])


def check_token(t):
    t.model.token = "secret-token"
    t.refused(*FETCH, ID, parts=[ID + ": HTTP 401 of " + t.hub.endpoint, "private: set HF_TOKEN or run hf auth login"])
    said = t.refused(*FETCH, ID, HF_TOKEN="wrong-token", parts=["the token may not read it"])
    assert "wrong-token" not in said
    t.nothing_visible()
    t.hub.log.clear()
    (t.folder / "home").mkdir(exist_ok=True)
    (t.folder / "home/token").write_text("secret-token\n")
    t.fetch()
    assert {one[3].get("Authorization") for one in t.hub.requests(host="hub")} == {"Bearer secret-token"}
    stored = t.hub.requests(host="storage")
    assert stored and not any("Authorization" in one[3] for one in stored), "the token went to another host"


def check_gated(t):
    t.model.token, t.model.is_gated = "secret-token", True
    t.refused(*FETCH, ID, parts=["HTTP 401", "gated: accept its terms at " + t.hub.endpoint + "/" + ID, "set HF_TOKEN"])
    t.refused(*FETCH, ID, HF_TOKEN="other", parts=["HTTP 403", "with the account of the token"])
    t.nothing_visible()


def check_not_there(t):
    t.refused(*FETCH, "tiny-org/none", parts=["tiny-org/none: HTTP 401", "there is no such repository, or it is private"])
    t.refused(*FETCH, "no-such-folder", parts=["no-such-folder: no such folder"])
    assert not t.hub.requests(ending="no-such-folder"), "a name without an owner is no id"
    del t.model.files[WEIGHTS]
    t.refused(*FETCH, ID, parts=[ID + ": has no safetensors, but pytorch_model.bin"])
    t.model.files[WEIGHTS] = b"x"
    t.model.files["../../outside.json"] = b"{}"
    t.refused(*FETCH, ID, parts=["'../../outside.json', expected a relative path"])
    assert not (t.folder / "outside.json").exists()


def check_folder_wins(t):
    folder = t.folder / ID
    folder.mkdir(parents=True)
    for name in ("config.json", WEIGHTS):
        (folder / name).write_bytes(t.model.files[name])
    t.run("verify", ID, "--engine", "vllm", "--allow-16-bit")
    assert not t.hub.log


def check_offline(t):
    t.refused(*FETCH, ID, HF_HUB_OFFLINE="1", parts=[
        ID + ": there is no such folder here, and the hub's cache " + str(t.cache) + " does not have it",
        "HF_HUB_OFFLINE forbids to download it"])
    assert not t.hub.log
    t.snapshot.mkdir(parents=True)
    (t.snapshot / "config.json").write_bytes(t.model.files["config.json"])
    (t.repository / "refs").mkdir()
    (t.repository / "refs/main").write_text(t.model.commit)
    t.refused(*FETCH, ID, HF_HUB_OFFLINE="1", parts=["has only a part: the snapshot in it lacks model.safetensors"])
    t.fetch()  # the rest is fetched
    assert os.readlink(t.snapshot / WEIGHTS).startswith("../../blobs/")
    t.refused(*FETCH, "a/b", HF_ENDPOINT="http://127.0.0.1:1", parts=["a/b: cannot reach http://127.0.0.1:1: "])


def check_faults_that_pass(t):
    t.hub.faults = {"": [Fault(status=503), Fault(status=429, headers={"Retry-After": "0"})],
                    "config.json": [Fault(status=429, headers={"Retry-After": "0"}), Fault(status=500)],
                    WEIGHTS: [Fault(status=502)]}
    t.fetch()
    t.check_snapshot()
    assert len(t.hub.requests("GET", "hub", "/config.json")) == 3


def check_faults_that_stay(t):
    t.hub.faults = {"": [Fault(status=429, headers={"Retry-After": "0"})] * 9}
    t.refused(*FETCH, ID, parts=["HTTP 429", "too many requests: wait a few minutes, or set HF_TOKEN"])
    t.hub.faults = {WEIGHTS: [Fault(status=503, headers={"Retry-After": "0"})] * 9}
    t.refused(*FETCH, ID, parts=[ID + ": " + WEIGHTS + ": HTTP 503", "the hub has a fault: try again later"])
    t.nothing_visible()
    t.hub.faults = {WEIGHTS: [Fault(status=503, headers={"Retry-After": "100000"})]}
    t.refused(*FETCH, ID, parts=["HTTP 503"])  # nobody waits for a day


def check_cut(t):
    half = len(t.model.files[WEIGHTS]) // 2
    t.hub.faults = {WEIGHTS: [Fault(cut_after=half), Fault(cut_after=100)]}
    t.fetch()
    t.check_snapshot()
    ranges = [one[3].get("Range") for one in t.hub.requests("GET", "storage", WEIGHTS)]
    assert ranges == [None, f"bytes={half}-", f"bytes={half + 100}-"], ranges


def check_cut_forever(t):
    """A hub that knows no ranges and cuts each answer makes no progress, however much it sends."""
    half = len(t.model.files[WEIGHTS]) // 2
    t.hub.faults = {WEIGHTS: [Fault(cut_after=half, ignores_range=True) for _ in range(100)]}
    t.refused(*FETCH, ID, parts=[f"{ID}: {WEIGHTS}: "])
    t.nothing_visible()
    assert len(t.hub.faults[WEIGHTS]) > 80, "asked again and again"


def check_one_etag(t):
    """Files under one ETag that is no hash cannot be told apart in the cache."""
    t.hub.etags = {"config.json": "same", "tokenizer_config.json": "same"}
    t.refused(*FETCH, ID, parts=["one ETag, 'same', which is no hash"])
    t.nothing_visible()


def check_resume(t):
    """A run that a signal ends leaves a part, from which the next one goes on."""
    half = len(t.model.files[WEIGHTS]) // 2
    go_on = threading.Event()
    t.hub.faults = {WEIGHTS: [Fault(cut_after=half, stalls=go_on)]}
    process = t.start(*FETCH, ID)
    assert t.hub.half_sent.wait(300)
    part = t.repository / "blobs" / (etag_of(WEIGHTS, t.model.files[WEIGHTS]) + ".incomplete")
    while process.poll() is None and not (part.exists() and part.stat().st_size == half):
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    go_on.set()
    assert process.returncode == 130 and "interrupted" in err, err
    t.nothing_visible()
    t.hub.log.clear()
    t.fetch()
    t.check_snapshot()
    assert [one[3].get("Range") for one in t.hub.requests("GET", "storage", WEIGHTS)] == [f"bytes={half}-"]


def check_without_ranges(t):
    half = len(t.model.files[WEIGHTS]) // 2
    t.hub.faults = {WEIGHTS: [Fault(cut_after=half), Fault(ignores_range=True)]}
    t.fetch()
    t.check_snapshot()


def check_wrong_part(t):
    """What an .incomplete file holds is not believed."""
    blobs = t.repository / "blobs"
    blobs.mkdir(parents=True)
    weights = t.model.files[WEIGHTS]
    (blobs / (etag_of(WEIGHTS, weights) + ".incomplete")).write_bytes(b"x" * (len(weights) // 2))
    config = t.model.files["config.json"]
    (blobs / (etag_of("config.json", config) + ".incomplete")).write_bytes(b"y" * (len(config) + 5))
    t.fetch()
    t.check_snapshot()


def check_damaged(t):
    t.hub.faults = {WEIGHTS: [Fault(is_damaged=True)], "config.json": [Fault(is_damaged=True)]}
    t.fetch()
    t.check_snapshot()


def check_damaged_twice(t):
    for name, kind in ((WEIGHTS, "SHA-256"), ("config.json", "git's SHA-1")):
        t.hub.faults = {name: [Fault(is_damaged=True)] * 2}
        t.refused(*FETCH, ID, parts=[f"{ID}: {name}: arrived damaged, twice: its {kind} is ",
                                        "the hub says " + etag_of(name, t.model.files[name])])
        t.nothing_visible()
        blob = t.repository / "blobs" / etag_of(name, t.model.files[name])
        assert not blob.exists() and not blob.with_name(blob.name + ".incomplete").exists()
        shutil.rmtree(t.repository)


def check_lock(t):
    """While another process holds a file's lock, it is that process's to fetch."""
    etag = etag_of(WEIGHTS, t.model.files[WEIGHTS])
    lock = t.cache / ".locks/models--tiny-org--llama" / (etag + ".lock")
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = t.start(*FETCH, ID)
        t.hub.await_request("GET", "/config.json")
        assert not t.hub.requests("GET", "storage")
        blob = t.repository / "blobs" / etag
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(t.model.files[WEIGHTS])
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert not t.hub.requests("GET", "storage"), "fetched again"
    t.check_snapshot()


def check_proxy(t):
    t.fetch(HF_ENDPOINT="http://hub.invalid", http_proxy=t.hub.endpoint)
    assert {one[3]["Host"] for one in t.hub.requests(host="hub")} == {"hub.invalid"}
    t.check_snapshot()


def check_certificates(t):
    """SSL_CERT_FILE names the certificates that are trusted; the machine's are not all."""
    certificate = t.folder / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", t.folder / "key.pem", "-out", certificate],
                   check=True, capture_output=True)
    both = t.folder / "both.pem"
    both.write_bytes(certificate.read_bytes() + (t.folder / "key.pem").read_bytes())
    with Hub(both) as hub:
        secure = Trial(hub, t.folder)
        secure.refused(*FETCH, ID, parts=[hub.endpoint], SSL_CERT_FILE="")
        secure.nothing_visible()
        secure.fetch(SSL_CERT_FILE=str(certificate))
        secure.check_snapshot()


def check_datasets(t):
    name = "tiny-org/chats"
    shards = {f"data/train-0000{i}-of-00002-0123456789abcdef.jsonl": CHATS for i in range(2)}
    t.hub.repositories["datasets/" + name] = Repository(shards | {"README.md": b"# Chats\n", "loader.py": b""})
    options = ("--num-samples", "6", "--reproducible", "--recipe", "fp8_kv_tensor")
    t.run("calibrate", ID, "--dataset", name, "-o", "out", *options)
    commit = t.model.commit
    manifest = json.loads((t.folder / "out/kvcal_manifest.json").read_text())
    text = json.dumps(manifest)
    assert f'"{ID}@{commit}"' in text and f'"{name}@{commit}/data/train-' in text, text
    t.hub.log.clear()
    t.run("calibrate", ID, "--dataset", name + "@main/data/train-*", "-o", "again", *options)
    assert not t.hub.log
    files = lambda folder: {path.name: path.read_bytes() for path in (t.folder / folder).iterdir()}  # noqa: E731
    assert files("out") == files("again")
    t.hub.repositories["datasets/tiny-org/splits"] = Repository({"test.jsonl": CHATS, "train.jsonl": CHATS})
    t.refused("calibrate", ID, "--dataset", "tiny-org/splits", "-o", "none", parts=[
        "--dataset: tiny-org/splits: holds 2 splits or parts; choose one: 'tiny-org/splits/test.jsonl'"])
    t.run("eval", ID, "--task", "perplexity", "--dataset", "tiny-org/splits/test.jsonl")
    t.refused("eval", ID, "--task", "perplexity", "--dataset", "ultrachat_200k", HF_HUB_OFFLINE="1", parts=[
        "--dataset: HuggingFaceH4/ultrachat_200k: ", "HF_HUB_OFFLINE forbids"])


def zstd_frame(data):
    """Zstandard's frame of one raw block of up to 255 bytes (RFC 8878)."""
    last_raw_block = (len(data) << 3 | 1).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd" + bytes([0x20, len(data)]) + last_raw_block + data


def check_named_dataset(t):
    """A descriptor's name fetches the splits that are read, and no other."""
    files = {"val.jsonl.zst": zstd_frame(b'{"text": "The sea was calm."}\n{"text": "It rained."}\n'), "README.md": b""}
    t.hub.repositories["datasets/mit-han-lab/pile-val-backup"] = Repository(files)
    t.run("eval", ID, "--task", "perplexity", "--dataset", "pile-val")
    assert t.hub.requests("GET", ending="val.jsonl.zst") and not t.hub.requests("GET", ending="backup/resolve/README.md")
    t.hub.log.clear()
    t.run("eval", ID, "--task", "perplexity", "--dataset", "pile-val")
    assert not t.hub.log


def check_all_commands(t):
    """Wherever a model's folder is taken, an id is."""
    t.run("calibrate", ID, "-o", "out", "--num-samples", "2", "--max-seq-length", "32")
    t.run("verify", ID, "--engine", "vllm", "--allow-16-bit")
    t.run("quantize", ID, "--scheme", "FP8_DYNAMIC", "-o", "quantized")
    t.run("generate", ID, "--prompt", "The", "--max-new-tokens", "2")
    t.run("eval", ID, "--task", "kl", "--dataset", "evaluation", "--max-seq-length", "16", "--num-samples", "2",
          "--reference", ID, "--variant", f"one=model:{ID}@main")
    t.run("calibrate", ID, "--scales-only", "-o", "overlay", "--num-samples", "2", "--max-seq-length", "32")
    t.run("apply", "overlay", ID, "-o", "applied")
    (t.folder / "sweep.yaml").write_text(
        f"name: hub\nmodels: [{ID}]\nrecipes: [fp8_kv_tensor]\ncalibration: {{dataset: calibration, max_seq_length: 32}}\n"
        "evaluation: {dataset: evaluation, max_seq_length: 16, num_samples: 2}\n"
        "grid: {kv_cache_dtypes: [fp8_e4m3], scales: calibrated, num_samples: 2}\n")
    t.run("sweep", "sweep.yaml", "-o", "swept")
    assert "llama" in (t.folder / "swept/results.json").read_text()


def main(checks):
    """checks: functions by their names, which begin with "check_"."""
    wanted = sys.argv[1:]
    checks = {name.removeprefix("check_"): check for name, check in checks.items()}
    failed = []
    for name in wanted or checks:
        with tempfile.TemporaryDirectory() as folder, Hub() as hub:
            try:
                checks[name](Trial(hub, pathlib.Path(folder)))
                print(f"{name}: as expected", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed.append(name)
                print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
    print(f"{len(wanted or checks)} checks, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main({name: check for name, check in globals().items() if name.startswith("check_")}))

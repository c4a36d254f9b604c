"""vLLM's OpenAI server as a process of its own, on 127.0.0.1, for as long as a `with` lasts.

    with Server(folder, "fp8", log) as server:
        answer = server.complete([1, 2, 3], max_tokens=8, logprobs=5)

The server and all that it starts share a process group, which ends with the block, with an exception, and with SIGTERM, SIGINT or
SIGHUP to this program. Waiting has a limit of START_SECONDS and ANSWER_SECONDS.
"""
import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

from engines_judge import free_port

START_SECONDS, ANSWER_SECONDS, STOP_SECONDS = 600, 600, 60
ENVIRONMENT = dict(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", TQDM_DISABLE="1",
                   TOKENIZERS_PARALLELISM="false")


def end_with_parent():
    """Also where this program is killed: PR_SET_PDEATHSIG of Linux."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


class Refused(Exception):
    """The server ended before it was healthy."""


def end_as_exceptions():
    """So that `with` ends its server at these signals too."""
    def end(number, _):
        raise SystemExit(128 + number)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)


# vLLM's plugin of every process: K and V, float32, onto E4M3 codes to the nearest as CUDA rounds, and a part in 2^18 away from zero, which a
# write that cuts bits off brings to the same code.
NEAREST = """
import torch


def register():
    from vllm import _custom_ops as ops
    write = ops.cpu_attn_reshape_and_cache

    def to_nearest(x, scale):
        return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * (scale * (1 + 2**-18))

    def write_nearest(key, value, *rest, k_scale, v_scale, kv_cache_dtype):
        assert key.dtype == torch.float32 and kv_cache_dtype in ("fp8", "fp8_e4m3"), (key.dtype, kv_cache_dtype)
        write(to_nearest(key, k_scale), to_nearest(value, v_scale), *rest, k_scale=k_scale, v_scale=v_scale, kv_cache_dtype=kv_cache_dtype)

    ops.cpu_attn_reshape_and_cache = write_nearest
"""


def write_plugin(home):
    """The folder for PYTHONPATH with NEAREST, installed as vLLM finds plugins: by an entry point."""
    about = home / "plugin" / "nearest_codes-1.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (home / "plugin" / "nearest_codes.py").write_text(NEAREST)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nearest-codes\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[vllm.general_plugins]\nnearest_codes = nearest_codes:register\n")
    return home / "plugin"


class Server:
    """dtype of weights and activations: float32. cache_dtype: the value of --kv-cache-dtype. log: a file for all that it prints."""

    def __init__(self, folder, cache_dtype, log, max_model_len=512, rounds_to_nearest=False):
        self.log, self.port, self.process = pathlib.Path(log), free_port(), None
        self.environment = os.environ | ENVIRONMENT
        if rounds_to_nearest:
            self.environment["PYTHONPATH"] = os.pathsep.join([str(write_plugin(self.log.parent)), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
        self.command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", "model",
                        "--host", "127.0.0.1", "--port", self.port, "--dtype", "float32", "--kv-cache-dtype", cache_dtype,
                        "--max-model-len", str(max_model_len), "--max-logprobs", "-1", "--enforce-eager"]

    def __enter__(self):
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                            env=self.environment, start_new_session=True,
                                            preexec_fn=end_with_parent)
        try:
            self.wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def wait_until_healthy(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise Refused(self.reason())
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:  # nobody listens yet
                time.sleep(0.5)
        raise TimeoutError(f"the server was not healthy after {START_SECONDS} s: see {self.log}")

    def reason(self):
        """The first error that ended a traceback, and the line behind it: later ones are of processes that waited for the first."""
        lines = [re.sub(r"^\(.*?\] ", "", line) for line in self.log.read_text(errors="replace").splitlines()] + [""]
        at = next((i for i, line in enumerate(lines) if re.match(r"[\w.]+(Error|Exception): ", line)), None)
        if at is None:
            return f"exit status {self.process.returncode}, no error in {self.log}"
        return " ".join(f"{lines[at]} {lines[at + 1]}".split())[:300]

    def complete(self, ids, max_tokens, logprobs):
        """{"ids": [..], "logprobs": [{id: natural logarithm, ..} a token]}, the greedy continuation of ids."""
        body = dict(model="model", prompt=ids, max_tokens=max_tokens, temperature=0, logprobs=logprobs, ignore_eos=True,
                    return_token_ids=True, return_tokens_as_token_ids=True)
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                choice = json.load(answer)["choices"][0]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{error}: {error.read().decode(errors='replace')[:300]}") from None
        tables = choice["logprobs"]["top_logprobs"]
        return {"ids": choice["token_ids"],
                "logprobs": [{int(name.removeprefix("token_id:")): value for name, value in table.items()} for table in tables]}

    def stop(self):
        """Ends the group: asked first, then killed."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
        self.process.wait(STOP_SECONDS)

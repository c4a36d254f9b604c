#!/usr/bin/env python3
"""What every command does to what it must not touch, and where its output cannot be written.

    KVCAL=build/cpu/kvcal tests/cli/outputs/check_outputs.py [NAME...]       NAME: of a check, without "check_"

Commands and options are those that the program's own help lists. A command without a row in ROWS fails, and so does an option that takes
a file or folder and is neither in INPUTS nor in one of its command's rows.
"""

import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parents[2]
KVCAL = os.path.abspath(os.environ["KVCAL"])
CALIBRATE = ["model", "--recipe", "recipe.yaml", "--dataset", "data.jsonl", "--threads", "1"]
# Options that take a file or folder to read.
INPUTS = {"--dataset", "--recipe", "--family-file", "--scales", "--model", "--statistics", "--reference", "--fewshot-dataset", "--config", "--from",
          "--chat-template"}
# Folders that a command works in, and does not replace: a user's own link to one is followed.
WORKED_IN = {"--state", ("sweep", "--output")}


class Row:
    """Arguments of a command that succeeds, its outputs (option -> usual target), and what it reads beside its arguments."""

    def __init__(self, arguments, outputs=None, reads=(), overwrites=True):
        self.arguments, self.outputs, self.overwrites = arguments, outputs or {}, overwrites
        self.also_reads = reads

    def reads(self, base):
        """Its arguments that are there, and what those name in their turn."""
        return list(dict.fromkeys([one for one in self.arguments if (base / one).exists()] + list(self.also_reads)))


# A command has a row for each of its tasks that has outputs of its own.
ROWS = [
    ("calibrate", Row(CALIBRATE + ["--kv-forward", "exact"],
                     {"--output": "out", "--save-statistics": "kept.safetensors", "--html": "page.html", "--plots": "plots", "--state": "state"})),
    ("try", Row(["model", "--dataset", "data.jsonl", "--threads", "1"], {"--output": "out"}, overwrites=False)),
    ("quantize", Row(["model", "--scheme", "FP8_DYNAMIC"], {"--output": "out"})),
    ("scales", Row(["--statistics", "statistics.safetensors", "--recipe", "recipe.yaml", "--model", "model"], {"--output": "out"})),
    ("smooth", Row(["model", "--dataset", "data.jsonl", "--threads", "1"], {"--output": "out"})),
    ("convert", Row(["checkpoint", "--format", "tgi"], {"--output": "out"})),
    ("apply", Row(["overlay", "model"], {"--output": "out"})),
    ("generate", Row(["model", "--prompt", "The sea", "--max-new-tokens", "4", "--threads", "1"])),
    ("eval", Row(["model", "--task", "kl", "--dataset", "data.jsonl", "--kv-cache-dtype", "fp8", "--unit-scales", "--threads", "1"],
                {"--html": "page.html", "--plots": "plots"})),
    ("eval", Row(["model", "--task", "gsm8k", "--dataset", "gsm8k_questions.jsonl", "--fewshot-dataset", "gsm8k_examples.jsonl", "--num-fewshot", "1",
                  "--max-gen-toks", "4", "--threads", "1"], {"--log-samples": "samples.jsonl"})),
    ("eval", Row(["checkpoint", "--task", "sensitivity", "--dataset", "data.jsonl", "--kl-budget", "1", "--threads", "1"],
                 {"--output-recipe": "chosen.yaml"})),
    ("sweep", Row(["sweep.yaml", "--threads", "1"], {"--output": "results"}, ["model", "data.jsonl"], overwrites=False)),
    ("inspect", Row(["checkpoint"], {"--html": "page.html", "--plots": "plots"})),
    ("verify", Row(["checkpoint", "--engine", "vllm"])),
    ("engines", Row([])),
    ("families", Row([])),
    ("synth", Row(["--from", "model", "--outliers", "k:pairs=1,factor=16"], {"--output": "out"})),
    ("synth", Row(["--config", "model/config.json"], {"--output": "out"})),
    ("completion", Row(["bash"])),
    ("man", Row([])),
    ("help", Row([])),
    ("version", Row([])),
]

SWEEP = """name: small
models: [model]
calibration: {dataset: data.jsonl, max_seq_length: 16}
evaluation: {dataset: data.jsonl, num_samples: 2}
grid:
  - {kv_cache_dtypes: [auto, fp8_e4m3], scales: unit, recipes: []}
"""


class Room:
    """A folder with everything that commands read."""

    def __init__(self, base, folder):
        self.folder = folder
        shutil.copytree(base, folder, symlinks=True)

    def run(self, command, arguments, **how):
        return subprocess.run([KVCAL, command, *arguments], cwd=self.folder, timeout=600,
                              **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment(), **how})

    def snapshot(self):
        found = {}
        for path in sorted(self.folder.rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else os.readlink(path) if path.is_symlink() else None
            found[str(path.relative_to(self.folder))] = (stat.S_IFMT(status.st_mode), status.st_ino, content)
        return found

    def leftovers(self):
        return [str(path) for path in self.folder.rglob("*") if ".partial-" in path.name or path.name.endswith(".kvcal-lock")]


def environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return kept | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": "hub", "LC_ALL": "C"}


def make_base(folder):
    shutil.copytree(TESTS / "fixtures/models/llama", folder / "model")
    for path in (TESTS / "cli/data").iterdir():
        if path.is_file():
            shutil.copy(path, folder / ("model" if path.suffix == ".jinja" or "tokenizer" in path.name else "") / path.name)
    for path in (TESTS / "fixtures/eval").glob("gsm8k_*.jsonl"):
        shutil.copy(path, folder)
    (folder / "sweep.yaml").write_text(SWEEP)
    for arguments in (["calibrate", *CALIBRATE, "--kv-forward", "exact", "--save-statistics", "statistics.safetensors", "--output", "checkpoint"],
                      ["calibrate", *CALIBRATE, "--scales-only", "--output", "overlay"]):
        subprocess.run([KVCAL, *arguments], cwd=folder, check=True, capture_output=True, env=environment())


def help_of(command):
    return subprocess.run([KVCAL, "help", *command], check=True, capture_output=True, text=True).stdout


def commands():
    listed = re.search(r"^Commands:\n(.*?)\n\n", help_of([]), re.M | re.S)[1]
    return re.findall(r"^  ([a-z]+) ", listed, re.M)


def path_options(command):
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+) (?:FILE|FOLDER|PATH)\b", help_of([command]), re.M))


class Failures:
    def __init__(self):
        self.count, self.failed = 0, 0

    def expect(self, holds, what):
        self.count += 1
        if not holds:
            self.failed += 1
            print("FAILED", what, flush=True)


def whole_arguments(row, target_of=None, only=None):
    """The row's arguments with its outputs, one of which may go elsewhere; the needed --output and `only` where given."""
    arguments = list(row.arguments)
    for option, usual in row.outputs.items():
        target = (target_of or {}).get(option, usual)
        if only is None or option in (only, "--output"):
            arguments += [option, str(target)]
    return arguments


# Each makes something at a path where an output is to appear.
def make_fifo(path):
    os.mkfifo(path)


def make_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def make_device(path):
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        make_socket(path)  # who may not make a device may make this


def make_link_to_file(path):
    path.symlink_to("data.jsonl")


def make_link_to_folder(path):
    (path.parent / "elsewhere").mkdir()
    path.symlink_to("elsewhere")


def make_file(path):
    path.write_text("precious")


def make_folder(path):
    path.mkdir()
    (path / "thesis.txt").write_text("years of work")


KINDS = [make_fifo, make_socket, make_device, make_link_to_file, make_link_to_folder, make_file, make_folder]


def is_replaced(command, option, kind, takes_file):
    """Whether this may be there: a file for a file, and a user's link to a folder that the command works in."""
    if kind is make_file:
        return takes_file
    return kind is make_link_to_folder and bool(WORKED_IN & {option, (command, option)})


def check_targets(scratch, base, failures):
    for command, row in ROWS:
        files = set(re.findall(r"(--[a-z-]+) FILE\b", help_of([command])))
        for option in row.outputs:
            for kind in KINDS:
                if not is_replaced(command, option, kind, option in files):
                    refuse(scratch, base, failures, command, row, option, "nod", kind)


def refuse(scratch, base, failures, command, row, option, target, make=None):
    room = Room(base, scratch / "room")
    if make:
        make(room.folder / target)
    before = room.snapshot()
    arguments = whole_arguments(row, {option: target}, only=option) + (["--overwrite"] if row.overwrites else [])
    done = room.run(command, arguments)
    what = f"{command} {option} {target} ({make.__name__ if make else 'an input'})"
    failures.expect(done.returncode in (1, 2), f"{what}: status {done.returncode}, {done.stderr[-300:]}")
    failures.expect(done.stderr.count(b"error: ") == 1, f"{what}: no error, {done.stderr[-300:]}")
    failures.expect(room.snapshot() == before, f"{what}: the folder has changed: {changes(before, room.snapshot())}")
    shutil.rmtree(room.folder)


def changes(before, after):
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def check_inputs(scratch, base, failures):
    """An output that is an input, lies in one, or holds one."""
    for command, row in ROWS:
        for option in row.outputs:
            for read in row.reads(base):
                near = f"{read}/inside" if (base / read).is_dir() else str(pathlib.Path(read).parent)
                for target in dict.fromkeys([read, ".", near]):
                    refuse(scratch, base, failures, command, row, option, target)


def check_rows(scratch, base, failures):
    """Every command and option has its place here, and every row succeeds, so that what is refused is refused for its target."""
    listed = commands()
    with_row = {command for command, _ in ROWS}
    failures.expect(set(listed) == with_row, f"commands are {listed}, rows are {sorted(with_row)}")
    for command in listed:
        known = INPUTS.union(*(row.outputs for name, row in ROWS if name == command))
        failures.expect(path_options(command) <= known, f"{command}: neither read nor written: {path_options(command) - known}")
    for command, row in ROWS:
        room = Room(base, scratch / "room")
        done = room.run(command, whole_arguments(row))
        failures.expect(done.returncode == 0, f"{command}: status {done.returncode}, {done.stderr[-500:]}")
        failures.expect(not room.leftovers(), f"{command}: left {room.leftovers()}")
        shutil.rmtree(room.folder)


def check_standard_output(scratch, base, failures):
    """A full disk, a reader that has gone, and a closed descriptor: never success, and nothing half-written."""
    for command, row in ROWS:
        for where in ("full", "gone", "closed"):
            room = Room(base, scratch / "room")
            reading, writing = os.pipe()
            os.close(reading)
            full = os.open("/dev/full", os.O_WRONLY)
            how = {"full": {"stdout": full}, "gone": {"stdout": writing}, "closed": {"stdout": None, "preexec_fn": lambda: os.close(1)}}[where]
            done = room.run(command, whole_arguments(row), **how)
            os.close(full)
            os.close(writing)
            what = f"{command}, standard output {where}"
            says = b"standard output could not be written whole" in done.stderr
            wanted = (128 + signal.SIGPIPE, False) if where == "gone" else (1, True)
            failures.expect((done.returncode, says) == wanted, f"{what}: status {done.returncode}, {done.stderr[-300:]}")
            failures.expect(not room.leftovers(), f"{what}: left {room.leftovers()}")
            shutil.rmtree(room.folder)


def catches_sigterm(process):
    """Whether the program has come so far that it handles the signal; the system would end it before."""
    try:
        caught = re.search(r"SigCgt:\t(\w+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return False
    return caught is not None and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1 == 1


def check_signals(scratch, base, failures):
    """SIGTERM twice: as soon as the program handles it, and as soon as an output grows."""
    for command, row in ROWS:
        terminate(scratch, base, failures, command, row, lambda process, _: catches_sigterm(process))
        if "--output" in row.outputs:
            terminate(scratch, base, failures, command, row, lambda _, new_names: bool(new_names))


def terminate(scratch, base, failures, command, row, holds):
    room = Room(base, scratch / "room")
    text = (room.folder / "data.jsonl").read_text()
    (room.folder / "data.jsonl").write_text(text * 50)
    before = set(os.listdir(room.folder))
    with subprocess.Popen([KVCAL, command, *whole_arguments(row)], cwd=room.folder, env=environment(), stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE) as process:
        while process.poll() is None and not holds(process, set(os.listdir(room.folder)) - before):
            time.sleep(0.001)
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
        message = process.stderr.read()
    failures.expect(process.returncode in (0, 130), f"{command}: status {process.returncode} after SIGTERM, {message[-300:]}")
    failures.expect(not room.leftovers(), f"{command}: left {room.leftovers()} after SIGTERM")
    done = process.returncode == 0
    failures.expect(done or command == "sweep" or not (room.folder / "out").exists(), f"{command}: left an output after SIGTERM")
    shutil.rmtree(room.folder)


def check_elsewhere(scratch, base, failures):
    """Each output in a folder of its own, none of which the program may write for another reason."""
    for command, row in ROWS:
        room = Room(base, scratch / "room")
        (room.folder / "tmp").mkdir()
        targets = {option: scratch / "elsewhere" / str(place) / usual for place, (option, usual) in enumerate(row.outputs.items())}
        for target in targets.values():
            target.parent.mkdir(parents=True)
        done = room.run(command, whole_arguments(row, targets), env=environment() | {"TMPDIR": str(room.folder / "tmp")})
        failures.expect(done.returncode == 0, f"{command}, outputs elsewhere: status {done.returncode}, {done.stderr[-300:]}")
        for option, target in targets.items():
            # A state is gone once its run has ended well.
            failures.expect(target.exists() == (option != "--state"), f"{command} {option}: nothing at {target}")
        shutil.rmtree(scratch / "elsewhere", ignore_errors=True)
        shutil.rmtree(room.folder)


def landlock_version():
    ask_version = 1
    return ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, ask_version)


def thread_statuses(process):
    for path in pathlib.Path(f"/proc/{process}/task").glob("*/status"):
        try:
            yield path.read_text()
        except (FileNotFoundError, ProcessLookupError):
            pass  # the thread has ended


def check_confinement(scratch, base, failures):
    """A command that writes gives up all other writing, where the kernel can take it; NoNewPrivs is a sign of it."""
    for command, row in ROWS:
        if "--output" not in row.outputs:
            continue
        room = Room(base, scratch / "room")
        (room.folder / "data.jsonl").write_text((room.folder / "data.jsonl").read_text() * 50)
        with subprocess.Popen([KVCAL, command, *whole_arguments(row)], cwd=room.folder, env=environment(), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            seen = False
            while not seen and process.poll() is None:
                seen = any("NoNewPrivs:\t1" in text for text in thread_statuses(process.pid))
        failures.expect(process.returncode == 0, f"{command}: status {process.returncode} where it is confined")
        failures.expect(seen == (landlock_version() >= 1), f"{command}: confined {seen}, Landlock {landlock_version()}")
        shutil.rmtree(room.folder)


def main():
    checks = {name[6:]: check for name, check in globals().items() if name.startswith("check_")}
    failures = Failures()
    with tempfile.TemporaryDirectory(prefix="kvcal-outputs-") as name:
        scratch = pathlib.Path(name)
        base = scratch / "base"
        base.mkdir()
        make_base(base)
        for wanted in sys.argv[1:] or checks:
            checks[wanted](scratch, base, failures)
    print(f"{failures.count} checks, {failures.failed} failed")
    sys.exit(failures.failed > 0 or failures.count == 0)


if __name__ == "__main__":
    main()

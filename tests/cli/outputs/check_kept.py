#!/usr/bin/env python3
"""Every file of every folder that the program reads back, in place of which lies something else.

    KVCAL=build/cpu/kvcal tests/cli/outputs/check_kept.py [NAME...]       NAME: of a row in KEPT

The files are those that a run leaves, whatever they are called. The command that reads them must end with an error, and change nothing
outside, or give the bytes that it gives without the damage: never others, and never a signal.
"""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

from check_outputs import CALIBRATE, KVCAL, SWEEP, TESTS, Failures, Room, changes, environment, make_base

LAYERS = 6
RUN = [*CALIBRATE, "--reproducible", "--state", "state", "--state-share", "100%", "--output", "out"]


def run(folder, *arguments):
    done = subprocess.run([KVCAL, *arguments], cwd=folder, capture_output=True, env=environment(), timeout=600)
    assert done.returncode == 0, (arguments, done.stderr)


def stop_when(folder, arguments, holds):
    """Runs the program a few milliseconds at a time until holds(), and ends it with SIGTERM there; whether it came there."""
    with subprocess.Popen([KVCAL, *arguments], cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not holds():
            process.send_signal(signal.SIGCONT)
            time.sleep(0.001)
            process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
    return process.returncode == 130


def make_long_model(folder):
    """Of layers enough that a run can be ended between two of them."""
    config = json.loads((folder / "model/config.json").read_text())
    config |= {"num_hidden_layers": LAYERS, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    (folder / "config.json").write_text(json.dumps(config))
    shutil.rmtree(folder / "model")
    run(folder, "synth", "--config", "config.json", "--seed", "1", "model")


def make_state(folder, is_other):
    make_long_model(folder)
    lines = (folder / "data.jsonl").read_text().splitlines()
    (folder / "data.jsonl").write_text("\n".join((lines[::-1] if is_other else lines) * 20) + "\n")
    assert any(stop_when(folder, ["calibrate", *RUN], (folder / "state/state.json").exists) for _ in range(20)), "no run left a state"


def make_sweep(folder, is_other):
    grid = "grid:\n  - {kv_cache_dtypes: fp8_e4m3, recipes: recipe}\n"
    sweep = SWEEP[:SWEEP.index("grid:")] + "recipes: [recipe.yaml]\n" + grid
    (folder / "sweep.yaml").write_text(sweep.replace("num_samples: 2", "num_samples: 3") if is_other else sweep)
    run(folder, "sweep", "sweep.yaml", "--threads", "1", "--output", "results")


def make_statistics(folder, is_other):
    (folder / "kept").mkdir()
    more = ["--max-seq-length", "8"] if is_other else []
    run(folder, "calibrate", *CALIBRATE, *more, "--kv-forward", "exact", "--save-statistics", "kept/statistics.safetensors", "--output", "made")
    shutil.rmtree(folder / "made")


class BatchKeysValues:
    """A folder that `make(room, is_other)` leaves, the command that reads it, and what that command gives."""

    def __init__(self, make, folder, command, gives, is_named=False):
        self.make, self.folder, self.command, self.gives = make, folder, command, gives
        self.is_named = is_named  # by the user, who may name another run's


KEPT = {
    "state": BatchKeysValues(make_state, "state", ["calibrate", *RUN, "--resume"], ["out"]),
    "sweep": BatchKeysValues(make_sweep, "results", ["sweep", "sweep.yaml", "--threads", "1", "--output", "results"], ["results"]),
    "statistics": BatchKeysValues(make_statistics, "kept", ["scales", "--statistics", "kept/statistics.safetensors", "--recipe", "recipe.yaml", "--model",
                                                 "model", "--output", "out"], ["out"], is_named=True),
}


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode))


# Each puts something else in place of the file: damage(path, room, other), other: the same file of another run, where it has one.
def link_to_own_bytes(path, room, other):
    path.rename(room / "elsewhere")
    path.symlink_to(room / "elsewhere")


def link_to_model(path, room, other):
    path.unlink()
    path.symlink_to(room / "model/config.json")


def link_to_device(path, room, other):
    path.unlink()
    path.symlink_to("/dev/zero")


def second_name_of_model(path, room, other):
    path.unlink()
    os.link(room / "model/config.json", path)


def fifo(path, room, other):
    path.unlink()
    os.mkfifo(path)


def folder(path, room, other):
    path.unlink()
    path.mkdir()


def flipped(part):
    def flipped_bit(path, room, other):
        content = bytearray(path.read_bytes())
        place = min(int(len(content) * part), len(content) - 1)
        if content:
            content[place] ^= 1 << (place % 7)
        path.write_bytes(content)
    return flipped_bit


def cut_to(part):
    def cut(path, room, other):
        os.truncate(path, int(path.stat().st_size * part))
    return cut


def longer(path, room, other):
    path.write_bytes(path.read_bytes() * 2)


def other_run(path, room, other):
    if other.exists():
        shutil.copy(other, path)


DAMAGES = [link_to_own_bytes, link_to_model, link_to_device, second_name_of_model, fifo, folder, longer, other_run,
           *(flipped(part) for part in (0, 0.2, 0.4, 0.6, 0.8, 1)), *(cut_to(part) for part in (0, 0.5, 0.99))]


def whole(room, names):
    """Names and bytes of what a command gives, without the files of a sweep that no reader looks into."""
    found = {}
    for name in names:
        for path in sorted([room / name, *(room / name).rglob("*")]):
            is_internal = path.name in ("timings.json", "hashes.json", "sweep.lock") or path.parent.name == "locks"
            if stat.S_ISREG(path.lstat().st_mode) and not is_internal:
                found[str(path.relative_to(room))] = path.read_bytes()
    return found


def outside(room, kept):
    """Everything but what the command may write."""
    own = {kept.folder, *kept.gives, "elsewhere"}
    return {name: status for name, status in room.snapshot().items() if name.split("/")[0] not in own}


def check(name, kept, scratch, failures):
    rooms = {}
    for is_other in (False, True):
        rooms[is_other] = scratch / f"{name}-{is_other}"
        shutil.copytree(scratch / "base", scratch / "room")
        kept.make(scratch / "room", is_other)  # where it is read, because a file may hold its place
        (scratch / "room").rename(rooms[is_other])
    room = Room(rooms[False], scratch / "room")
    expected_status = room.run(kept.command[0], kept.command[1:])
    failures.expect(expected_status.returncode == 0, f"{name}: status {expected_status.returncode} without damage, {expected_status.stderr[-300:]}")
    expected = whole(room.folder, kept.gives)
    shutil.rmtree(room.folder)
    files = files_of(rooms[False] / kept.folder)
    failures.expect(bool(files), f"{name}: keeps no file")
    for file in files:
        for damage in DAMAGES:
            if damage is other_run and kept.is_named:
                continue
            check_damage(name, kept, file, damage, rooms, expected, scratch, failures)


def check_damage(name, kept, file, damage, rooms, expected, scratch, failures):
    room = Room(rooms[False], scratch / "room")
    damage(room.folder / kept.folder / file, room.folder, rooms[True] / kept.folder / file)
    elsewhere = room.folder / "elsewhere"
    before, moved = outside(room, kept), elsewhere.read_bytes() if elsewhere.exists() else None
    done = room.run(kept.command[0], kept.command[1:])
    what = f"{name}: {damage.__name__} of {file}"
    failures.expect(done.returncode in (0, 1), f"{what}: status {done.returncode}, {done.stderr[-300:]}")
    if done.returncode == 0:
        found = whole(room.folder, kept.gives)
        failures.expect(found == expected, f"{what}: other bytes and status 0: {changes(expected, found)}")
    else:
        failures.expect(done.stderr.count(b"error: ") == 1, f"{what}: no error, {done.stderr[-300:]}")
        failures.expect(not (room.folder / "out").exists(), f"{what}: an output of a run that failed")
    failures.expect(outside(room, kept) == before, f"{what}: changed {changes(before, outside(room, kept))}")
    failures.expect(moved is None or elsewhere.read_bytes() == moved, f"{what}: wrote through a link")
    failures.expect(not room.leftovers() or kept.folder == "state", f"{what}: left {room.leftovers()}")
    shutil.rmtree(room.folder)


def main():
    failures = Failures()
    with tempfile.TemporaryDirectory(prefix="kvcal-kept-") as name:
        scratch = pathlib.Path(name)
        (scratch / "base").mkdir()
        make_base(scratch / "base")
        for row in sys.argv[1:] or KEPT:
            check(row, KEPT[row], scratch, failures)
    print(f"{failures.count} checks, {failures.failed} failed")
    sys.exit(failures.failed > 0 or failures.count == 0)


if __name__ == "__main__":
    main()

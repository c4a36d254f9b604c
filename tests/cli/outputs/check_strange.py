#!/usr/bin/env python3
"""Every input of every command, in place of which lies something that nobody means.

    KVCAL=build/cpu/kvcal tests/cli/outputs/check_strange.py [COMMAND...]

Inputs are the paths in the rows of check_outputs.py, the files of each folder among them, and the options of the program's own help that
take a file or folder to read and that no row gives. The command must end with one error, or, where it does not read the file, as it would
without; within limits of memory and of processor time that the system enforces: never with a signal, and with nothing written.

Of the strange things each place gets a third, in turns, so that all are tried with every command; with KVCAL_WALK=whole, all.
"""

import itertools
import os
import pathlib
import re
import resource
import shutil
import sys
import tempfile

from check_outputs import INPUTS, ROWS, Failures, Room, help_of, make_base, make_device, make_fifo, make_socket, whole_arguments

# Of data, which is what a program takes, not of addresses, which allocators reserve.
MOST_BYTES = 512 << 20
MOST_SECONDS = 20
NOISE = bytes((i * 167 + i // 251) % 256 for i in range(65536))


def limit():
    if "KVCAL_IS_SANITIZED" in os.environ:  # whose shadow memory counts as data, and whose checks take time
        return
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))


def empty(path):
    path.write_bytes(b"")


def sparse(path):
    path.touch()
    os.truncate(path, 600 << 20)


def brackets(path):
    path.write_bytes(b"[" * 2_000_000)


def braces(path):
    path.write_bytes(b'{"a":' * 400_000)


def long_line(path):
    once = path.parents[len(path.parts) - 1 - path.parts.index("room")] / "long_line"
    if not once.exists():
        once.write_bytes(b'{"text": "' + b"a" * 64_000_000 + b'"}\n')
    os.link(once, path)


def noise(path):
    path.write_bytes(NOISE)


def wide_text(path):
    path.write_text('{"text": "a"}', encoding="utf-32")


def empty_folder(path):
    path.mkdir()


def folder_of_pipes(path):
    path.mkdir()
    for name in ("config.json", "model.safetensors", "data.jsonl", "kvcal_manifest.json"):
        os.mkfifo(path / name)


def nothing(path):
    pass


def link_to_itself(path):
    path.symlink_to(path.name)


def link_to_zeros(path):
    path.symlink_to("/dev/zero")


# A run that is as it was with each of these does not open what lies there.
CLOSED = [nothing, empty, link_to_itself]
STRANGE = [sparse, brackets, braces, long_line, noise, wide_text, empty_folder, folder_of_pipes, link_to_zeros, make_fifo, make_socket,
           make_device]
SHARES = 1 if os.environ.get("KVCAL_WALK") == "whole" else 3
turns = itertools.count()


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def inputs_of(row, base):
    """The paths that a row reads, and the files in them."""
    named = row.reads(base)
    inside = [str(path.relative_to(base)) for one in named if (base / one).is_dir() for path in sorted((base / one).rglob("*"))]
    return list(dict.fromkeys(named + inside))


def other_options(command):
    """Options of the command that read and that no row of it gives."""
    given = {word for name, row in ROWS if name == command for word in row.arguments}
    return sorted(INPUTS & set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+) ", help_of([command]), re.M)) - given)


def names(room):
    """Of everything, without the folders that a command works in and goes on in later."""
    found = {str(path.relative_to(room.folder)) for path in room.folder.rglob("*")}
    return {name for name in found if name.split("/")[0] not in ("state", "out.kvcal-state", "results")}


def check(command, row, arguments, place, base, scratch, failures):
    if all([try_one(strange, command, row, arguments, place, base, scratch, failures) for strange in CLOSED]):
        return
    for strange in STRANGE[next(turns) % SHARES::SHARES]:
        try_one(strange, command, row, arguments, place, base, scratch, failures)


def try_one(strange, command, row, arguments, place, base, scratch, failures):
    """Whether the command ends as it would without."""
    room = Room(base, scratch / "room")
    path = room.folder / place
    if path.exists():
        remove(path)
    strange(path)
    before = names(room)
    done = room.run(command, whole_arguments(row) + arguments, preexec_fn=limit)
    what = f"{command} {' '.join(arguments)}: {strange.__name__} at {place}"
    failures.expect(done.returncode in (0, 1, 2), f"{what}: status {done.returncode}, {done.stderr[-300:]}")
    if done.returncode != 0:
        failures.expect(done.stderr.count(b"error: ") == 1, f"{what}: no error, {done.stderr[-300:]}")
        failures.expect(len(done.stderr) < 16384, f"{what}: {len(done.stderr)} bytes of messages")
        failures.expect(names(room) == before, f"{what}: left {names(room) ^ before}")
    else:
        # What a command does not read may be anything; what its row names is read.
        failures.expect(place not in row.arguments, f"{what}: no error")
    shutil.rmtree(room.folder)
    return done.returncode == 0


def main():
    failures = Failures()
    with tempfile.TemporaryDirectory(prefix="kvcal-strange-") as name:
        scratch = pathlib.Path(name)
        base = scratch / "base"
        base.mkdir()
        make_base(base)
        seen = set()
        for command, row in ROWS:
            if sys.argv[1:] and command not in sys.argv[1:]:
                continue
            for place in inputs_of(row, base):
                check(command, row, [], place, base, scratch, failures)
            for option in other_options(command) if command not in seen else []:
                check(command, row, [option, "strange.json"], "strange.json", base, scratch, failures)
            seen.add(command)
    print(f"{failures.count} checks, {failures.failed} failed")
    sys.exit(failures.failed > 0 or failures.count == 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/checkpoint/bad: files that must be refused, and expected.json with the message of each
(after the file's path; "*" at the end stands for the JSON parser's own words). Every file is also given to the real safetensors package: either it refuses
it too, or `stricter` says why we do.

Versions: Python 3.11, safetensors 0.8.0. Run: python checkpoint_bad.py
"""
import json
import pathlib
import struct

import safetensors

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "checkpoint" / "bad"
F32 = '"dtype":"F32","shape":[1],"data_offsets":[0,4]'


def file(header, data=b"", length=None):
    raw = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(text, data=b"\0" * 4):
    return file('{"a":{%s}}' % text, data)


HEADER = "header: "
A = "tensor 'a': "
JSON = HEADER + "not valid JSON at "

# name → (bytes, message, why we are stricter than the package or None)
CASES = {
    "empty": (b"", "0 bytes, a safetensors file has at least 8", None),
    "seven-bytes": (b"1234567", "7 bytes, a safetensors file has at least 8", None),
    "git-lfs-pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n",
        "is a git LFS pointer, not the weights; fetch them with `git lfs pull`", None),
    "header-over-limit": (
        file("{}", length=100_000_001),
        "header of 100000001 bytes, the format's limit is 100000000; not a safetensors file?", None),
    "header-length-all-ones": (
        file("{}", length=2**64 - 1),
        "header of 18446744073709551615 bytes, the format's limit is 100000000; not a safetensors file?",
        None),
    "header-longer-than-file": (
        file("{}", length=100), "header of 100 bytes does not fit a file of 10 bytes", None),
    "header-empty": (file(""), JSON + "line 1, column 1: *", None),
    "header-cut-short": (file('{"a":{"dtype":"F32"'), JSON + "line 1, column 20: *", None),
    "header-not-utf8": (file(b'{"\xff":{}}'), JSON + "line 1, column 3: *", None),
    "header-byte-order-mark": (
        file("\ufeff{}"), HEADER + "begins with a byte order mark, expected '{'", None),
    "header-array": (file("[]"), HEADER + "is an array, expected an object", None),
    "header-null": (file("null"), HEADER + "is null, expected an object", None),
    "header-trailing-nul": (
        file('{"a":{%s}}\0' % F32, b"\0" * 4), JSON + "line 1, column 55: a NUL byte", None),
    "header-trailing-text": (file('{"a":{%s}}x' % F32, b"\0" * 4), JSON + "line 1, column 55: *", None),
    "header-lone-surrogate": (
        file('{"\\ud800":{%s}}' % F32, b"\0" * 4), JSON + "line 1, column 9: *", None),
    "header-deep": (
        file('{"a":{%s,"x":%s%s}}' % (F32, "[" * 200, "]" * 200), b"\0" * 4),
        HEADER + "JSON nests deeper than 128 levels", None),
    "tensor-twice": (
        file('{"a":{%s},"a":{%s}}' % (F32, F32), b"\0" * 4),
        HEADER + "key 'a' appears twice in one object",
        "the package keeps the last; which one is meant cannot be known"),
    "metadata-twice": (
        file('{"__metadata__":{},"__metadata__":{}}'),
        HEADER + "key '__metadata__' appears twice in one object", None),
    "metadata-key-twice": (
        file('{"__metadata__":{"k":"a","k":"b"}}'), HEADER + "key 'k' appears twice in one object",
        "the package keeps the last; which one is meant cannot be known"),
    "entry-key-twice": (
        entry('"dtype":"F32",' + F32), HEADER + "key 'dtype' appears twice in one object", None),
    "metadata-number": (
        file('{"__metadata__":{"k":1}}'),
        "__metadata__: key 'k' is an integer (1), expected a string", None),
    "metadata-array": (
        file('{"__metadata__":[]}'),
        "__metadata__: key '__metadata__' is an array ([]), expected an object of strings", None),
    "entry-null": (file('{"a":null}'), A + "is null, expected an object", None),
    "entry-array": (
        file('{"a":["F32",[1],[0,4]]}', b"\0" * 4), A + "is an array, expected an object",
        "an accident of the package's parser; the format describes an object"),
    "dtype-missing": (
        entry('"shape":[1],"data_offsets":[0,4]'),
        A + "key 'dtype' is missing, expected the name of a dtype", None),
    "dtype-number": (
        entry('"dtype":7,"shape":[1],"data_offsets":[0,4]'),
        A + "key 'dtype' is an integer (7), expected the name of a dtype", None),
    "dtype-unknown": (
        entry('"dtype":"F33","shape":[1],"data_offsets":[0,4]'), A + "unknown dtype 'F33'", None),
    "dtype-lower-case": (
        entry('"dtype":"f32","shape":[1],"data_offsets":[0,4]'), A + "unknown dtype 'f32'", None),
    "shape-missing": (
        entry('"dtype":"F32","data_offsets":[0,4]'),
        A + "key 'shape' is missing, expected an array of integers", None),
    "shape-text": (
        entry('"dtype":"F32","shape":"1","data_offsets":[0,4]'),
        A + "key 'shape' is a string (\"1\"), expected an array of integers", None),
    "shape-negative": (
        entry('"dtype":"F32","shape":[-1],"data_offsets":[0,4]'),
        A + "key 'shape' is an integer (-1), expected integers that are not negative", None),
    "shape-fraction": (
        entry('"dtype":"F32","shape":[1.0],"data_offsets":[0,4]'),
        A + "key 'shape' is a number with a fraction (1.0), expected integers that are not negative",
        None),
    "shape-dimension-2-to-63": (
        entry('"dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0]', b""),
        A + "shape holds 9223372036854775808, the limit is 9223372036854775807",
        "dimensions are 64-bit signed here; no real tensor comes near"),
    "shape-overflow": (
        entry('"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]'),
        A + "4294967296 times 4294967296 overflows 64 bits", None),
    "shape-bytes-overflow": (
        entry('"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]'),
        A + "4611686018427387904 times 32 overflows 64 bits", None),
    "shape-too-large": (
        entry('"dtype":"F32","shape":[2],"data_offsets":[0,4]'),
        A + "shape [2] of F32 needs 8 bytes, the header gives 4", None),
    "shape-too-small": (
        entry('"dtype":"F32","shape":[1],"data_offsets":[0,8]', b"\0" * 8),
        A + "shape [1] of F32 needs 4 bytes, the header gives 8", None),
    "shape-half-a-byte": (
        entry('"dtype":"F4","shape":[3],"data_offsets":[0,2]', b"\0" * 2),
        A + "shape [3] of F4 does not fill whole bytes", None),
    "offsets-missing": (
        entry('"dtype":"F32","shape":[1]'),
        A + "key 'data_offsets' is missing, expected an array of two integers", None),
    "offsets-one": (
        entry('"dtype":"F32","shape":[1],"data_offsets":[0]'),
        A + "key 'data_offsets' is an array ([0]), expected an array of two integers", None),
    "offsets-three": (
        entry('"dtype":"F32","shape":[1],"data_offsets":[0,4,4]'),
        A + "key 'data_offsets' is an array ([0,4,4]), expected an array of two integers", None),
    "offsets-negative": (
        entry('"dtype":"F32","shape":[1],"data_offsets":[-4,0]'),
        A + "key 'data_offsets' is an integer (-4), expected integers that are not negative", None),
    "offsets-fraction": (
        entry('"dtype":"F32","shape":[1],"data_offsets":[0,4.0]'),
        A + "key 'data_offsets' is a number with a fraction (4.0), expected integers that are not negative",
        None),
    "offsets-backwards": (
        entry('"dtype":"F32","shape":[0],"data_offsets":[4,0]'),
        A + "data_offsets [4, 0] end before they begin", None),
    "offsets-huge": (
        entry('"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615]'),
        A + "data_offsets [18446744073709551612, 18446744073709551615] leave the data of 4 bytes; "
        "the file may be cut short", None),
    "data-cut-short": (
        entry(F32, b"\0" * 3),
        A + "data_offsets [0, 4] leave the data of 3 bytes; the file may be cut short", None),
    "data-trailing": (
        entry(F32, b"\0" * 5), "the tensors end at byte 4 of the data, the file holds 5", None),
    "data-without-tensors": (
        file("{}", b"\0"), "the tensors end at byte 0 of the data, the file holds 1", None),
    "hole-at-start": (
        entry('"dtype":"F32","shape":[1],"data_offsets":[4,8]', b"\0" * 8),
        A + "data_offsets [4, 8] leave a hole after the tensor before, which ends at 0", None),
    "hole": (
        file('{"a":{%s},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}' % F32, b"\0" * 12),
        "tensor 'b': data_offsets [8, 12] leave a hole after the tensor before, which ends at 4", None),
    "overlap": (
        file('{"a":{%s},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}' % F32, b"\0" * 6),
        "tensor 'b': data_offsets [2, 6] overlap the tensor before, which ends at 4", None),
    "same-bytes": (
        file('{"a":{%s},"b":{%s}}' % (F32, F32), b"\0" * 4),
        "tensor 'b': data_offsets [0, 4] overlap the tensor before, which ends at 4", None),
    "name-with-escape": (
        file('{"a\\u001b[31m":{"dtype":"F33","shape":[],"data_offsets":[0,4]}}', b"\0" * 4),
        "tensor 'a\\x1b[31m': unknown dtype 'F33'", None),
    "name-very-long": (
        file('{"%s":null}' % ("n" * 300)),
        "tensor '" + "n" * 200 + "...': is null, expected an object", None),
}

def package_refuses(raw):
    try:
        safetensors.deserialize(raw)
    except safetensors.SafetensorError:
        return True
    return False


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*.safetensors"):
        old.unlink()
    expected = {}
    for name, (raw, message, stricter) in sorted(CASES.items()):
        (OUT / (name + ".safetensors")).write_bytes(raw)
        expected[name] = {"message": message}
        assert package_refuses(raw) == (stricter is None), name
        if stricter:
            expected[name]["stricter"] = stricter
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(len(CASES), "files,", sum(1 for c in CASES.values() if c[2]), "stricter than the package")


main()

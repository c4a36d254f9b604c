"""Writes regex.json and unicode.json of tests/fixtures/text/tokenizers: what the `tokenizers` library matches with
expressions that other engines read otherwise, and hashes of what its normalizers make of every code point.

Usage: tokenizers_unicode_cases.py OUT      needs: pip install tokenizers==0.23.3
"""
import json
import os
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

REGEX = [
    ("[a-z&&[^aeiou]]+", "abcde"), ("[a[0-9]c]+", "ab1c"), ("[^a[0-9]]+", "ab1cd"), ("a{2}+", "aaaa aaa"), ("a{,2}b", "aaab b"),
    ("(?m:a.c)", "a\nc"), ("a.c", "a\nc"), ("^b$", "a\nb\nc"), (r"\h+", "xfFz9"), (r"[\w-]+", "a-b c"), (r"[\p{L}-]+", "a-b c"),
    (r"\p{^L}+", "a12b"), (r"[\P{L}x]+", "ax1b"), ("[[:punct:]]+", "a+=b😀c!"), ("x*+x", "xxx"), (r"\bcat\b", "cat concat cat² ²cat"),
    (r"[[:alpha:]]+", "abé1²ⓐ漢"), (r"[[:^alpha:]]+", "ab é1 2"), (r"[[:space:]]+", "a \u180e\u3000b"), (r"\s+", "a\u180e \u0085b\u200bc"),
    (r"\w+", "aⒶ²½_‿\u200da\u0301"), (r"\d+", "12٣४²𝟘"), (r"\p{Han}+", "漢〇々ー\U00031350\U0002ebf0"), (r"\p{Hiragana}+", "かなーカ"),
    (r"(?i:étÉ)", "ÉTÉ été étE"), (r"(?i)ſ", "s S ſ"), (r"a(?=b)|b", "abab"), (r"(?<=\s)\S+", "one two  three"), (r"a|ab|abc", "abcab"),
    (r"[^\s\p{L}\p{N}]+", "a.b,\u0301 \U0001e5ff"), (r"\p{Lu}\p{Ll}*", "AbcD éÉa"), (r"[\]\-\^&]+", "a]-^&b"), (r"\x41\u0042\x{43}", "ABC"), (r"[一-龥]+", "漢字kana"),
    (r"(?>a+)b", "aaab"), (r"(\w)\1", "aabbcd"), (r"\A\w", "ab ab"), (r"b\z", "b ab"), (r"$", "a\nb"), (r"[a-c&&b-d]+", "abcd"), (r"(?:)", "añ"),
]
COMBINED = "\u0323\u0301"


def fnv(texts):
    value = 0xcbf29ce484222325
    for text in texts:
        for byte in text.encode():
            value = (value ^ byte) * 0x100000001b3 % 2**64
    return str(value)


def main(out):
    rows = []
    for pattern, text in REGEX:
        pieces = pre_tokenizers.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str(text)
        rows.append([pattern, text, [piece for piece, _ in pieces]])
    points = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF]
    hashes = {}
    for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"):
        normalizer = getattr(normalizers, name)()
        hashes[name] = fnv(normalizer.normalize_str(c) for c in points)
        hashes[name + " combined"] = fnv(normalizer.normalize_str(c + COMBINED + c) for c in points)
    for name, value in (("regex.json", rows), ("unicode.json", hashes)):
        with open(os.path.join(out, name), "w", encoding="utf-8") as file:
            file.write(json.dumps(value, ensure_ascii=False, indent=0 if name == "unicode.json" else None) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])

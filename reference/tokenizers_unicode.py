"""Writes lib/unicode/unicode_tables.cc: the Unicode properties that the `tokenizers` library uses.

Every part of that library carries its own Unicode version, so the tables are read off the library itself, one
code point at a time: general categories from its regular expressions (Oniguruma), the others from the component
that uses them. A property that differs from its general category in few places is stored as those places.

Usage: tokenizers_unicode.py OUT.cc      needs: pip install tokenizers==0.23.3 unicodedata2==18.0.0
"""
import sys

import unicodedata2 as ucd
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So "
              "Zs Zl Zp Cc Cf Cs Co Cn").split()
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def matched(pattern):
    """Code points that the pattern matches: those that a removing split leaves out."""
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = set()
    for start in range(0, len(CODE_POINTS), 8192):
        block = CODE_POINTS[start:start + 8192]
        left = {ord(c) for piece, _ in split.pre_tokenize_str("".join(map(chr, block))) for c in piece}
        found.update(c for c in block if c not in left)
    return found


def ranges(points):
    result = []
    for c in sorted(points):
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def general_categories():
    category = {c: "Cs" for c in range(0xD800, 0xE000)}
    for name in CATEGORIES:
        for c in matched(r"\p{%s}" % name):
            category[c] = name
    return category


def case_runs(lower):
    """(first, last, stride, difference) of the mapping; U+0130 maps to two and is left to the code."""
    pairs = sorted((c, ord(s)) for c, s in lower.items() if len(s) == 1)
    runs = []
    for c, target in pairs:
        if runs:
            first, last, stride, difference = runs[-1]
            step = c - last
            if target - c == difference and step in (1, 2) and stride in (0, step):
                runs[-1] = [first, c, step, difference]
                continue
        runs.append([c, c, 0, target - c])
    return [[f, l, s or 1, d] for f, l, s, d in runs]


def numbers(name, kind, values, comment):
    lines, line = [f"// {comment}", f"const {kind} {name}[] = {{"], "   "
    for value in values:
        text = f" {value},"
        if len(line) + len(text) > 100:
            lines.append(line)
            line = "   "
        line += text
    return "\n".join(lines + [line, "};", f"const size_t {name}Count = {len(values)};"]) + "\n"


def as_gaps(points):
    """Ranges as: distance from the end of the previous one, length."""
    values, at = [], 0
    for first, last in ranges(points):
        values += [first - at, last - first + 1]
        at = last + 1
    return values


def main(out):
    category = general_categories()
    runs, at = [], 0
    while at < 0x110000:
        end = at
        while end < 0x110000 and category[end] == category[at]:
            end += 1
        runs.append((end - at) * 32 + CATEGORIES.index(category[at]))
        at = end

    def group(*names):
        return {c for c in CODE_POINTS if category[c] in names or category[c][0] in names}

    word = pre_tokenizers.Whitespace()
    words = {c for c in CODE_POINTS if len(word.pre_tokenize_str(f"a{chr(c)}a")) == 1}
    punct = pre_tokenizers.Punctuation()
    puncts = {c for c in CODE_POINTS if len(punct.pre_tokenize_str(chr(c) * 2)) == 2}
    digits = pre_tokenizers.Digits(True)
    numeric = {c for c in CODE_POINTS if len(digits.pre_tokenize_str(chr(c) * 2)) == 2}
    strip = normalizers.StripAccents()
    marks = {c for c in CODE_POINTS if strip.normalize_str("a" + chr(c)) == "a"}
    bert = dict(handle_chinese_chars=False, lowercase=False)
    accents = normalizers.BertNormalizer(clean_text=False, strip_accents=True, **bert)
    nonspacing = {c for c in CODE_POINTS if accents.normalize_str("a" + chr(c)) == "a"}
    clean = normalizers.BertNormalizer(clean_text=True, strip_accents=False, **bert)
    control = {c for c in CODE_POINTS if clean.normalize_str("a" + chr(c)) == "a"}

    nfd, nfc, nfkd = normalizers.NFD(), normalizers.NFC(), normalizers.NFKD()
    frozen = set()
    for c in CODE_POINTS:
        s = chr(c)
        if nfd.normalize_str(s) == s and ucd.combining(s) and c not in (0x334, 0x345):
            if nfd.normalize_str(f"a{s}\u0334") == f"a{s}\u0334" and ucd.combining(s) > 1:
                frozen.add(c)
            elif nfd.normalize_str(f"a\u0345{s}") == f"a\u0345{s}" and ucd.combining(s) < 240:
                frozen.add(c)
        if ucd.decomposition(s) and nfkd.normalize_str(s) == s:
            frozen.add(c)
        if ucd.decomposition(s) and ucd.decomposition(s)[0] != "<":
            parts = ucd.normalize("NFD", s)
            if nfc.normalize_str(parts) != ucd.normalize("NFC", s):
                frozen.update(ord(p) for p in parts if ord(p) > 0xFFFF)
    low = normalizers.Lowercase()
    lower = {c: low.normalize_str(chr(c)) for c in CODE_POINTS if low.normalize_str(chr(c)) != chr(c)}
    assert [c for c, s in lower.items() if len(s) > 1] == [0x130]
    late = {c for c in CODE_POINTS if category[c] != "Cn"} - {
        c for c in CODE_POINTS if unicode14(c)}

    parts = [
        "// Written by reference/tokenizers_unicode.py; do not edit. Sources and meaning: unicode_tables.h.\n"
        '#include "unicode/unicode_tables.h"\n\nnamespace kvcal::unicode_tables {\n',
        "// clang-format off",
        numbers("kCategoryRuns", "uint32_t", runs, "General categories: length * 32 + category"),
        numbers("kWordDiffers", "uint32_t", as_gaps(words ^ group("L", "M", "Nd", "Nl", "Pc")),
                "\\w of the library's plain expressions against L, M, Nd, Nl, Pc"),
        numbers("kPunctuationDiffers", "uint32_t",
                as_gaps(puncts ^ (group("P") | {ord(c) for c in "$+<=>^`|~"})), "Against P and ASCII's"),
        numbers("kNumericDiffers", "uint32_t", as_gaps(numeric ^ group("N")), "Against N"),
        numbers("kCombiningMarkDiffers", "uint32_t", as_gaps(marks ^ group("M")), "Against M"),
        numbers("kNonspacingMarkDiffers", "uint32_t", as_gaps(nonspacing ^ group("Mn")), "Against Mn"),
        numbers("kControlDiffers", "uint32_t",
                as_gaps(control ^ (group("Cc", "Cf", "Co") - {9, 10, 13})), "Against Cc, Cf, Co"),
        numbers("kFrozen", "uint32_t", as_gaps(frozen), "Inert in normalization"),
        numbers("kAfterUnicode14", "uint32_t", as_gaps(late), "Assigned after Unicode 14"),
        numbers("kLowerRuns", "int32_t", [v for run in case_runs(lower) for v in run],
                "Lower case: first, last, stride, difference"),
        "// clang-format on\n\n}  // namespace kvcal::unicode_tables\n",
    ]
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join(parts))


def unicode14(c):
    import unicodedata  # Python 3.11 carries Unicode 14
    assert unicodedata.unidata_version == "14.0.0", "run with Python 3.11"
    return unicodedata.category(chr(c)) != "Cn"


if __name__ == "__main__":
    main(sys.argv[1])

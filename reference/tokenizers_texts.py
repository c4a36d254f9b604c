"""Our texts for the tokenizer tests: what small tokenizers are trained on, and hard ones to encode."""

TRAINING = [
    "The quick brown fox jumps over the lazy dog. It wasn't the dog's fault, they'll say, and I'm sure we've seen it.",
    "def measure(values, limit=448.0):\n    for index, value in enumerate(values):\n        if abs(value) > limit:\n"
    "            return {'index': index, 'value': value}\n    return None\n",
    "In 2024 the town counted 1,234,567 visitors, 12.5% more than in 2023; each paid about 7 euros.",
    "Die Straße führt über den Fluß, vorbei an Bäumen und Häusern, bis zum alten Bahnhof. Schöne Grüße!",
    "L'été dernier, nous avons mangé des crêpes à la fenêtre; ç'était déjà l'après-midi.",
    "El niño comió una manzana y corrió hacia el jardín, ¿verdad? ¡Qué día tan bonito!",
    "Быстрая коричневая лиса прыгает через ленивую собаку. Сегодня хорошая погода.",
    "今天天气很好,我们去公园散步。他说：“明天见！”", "昨日はとても暑かったので、海へ行きました。カメラを忘れた。",
    "오늘은 날씨가 좋아서 산책을 했습니다.", "ذهب الولد إلى المدرسة صباحا وقرأ كتابا جديدا.",
    "הילד הלך לבית הספר וקרא ספר חדש.", "मैं आज बाजार गया और फल खरीदे।", "วันนี้อากาศดีมาก เราไปเดินเล่นกัน",
    "A scale is what a code is multiplied by; the scales of keys and values are stored for each layer of the model.",
    "SELECT name, count(*) FROM visits WHERE year >= 2020 GROUP BY name ORDER BY 2 DESC;\n\n\n\tindent\r\nwindows\r\n",
    "😀 smile 👍🏽 thumb 👨‍👩‍👧 family 🇩🇪 flag ❤️ heart ✓ check → arrow ∑ sum ≤ less € euro",
]

HARD = [
    "", " ", "  ", "\n", "\t\t", " \n \n", "a", " a", "a ", "  a  ", "   leading and trailing   ",
    "Hello, world!", "Hello  world", "I'm, you're, he'S, WE'LL, they'D, 'tis, '' 's 'x 'ſ 'ſad",
    "don't can't won't'd've", "naïve café", "nai\u0308ve cafe\u0301", "Å Å A\u030a e\u0301\u0327 e\u0327\u0301",
    "ﬁ ﬂ ﬃ ½ ² Ⅷ ㎏ ＡＢＣ １２３ ｶﾞ ①②", "ẛ̣ ḍ̇ q̣̇", "각 가 ᄀ ᆨ 힣", "İstanbul ISTANBUL ıstanbul ΑΣ ΌΣΟΣ ǅ",
    "ß ẞ ŉ ǰ ΐ", "漢字かな交じり文", "中文，标点。“引号”！", "한국어 문장입니다.", "𠮷野家 𝕳𝖊𝖑𝖑𝖔 𐍈",
    "مرحبا بالعالم، كيف الحال؟", "שָׁלוֹם עוֹלָם", "क्षत्रिय हिन्दी में", "ภาษาไทยไม่มีช่องว่าง",
    "👨‍👩‍👧‍👦 family", "🇩🇪🇫🇷🇯🇵", "👍🏽👍🏿", "❤️‍🔥 1️⃣ #️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "a😀b 😀 😀😀",
    "1234567890", "3.14159 -2e10 0xFF 1,000,000 ½ ⅔ Ⅻ ① ² ３ ٣٤٥ १२३ ௧௨௩ 四 𝟘𝟙𝟚", "v1.2.3-rc4 a1b2c3 12ab34",
    "x=1;y = x+2 # comment\n", "if (a && b) { return c->d[0]; } // done", "#include <vector>\nint main() {\n\treturn 0;\n}\n",
    "    four\n        eight\n\ttab\n  \n   two", "line\r\nwindows\r\n\r\nold mac\rend", "trailing newlines\n\n\n", "\n\n\nleading",
    "a\u00a0b\u2003c\u2028d\u2029e\u3000f\u0085g\u1680h\u202fi\u180ej\u200bk\ufeffl", "\u00a0\u00a0x", "x\u3000", " \u3000 ",
    "\x00\x01\x02\x1f\x7f\x80\x9f", "nul\x00inside", "\u200d\u200c\ufe0f\u0301", "\u0301start", "e\u0301\u0301\u0301\u0300",
    "\ufffd \ufffe \uffff \U0010ffff \ue000", "▁ ▁▁a ▁b ▁", "a▁b", "Ġ Ċ Ā ą", "<0x41> <0xE2><0x96>", "<unk> <s> </s>",
    "<|endoftext|>", "<|im_start|>user\nHello<|im_end|>\n", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>",
    "<|endof<|endoftext|>text|>", "<|im_start|", "before <mask> after", "before<mask>after", "  <mask>  ", "<mask> <mask>",
    "word wordy sword word.", "word,word word_ _word ünword wordé", "Day DAY day yesterday", "x <tag> y<tag>z <tag>",
    "[CLS] hello [SEP]", "new token new tokenizer anew token", "ab abc abcd abcde", "\u2009<mask>\u2009",
    "a" * 40, "ab" * 40, "=" * 60, "-" * 7 + "\n" + "-" * 33, "." * 30, " " * 33 + "x", "\n" * 20, "\t " * 15,
    "Donaudampfschifffahrtsgesellschaftskapitänsmütze", "antidisestablishmentarianism" * 3, "漢" * 50, "é" * 40, "e\u0301" * 30,
    "0" * 50, "https://example.org/path?query=1&other=%20#fragment", "mail@example.org", "C:\\path\\to\\file.txt",
    "$100 £5 €3.50 ¥1000 +1 -1 ±2 §4 ¶", "\"double\" 'single' `back` «guillemets» „low“ ‘curly’ “curly”", "a-b a–b a—b a…b",
    "(a)[b]{c}<d>|e|~f^g@h&i*j%k", "_under_score__dunder__", "CamelCaseWord snake_case_word kebab-case-word SCREAMING_CASE",
    "iPhone McDonald's O'Brien's rock'n'roll", "x² + y² = z²; ∀x∈ℝ: ⌈x⌉ ≥ x", "ⒶⒷⓒ 🅰🅱 ㊀㊁", "ʻokina ʼn ˈstress ꞌsaltillo",
    "Ω ℧ Å K ſ", "\u1e9b\u0323", "\u0344 \u0340 \u0341 \u0374 \u037e \u0387 \u1f71", "\u2126\u212a\u212b", "\uac00\u11a8",
    "\U00011935\U00011930 \U0001e030 \u0898\u0300", "\ua7cb \ua7dc \U00010d50 \U00010d70 \U00016ea0", "\U00031350\U0002ebf0",
    "mixed 漢字and한글withكلمةandкириллица", "abcالعربيةxyz", "\u202eright to left override\u202c", "tab\tand\x0bvertical\x0cform",
    "the the the  the\tthe\nthe", "The THE tHe", "Σίσυφος ΣΊΣΥΦΟΣ", "ﷺ ﷽", "Ⅳ ⅳ ㋿ ㍿", "a\u0300\u0316 a\u0316\u0300", "x\u20dd y\u0488",
    "What does kvcal do? It measures keys and values.\n\n```python\nprint('hi')\n```\n\n1. one\n2. two\n",
    "<0x0A> ok \u2581\u2581 \u2581", "# Title\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", "very   wide    gaps     here", "...!?!?...   ,;:",
]

# Bytes that are no UTF-8: decoded with errors="replace" for the reference, given as they are to ours.
INVALID = [
    b"\xff", b"abc\xfe\xffdef", b"\xc3", b"\xc3(", b"\xe2\x96", b"\xe2\x96a", b"\xf0\x9f\x98", b"\xf0\x9f\x98 x",
    b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\x80\x80\x80", b"ok \xe4\xbd end", b"\xf4\x90\x80\x80", b"\xe0\x80\x80 \xe1\x80",
]


def generated(length, seed, alphabet):
    """A text without spaces that the C++ test makes the same way."""
    state, out = seed, []
    for _ in range(length):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(alphabet[(state >> 33) % len(alphabet)])
    return "".join(out)


def hash_ids(ids):
    value = 0xcbf29ce484222325
    for i in ids:
        for byte in i.to_bytes(4, "little"):
            value = (value ^ byte) * 0x100000001b3 % 2**64
    return value

"""Writes tests/fixtures/text/tokenizers: small tokenizers of every kind and what the `tokenizers` library does
with our hard texts.

base_*.json are tokenizer.json files trained on our own sentences; variants.json holds what each variant changes
in its base; expected_*.json the ids of every text, without and with special tokens, and the decoded texts where
they differ from the text (null: equal). spm_*.model are sentencepiece models, judged by that library.

The trainers' ties are broken at random: each run writes another set, which must pass as well.

Usage: tokenizers_cases.py OUT      needs: pip install tokenizers==0.23.3 sentencepiece==0.2.3
"""
import base64
import copy
import io
import json
import os
import re
import sys
import unicodedata

os.environ["RAYON_NUM_THREADS"] = "1"
import sentencepiece  # noqa: E402
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers  # noqa: E402

from tokenizers_texts import HARD, INVALID, TRAINING, generated, hash_ids  # noqa: E402

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN_MARKS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
              r"\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = "|".join([
    r"[\p{Han}]+", r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*", r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
POSSESSIVE = r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
ODD = r"\w+\b|[[:punct:]]{2,}|[^\w\s[+-]]|\h+|(?<=\d)\.|\s{,2}"


def token(content, **flags):
    return dict(dict(id=0, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False,
                     special=True), **flags)


def seq(kind, *parts):
    key = {"n": "normalizers", "p": "pretokenizers", "d": "decoders", "q": "processors"}[kind]
    return {"type": "Sequence", key: list(parts)}


def of(type_, **fields):
    return dict(type=type_, **fields)


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return of("Split", pattern={kind: pattern}, behavior=behavior, invert=invert)


def byte_level(prefix=False, regex=True):
    return of("ByteLevel", add_prefix_space=prefix, trim_offsets=True, use_regex=regex)


def metaspace(scheme, splits=True):
    return of("Metaspace", replacement="▁", prepend_scheme=scheme, split=splits)


def train(model, trainer, normalizer=None, pre_tokenizer=None):
    tokenizer = Tokenizer(model)
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(TRAINING * 3, trainer)
    result = json.loads(tokenizer.to_str())
    for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        result[key] = None
    result["added_tokens"] = []
    return result


def charsmap_and_models(out):
    """A small character map, and two sentencepiece models, through sentencepiece's trainer."""
    rules = {}
    for c in [*range(0xa0, 0x250), *range(0x1e00, 0x1e40), *range(0x2000, 0x2070), *range(0x2150, 0x2180), 0x3000,
              *range(0xfb00, 0xfb07), *range(0xff01, 0xff5f)]:
        target = unicodedata.normalize("NFKC", chr(c)).replace("\u00ad", "")
        for source in {chr(c), unicodedata.normalize("NFD", chr(c))}:
            if source != target and not target.startswith("\0"):
                rules[source] = target
    for c in "\t\n\r\u2028\u2029\u1680\ufeff":
        rules[c] = " "
    for c in "\x01\x02\u200b\u200e":
        rules[c] = ""
    tsv = os.path.join(out, "rules.tsv")
    with open(tsv, "w") as file:
        for source, target in sorted(rules.items()):
            file.write(" ".join("%X" % ord(c) for c in source) + "\t" + " ".join("%X" % ord(c) for c in target) + "\n")
    common = dict(sentence_iterator=None, minloglevel=2, num_threads=1)
    for name, extra in dict(
            bpe=dict(model_type="bpe", vocab_size=620, byte_fallback=True, normalization_rule_name="identity",
                     remove_extra_whitespaces=False, split_digits=True, character_coverage=0.98),
            unigram=dict(model_type="unigram", vocab_size=420, normalization_rule_tsv=tsv,
                         character_coverage=0.98, hard_vocab_limit=False)).items():
        stream = io.BytesIO()
        options = dict(common, sentence_iterator=iter([s for t in TRAINING for s in t.split("\n") if s] * 3),
                       model_writer=stream, **extra)
        sentencepiece.SentencePieceTrainer.train(**options)
        with open(os.path.join(out, f"spm_{name}.model"), "wb") as file:
            file.write(stream.getvalue())
    os.remove(tsv)
    blob = open(os.path.join(out, "spm_unigram.model"), "rb").read()
    return base64.b64encode(find_charsmap(blob)).decode()


def find_charsmap(blob):
    """normalizer_spec (field 3) . precompiled_charsmap (field 2) of a serialized ModelProto."""
    def fields(data):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            tag = varint()
            if tag & 7 == 0:
                yield tag >> 3, varint()
            else:
                size = {1: 8, 5: 4}.get(tag & 7) or varint()
                yield tag >> 3, data[at:at + size]
                at += size
    spec = next(v for k, v in fields(blob) if k == 3)
    return bytes(next(v for k, v in fields(spec) if k == 2))


def bases():
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bytelevel = train(models.BPE(), trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False),
                      pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)]))
    # Merges as strings, as older files have them.
    bytelevel["model"]["merges"] = [" ".join(pair) for pair in bytelevel["model"]["merges"]]
    special = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    spm = train(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
                trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False, limit_alphabet=150),
                normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
                pre_tokenizer=pre_tokenizers.Split(Regex("(?=▁)"), "isolated"))
    unigram = train(models.Unigram(), trainers.UnigramTrainer(vocab_size=500, unk_token="<unk>", show_progress=False,
                                                             special_tokens=["<pad>", "</s>", "<unk>"]),
                    normalizer=normalizers.NFKC(), pre_tokenizer=pre_tokenizers.Metaspace())
    wordpiece = train(models.WordPiece(unk_token="[UNK]"),
                      trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                                show_progress=False),
                      normalizer=normalizers.BertNormalizer(), pre_tokenizer=pre_tokenizers.BertPreTokenizer())
    words = train(models.WordLevel(unk_token="<unk>"),
                  trainers.WordLevelTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False),
                  pre_tokenizer=pre_tokenizers.Whitespace())
    suffix = train(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
                   trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>"], end_of_word_suffix="</w>",
                                       show_progress=False),
                   normalizer=normalizers.BertNormalizer(), pre_tokenizer=pre_tokenizers.BertPreTokenizer())
    prefix = train(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
                   trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>"], continuing_subword_prefix="##",
                                       show_progress=False),
                   pre_tokenizer=pre_tokenizers.Whitespace())
    return dict(bytelevel=bytelevel, spm=spm, unigram=unigram, wordpiece=wordpiece, words=words, suffix=suffix,
                prefix=prefix)


def variants(charsmap):
    gpt2_tokens = [token("<|endoftext|>"), token("<|im_start|>"), token("<|im_end|>")]
    chat = dict(added_tokens=gpt2_tokens, decoder=byte_level())
    result = {}

    def add(name, base, **patch):
        result[name] = dict(base=base, patch=patch)

    def add_bytes(name, pre, **patch):
        add(name, "bytelevel", pre_tokenizer=pre, **dict(chat, **patch))

    add_bytes("gpt2", byte_level(), post_processor=byte_level())
    add_bytes("gpt2_prefix_space", byte_level(prefix=True))
    add_bytes("smollm2", seq("p", of("Digits", individual_digits=True), byte_level()))
    add_bytes("digits_contiguous", seq("p", of("Digits", individual_digits=False), byte_level()))
    bos = of("TemplateProcessing", single=[{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
             pair=[{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
             special_tokens={"<|im_start|>": {"id": "<|im_start|>", "ids": [701], "tokens": ["<|im_start|>"]}})
    add_bytes("llama3", seq("p", split(LLAMA3), byte_level(regex=False)), post_processor=seq("q", byte_level(), bos),
              model=dict(ignore_merges=True))
    add_bytes("qwen2", seq("p", split(QWEN2), byte_level(regex=False)), normalizer=of("NFC"))
    add_bytes("qwen_marks", seq("p", split(QWEN_MARKS), byte_level(regex=False)), normalizer=of("NFC"))
    add_bytes("o200k", seq("p", split(O200K, "Removed", True), byte_level(regex=False)))
    add_bytes("deepseek", seq("p", split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), byte_level(regex=False)))
    add_bytes("kimi", seq("p", split(KIMI), byte_level(regex=False)))
    add_bytes("possessive", seq("p", split(POSSESSIVE), byte_level(regex=False)))
    add_bytes("odd_regex", seq("p", split(ODD), byte_level(regex=False)))
    add_bytes("gpt2_as_split", seq("p", split(GPT2, "MergedWithPrevious"), byte_level(regex=False)))
    add_bytes("bytes_not_last", seq("p", byte_level(), split("Ġ", "Isolated", kind="String")))
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        add_bytes(f"form_{form.lower()}", byte_level(), normalizer=of(form))
    add_bytes("clean", byte_level(), normalizer=seq("n", of("NFKD"), of("StripAccents"), of("Lowercase"), of("Strip", strip_left=True, strip_right=True)))
    add_bytes("strip_left", byte_level(), normalizer=of("Strip", strip_left=True, strip_right=False))
    add_bytes("nmt", byte_level(), normalizer=of("Nmt"))
    add_bytes("byte_normalizer", None, normalizer=of("ByteLevel"))
    add_bytes("replace", byte_level(), normalizer=seq("n", of("Replace", pattern={"Regex": r"\s+"}, content=" "),
                                                      of("Replace", pattern={"String": "a"}, content="")))
    add_bytes("roberta", byte_level(prefix=True), added_tokens=[token("<mask>", lstrip=True)],
              post_processor=of("RobertaProcessing", sep=["</s>", 2], cls=["<s>", 0], trim_offsets=True, add_prefix_space=True))
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            name = re.sub("([A-Z])", r"_\1", behavior).lower() + ("_inverted" if invert else "")
            add_bytes(f"split{name}", seq("p", split(r"\p{P}|\s", behavior, invert), byte_level(regex=False)))
        add_bytes(f"punctuation{name}", seq("p", of("Punctuation", behavior=behavior), byte_level(regex=False)))
    add_bytes("split_string", seq("p", split("th", "MergedWithNext", kind="String"), byte_level(regex=False)))
    add_bytes("split_empty", seq("p", split("", "Isolated", kind="String"), byte_level(regex=False)))
    for type_ in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
        add_bytes(type_.lower(), seq("p", of(type_), byte_level(regex=False)))
    add_bytes("fixed_length", seq("p", of("FixedLength", length=3), byte_level(regex=False)))
    add_bytes("delimiter", seq("p", of("CharDelimiterSplit", delimiter="e"), byte_level(regex=False)))

    flags = [token("<mask>", lstrip=True), token("<tag>", rstrip=True), token("word", single_word=True, special=False),
             token("Day", normalized=True, special=False), token("new token", normalized=True, special=False, lstrip=True, rstrip=True),
             token("abc", special=False), token("abcd", special=False), token("the", normalized=True, special=False), token("</s>", normalized=True),
             token("Hello", special=True), token("Hello", special=True), token("  ", special=False)]
    add_bytes("added", byte_level(), added_tokens=flags)
    add_bytes("added_lower", byte_level(), added_tokens=flags, normalizer=of("Lowercase"))
    add_bytes("added_bytes", None, added_tokens=flags, normalizer=of("ByteLevel"))

    llama_decoder = seq("d", of("Replace", pattern={"String": "▁"}, content=" "), of("ByteFallback"), of("Fuse"),
                        of("Strip", content=" ", start=1, stop=0))
    llama = dict(added_tokens=[token("<unk>"), token("<s>"), token("</s>")], decoder=llama_decoder)
    marks = seq("n", of("Prepend", prepend="▁"), of("Replace", pattern={"String": " "}, content="▁"))
    template = of("TemplateProcessing", single=[{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                  pair=[{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                  special_tokens={"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}})

    def add_spm(name, **patch):
        add(name, "spm", **dict(llama, **patch))

    add_spm("llama2", normalizer=marks, post_processor=template)
    add_spm("llama2_metaspace", pre_tokenizer=metaspace("first", False), post_processor=template)
    add_spm("mistral", pre_tokenizer=metaspace("first"), added_tokens=llama["added_tokens"] + [token("[INST]", lstrip=True, rstrip=True), token("<tag>")],
            decoder=metaspace("first"))
    add_spm("metaspace_always", pre_tokenizer=metaspace("always"), decoder=metaspace("always"))
    add_spm("metaspace_never", pre_tokenizer=metaspace("never"), decoder=metaspace("never"))
    add_spm("gemma", normalizer=of("Replace", pattern={"String": " "}, content="▁"), pre_tokenizer=split(" ", "MergedWithPrevious", kind="String"),
            decoder=seq("d", of("Replace", pattern={"String": "▁"}, content=" "), of("ByteFallback"), of("Fuse")), model=dict(ignore_merges=True))
    add_spm("first_after_strip", normalizer=of("Strip", strip_left=True, strip_right=False), pre_tokenizer=metaspace("first"))
    add_spm("first_after_replace", normalizer=of("Replace", pattern={"Regex": " {2,}"}, content=" "), pre_tokenizer=metaspace("first"))
    add_spm("first_after_nfkd", normalizer=seq("n", of("NFKD"), of("Replace", pattern={"String": "e"}, content="ee")), pre_tokenizer=seq("p", of("Punctuation"), metaspace("first")))
    add_spm("unknown_fused", normalizer=marks, model=dict(byte_fallback=False))
    add_spm("unknown_single", normalizer=marks, model=dict(byte_fallback=False, fuse_unk=False))
    add_spm("unknown_dropped", normalizer=marks, model=dict(byte_fallback=False, unk_token=None))

    precompiled = of("Precompiled", precompiled_charsmap=charsmap)
    eos = of("TemplateProcessing", single=[{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
             pair=[{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
             special_tokens={"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}})
    t5_tokens = [token("<pad>"), token("</s>"), token("<unk>"), token("<mask>", lstrip=True)]

    def add_unigram(name, **patch):
        add(name, "unigram", **dict(dict(added_tokens=t5_tokens, decoder=metaspace("always"), post_processor=eos), **patch))

    add_unigram("t5", normalizer=precompiled, pre_tokenizer=seq("p", of("WhitespaceSplit"), metaspace("always")))
    add_unigram("t5_new", normalizer=seq("n", precompiled, of("Strip", strip_left=False, strip_right=True), of("Replace", pattern={"Regex": " {2,}"}, content="▁")),
                pre_tokenizer=metaspace("first"))
    add_unigram("albert", normalizer=seq("n", of("Replace", pattern={"String": "``"}, content='"'), of("NFKD"), of("StripAccents"), of("Lowercase"), precompiled),
                pre_tokenizer=metaspace("always"))
    add_unigram("unigram_plain")

    bert = of("BertProcessing", sep=["[SEP]", 3], cls=["[CLS]", 2])
    bert_tokens = [token(t) for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]

    def add_bert(name, **options):
        normalizer = of("BertNormalizer", **dict(dict(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True), **options))
        add(name, "wordpiece", normalizer=normalizer, pre_tokenizer=of("BertPreTokenizer"), post_processor=bert, added_tokens=bert_tokens,
            decoder=of("WordPiece", prefix="##", cleanup=not options))

    add_bert("bert_uncased")
    add_bert("bert_cased", lowercase=False)
    add_bert("bert_unclean", clean_text=False, handle_chinese_chars=False, strip_accents=True)
    add("word_level", "words", pre_tokenizer=of("Whitespace"))
    add("word_suffix", "suffix", normalizer=of("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True),
        pre_tokenizer=of("BertPreTokenizer"), decoder=of("BPEDecoder", suffix="</w>"))
    add("word_prefix", "prefix", pre_tokenizer=of("Whitespace"), decoder=of("WordPiece", prefix="##", cleanup=True))
    add("ctc", "words", pre_tokenizer=of("Whitespace"), decoder=of("CTC", pad_token="<unk>", word_delimiter_token="|", cleanup=True))
    return result


def assembled(bases_, variant):
    result = copy.deepcopy(bases_[variant["base"]])
    for key, value in variant["patch"].items():
        if key == "model":
            result["model"].update(value)
        else:
            result[key] = value
    return result


def texts():
    return HARD + [b.decode("utf-8", errors="replace") for b in INVALID]


def short(text, decoded):
    return None if decoded == text else decoded


def results(encode, decode):
    """One row a text: ids, ids with special tokens (null: the same), decoded, decoded without special tokens."""
    rows = []
    for text in texts():
        plain, special = encode(text, False), encode(text, True)
        kept, skipped = decode(special, False), decode(special, True)
        rows.append([plain, None if special == plain else special, short(text, kept), short(text, skipped)])
    return rows


def write(out, name, value):
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
    assert len(data.encode()) < 300_000, (name, len(data))
    with open(os.path.join(out, name), "w", encoding="utf-8") as file:
        file.write(data)


def main(out):
    os.makedirs(out, exist_ok=True)
    charsmap = charsmap_and_models(out)
    all_bases, all_variants = bases(), variants(charsmap)
    for name, base in all_bases.items():
        write(out, f"base_{name}.json", base)
    # The character map is large and used thrice: its place holds a word, the map its own file.
    write(out, "charsmap.json", charsmap)
    write(out, "variants.json", json.loads(json.dumps(all_variants).replace(charsmap, "@charsmap")))
    write(out, "texts.json", {"texts": HARD, "invalid": [b.hex() for b in INVALID]})

    long_text = {"letters": generated(1_000_000, 7, "abcdefghijklmnopqrstuvwxyz"), "few": generated(1_000_000, 9, "aab")}
    groups, long_rows = {}, {}
    for name, variant in all_variants.items():
        tokenizer = Tokenizer.from_str(json.dumps(assembled(all_bases, variant)))
        groups.setdefault(variant["base"], {})[name] = results(
            lambda t, s: tokenizer.encode(t, add_special_tokens=s).ids, lambda i, s: tokenizer.decode(i, skip_special_tokens=s))
        if name in ("gpt2", "llama3", "llama2", "llama2_metaspace", "t5"):
            for kind, text in long_text.items():
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                long_rows.setdefault(name, {})[kind] = {"count": len(ids), "hash": str(hash_ids(ids))}
    for base, rows in groups.items():
        names = sorted(rows)
        for part in range(0, len(names), 12):
            write(out, f"expected_{base}_{part // 12}.json", {n: rows[n] for n in names[part:part + 12]})
    write(out, "long.json", long_rows)

    rows = {}
    for name in ("bpe", "unigram"):
        processor = sentencepiece.SentencePieceProcessor(model_file=os.path.join(out, f"spm_{name}.model"))
        rows[name] = [processor.encode(t) for t in texts()]
    write(out, "spm_expected.json", rows)


if __name__ == "__main__":
    main(sys.argv[1])

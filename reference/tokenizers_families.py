"""Writes into tests/fixtures/text/tokenizers what published tokenizers of the decoder families have beyond the cases
of tokenizers_cases.py, on that script's small vocabularies:

families.json: what each family changes in its base, and what the `tokenizers` library then makes of every text.
vocabulary_files.json: folders without tokenizer.json (vocab.json with merges.txt, tekken.json), judged by
transformers' GPT2Tokenizer, Qwen2Tokenizer and MistralConverter.
spm_<name>.model, spm_families.json: sentencepiece models with symbols of their own, as Gemma and InternLM 2 have
them, judged by that library.

The vocabularies are ours; the split expressions are those that the families publish, for they are what is tested.
Usage: tokenizers_families.py OUT      needs: tokenizers==0.23.3 transformers==5.17.0 sentencepiece==0.2.3
"""
import base64
import io
import json
import os
import sys
import tempfile
import unicodedata

import sentencepiece
from tokenizers import Tokenizer
from tokenizers_texts import HARD, TRAINING


def cased_letters():
    """Ranges of the letters with case, as DeepSeek's first tokenizers spell them out."""
    points = [c for c in range(0xaa, 0x1e944) if unicodedata.category(chr(c)) in ("Lu", "Ll", "Lt")]
    ranges = []
    for c in points:
        if ranges and c == ranges[-1][1] + 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return "A-Za-z" + "".join(chr(a) + ("-" + chr(b) if b > a else "") for a, b in ranges)


TEKKEN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
JAIS2 = LLAMA3.split(r"\s+(?!\S)")[0] + "".join(rf"\s{{{n}}}(?!\S)|" for n in (16, 8, 4)) + r"\s{1,2}(?!\S)|\s{1}"
EXAONE4 = LLAMA3.replace(r"\p{L}+", r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+").replace("{1,3}", "").replace(
    r"[\r\n]*|\s*[\r\n]+", r"[\r\n/]?|\s*[\r\n]")

TEXTS = [t for t in HARD if len(t) < 50] + [
    "1 12 123 1234 12345 1234567 1,234,567.89", "x1234567890y 007", "٣٤٥٦ ½²Ⅷ １２３４", "def f(x):\n\treturn x**2  # ok\n\n\n", "don't WON'T we'Ll 'ſ",
    "fooBar HTTPServer ÉCOLE straße ǅ", "中文，标点。日本語のテキスト　カタカナ！한국어 ㄱㄴ", "你好123世界 abc", "a" + " " * 37 + "b" + " " * 9 + "\n  c", "\t\t\r\n \r\n",
    "हिन्दी ไทย עברית العربية", "e\u0301a\u0308 \u1100\u1161\u11a8 ﬁ", "!!! ...///?? $$$ ``` ~~~", "a<|end|>  \n b <|user|>\n x<|end|>", "[gMASK]<sop><|user|>\nhi",
    "<tool_call> </tool_call>", "\n\n\n\n", "▁▁ ▁a", "  two  spaces  ", "word-by-word, (x|y) [z]. « q »", "🇨🇭👩‍👩‍👧 ✓ ️"]

SYMBOLS = ["<start_of_turn>user\nhi<end_of_turn>\n\n<h1> x", "<|im_start|>user\n <|im_end|>", "a<|plugin|>b [UNUSED_TOKEN_1]", "x    y  \t z"]


def token(content, **flags):
    return dict(dict(id=0, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True), **flags)


def of(type_, **fields):
    return dict(type=type_, **fields)


def split(pattern, behavior="Isolated", kind="Regex"):
    return of("Split", pattern={kind: pattern}, behavior=behavior, invert=False)


def byte_level(regex=False, prefix=False):
    return of("ByteLevel", add_prefix_space=prefix, trim_offsets=True, use_regex=regex)


def pre(*steps):
    return of("Sequence", pretokenizers=list(steps))


def template(before, ids):
    return of("TemplateProcessing", single=[{"SpecialToken": {"id": t, "type_id": 0}} for t in before] + [{"Sequence": {"id": "A", "type_id": 0}}],
              pair=[{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
              special_tokens={t: {"id": t, "ids": [i], "tokens": [t]} for t, i in zip(before, ids)})


def families():
    digits = of("Digits", individual_digits=True)
    bytes_ = dict(decoder=byte_level(), added_tokens=[token("<|endoftext|>"), token("<|user|>"), token("<|end|>")])
    glm = ["[gMASK]", "<sop>", "<|user|>"]
    marks = of("Sequence", normalizers=[of("Prepend", prepend="▁"), of("Replace", pattern={"String": " "}, content="▁")])
    llama_decoder = of("Sequence", decoders=[of("Replace", pattern={"String": "▁"}, content=" "), of("ByteFallback"), of("Fuse"),
                                             of("Strip", content=" ", start=1, stop=0)])
    gemma_decoder = of("Sequence", decoders=llama_decoder["decoders"][:3])
    basic = [token("<unk>"), token("<s>"), token("</s>")]
    spaces = [token(" " * n, normalized=True, special=False) for n in range(12, 1, -1)]
    deepseek_llm = [r"[\r\n]", rf"\s?[{cased_letters()}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+"]
    result = {
        "falcon": ("bytelevel", dict(bytes_, pre_tokenizer=pre(of("Punctuation", behavior="Contiguous"), byte_level(regex=True),
                                                               of("Digits", individual_digits=False), split("[0-9][0-9][0-9]")))),
        "deepseek_llm": ("bytelevel", dict(bytes_, pre_tokenizer=pre(*map(split, deepseek_llm), digits, byte_level()))),
        "deepseek_coder": ("bytelevel", dict(bytes_, pre_tokenizer=pre(*map(split, [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]), digits, byte_level()))),
        "tekken": ("bytelevel", dict(bytes_, pre_tokenizer=pre(split(TEKKEN), byte_level()), model=dict(ignore_merges=True))),
        "command_r": ("bytelevel", dict(bytes_, normalizer=of("NFC"), pre_tokenizer=pre(digits, byte_level(regex=True)),
                                        post_processor=template(["<|user|>"], [701]))),
        "cohere2_digits": ("bytelevel", dict(bytes_, pre_tokenizer=pre(split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(LLAMA3), byte_level()))),
        "right_to_left_digits": ("bytelevel", dict(bytes_, pre_tokenizer=pre(split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))"), byte_level()))),
        "gpt_neox": ("bytelevel", dict(bytes_, normalizer=of("NFC"), pre_tokenizer=byte_level(regex=True), post_processor=byte_level(),
                                       added_tokens=bytes_["added_tokens"] + spaces)),
        "exaone4": ("bytelevel", dict(bytes_, pre_tokenizer=pre(split(EXAONE4), byte_level()))),
        "jais2": ("bytelevel", dict(bytes_, pre_tokenizer=pre(split(JAIS2), byte_level()))),
        "bloom": ("bytelevel", dict(bytes_, pre_tokenizer=pre(split(" ?[^(\\s|[.,!?…。，、।۔،])]+"), byte_level()))),
        "glm4": ("bytelevel", dict(bytes_, pre_tokenizer=pre(split(LLAMA3), byte_level()), added_tokens=[token(t) for t in glm],
                                   post_processor=template(glm[:2], [700, 701]), model=dict(ignore_merges=True))),
        "script_ranges": ("bytelevel", dict(bytes_, pre_tokenizer=pre(
            split(r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"),
            split("[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+"), byte_level(regex=True)))),
        "phi3": ("spm", dict(normalizer=marks, decoder=llama_decoder,
                             added_tokens=basic + [token("<|end|>", rstrip=True), token("<|user|>", rstrip=True)])),
        "gemma3": ("spm", dict(normalizer=of("Replace", pattern={"String": " "}, content="▁"), decoder=gemma_decoder,
                               pre_tokenizer=split(" ", "MergedWithPrevious", "String"), post_processor=template(["<s>"], [1]),
                               added_tokens=basic + [token("\n" * n, special=False) for n in (1, 2, 3)] + [token("▁" * n, special=False) for n in (2, 3)])),
        "olmo_spaces": ("bytelevel", dict(bytes_, normalizer=of("NFC"), pre_tokenizer=byte_level(regex=True),
                                          added_tokens=[token("|||IP_ADDRESS|||", special=False, normalized=False)] + spaces[:3] + [token("<|endoftext|>")])),
    }
    return {name: {"base": base, "patch": patch} for name, (base, patch) in result.items()}


def assembled(bases, variant):
    result = json.loads(json.dumps(bases[variant["base"]]))
    for key, value in variant["patch"].items():
        result["model"].update(value) if key == "model" else result.__setitem__(key, value)
    return result


def rows(tokenizer, texts):
    """ids, ids with special tokens (null: the same), decoded, decoded without special tokens (null: the text)."""
    result = []
    for text in texts:
        plain, special = (tokenizer.encode(text, add_special_tokens=s).ids for s in (False, True))
        decoded = [tokenizer.decode(special, skip_special_tokens=s) for s in (False, True)]
        result.append([plain, None if special == plain else special] + [None if d == text else d for d in decoded])
    return result


def bytes_of(text):
    """GPT-2's alphabet back to bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    table = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    return bytes(table[c] for c in text)


def tekken_file(base, listed):
    """Ranks: the bytes in order, then the other tokens as the base has them."""
    words = [bytes_of(t) for t in sorted(base["model"]["vocab"], key=base["model"]["vocab"].get)]
    ranks = [bytes([b]) for b in range(256)] + [w for w in words if len(w) > 1]
    special = [{"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])]
    config = {"pattern": TEKKEN, "num_vocab_tokens": len(ranks), "default_vocab_size": len(ranks) - 10 + 12, "default_num_special_tokens": 12, "version": "v11"}
    vocab = [{"rank": i, "token_bytes": base64.b64encode(r).decode(), "token_str": None} for i, r in enumerate(ranks)]
    return {"config": config, "vocab": vocab, "special_tokens": special} if listed else None


def flags(content, **more):
    return dict(dict(content=content, lstrip=False, normalized=False, rstrip=False, single_word=False, special=True), **more)


def folders(base):
    """Files of each folder; @vocab and @merges stand for the base's."""
    decoder = {str(700 + i): flags(t, **f) for i, (t, f) in enumerate([("<|endoftext|>", {}), ("<|im_start|>", {}), ("<|im_end|>", {}), ("<tool_call>", {"special": False})])}
    return {
        "gpt2": ("GPT2Tokenizer", {"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}}),
        "gpt2_model_type": ("GPT2Tokenizer", {"config.json": {"model_type": "gpt2"}}),
        "gpt2_tokens": ("GPT2Tokenizer", {
            "tokenizer_config.json": {"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True, "add_bos_token": True},
            "special_tokens_map.json": {"bos_token": "<s>", "eos_token": flags("</s>", lstrip=True, rstrip=True), "unk_token": "<s>", "additional_special_tokens": ["<|user|>"]},
            "added_tokens.json": {"</s>": 701, "<s>": 700, "fooBar": 702}}),
        "qwen2": ("Qwen2Tokenizer", {"tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
                                                               "unk_token": None, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "added_tokens_decoder": decoder}}),
        "tekken": ("MistralConverter", {"tekken.json": tekken_file(base, True)}),
    }


def folder_rows(judge, files, base):
    import transformers
    with tempfile.TemporaryDirectory() as folder:
        def write(name, text):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        for name, value in files.items():
            write(name, json.dumps(value))
        if judge == "MistralConverter":
            from transformers.integrations.mistral.tokenizer import MistralConverter
            tokenizer = MistralConverter(os.path.join(folder, "tekken.json")).converted()
        else:
            write("vocab.json", json.dumps(base["model"]["vocab"]))
            write("merges.txt", "#version: 0.2\n" + "\n".join(base["model"]["merges"]) + "\n")
            tokenizer = getattr(transformers, judge).from_pretrained(folder)._tokenizer
    return rows(tokenizer, TEXTS + TRAINING[:3] + ["<|im_start|>user\nfooBar<|im_end|> x </s>  y <s>[INST] a[/INST]<|user|>"])


def sentencepiece_rows(out, name, **options):
    """Trains a model and gives the ids of every text."""
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([s for t in TRAINING for s in t.split("\n") if s] * 3), model_writer=stream, model_type="bpe",
        vocab_size=620, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        split_digits=True, character_coverage=0.98, minloglevel=2, num_threads=1, **options)
    with open(os.path.join(out, f"spm_{name}.model"), "wb") as file:
        file.write(stream.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=stream.getvalue())
    return [processor.encode(text) for text in TEXTS + SYMBOLS]


def write(out, name, value):
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
    assert len(data.encode()) < 300_000, (name, len(data))
    with open(os.path.join(out, name), "w", encoding="utf-8") as file:
        file.write(data)


def main(out):
    bases = {n: json.load(open(os.path.join(out, f"base_{n}.json"), encoding="utf-8")) for n in ("bytelevel", "spm")}
    cases = {}
    for name, variant in families().items():
        tokenizer = Tokenizer.from_str(json.dumps(assembled(bases, variant)))
        cases[name] = {**variant, "rows": rows(tokenizer, TEXTS)}
    write(out, "families.json", {"texts": TEXTS, "families": cases})
    texts = TEXTS + TRAINING[:3] + ["<|im_start|>user\nfooBar<|im_end|> x </s>  y <s>[INST] a[/INST]<|user|>"]
    result = {name: {"files": files, "rows": folder_rows(judge, files, bases["bytelevel"])}
              for name, (judge, files) in folders(bases["bytelevel"]).items()}
    write(out, "vocabulary_files.json", {"texts": texts, "folders": result})
    symbols = {"gemma": dict(add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3, user_defined_symbols=[
                   "\n", "\n\n", "\t", "▁▁", "▁▁▁▁", "<start_of_turn>", "<end_of_turn>", "<h1>"]),
               "internlm2": dict(user_defined_symbols=["<|im_start|>", "<|im_end|>", "[UNUSED_TOKEN_1]"], control_symbols=["<|plugin|>"])}
    write(out, "spm_families.json", {"texts": TEXTS + SYMBOLS, "ids": {n: sentencepiece_rows(out, n, **o) for n, o in symbols.items()}})


if __name__ == "__main__":
    main(sys.argv[1])

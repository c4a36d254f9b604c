"""Compares our tokenizer with the `tokenizers` library (tokenizer.json) or sentencepiece (tokenizer.model):
ids and decoded text of every document, and megabytes a second on one thread.

Usage: compare_tokenizer.py FOLDER TOKENIZER_DUMP FILE...
FILE: text (a document a file, and one a line) or JSONL (every string in a record is a document).
needs: pip install tokenizers==0.23.3 sentencepiece==0.2.3; the program is tests/bench/tokenizer_dump.cc.
"""
import json
import os
import subprocess
import sys
import time

os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def documents(path):
    text = open(path, encoding="utf-8", errors="replace", newline="").read()
    if path.endswith(".jsonl"):
        for line in text.split("\n"):
            if line.strip():
                yield from strings(json.loads(line))
    else:
        yield text
        yield from text.split("\n")


def reference(folder):
    """Encoder and decoder of the reference."""
    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        from tokenizers import Tokenizer
        tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return (lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
                lambda ids: tokenizer.decode(ids, skip_special_tokens=False))
    import sentencepiece
    processor = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    return lambda text: processor.encode(text), lambda ids: processor.decode(ids)


def main(folder, program, files):
    texts = [d for path in files for d in documents(path)]
    texts = [t for t in texts if t]
    stream = b"".join(b"%d\n%s" % (len(b), b) for b in (t.encode() for t in texts))
    ours = subprocess.run([program, folder, "--decode"], input=stream, capture_output=True, check=True)
    lines = [line.split("\t", 1) for line in ours.stdout.decode().split("\n")[:-1]]
    got = [[int(i) for i in ids.split()] for ids, _ in lines]
    size, seconds = ours.stderr.split()[-2:]
    encode, decode = reference(folder)
    start = time.perf_counter()
    wanted = [encode(t) for t in texts]
    reference_seconds = time.perf_counter() - start
    bad = [i for i in range(len(texts)) if got[i] != wanted[i]]
    for i in bad[:5]:
        at = next((k for k, (a, b) in enumerate(zip(got[i], wanted[i])) if a != b), min(len(got[i]), len(wanted[i])))
        print(f"MISMATCH at token {at} of {texts[i][:60]!r}: ours {got[i][at:at + 6]}, wanted {wanted[i][at:at + 6]}")
    misread = [i for i in range(len(texts)) if json.loads(lines[i][1]) != decode(wanted[i])]
    for i in misread[:5]:
        print(f"MISREAD {wanted[i][:9]}: ours {lines[i][1][:90]}, wanted {json.dumps(decode(wanted[i]), ensure_ascii=False)[:90]}")
    mb = int(size) / 1e6
    print(f"{len(texts)} documents, {mb:.2f} MB, {sum(map(len, wanted))} tokens, {len(bad)} mismatches, {len(misread)} decoded otherwise")
    print(f"ours {mb / float(seconds):.1f} MB/s, reference {mb / reference_seconds:.1f} MB/s, "
          f"ratio {reference_seconds / float(seconds):.1f}")
    return 1 if bad or misread or len(got) != len(texts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

#!/usr/bin/env python3
"""What running shared contexts once saves in tasks of several choices, by processor time.

usage: shared_contexts.py MODEL [--documents 20] [--rounds 3] [--threads 2] [--compute-dtype bfloat16]
needs: the package kvcal (PYTHONPATH=build/cpu/python)

Requests of random ids in the shape of lm-eval's tasks: examples before all contexts, a context, its choices. They are scored by
kvcal.Session.score as `kvcal.lm_eval` calls it, in turn with requests of the same lengths whose first tokens differ, so that they
share nothing. Prints a line a shape: tokens of both, and the medians of processor time and of their ratio.
"""
import argparse
import random
import resource
import statistics

import kvcal
from kvcal._requests import order_of

TOGETHER = 128  # texts of a call, as kvcal.lm_eval has them
# shape: tokens of the examples, of a context, of a choice; choices. About those of the tasks named, with SmolLM2's tokens.
SHAPES = {
    "HellaSwag": (0, 60, 25, 4),
    "ARC": (0, 30, 6, 4),
    "PIQA": (0, 12, 22, 2),
    "HellaSwag, 5 examples": (430, 60, 25, 4),
    "ARC, 5 examples": (190, 30, 6, 4),
    "PIQA, 5 examples": (180, 12, 22, 2),
}


def requests(shape, documents, vocab, generator, is_shared):
    head, context, choice, choices = shape
    def ids(count):
        return [generator.randrange(3, vocab) for _ in range(count)]
    examples, texts = ids(head), []
    for _ in range(documents):
        own = examples + ids(context)
        for _ in range(choices):
            texts.append(([ids(1)[0], *own[1:]] if not is_shared else own, ids(choice)))
    return texts


def seconds(session, texts):
    before = resource.getrusage(resource.RUSAGE_SELF)
    order = order_of(texts)
    for first in range(0, len(order), TOGETHER):
        session.score([texts[place] for place in order[first:first + TOGETHER]])
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compute-dtype")
    options = parser.parse_args()
    session = kvcal.Session(options.model, threads=options.threads, compute_dtype=options.compute_dtype)
    generator = random.Random(1)
    print("| shape | tokens | apart, s | shared, s | ratio |\n| --- | ---: | ---: | ---: | ---: |")
    for name, shape in SHAPES.items():
        texts = {shared: requests(shape, options.documents, session.info.vocab_size, generator, shared) for shared in (False, True)}
        seconds(session, texts[True][:TOGETHER])
        times = [(seconds(session, texts[False]), seconds(session, texts[True])) for _ in range(options.rounds)]
        apart, shared = (statistics.median(column) for column in zip(*times))
        ratio = statistics.median(a / b for a, b in times)
        print(f"| {name} | {sum(len(c) + len(t) - 1 for c, t in texts[True])} | {apart:.2f} | {shared:.2f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()

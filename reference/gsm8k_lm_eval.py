#!/usr/bin/env python3
"""Compares `kvcal eval --task gsm8k` with lm-evaluation-harness's hf backend, question by question. Exit 1 where one differs.

usage: gsm8k_lm_eval.py KVCAL MODEL --test TEST.jsonl --train TRAIN.jsonl --reference FILE [--limit 50] [--dtype float32]
           [--num-fewshot 5] [--max-gen-toks 256] [--add-bos-token true|false] [--apply-chat-template] [--fewshot-as-multiturn]
           [--threads N] [--only-reference] [--batch-size N]
needs: lm-eval 0.4.13, torch 2.13, transformers 5.17, datasets 5.2

lm-eval runs its own task `gsm8k` (version 3) on local copies of the data, a record {"question", "answer"} a line, with the model
in the dtype that is given and batches of one. Its samples and results are kept in FILE; where FILE exists, it is read instead.
Compared of each question: the prompt, the generated text, what strict-match and flexible-extract find in it, both
scores; and the two means with their standard errors.
The tokenizer is tokenizer.json's own: AutoTokenizer builds some families' tokenizers anew and leaves parts of the file out.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

FILTERS = {"strict": "strict-match", "flexible": "flexible-extract"}


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal")
    parser.add_argument("model")
    parser.add_argument("--test", required=True)
    parser.add_argument("--train", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--num-fewshot", type=int, default=5)
    parser.add_argument("--max-gen-toks", type=int, default=256)
    parser.add_argument("--add-bos-token", choices=["true", "false"])
    parser.add_argument("--apply-chat-template", action="store_true")
    parser.add_argument("--fewshot-as-multiturn", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--only-reference", action="store_true")
    return parser.parse_args()


def write_task(folder, arguments):
    """The package's own task, on local files."""
    import lm_eval
    task = pathlib.Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml"
    files = {"train": str(pathlib.Path(arguments.train).resolve()), "test": str(pathlib.Path(arguments.test).resolve())}
    (pathlib.Path(folder) / "gsm8k_local.yaml").write_text(
        f"include: {task}\ntask: gsm8k_local\ndataset_path: json\ndataset_name: null\n"
        f"dataset_kwargs:\n  data_files: {json.dumps(files)}\n")


def load_tokenizer(arguments):
    import tokenizers
    from transformers import PreTrainedTokenizerFast
    more = {} if arguments.add_bos_token is None else {"add_bos_token": arguments.add_bos_token == "true"}
    tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.model, **more)
    text = "Question: 1,234 + 56.7 = ?\nAnswer: #### 1290.7"
    file = tokenizers.Tokenizer.from_file(str(pathlib.Path(arguments.model) / "tokenizer.json"))
    if tokenizer.encode(text, add_special_tokens=False) != file.encode(text, add_special_tokens=False).ids:
        sys.exit("the tokenizer is not the one of tokenizer.json")
    return tokenizer


def run_lm_eval(arguments):
    import lm_eval
    import torch
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    torch.set_num_threads(arguments.threads)
    bos = None if arguments.add_bos_token is None else arguments.add_bos_token == "true"
    model = HFLM(pretrained=arguments.model, tokenizer=load_tokenizer(arguments), dtype=arguments.dtype, device="cpu",
                 batch_size=1, add_bos_token=bos)
    with tempfile.TemporaryDirectory() as folder:
        write_task(folder, arguments)
        found = lm_eval.simple_evaluate(
            model=model, tasks=["gsm8k_local"], num_fewshot=arguments.num_fewshot, limit=arguments.limit, log_samples=True,
            task_manager=TaskManager(include_path=folder), apply_chat_template=arguments.apply_chat_template,
            fewshot_as_multiturn=arguments.fewshot_as_multiturn, gen_kwargs=f"max_gen_toks={arguments.max_gen_toks}")
    questions = {}
    for sample in found["samples"]["gsm8k_local"]:
        entry = questions.setdefault(sample["doc_id"], {
            "doc_id": sample["doc_id"], "prompt": sample["arguments"][0][0], "text": sample["resps"][0][0]})
        name = next(name for name, label in FILTERS.items() if label == sample["filter"])
        entry[name] = sample["filtered_resps"][0]
        entry[f"exact_match_{name}"] = int(sample["exact_match"])
    results = found["results"]["gsm8k_local"]
    summary = {"samples": [questions[index] for index in sorted(questions)]}
    for name, label in FILTERS.items():
        summary[f"exact_match_{name}"] = results[f"exact_match,{label}"]
        summary[f"exact_match_{name}_stderr"] = results[f"exact_match_stderr,{label}"]
    return summary


def run_kvcal(arguments, samples):
    command = [arguments.kvcal, "eval", arguments.model, "--task", "gsm8k", "--dataset", arguments.test, "--fewshot-dataset",
               arguments.train, "--limit", str(arguments.limit), "--num-fewshot", str(arguments.num_fewshot), "--max-gen-toks",
               str(arguments.max_gen_toks), "--compute-dtype", arguments.dtype, "--kv-cache-dtype", arguments.dtype,
               "--threads", str(arguments.threads), "--log-samples", samples, "--json"]
    if arguments.add_bos_token is not None:
        command += ["--add-bos-token", arguments.add_bos_token]
    if arguments.batch_size is not None:
        command += ["--batch-size", str(arguments.batch_size)]
    command += ["--apply-chat-template"] * arguments.apply_chat_template
    command += ["--fewshot-as-multiturn"] * arguments.fewshot_as_multiturn
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def compare(theirs, ours, logged):
    """Number of differences, each told in a line."""
    differing = 0
    if len(theirs["samples"]) != len(logged):
        print(f"{len(theirs['samples'])} questions there, {len(logged)} here")
        differing += 1
    for expected, found in zip(theirs["samples"], logged):
        for key in ("doc_id", "prompt", "text", "strict", "flexible", "exact_match_strict", "exact_match_flexible"):
            if found[key] != expected[key]:
                print(f"question {expected['doc_id']}: {key} is {found[key]!r}, lm-eval has {expected[key]!r}")
                differing += 1
    for name in FILTERS:
        for key in (f"exact_match_{name}", f"exact_match_{name}_stderr"):
            print(f"{key}: {ours[key]} here, {theirs[key]} there")
            differing += abs(ours[key] - theirs[key]) > 1e-12
    return differing


def main():
    arguments = parse_arguments()
    reference = pathlib.Path(arguments.reference)
    if not reference.exists():
        summary = run_lm_eval(arguments)
        reference.write_text(json.dumps(summary, indent=1) + "\n")
    if arguments.only_reference:
        return
    theirs = json.loads(reference.read_text())
    with tempfile.TemporaryDirectory() as folder:
        samples = pathlib.Path(folder) / "samples.jsonl"
        ours = run_kvcal(arguments, str(samples))
        logged = [json.loads(line) for line in samples.read_text().splitlines()]
    differing = compare(theirs, ours, logged)
    print(f"{len(theirs['samples'])} questions: {'all equal' if not differing else f'{differing} differences'}")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()

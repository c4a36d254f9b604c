#!/usr/bin/env python3
"""Compares `python -m kvcal.lm_eval` with lm-evaluation-harness's hf backend, request by request. Exit 1 where they differ.

usage: lm_eval_harness.py MODEL --text TEXT --gsm8k TEST.jsonl --folder FOLDER [--limit 100] [--runs plain,short,...] [--threads 2]
           [--scales CHECKPOINT] [--short 96] [--only-reference]
needs: lm-eval 0.4.13, torch, transformers 5.23, datasets; the package kvcal on PYTHONPATH

MODEL: SmolLM2-135M-Instruct. The tasks are of the forms of HellaSwag (which of four endings a passage has; normalized by
length), ARC (which of four answers a question has), LAMBADA (the last word of a passage), wikitext (likelihood of whole
passages, in rolling windows) and GSM8K (a text that ends at a string), made from TEXT and TEST.jsonl. Both sides run the
harness, ours by its command line in float32; the other is its backend hf in float32 on the CPU, one text at a time. Runs:

plain   no other settings          short   max_length=N, which --short gives: contexts lose their beginning, texts become windows
bos     add_bos_token=True         chat    --apply_chat_template
fp8     an FP8 cache (E4M3); hf quantizes K and V at Cache.update, with CHECKPOINT's scales or 1.0
noise   hf alone: fp8 with the other way to sum attention (eager), which is what two right runs differ by

Compared of each request: its strings; the log-likelihood, whether it is greedy, the text; of each document its metrics.
Log-likelihoods may differ by 1e-3. Those of FP8 caches do not repeat (docs/eval.md): their mean distance may be 1.5 times
that of `noise`. FOLDER keeps the tasks and hf's answers, which a second run reads.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys

LIMIT = 1e-3
ALL = ["endings", "answers", "last_words", "passages", "texts"]
RUNS = {
    "plain": {"tasks": ALL, "limit": 1.0},
    "short": {"tasks": ["endings", "answers", "passages"], "limit": 0.2, "model": {"max_length": 96}},
    "bos": {"tasks": ["endings", "last_words", "passages", "texts"], "limit": 0.2, "model": {"add_bos_token": True}},
    "chat": {"tasks": ["answers", "texts"], "limit": 0.2, "chat": True},
    "fp8": {"tasks": ["answers", "last_words"], "limit": 1.0, "fp8": True},
    "noise": {"tasks": ["answers", "last_words"], "limit": 1.0, "fp8": True, "attention": "eager"},
}


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--gsm8k", required=True)
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--runs", type=lambda names: names.split(","), default=list(RUNS))
    parser.add_argument("--scales")
    parser.add_argument("--short", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only-reference", action="store_true")
    return parser.parse_args()


def passages_of(text):
    """Sentences of each paragraph that has four or more."""
    found = []
    for line in text.splitlines():
        sentences = [one.strip() for one in re.split(r"(?<=[.!?])\s+", line.strip()) if len(one.split()) > 3]
        if len(sentences) >= 4:
            found.append(sentences)
    return found


def documents(arguments):
    draw = random.Random(7)
    passages = passages_of(pathlib.Path(arguments.text).read_text())
    questions = [json.loads(line) for line in pathlib.Path(arguments.gsm8k).read_text().splitlines()]
    questions.sort(key=lambda one: len(one["question"]))
    endings, answers, last_words = [], [], []
    for index in range(arguments.limit):
        begin, ending, third = passages[index][:3]
        choices = [ending, *(draw.choice(one) for one in draw.sample(passages[arguments.limit:], 3))]
        draw.shuffle(choices)
        endings.append({"context": begin, "choices": choices, "label": choices.index(ending)})
        number = int(questions[index]["answer"].split("####")[1].replace(",", ""))
        numbers = [number, number + draw.randint(1, 9), number * 2 + 11, number + draw.randint(12, 99)]
        draw.shuffle(numbers)
        answers.append({"question": questions[index]["question"], "choices": [str(one) for one in numbers],
                        "label": numbers.index(number)})
        context, word = f"{ending} {third}".rstrip(".!? ").rsplit(" ", 1)
        last_words.append({"context": context, "word": word})
    passages = [{"text": " ".join(sentences[:4])} for sentences in passages[:arguments.limit]]
    texts = [{"question": one["question"], "answer": one["answer"]} for one in questions[:max(arguments.limit // 4, 1)]]
    return {"endings": endings, "answers": answers, "last_words": last_words, "passages": passages, "texts": texts}


def choice_task(context):
    return {"output_type": "multiple_choice", "doc_to_text": context, "doc_to_target": "label", "doc_to_choice": "choices",
            "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")]}


TASKS = {
    "endings": choice_task("{{context}}"),
    "answers": choice_task("Question: {{question}}\nAnswer:"),
    "last_words": {"output_type": "loglikelihood", "doc_to_text": "{{context}}", "doc_to_target": "{{' '+word}}", "metric_list": [
        {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False},
        {"metric": "acc", "aggregation": "mean", "higher_is_better": True}]},
    "passages": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}", "metric_list": [
        {"metric": "word_perplexity"}, {"metric": "bits_per_byte"}]},
    "texts": {"output_type": "generate_until", "doc_to_text": "Question: {{question}}\nAnswer:", "doc_to_target": "{{answer}}",
              "generation_kwargs": {"until": ["\n\n", "Question:", " = "], "max_gen_toks": 48, "do_sample": False},
              "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}]},
}


def write_tasks(arguments):
    """The tasks as files that both sides read. A YAML file may be JSON."""
    folder = arguments.folder / "tasks"
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in documents(arguments).items():
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(record) + "\n" for record in records))
        task = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data.resolve())}},
                "test_split": "test", "num_fewshot": 0, **TASKS[name]}
        (folder / f"{name}.yaml").write_text(json.dumps(task, indent=1))
    return folder


def samples_of(records):
    """{document: what was asked, answered and found}; numbers are texts in the harness's files."""
    found = {}
    for record in records:
        answers = [one for of_request in record["resps"] for one in of_request]
        if not isinstance(answers[0], (list, tuple)):  # texts, and likelihoods of passages
            answers = [[one] for one in answers]
        asked = record["arguments"]
        asked = [list(one.values()) for one in asked.values()] if isinstance(asked, dict) else [list(one) for one in asked]
        found[str(record["doc_id"])] = {
            "asked": [[part for part in one if isinstance(part, str)] for one in asked],
            "answers": [[str(part) for part in one] for one in answers],
            "metrics": {name: record[name] for name in ("acc", "acc_norm", "exact_match") if name in record}}
    return found


def load_tokenizer(model):
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    def load(**more):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(model, **more)
        text = "Question: 1,234 + 56.7 = ?\nAnswer: #### 1290.7"
        file = tokenizers.Tokenizer.from_file(str(pathlib.Path(model) / "tokenizer.json"))
        if tokenizer.encode(text, add_special_tokens=False) != file.encode(text, add_special_tokens=False).ids:
            sys.exit("the tokenizer is not the one of tokenizer.json")
        return tokenizer
    return load


def scales_of(checkpoint):
    """{layer: (scale of K, scale of V)}; 1.0 without a checkpoint."""
    if not checkpoint:
        return {}
    from safetensors.torch import load_file
    scales = {}
    for file in pathlib.Path(checkpoint).glob("*.safetensors"):
        for name, tensor in load_file(file).items():
            if match := re.search(r"layers\.(\d+)\.self_attn\.([kv])_scale$", name):
                scales.setdefault(int(match[1]), {})[match[2]] = tensor.float().item()
    return scales


def quantize_caches(scales):
    """From now on each cache of transformers keeps what an FP8 cache would give back."""
    import torch
    from transformers import cache_utils
    update = cache_utils.DynamicCache.update

    def coded(x, scale):
        return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale

    def quantized(self, key_states, value_states, layer_idx, *more, **named):
        layer = scales.get(layer_idx, {"k": 1.0, "v": 1.0})
        return update(self, coded(key_states, layer["k"]), coded(value_states, layer["v"]), layer_idx, *more, **named)
    cache_utils.DynamicCache.update = quantized
    return lambda: setattr(cache_utils.DynamicCache, "update", update)


def run_reference(arguments, name, tasks):
    import lm_eval
    import torch
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(arguments.threads)
    run = RUNS[name]
    restore = quantize_caches(scales_of(arguments.scales)) if run.get("fp8") else lambda: None
    weights = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32,
                                                   attn_implementation=run.get("attention", "sdpa")).eval()
    bos = {name: value for name, value in run.get("model", {}).items() if name == "add_bos_token"}
    model = HFLM(pretrained=weights, tokenizer=load_tokenizer(arguments.model)(**bos), batch_size=1, **run.get("model", {}))
    try:
        found = lm_eval.simple_evaluate(model=model, tasks=run["tasks"], limit=max(int(arguments.limit * run["limit"]), 1),
                                        log_samples=True, task_manager=TaskManager(include_path=str(tasks)), bootstrap_iters=0,
                                        apply_chat_template=run.get("chat", False))
    finally:
        restore()
    return {task: samples_of(found["samples"][task]) for task in run["tasks"]}


def run_kvcal(arguments, name, tasks):
    run = RUNS[name]
    model = {"pretrained": arguments.model, "dtype": "float32", "kv_cache_dtype": "float32", "threads": arguments.threads,
             **run.get("model", {})}
    if run.get("fp8"):
        model["kv_cache_dtype"] = "fp8_e4m3"
        model.update({"scales": arguments.scales} if arguments.scales else {"unit_scales": True})
    output = arguments.folder / f"ours-{name}"
    for old in output.rglob("*.json*"):
        old.unlink()
    command = [sys.executable, "-m", "kvcal.lm_eval", "--model_args", ",".join(f"{key}={value}" for key, value in model.items()),
               "--tasks", ",".join(run["tasks"]), "--limit", str(max(int(arguments.limit * run["limit"]), 1)), "--include_path",
               str(tasks), "--log_samples", "--output_path", str(output), *["--apply_chat_template"] * run.get("chat", False)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found = {}
    for task in run["tasks"]:
        [file] = output.rglob(f"samples_{task}_*.jsonl")
        found[task] = samples_of([json.loads(line) for line in file.read_text().splitlines()])
    return found


class Comparison:
    def __init__(self):
        self.requests = self.same_texts = self.same_greedy = self.documents = self.same_metrics = 0
        self.distances, self.problems = [], []

    def add(self, document, ours, theirs):
        self.documents += 1
        self.same_metrics += ours["metrics"] == theirs["metrics"]
        if ours["asked"] != theirs["asked"]:
            self.problems.append(f"document {document}: asked {ours['asked']}, hf was asked {theirs['asked']}")
        for mine, other in zip(ours["answers"], theirs["answers"], strict=True):
            self.requests += 1
            try:
                self.distances.append(abs(float(mine[0]) - float(other[0])))
                self.same_greedy += mine[1:] == other[1:]
            except ValueError:  # a text
                self.same_texts += mine == other
                if mine != other:
                    self.problems.append(f"document {document}: {mine[0]!r}, hf writes {other[0]!r}")

    @property
    def mean(self):
        return sum(self.distances) / max(len(self.distances), 1)

    def line(self):
        if not self.distances:
            return f"{self.requests} texts, {self.same_texts} equal; metrics of {self.same_metrics} of {self.documents} equal"
        return (f"{self.requests} requests, log-likelihoods differ by {max(self.distances):.2e} at most, {self.mean:.2e} in the mean; "
                f"greedy: {self.same_greedy} equal; choices and metrics of {self.same_metrics} of {self.documents} documents equal")


def compare(ours, theirs):
    comparison = Comparison()
    if ours.keys() != theirs.keys():
        sys.exit(f"other documents: {sorted(ours)} here, {sorted(theirs)} there")
    for document in ours:
        comparison.add(document, ours[document], theirs[document])
    return comparison


def is_missed(comparison, noise):
    if noise is not None:
        return bool(comparison.problems) or comparison.mean > 1.5 * noise.mean
    exact = comparison.same_metrics == comparison.documents and comparison.same_texts + comparison.same_greedy == comparison.requests
    return bool(comparison.problems) or not exact or max(comparison.distances, default=0.0) > LIMIT


def main():
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    arguments = parse_arguments()
    RUNS["short"]["model"]["max_length"] = arguments.short
    tasks = write_tasks(arguments)
    references = {}
    for name in arguments.runs:
        file = arguments.folder / f"hf-{name}.json"
        if not file.exists():
            file.write_text(json.dumps(run_reference(arguments, name, tasks), indent=1) + "\n")
        references[name] = json.loads(file.read_text())
    if arguments.only_reference:
        return
    missed = 0
    for name in arguments.runs:
        if name == "noise":
            continue
        found = run_kvcal(arguments, name, tasks)
        for task, ours in found.items():
            comparison, noise = compare(ours, references[name][task]), None
            print(f"{name:6} {task:11} {comparison.line()}")
            if RUNS[name].get("fp8"):
                noise = compare(references["noise"][task], references[name][task])
                effect = compare(references["plain"][task], references[name][task])
                print(f"{'':18} hf with itself: {noise.mean:.2e} in the mean, {noise.same_metrics} documents equal; "
                      f"hf without FP8: {effect.mean:.2e}, {effect.same_metrics}")
            for problem in comparison.problems:
                print(" ", problem)
            missed += is_missed(comparison, noise)
    print("all as expected" if not missed else f"{missed} tasks differ")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()

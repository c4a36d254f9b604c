#!/usr/bin/env python3
"""Compares `python -m kvcal.lm_eval` with lm-evaluation-harness's backend hf, request by request. Exit 1 where they differ.

usage: lm_eval_judge.py KVCAL MODEL --text TEXT --test TEST.jsonl --train TRAIN.jsonl --folder FOLDER [--limit 100] [--scales CHECKPOINT]
           [--runs plain,short,...] [--tasks arc_easy,...] [--short 96] [--threads 2] [--only-reference]
needs: requirements-lm-eval.txt: python3 -m venv DIR; DIR/bin/pip install -r requirements-lm-eval.txt. Run with DIR/bin/python and the
package kvcal of the build on PYTHONPATH (build/cpu/python). MODEL: SmolLM2-135M-Instruct. TEXT: wikitext-2's test split, TEST and TRAIN
those of GSM8K.

The tasks are the harness's own, arc_easy, hellaswag, lambada_openai, wikitext and gsm8k, on records in the form of their data sets that
this script makes of TEXT, TEST and TRAIN: a question with four numbers, of which one is its answer; a beginning with four endings; a
passage without its last word; an article; GSM8K itself. Both sides run the harness: ours by its command line in float32, many texts at a
time; the other with hf in float32 on the CPU, one text at a time. Runs:

plain   no other settings. Ours runs with --use_cache, and a second time, which must give the same without the model
short   max_length=N, which --short gives: contexts lose their beginning, texts become windows
bos     add_bos_token=True
chat    --apply_chat_template --fewshot_as_multiturn True --num_fewshot 2
fp8     an FP8 cache (E4M3) with CHECKPOINT's scales, or 1.0; hf quantizes K and V at Cache.update
noise   hf alone: a quarter of fp8 in float64, which is what two right runs differ by
eval    `kvcal eval --task gsm8k` instead of the harness: its prompts, texts and scores must be those of plain's gsm8k

Compared of each request: its strings; the log-likelihood, whether it is greedy, the text; of each document the most likely choice and the
metrics. Log-likelihoods may differ by 1e-3. hf makes them with softmax_dtype=float64: the float32 softmax of torch adds 7e-6 a token to all of
them, 4e-3 in an article of 500 tokens. Those of FP8 caches do not repeat (docs/eval.md): their mean distance may be 1.5 times that of
`noise`. FOLDER keeps the records and hf's answers, which a second run reads.
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
#: Of each task: its file in the package, and the part of --limit that runs.
TASKS = {"arc_easy": ("arc/arc_easy.yaml", 1.0), "hellaswag": ("hellaswag/hellaswag.yaml", 1.0),
         "lambada_openai": ("lambada/lambada_openai.yaml", 1.0), "wikitext": ("wikitext/wikitext.yaml", 0.2),
         "gsm8k": ("gsm8k/gsm8k.yaml", 0.05)}
CHOSEN = ["arc_easy", "hellaswag"]
RUNS = {
    "plain": {"tasks": list(TASKS), "part": 1.0},
    "short": {"tasks": ["arc_easy", "hellaswag", "wikitext"], "part": 0.2, "model": {"max_length": 96}},
    "bos": {"tasks": ["hellaswag", "lambada_openai", "wikitext"], "part": 0.2, "model": {"add_bos_token": True}},
    "chat": {"tasks": ["arc_easy", "gsm8k"], "part": 0.3, "chat": True},
    "fp8": {"tasks": ["arc_easy", "lambada_openai"], "part": 1.0, "fp8": True},
    "noise": {"tasks": ["arc_easy", "lambada_openai"], "part": 0.25, "fp8": True, "dtype": "float64"},
}


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal")
    parser.add_argument("model")
    parser.add_argument("--text", required=True, type=pathlib.Path)
    parser.add_argument("--test", required=True, type=pathlib.Path)
    parser.add_argument("--train", required=True, type=pathlib.Path)
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--runs", type=lambda names: names.split(","), default=[*RUNS, "eval"])
    parser.add_argument("--tasks", type=lambda names: names.split(","), default=list(TASKS))
    parser.add_argument("--scales")
    parser.add_argument("--short", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only-reference", action="store_true")
    return parser.parse_args()


def passages_of(text):
    """Sentences of a usual length of each paragraph that has three or more."""
    found = []
    for line in text.splitlines():
        sentences = [one.strip() for one in re.split(r"(?<=[.!?])\s+", line.strip()) if 6 < len(one.split()) < 25]
        if len(sentences) >= 3:
            found.append(sentences)
    return found


def articles_of(text, most=2000):
    """Articles as the harness's data set has them, the title in front; cut behind a line."""
    found = []
    for article in re.split(r"(?m)^(?= = [^=\n]+ = $)", text):
        if len(article) < most:
            continue
        found.append({"page": article[:article.rindex("\n", 0, most) + 1]})
    return found


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def records_of(arguments):
    """Of each task its splits."""
    draw = random.Random(7)
    text = arguments.text.read_text()
    passages, questions = passages_of(text), sorted(read_lines(arguments.test), key=lambda one: len(one["question"]))
    endings, answers, last_words = [], [], []
    for index in range(arguments.limit + 10):  # the last ones are examples
        begin, ending, third = passages[index][:3]
        words = [one.split() for one in (ending, *(draw.choice(one) for one in draw.sample(passages[arguments.limit + 10:], 3)))]
        order = draw.sample(range(4), 4)
        endings.append({"activity_label": "Encyclopedia", "ctx_a": begin, "ctx_b": " ".join(words[0][:2]).lower(),
                        "endings": [" ".join(words[one][2:]) for one in order], "label": str(order.index(0))})
        number = int(questions[index]["answer"].split("####")[1].replace(",", ""))
        numbers = draw.sample([number, number + draw.randint(1, 9), number * 2 + 11, number + draw.randint(12, 99)], 4)
        answers.append({"question": questions[index]["question"], "answerKey": "ABCD"[numbers.index(number)],
                        "choices": {"label": list("ABCD"), "text": [str(one) for one in numbers]}})
        last_words.append({"text": f"{ending} {third}".rstrip(".!? ")})
    articles = articles_of(text)
    cut = arguments.limit
    return {"arc_easy": {"test": answers[:cut], "train": answers[cut:], "validation": answers[cut:]},
            "hellaswag": {"validation": endings[:cut], "train": endings[cut:]},
            "lambada_openai": {"test": last_words[:cut]},
            "wikitext": {"test": articles, "train": articles[:1], "validation": articles[:1]},
            "gsm8k": {"test": read_lines(arguments.test), "train": read_lines(arguments.train)}}


def write_tasks(arguments):
    """Files of tasks that both sides read: the harness's own, on our records."""
    import lm_eval
    folder = arguments.folder / "tasks"
    folder.mkdir(parents=True, exist_ok=True)
    for name, splits in records_of(arguments).items():
        files = {}
        for split, records in splits.items():
            files[split] = str((folder / f"{name}-{split}.jsonl").resolve())
            pathlib.Path(files[split]).write_text("".join(json.dumps(record) + "\n" for record in records))
        own = pathlib.Path(lm_eval.__file__).parent / "tasks" / TASKS[name][0]
        (folder / f"{name}.yaml").write_text(f"include: {own}\ntask: {local(name)}\ntag: null\ndataset_path: json\ndataset_name: null\n"
                                             f"dataset_kwargs:\n  data_files: {json.dumps(files)}\n")
    return folder


def local(task):
    return f"judge_{task}"


def limit_of(arguments, run, task):
    return max(int(arguments.limit * RUNS[run]["part"] * TASKS[task][1]), 1)


def samples_of(task, records):
    """{document: what was asked, answered and found}; numbers are texts in the harness's files. gsm8k has two filters."""
    found = {}
    for record in records:
        answers = [one for of_request in record["resps"] for one in of_request]
        if not isinstance(answers[0], (list, tuple)):  # texts, and likelihoods of articles
            answers = [[one] for one in answers]
        asked = record["arguments"]
        asked = [list(one.values()) for one in asked.values()] if isinstance(asked, dict) else [list(one) for one in asked]
        metrics = {name: record[name] for name in ("acc", "acc_norm", "exact_match") if name in record}
        if task in CHOSEN:
            metrics["choice"] = max(range(len(answers)), key=lambda one: float(answers[one][0]))
        found[f"{record['doc_id']} {record['filter']}"] = {
            "asked": [[part for part in one if isinstance(part, str)] for one in asked],
            "answers": [[str(part) for part in one] for one in answers], "metrics": metrics}
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
    if not scales:
        sys.exit(f"{checkpoint}: has no scales")
    return scales


def quantize_caches(scales):
    """From now on each cache of transformers keeps what an FP8 cache would give back."""
    import torch
    from transformers import cache_utils
    update = cache_utils.DynamicCache.update

    def coded(x, scale):
        return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype) * scale

    def quantized(self, key_states, value_states, layer_idx, *more, **named):
        layer = scales.get(layer_idx, {"k": 1.0, "v": 1.0})
        return update(self, coded(key_states, layer["k"]), coded(value_states, layer["v"]), layer_idx, *more, **named)
    cache_utils.DynamicCache.update = quantized
    return lambda: setattr(cache_utils.DynamicCache, "update", update)


class Reference:
    """The harness's backend hf with the settings of a run."""

    def __init__(self, arguments, name):
        import torch
        from lm_eval.models.huggingface import HFLM
        from transformers import AutoModelForCausalLM
        torch.set_num_threads(arguments.threads)
        run = RUNS[name]
        weights = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=getattr(torch, run.get("dtype", "float32"))).eval()
        bos = {name: value for name, value in run.get("model", {}).items() if name == "add_bos_token"}
        self.model = HFLM(pretrained=weights, tokenizer=load_tokenizer(arguments.model)(**bos), batch_size=1,
                          softmax_dtype="float64", **run.get("model", {}))
        self.restore = quantize_caches(scales_of(arguments.scales)) if run.get("fp8") else lambda: None
        self.more = {"apply_chat_template": True, "fewshot_as_multiturn": True, "num_fewshot": 2} if run.get("chat") else {}

    def samples(self, task, limit, tasks):
        import lm_eval
        from lm_eval.tasks import TaskManager
        found = lm_eval.simple_evaluate(model=self.model, tasks=[local(task)], limit=limit, log_samples=True, bootstrap_iters=0,
                                        task_manager=TaskManager(include_path=str(tasks)), **self.more)
        return samples_of(task, found["samples"][local(task)])


def references_of(arguments, name, tasks):
    """{task: samples} of hf, of the folder where they are there."""
    reference, samples = None, {}
    for task in (one for one in RUNS[name]["tasks"] if one in arguments.tasks):
        file = arguments.folder / f"hf-{name}-{task}.json"
        if not file.exists():
            if name not in arguments.runs:
                continue
            reference = reference or Reference(arguments, name)
            file.write_text(json.dumps(reference.samples(task, limit_of(arguments, name, task), tasks), indent=1) + "\n")
        samples[task] = json.loads(file.read_text())
    if reference:
        reference.restore()
    return samples


def run_kvcal(arguments, name, task, tasks, *more):
    run = RUNS[name]
    model = {"pretrained": arguments.model, "dtype": "float32", "kv_cache_dtype": "float32", "threads": arguments.threads,
             **run.get("model", {})}
    if run.get("fp8"):
        model["kv_cache_dtype"] = "fp8_e4m3"
        model.update({"scales": arguments.scales} if arguments.scales else {"unit_scales": True})
    output = arguments.folder / f"ours-{name}-{task}"
    for old in output.rglob("*.json*"):
        old.unlink()
    if run.get("chat"):
        more = [*more, "--apply_chat_template", "--fewshot_as_multiturn", "True", "--num_fewshot", "2"]
    command = [sys.executable, "-m", "kvcal.lm_eval", "--model", "kvcal", "--model_args",
               ",".join(f"{key}={value}" for key, value in model.items()), "--tasks", local(task), "--limit",
               str(limit_of(arguments, name, task)), "--include_path", str(tasks), "--log_samples", "--output_path", str(output), *more]
    with open(arguments.folder / f"ours-{name}-{task}.log", "w") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)
    [file] = output.rglob(f"samples_{local(task)}_*.jsonl")
    return samples_of(task, read_lines(file))


def run_plain(arguments, task, tasks):
    """Answers of two runs with --use_cache, the second of which may ask the model for nothing."""
    cache = arguments.folder / f"cache-{task}"
    for old in arguments.folder.glob(cache.name + "*.db*"):
        old.unlink()
    first, second = (run_kvcal(arguments, "plain", task, tasks, "--use_cache", str(cache)) for _ in range(2))
    log = (arguments.folder / f"ours-plain-{task}.log").read_text()
    asked = [int(one) for one in re.findall(r"Cached requests: \d+, Requests remaining: (\d+)", log)]
    if not asked or any(asked):
        sys.exit(f"{task}: --use_cache left {asked} requests to the model")
    return first, second


def run_eval(arguments, limit):
    """`kvcal eval --task gsm8k` in the harness's form."""
    samples = arguments.folder / "eval-gsm8k.jsonl"
    subprocess.run([arguments.kvcal, "eval", arguments.model, "--task", "gsm8k", "--dataset", arguments.test, "--fewshot-dataset",
                    arguments.train, "--limit", str(limit), "--compute-dtype", "float32", "--kv-cache-dtype", "float32", "--threads",
                    str(arguments.threads), "--log-samples", samples, "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    found = {}
    for index, one in enumerate(read_lines(samples)):
        for filter_name, score in (("strict-match", "exact_match_strict"), ("flexible-extract", "exact_match_flexible")):
            found[f"{index} {filter_name}"] = {"asked": [[one["prompt"]]], "answers": [[one["text"]]],
                                               "metrics": {"exact_match": float(one[score])}}
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
                distance = abs(float(mine[0]) - float(other[0]))
            except ValueError:  # a text
                self.same_texts += mine == other
                if mine != other:
                    self.problems.append(f"document {document}: {mine[0]!r}, hf writes {other[0]!r}")
                continue
            self.distances.append(distance)
            self.same_greedy += mine[1:] == other[1:]

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


def tell(name, task, comparison, noise=None):
    print(f"{name:6} {task:14} {comparison.line()}", flush=True)
    for problem in comparison.problems:
        print(" ", problem)
    return is_missed(comparison, noise)


def judge(arguments, name, references, tasks):
    """How many tasks differ."""
    if name == "eval":
        theirs = references["plain"]["gsm8k"]
        return tell(name, "gsm8k", compare(run_eval(arguments, limit_of(arguments, "plain", "gsm8k")), theirs))
    missed = 0
    for task, theirs in references[name].items():
        ours, cached = run_plain(arguments, task, tasks) if name == "plain" else (run_kvcal(arguments, name, task, tasks), None)
        noise = None
        if RUNS[name].get("fp8"):
            noise = compare(references["noise"][task], {document: theirs[document] for document in references["noise"][task]})
            effect = compare(references["plain"][task], theirs)
            print(f"{'':21} hf with itself: {noise.mean:.2e} in the mean, {noise.same_metrics} of {noise.documents} documents equal; "
                  f"hf without FP8: {effect.mean:.2e}, {effect.same_metrics}")
        missed += tell(name, task, compare(ours, theirs), noise)
        if cached:
            missed += tell("cached", task, compare(cached, ours))
    return missed


def main():
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    arguments = parse_arguments()
    RUNS["short"]["model"]["max_length"] = arguments.short
    tasks = write_tasks(arguments)
    references = {name: references_of(arguments, name, tasks) for name in RUNS}
    if arguments.only_reference:
        return
    missed = sum(judge(arguments, name, references, tasks) for name in arguments.runs if name != "noise")
    print("all as expected" if not missed else f"{missed} tasks differ")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()

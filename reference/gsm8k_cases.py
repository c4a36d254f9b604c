#!/usr/bin/env python3
"""Writes tests/fixtures/eval/gsm8k.json: what lm-evaluation-harness makes of GSM8K's parts, for tests/eval/gsm8k_test.cc.

usage: gsm8k_cases.py
needs: lm-eval 0.4.13, torch 2.13, transformers 5.17, datasets 5.2; python 3.11 (random.sample)

"draws": random.Random(seed).sample. "answers": the task's two filters on texts. "matches": its exact_match. "errors": mean and
standard error. "stops": after how many ids the stopping criteria of the hf backend end a text, and what is left of it.
"runs": the task on gsm8k_questions.jsonl and gsm8k_examples.jsonl with the hf backend in float32, on the model fixture llama with
the tokenizer of tests/cli/data, with several settings: prompts, texts, extracted answers, scores.
"""
import json
import pathlib
import random
import shutil
import tempfile

import lm_eval
import torch
import yaml
from lm_eval.api.metrics import exact_match_hf_evaluate, mean, mean_stderr
from lm_eval.filters.extraction import RegexFilter
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import postprocess_generated_text
from lm_eval.models.utils_hf import stop_sequences_criteria
from lm_eval.tasks import TaskManager
from transformers import PreTrainedTokenizerFast

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
FOLDER = TESTS / "fixtures" / "eval"
TASK = pathlib.Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml"
FILTERS = {"strict": "strict-match", "flexible": "flexible-extract"}

DRAWS = [(1234, 7473, 5), (1234, 7473, 0), (1234, 7473, 1), (1234, 7473, 8), (1234, 21, 5), (1234, 22, 5), (1234, 85, 6),
         (1234, 86, 6), (0, 7, 7), (2**40 + 7, 1000000, 12), (42, 4294967295, 3)]

TEXTS = [
    "", "no number", "#### 18", "so $18.\n#### 18\n\n", "#### -5", "####-5", "##### 7", "#### \n#### 3", "#### x #### 12.5", "#### .",
    "#### 1,234.", "#### $1,234.", "$1,234.", "it is -12", "a-1", "5", "-5", "- 5", "5-3", "1-", "--7", "$", "$5", "5$", "$$", ".", "..",
    "the end...", "3.", "3. ", "1,2,3", "12 and 7", "7 and 12.", "18%", "x9y8", "9" * 30, "half\u00e9 3\u00bd", "\u0663\u0664", "#### 4\n#### 5",
    "Answer: 10 dollars - 2", "-$5", "$-5", "1e5", "#### 1 000", "#### -", "#### -,", "-.5", "a -", "-,", "#### 12\n#", "\n\n####  8",
]
ANSWERS = ["work\n#### 18", "work\n#### 1,234", "#### -5", "no mark 18", "a #### 3 #### 18", "work\n#### 18.", "work\n#### $18\n", "####18",
           "line\n#### 18.\n", "[INVALID]", "#### .", ""]
PREDICTIONS = ["18", "18.", "18..", "1,234", "$1,234.", "-5", "5", "[invalid]", "3", ".", "", "1234", "no mark 18", "18,"]


def write_task(folder):
    files = {"train": str(FOLDER / "gsm8k_examples.jsonl"), "test": str(FOLDER / "gsm8k_questions.jsonl")}
    (pathlib.Path(folder) / "task.yaml").write_text(
        f"include: {TASK}\ntask: gsm8k_cases\ndataset_path: json\ndataset_name: null\ndataset_kwargs:\n  data_files: {json.dumps(files)}\n")


def draw_cases():
    cases = []
    for seed, population, count in DRAWS:
        source = random.Random(seed)
        cases.append({"seed": seed, "population": population, "count": count,
                      "drawn": [source.sample(range(population), count) for _ in range(3)]})
    return cases


def answer_cases(config):
    filters = {}
    for entry in config["filter_list"]:
        arguments = {key: value for key, value in entry["filter"][0].items() if key != "function"}
        filters[entry["name"]] = RegexFilter(**arguments)
    return [{"text": text} | {name: filters[label].apply([[text]], [{}])[0][0] for name, label in FILTERS.items()} for text in TEXTS]


def match_cases(config):
    rules = {key: config["metric_list"][0][key] for key in ("ignore_case", "ignore_punctuation", "regexes_to_ignore")}
    return [{"extracted": found, "answer": answer, "match": int(exact_match_hf_evaluate([found], [answer], **rules)["exact_match"])}
            for answer in ANSWERS for found in PREDICTIONS]


def error_cases():
    lists = [[1, 0], [1, 1, 1], [0, 0, 1, 0, 1, 1, 0], [1] * 3 + [0] * 47]
    return [{"scores": scores, "mean": mean(scores), "stderr": mean_stderr(scores)} for scores in lists]


def stop_cases(tokenizer, config):
    stops = config["generation_kwargs"]["until"] + ["THE END"]
    pieces = [["Question", ":"], ["Q", "u", "e", "stion:", " more"], ["a Question", ": b"], ["x</", "s", "> y"], ["<|im_end|>", "z"],
              ["one", "</s>", " two"], ["Quest", "ion"], ["THE", " ", "END", "s"], ["T", "H", "E", " ", "E", "N", "D", "Question:"],
              ["\u00e9Question:"], ["a" * 40 + "THE END"], ["THE END</s>Question:"]]
    cases = []
    for parts in pieces:
        ids = [token for part in parts for token in tokenizer.encode(part, add_special_tokens=False)]
        criteria = stop_sequences_criteria(tokenizer, stops, 0, 1)
        ended = next((count for count in range(1, len(ids) + 1)
                      if any(one(torch.tensor([ids[:count]]), None) for one in criteria)), None)
        text = tokenizer.decode(ids, skip_special_tokens=True)
        cases.append({"ids": ids, "ended": ended, "left": postprocess_generated_text(text, stops, None)})
    return {"stops": stops, "cases": cases}


def run_case(folder, settings):
    """One run of the task; settings: what gsm8k_test.cc reads, too."""
    model_folder = pathlib.Path(folder) / "model"
    shutil.rmtree(model_folder, ignore_errors=True)
    shutil.copytree(TESTS / "fixtures" / "models" / "llama", model_folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(TESTS / "cli" / "data" / name, model_folder)
    (model_folder / "generation_config.json").write_text(json.dumps(settings["generation_config"]))
    more = {} if settings["add_bos_token"] is None else {"add_bos_token": settings["add_bos_token"]}
    model = HFLM(pretrained=str(model_folder), tokenizer=PreTrainedTokenizerFast.from_pretrained(model_folder, **more), dtype="float32",
                 device="cpu", batch_size=1, add_bos_token=settings["add_bos_token"])
    found = lm_eval.simple_evaluate(
        model=model, tasks=["gsm8k_cases"], num_fewshot=settings["num_fewshot"], log_samples=True,
        task_manager=TaskManager(include_path=folder), apply_chat_template=settings["apply_chat_template"],
        fewshot_as_multiturn=settings["fewshot_as_multiturn"], gen_kwargs=f"max_gen_toks={settings['max_gen_toks']}")
    questions = {}
    for sample in found["samples"]["gsm8k_cases"]:
        entry = questions.setdefault(sample["doc_id"], {"prompt": sample["arguments"][0][0], "text": sample["resps"][0][0]})
        name = next(name for name, label in FILTERS.items() if label == sample["filter"])
        entry[name] = sample["filtered_resps"][0]
        entry[f"exact_match_{name}"] = int(sample["exact_match"])
    return {"settings": settings, "answers": [questions[index] for index in sorted(questions)]}


def main():
    config = yaml.load(TASK.read_text(), Loader=yaml.SafeLoader)
    plain = {"num_fewshot": 2, "max_gen_toks": 16, "add_bos_token": None, "apply_chat_template": False, "fewshot_as_multiturn": False,
             "generation_config": {"eos_token_id": 2}}
    variations = [{}, {"num_fewshot": 0, "max_gen_toks": 40}, {"num_fewshot": 5}, {"num_fewshot": 0, "add_bos_token": True},
                  {"num_fewshot": 0, "add_bos_token": False}, {"num_fewshot": 1, "apply_chat_template": True},
                  {"num_fewshot": 1, "apply_chat_template": True, "fewshot_as_multiturn": True},
                  {"num_fewshot": 0, "max_gen_toks": 60, "generation_config": {"eos_token_id": [2, 70, 71, 72, 73], "repetition_penalty": 1.3}}]
    with tempfile.TemporaryDirectory() as folder:
        write_task(folder)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(TESTS / "cli" / "data")
        cases = {"lm_eval": lm_eval.__version__, "draws": draw_cases(), "answers": answer_cases(config), "matches": match_cases(config),
                 "errors": error_cases(), "stops": stop_cases(tokenizer, config),
                 "runs": [run_case(folder, plain | variation) for variation in variations]}
    (FOLDER / "gsm8k.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Renders published chat templates x shapes of conversations (chat_shapes.py) by kvcal, by transformers' apply_chat_template
and by vLLM's own path from a request to a prompt, and compares texts and token ids.

Run: served_templates.py DUMP --transformers PYTHON --vllm PYTHON [--table OUT.tsv] [--shapes NAME,...] [--show N] PACKAGE...
     DUMP: chat_template_dump of a build with tests; PYTHON: of an environment with that package, for vLLM the one that
     `reference/engines` makes (requirements-vllm.txt, vllm without what it asks for, VLLM_TARGET_DEVICE=cpu); PACKAGE: a wheel or an sdist
     that carries templates, as `pip download --no-deps [--no-binary NAME] NAME==VERSION` brings it, or a folder of *.jinja.
Exit 1 where kvcal's text, ids or refusal is not vLLM's.

vLLM's path: ChatCompletionRequest (its pydantic model), build_chat_params, HfRenderer.render_messages. Messages of shapes with
"offline" do without the first, as those of LLM.chat. Arguments that are objects become the text that requests hold. A plain
object stands for the configuration of the model, and a tokenizer that is trained here on the shapes, with the markers of all
templates as special tokens, for the model's; transformers and kvcal have the same one.

The table has a row for each template: name, source, bytes, SHA-256, the format of content that vLLM resolves, and a letter for
each shape. "=": all three texts are equal; "v": kvcal's is vLLM's, and transformers' differs; "r": all refuse; "V": kvcal and
vLLM refuse, and transformers renders; "t": they render, and transformers refuses; "!": kvcal's is not vLLM's. The table holds
nothing of a template's text.

Versions of the table: vllm 0.33.0 on transformers 5.17.0, transformers 5.24.0; packages as the table names them.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import types
import zipfile

import chat_shapes

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
# Copies that trl changes so that the answers can be masked, and what is no template of conversations.
LEFT_OUT = re.compile(r"_training\.jinja$|\.cu\.jinja$|_inst\.jinja$")


def templates_of(package: str):
    """(name, source, bytes) of each template of a package or folder, in order of their names."""
    path = pathlib.Path(package)
    if path.is_dir():
        found = [(str(file.relative_to(path)), file.read_bytes()) for file in path.rglob("*.jinja")]
        label = path.name
    elif path.suffix == ".whl":
        with zipfile.ZipFile(path) as file:
            found = [(name, file.read(name)) for name in file.namelist() if name.endswith(".jinja")]
        label = " ".join(path.name.split("-")[:2])
    else:
        with tarfile.open(path) as file:
            found = [(member.name.split("/", 1)[1], file.extractfile(member).read()) for member in file if member.name.endswith(".jinja")]
        label = " ".join(path.name.removesuffix(".tar.gz").rsplit("-", 1))
    for name, content in sorted(found):
        if not LEFT_OUT.search(name):
            yield pathlib.Path(name).stem, f"{label.replace('_', '-')}: {name}", content


def make_folder(folder: str, sources) -> None:
    """A tokenizer whose special tokens are the markers that the templates write."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    texts = [json.dumps(shape, ensure_ascii=False) for shape in chat_shapes.SHAPES.values()]
    markers = sorted({marker for source in sources for marker in re.findall(r"<[|｜]?[\w▁/-]+[|｜]?>|\[/?[A-Z_]+\]", source)} - set(SPECIAL.values()))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1200, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in [*SPECIAL.values(), *markers]])
    tokenizer.save(f"{folder}/tokenizer.json")
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL}, file)


def reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def by_transformers(folder, jobs):
    from chat_template_reference import chat_template_utils  # with its clock
    assert chat_template_utils
    from transformers import PreTrainedTokenizerFast
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    for job in jobs:
        shape = job["shape"]
        try:
            text = tokenizer.apply_chat_template(shape["messages"], chat_template=job["source"], tools=shape.get("tools"), documents=shape.get("documents"),
                                                 add_generation_prompt=shape.get("add_generation_prompt", False), tokenize=False, **shape.get("chat_template_kwargs", {}))
            yield {"text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]}
        except Exception as error:
            yield {"error": reason(error)}


def write_arguments(messages) -> None:
    """Objects as the JSON text that requests hold."""
    for call in (call for message in messages for call in message.get("tool_calls") or []):
        if isinstance(call["function"].get("arguments"), dict):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)


def by_vllm(folder, jobs):
    os.environ.update(VLLM_LOGGING_LEVEL="CRITICAL", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
    from chat_template_reference import chat_template_utils
    assert chat_template_utils
    from transformers import PreTrainedTokenizerFast
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.renderers import hf
    from vllm.renderers.params import merge_kwargs
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = types.SimpleNamespace(
        enable_prompt_embeds=False, multimodal_config=None, tokenizer=folder, model=folder, tokenizer_revision=None, revision=None,
        code_revision=None, trust_remote_code=False, hf_config=types.SimpleNamespace(model_type="llama"))
    renderer = types.SimpleNamespace(model_config=model, get_tokenizer=lambda: tokenizer, use_unified_vision_chunk=False)
    for job in jobs:
        result = {"format": hf._detect_content_format(job["source"], default="string")}
        try:
            shape = {"add_generation_prompt": False, **job["shape"]}
            is_offline = shape.pop("offline", False)
            write_arguments(shape["messages"])
            request = ChatCompletionRequest.model_validate({**shape, "messages": []} if is_offline else shape)
            tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
            params = request.build_chat_params(job["source"], "auto").with_defaults(merge_kwargs(None, dict(tools=tools, tokenize=False)))
            _, prompt = hf.HfRenderer.render_messages(renderer, shape["messages"] if is_offline else request.messages, params)
            result["text"] = prompt["prompt"]
            result["ids"] = tokenizer.encode(prompt["prompt"], add_special_tokens=request.add_special_tokens)
        except Exception as error:
            result["error"] = reason(error)
        yield result


def work(how: str, folder: str) -> None:
    by = {"transformers": by_transformers, "vllm": by_vllm}[how]
    jobs = [json.loads(line) for line in sys.stdin]
    for result in by(folder, jobs):
        print(json.dumps(result))


def asked(command, lines) -> list:
    run = subprocess.run(command, input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True)
    found = [json.loads(line) for line in run.stdout.split("\n") if line.startswith("{")]
    if run.returncode or len(found) != len(lines):
        sys.exit(f"{command}: {run.returncode}, {len(found)} answers to {len(lines)}\n{run.stderr[-3000:]}")
    return found


def letter(ours: dict, vllm: dict, transformers: dict) -> str:
    if (ours.get("text"), ours.get("ids")) != (vllm.get("text"), vllm.get("ids")):
        return "!"
    if "text" not in ours:
        return "V" if "text" in transformers else "r"
    if "text" not in transformers:
        return "t"
    return "=" if transformers["text"] == ours["text"] and transformers["ids"] == ours["ids"] else "v"


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("dump")
    for option in ("--transformers", "--vllm"):
        parser.add_argument(option, required=True)
    parser.add_argument("--table")
    parser.add_argument("--shapes", default=",".join(chat_shapes.SHAPES))
    parser.add_argument("--only", default="", help="part of the templates' sources")
    parser.add_argument("--show", type=int, default=5, help="how many differences to print in full")
    parser.add_argument("--letters", default="!", help="those of the differences to print")
    parser.add_argument("packages", nargs="+")
    return parser.parse_args()


def first_difference(one: str, other: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    return f"{one[max(0, at - 60):at + 120]!r}\n         {other[max(0, at - 60):at + 120]!r}"


def show(title, ours, vllm, transformers) -> None:
    print(f"--- {title}")
    for name, result in (("kvcal", ours), ("vllm", vllm), ("transformers", transformers)):
        if "error" in result:
            print(f"  {name}: {result['error'][:300]}")
    texts = [result["text"] for result in (ours, vllm, transformers) if "text" in result]
    for other in texts[1:]:
        if other != texts[0]:
            print("  texts  " + first_difference(texts[0], other))


def main() -> int:
    args = arguments()
    shapes = args.shapes.split(",")
    templates, seen = [], set()
    for package in args.packages:
        for name, source, content in templates_of(package):
            digest = hashlib.sha256(content).hexdigest()
            if digest not in seen and args.only in source:
                templates.append((name, source, digest, content))
            seen.add(digest)
    with tempfile.TemporaryDirectory() as folder:
        environment = [args.transformers, "-c", "import sys, json; sys.path.insert(0, sys.argv[1]); import served_templates as s; s.make_folder(sys.argv[2], json.load(sys.stdin))"]
        here = str(pathlib.Path(__file__).resolve().parent)
        sources = [content.decode() for *_, content in templates]
        subprocess.run([*environment, here, folder], input=json.dumps(sources), text=True, check=True)
        ours, jobs = [], []
        for i, source in enumerate(sources):
            path = f"{folder}/{i}.jinja"
            pathlib.Path(path).write_text(source, encoding="utf-8", newline="")
            jobs += [{"source": source, "shape": chat_shapes.SHAPES[shape]} for shape in shapes]
            ours += [{"chat_template": path, "ids": True, **chat_shapes.SHAPES[shape]} for shape in shapes]
        workers = [[python, __file__, "--work", how, folder] for python, how in ((args.vllm, "vllm"), (args.transformers, "transformers"))]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            rendered = list(pool.map(asked, [[args.dump, folder], *workers], [ours, jobs, jobs]))
    return report(args, templates, shapes, list(zip(*rendered, strict=True)))


def report(args, templates, shapes, results) -> int:
    counts, shown, rows = collections.Counter(), 0, []
    by_shape = collections.defaultdict(collections.Counter)
    for i, (name, source, digest, content) in enumerate(templates):
        own = results[i * len(shapes):(i + 1) * len(shapes)]
        letters = "".join(letter(*result) for result in own)
        for shape, found, result in zip(shapes, letters, own):
            counts[found] += 1
            by_shape[shape][found] += 1
            if found in args.letters and shown < args.show:
                shown += 1
                show(f"{name}, {shape}: {found}", *result)
        rows.append("\t".join((name, source, str(len(content)), digest, own[0][1]["format"], letters)))
    if args.table:
        pathlib.Path(args.table).write_text("\n".join(["# " + " ".join(shapes), "\t".join(("name", "source", "bytes", "sha256", "format", "shapes")), *rows]) + "\n", encoding="utf-8")
    for shape in shapes:
        print(f"{shape:20} " + "  ".join(f"{key} {count}" for key, count in sorted(by_shape[shape].items())))
    print(f"{len(templates)} templates x {len(shapes)} shapes: " + ", ".join(f"{key} {count}" for key, count in sorted(counts.items())))
    return 1 if counts["!"] else 0


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(*sys.argv[2:4])
    else:
        sys.exit(main())

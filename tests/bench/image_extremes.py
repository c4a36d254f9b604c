"""How far K and V of tokens of images exceed those of text, in a small LLaVA that is trained here around a real decoder.

usage: image_extremes.py KVCAL MODEL TEXT [--steps 200] [--pictures 48] [--num-samples 32] [--scratch FOLDER] [--layers]
MODEL: a folder with a Llama, as tools/fetch_demo_model.sh makes it. TEXT: chats, as datasets/calibration.jsonl. Needs torch, torchvision,
transformers, pillow and numpy, and scikit-learn's wheel for its handwritten digits.
A vision tower (CLIP's, 2 layers) learns to tell the digits and then stays as it is, as the decoder does. The projector learns, through the decoder,
to make it answer "Which digit?": LLaVA's first stage. Three calibrations by `python -m kvcal.images` and `kvcal calibrate`, each on the same chats and
on pictures that no training saw: with the trained projector, with a random one, and with words of other chats in the place of the pictures' rows.
Prints Markdown: by how much the largest K and V of tokens of images exceed those of text (one number a layer), and the share of their values
that scales of text alone clip. transformers counts them, and must find kvcal's largest values. --layers prints every layer.
"""
import argparse
import copy
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from PIL import Image

IMAGE, NUM_PATCHES, BATCH, HELD_OUT = "<empty_output>", 16, 8, 360  # a special token that the decoder never saw in use
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}"
            "{% if part.type == 'image' %}" + IMAGE + "{% else %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
MEAN, SPREAD = 0.3, 0.35
ROOT = pathlib.Path(__file__).resolve().parents[2]


def digits():
    """Pixels [1797, 8, 8] from 0 to 1, and the digits, in the order of the file. The last HELD_OUT are for no training."""
    folder = importlib.util.find_spec("sklearn").submodule_search_locations[0]
    rows = numpy.loadtxt(pathlib.Path(folder, "datasets/data/digits.csv.gz"), delimiter=",")
    return torch.tensor(rows[:, :-1] / 16, dtype=torch.float32).view(-1, 8, 8), torch.tensor(rows[:, -1], dtype=torch.long)


def pixel_values(pictures):
    return ((torch.round(pictures * 255) / 255 - MEAN) / SPREAD)[:, None].repeat(1, 3, 1, 1)


class Llava:
    def __init__(self, folder):
        self.tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder, extra_special_tokens={"image_token": IMAGE})
        self.tokenizer.chat_template = TEMPLATE
        decoder = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        vision = {"model_type": "clip_vision_model", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "image_size": 8, "patch_size": 2, "projection_dim": 64}
        config = transformers.LlavaConfig(text_config=decoder.config.to_dict(), vision_config=vision, vision_feature_layer=-1,
                                          image_token_index=self.tokenizer.convert_tokens_to_ids(IMAGE), tie_word_embeddings=True)
        self.model = transformers.LlavaForConditionalGeneration(config).float().eval()
        self.model.model.language_model.load_state_dict(decoder.model.state_dict())
        self.model.tie_weights()
        self.model.requires_grad_(False)
        self.tower, self.projector = self.model.model.vision_tower, self.model.model.multi_modal_projector
        self.prompt = self.ids([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Which digit?"}]}], True)
        self.answers = torch.tensor([self.tokenizer.convert_tokens_to_ids(str(digit)) for digit in range(10)])

    def ids(self, messages, is_prompt=False):
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=is_prompt)
        return self.tokenizer(text.replace(IMAGE, IMAGE * NUM_PATCHES), add_special_tokens=False)["input_ids"]

    def logits(self, pictures):
        ids = torch.tensor([self.prompt]).repeat(len(pictures), 1)
        return self.model(input_ids=ids, pixel_values=pixel_values(pictures), logits_to_keep=1, use_cache=False).logits[:, -1]

    def train_tower(self, pictures, labels, epochs=60):
        self.tower.requires_grad_(True)
        head = torch.nn.Linear(64, 10)
        optimizer = torch.optim.AdamW([*self.tower.parameters(), *head.parameters()], 1e-3)
        for _ in range(epochs):
            for chosen in torch.randperm(len(labels)).split(64):
                seen = self.tower(pixel_values(pictures[chosen])).last_hidden_state[:, 1:]
                loss = torch.nn.functional.cross_entropy(head(seen.mean(1)), labels[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        self.tower.requires_grad_(False)

    def train_projector(self, pictures, labels, steps):
        self.projector.requires_grad_(True)
        optimizer = torch.optim.AdamW(self.projector.parameters(), 1e-3)
        rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 20) * (1 - step / steps))
        for step in range(steps):
            chosen = torch.randint(len(labels), (BATCH,))
            loss = torch.nn.functional.cross_entropy(self.logits(pictures[chosen]), self.answers[labels[chosen]])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rates.step()
            if step % 50 == 49 or step == 0:
                print(f"step {step + 1}: loss {loss.item():.3f}", file=sys.stderr, flush=True)
        self.projector.requires_grad_(False)

    @torch.no_grad()
    def right(self, pictures, labels):
        """The share of pictures to which the likeliest token is the digit."""
        found = torch.cat([self.logits(part).argmax(-1) for part in pictures.split(BATCH)])
        return (found == self.answers[labels]).float().mean().item()

    def save(self, folder):
        self.model.save_pretrained(folder)
        images = transformers.CLIPImageProcessor(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8}, image_mean=[MEAN] * 3, image_std=[SPREAD] * 3)
        transformers.LlavaProcessor(image_processor=images, tokenizer=self.tokenizer, patch_size=2, vision_feature_select_strategy="default",
                                    num_additional_image_tokens=1, chat_template=TEMPLATE).save_pretrained(folder)


def messages_of(line):
    return [{"role": turn["role"], "content": [{"type": "text", "text": turn["content"]}]} for turn in json.loads(line)["messages"]]


def picture_turns(url, digit):
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Which digit?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": str(digit)}]}]


class Measured:
    """Chats and pictures, and what they give in a folder of scratch files."""

    def __init__(self, options, folder, pictures, labels):
        self.options, self.folder, self.pictures, self.labels = options, folder, pictures, labels
        lines = options.text.read_text().splitlines()
        self.chats, self.other = lines[:options.num_samples], lines[options.num_samples:]
        for at, pixels in enumerate(pictures):
            Image.fromarray(torch.round(pixels * 255).to(torch.uint8).numpy()).convert("RGB").save(folder / f"{at}.png")
        records = [json.loads(line)["messages"] for line in self.chats] + [picture_turns(f"{at}.png", digit) for at, digit in enumerate(labels.tolist())]
        (folder / "data.jsonl").write_text("".join(json.dumps({"messages": record}) + "\n" for record in records))

    def of_pictures(self, llava, name):
        model = self.folder / name
        llava.save(model)
        samples = self.folder / f"{name}-samples"
        subprocess.run([sys.executable, "-m", "images", model, "--dataset", self.folder / "data.jsonl", "-o", samples], check=True,
                       cwd=ROOT / "python/kvcal", stdout=subprocess.DEVNULL)
        with torch.no_grad():
            rows = llava.projector(llava.tower(pixel_values(self.pictures)).last_hidden_state[:, 1:])
        return self.calibrated(model, samples, llava, rows)

    def of_words(self, llava, name):
        """Embeddings of neighbouring tokens of other chats as the rows."""
        sys.path.insert(0, str(ROOT / "python/kvcal"))
        from images.memory import write_samples

        table = llava.model.get_input_embeddings().weight
        ids = [token for line in self.other for token in llava.ids(messages_of(line))]
        at = torch.randint(len(ids) - NUM_PATCHES, (len(self.pictures),)).tolist()
        rows = torch.stack([table[torch.tensor(ids[first:first + NUM_PATCHES])] for first in at])
        items = [{"input_ids": llava.ids(messages_of(line)), "embedded_positions": [], "embeddings": torch.empty(0, table.shape[1])} for line in self.chats]
        items += [{"input_ids": whole, "embedded_positions": [i for i, token in enumerate(whole) if token == llava.model.config.image_token_id],
                   "embeddings": words} for whole, words in zip(self.pictured_ids(llava), rows)]
        write_samples(items, self.folder / "trained", self.folder / f"{name}-samples")
        return self.calibrated(self.folder / "trained", self.folder / f"{name}-samples", llava, rows)

    def pictured_ids(self, llava):
        return [llava.ids([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Which digit?"}]},
                           {"role": "assistant", "content": [{"type": "text", "text": str(digit)}]}]) for digit in self.labels.tolist()]

    def calibrated(self, model, samples, llava, rows):
        """By layer and side: largest of text, largest of images, and the share of images' values beyond the first."""
        out = samples.with_name(samples.name + "-scales")
        subprocess.run([self.options.kvcal, "calibrate", model, "--dataset", samples, "--num-samples", str(len(self.chats) + len(self.pictures)),
                        "--max-seq-length", "2048", "--compute-dtype", "float32", "--kv-forward", "exact", "--scales-only", "--output", out,
                        "--threads", "2", "--quiet"], check=True)
        layers = json.loads((out / "kvcal_manifest.json").read_text())["layers"]
        limits = {side: [layer["tokens"]["text"][f"{side}_amax"] for layer in layers] for side in "kv"}
        images = {side: [layer["tokens"]["images"][f"{side}_amax"] for layer in layers] for side in "kv"}
        shares = self.shares(llava, rows, limits, images)
        words = llava.model.get_input_embeddings().weight[torch.tensor([token for line in self.chats for token in llava.ids(messages_of(line))])]
        norm = (rows.norm(dim=-1).mean() / words.norm(dim=-1).mean()).item()
        return {side: list(zip(limits[side], images[side], shares[side])) for side in "kv"}, norm

    @torch.no_grad()
    def shares(self, llava, rows, limits, images):
        """Of the values of images' tokens in transformers' cache, whose largest must be kvcal's."""
        counts, largest = ({side: torch.zeros(len(limits[side])) for side in "kv"} for _ in range(2))
        values = 0
        for whole, row in zip(self.pictured_ids(llava), rows):
            ids = torch.tensor(whole)
            is_image = ids == llava.model.config.image_token_id
            embedded = llava.model.get_input_embeddings().weight[ids].clone()
            embedded[is_image] = row
            cache = transformers.DynamicCache()
            llava.model.model.language_model(inputs_embeds=embedded[None], cache=cache, use_cache=True)
            for at, layer in enumerate(cache.layers):
                for side, held in (("k", layer.keys), ("v", layer.values)):
                    found = held[0][:, is_image].abs()
                    counts[side][at] += (found > limits[side][at]).sum()
                    largest[side][at] = largest[side][at].maximum(found.max())
            values += found.numel()
        for side in "kv":
            torch.testing.assert_close(largest[side], torch.tensor(images[side]), rtol=1e-3, atol=0)
        return {side: (count / values).tolist() for side, count in counts.items()}


def print_rows(name, sides, norm, is_long):
    for side, rows in sides.items():
        ratios = [image / text for text, image, _ in rows]
        at = max(range(len(ratios)), key=ratios.__getitem__)
        shares = [share for *_, share in rows]
        print(f"| {name} | {norm:.2f} | {side.upper()} | {statistics.median(ratios):.2f} | {ratios[at]:.2f} (layer {at}) | "
              f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)} | {100 * statistics.mean(shares):.4f} % | {100 * max(shares):.4f} % |")
    if is_long:
        print("\n| layer | K: text | images | clipped | V: text | images | clipped |\n" + "| --- " * 7 + "|")
        for layer, (k, v) in enumerate(zip(sides["k"], sides["v"])):
            print(f"| {layer} | " + " | ".join(f"{text:.4g} | {image:.4g} | {100 * share:.4f} %" for text, image, share in (k, v)) + " |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pictures", type=int, default=48)
    parser.add_argument("--num-samples", type=int, default=32)
    parser.add_argument("--scratch")
    parser.add_argument("--layers", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    pictures, labels = digits()
    training, held_out = slice(None, -HELD_OUT), slice(-HELD_OUT, None)
    llava = Llava(options.model)
    llava.train_tower(pictures[training], labels[training])
    random = copy.deepcopy(llava.projector.state_dict())
    llava.train_projector(pictures[training], labels[training], options.steps)
    print(f"{100 * llava.right(pictures[held_out], labels[held_out]):.1f} % of {HELD_OUT} other pictures are answered with their digit\n", flush=True)
    print("| rows | their norm, of embeddings | side | median ratio | largest | layers beyond text | clipped, mean | clipped, largest |\n" + "| --- " * 8 + "|")
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        measured = Measured(options, pathlib.Path(folder).resolve(), pictures[held_out][:options.pictures], labels[held_out][:options.pictures])
        print_rows("trained projector", *measured.of_pictures(llava, "trained"), options.layers)
        print_rows("words", *measured.of_words(llava, "words"), options.layers)
        llava.projector.load_state_dict(random)
        print_rows("random projector", *measured.of_pictures(llava, "random"), options.layers)


if __name__ == "__main__":
    main()

"""`kvcal.Session` against transformers' logits of the fixture, and against texts of lm-evaluation-harness's hf backend."""

import array
import gc
import importlib.util
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import kvcal

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.path.join(TESTS, "cli", "data")
MODEL = os.path.join(TESTS, "fixtures", "models", "llama")
EXACT = {"device": "reference", "compute_dtype": "float32", "kv_cache_dtype": "float32"}


def read_json(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return json.load(file)


def expected_logits():
    """Rows of transformers' logits, [tokens][vocabulary]."""
    with open(os.path.join(MODEL, "expected.safetensors"), "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entry = json.loads(file.read(length))["logits"]
        begin, end = entry["data_offsets"]
        file.seek(8 + length + begin)
        values = array.array("f", file.read(end - begin))
    width = entry["shape"][1]
    return [values[row : row + width] for row in range(0, len(values), width)]


def expected_score(logits, ids, begin, end):
    """Of ids[begin:end] behind those before."""
    total, greedy = 0.0, True
    for i in range(begin, end):
        row = logits[i - 1]
        top = max(row)
        total += row[ids[i]] - top - math.log(math.fsum(math.exp(one - top) for one in row))
        greedy = greedy and row[ids[i]] == top
    return total, greedy


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def model(self, generation_config=None):
        """The fixture with a tokenizer."""
        folder = os.path.join(self.folder, f"model{len(os.listdir(self.folder))}")
        shutil.copytree(MODEL, folder)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(os.path.join(DATA, name), folder)
        if generation_config is not None:
            with open(os.path.join(folder, "generation_config.json"), "w", encoding="utf-8") as file:
                json.dump(generation_config, file)
        return folder


class Answers(Case):
    def test_scores(self):
        expected = read_json(MODEL, "expected.json")
        ids, logits = expected["ids"], expected_logits()
        spans = [(begin, end) for begin in (1, 2, 7, 20) for end in (begin + 1, begin + 3, 40)]
        with kvcal.Session(self.model(), **EXACT) as session:
            scores = session.score([(ids[:begin], ids[begin:end]) for begin, end in spans], batch_size=5)
            for (begin, end), (found, is_greedy) in zip(spans, scores):
                wanted, greedy = expected_score(logits, ids, begin, end)
                self.assertAlmostEqual(found, wanted, delta=1e-3)
                self.assertEqual(is_greedy, greedy)
            self.assertEqual(scores, session.score([(ids[:begin], ids[begin:end]) for begin, end in spans]))
            # What transformers writes greedily.
            [(_, is_greedy), (_, is_other)] = session.score(
                [(expected["greedy_prompt"], expected["greedy"]), (expected["greedy_prompt"], expected["greedy"][1:])])
            self.assertEqual((is_greedy, is_other), (True, False))

    def test_texts_of_the_harness(self):
        reference = read_json(TESTS, "fixtures", "eval", "gsm8k.json")
        for run in reference["runs"]:
            settings = run["settings"]
            with kvcal.Session(self.model(settings["generation_config"]), **EXACT) as session:
                stop = ["Question:", "</s>", "<|im_end|>", session.info.eos_token]
                prompts = []
                for answer in run["answers"]:
                    has_bos = answer["prompt"].startswith(session.info.bos_token)
                    ids = session.encode(answer["prompt"], add_bos_token=False if has_bos else settings["add_bos_token"])
                    prompts.append((ids[-(session.info.max_length - settings["max_gen_toks"]) :], settings["max_gen_toks"]))
                for batch_size in (None, 1, 2):
                    texts = session.generate(prompts, stop=stop, batch_size=batch_size)
                    self.assertEqual(texts, [answer["text"] for answer in run["answers"]], settings)

    def test_sampled_texts(self):
        """Each draws with a seed of its own, whatever is written beside it."""
        with kvcal.Session(self.model({}), device="reference", compute_dtype="float32") as session:
            prompts = [([5, 6, 7], 16)] * 3
            sampling = {"temperature": 1.5, "top_p": 0.95, "top_k": 40}
            texts = session.generate(prompts, seed=7, **sampling)
            self.assertEqual(len(set(texts)), 3)
            self.assertEqual(texts, session.generate(prompts, seed=7, batch_size=1, **sampling))
            self.assertEqual(texts[1:], session.generate(prompts[:2], seed=8, **sampling))
            [greedy] = set(session.generate(prompts))
            self.assertNotIn(greedy, texts)
            self.assertEqual(session.generate(prompts[:1], temperature=1.5, top_k=1), [greedy])
            for wrong in ({"temperature": -1.0}, {"top_p": 0.0}, {"top_k": -1}, {"seed": -1}):
                [name] = wrong
                with self.assertRaisesRegex(kvcal.Error, name):
                    session.generate(prompts, **wrong)

    def test_caches(self):
        """A coarser cache, and scales of another checkpoint, are what runs."""
        ids, model = read_json(MODEL, "expected.json")["ids"], self.model()
        text = [(ids[:4], ids[4:])]
        out = kvcal.calibrate(model, output=os.path.join(self.folder, "out"), dataset=[ids], device="reference",
                              recipe=os.path.join(DATA, "recipe.yaml"))
        caches = [{"kv_cache_dtype": "float32"}, {"kv_cache_dtype": "fp8_e5m2", "unit_scales": True}, {"scales": out.path}]
        found = []
        for cache in caches:
            with kvcal.Session(model, device="reference", compute_dtype="float32", **cache) as session:
                self.assertEqual(session.info.kv_cache_dtype, cache.get("kv_cache_dtype", "fp8_e4m3"))
                found.append(session.score(text)[0][0])
        perplexity = kvcal.evaluate(model, task="perplexity", dataset=[ids], device="reference", compute_dtype="float32",
                                    scales=out.path)
        with kvcal.Session(model, device="reference", compute_dtype="float32", scales=out.path) as session:
            self.assertAlmostEqual(session.score([(ids[:1], ids[1:])])[0][0], -perplexity["nll"] * (len(ids) - 1), delta=1e-3)
        self.assertGreater(abs(found[1] - found[0]), abs(found[2] - found[0]))
        self.assertNotEqual(found[2], found[0])

    def test_words(self):
        with kvcal.Session(self.model(), device="reference") as session:
            info = session.info
            ids = session.encode("The sea was calm", add_bos_token=False)
            self.assertEqual(session.encode("The sea was calm", add_bos_token=True), [info.bos_token_id, *ids])
            self.assertEqual(session.decode(ids), "The sea was calm")
            self.assertEqual(session.decode([info.bos_token_id], skip_special_tokens=False), info.bos_token)
            self.assertEqual(session.decode([info.bos_token_id]), "")
            self.assertEqual(session.encode("", add_bos_token=False), [])
            chat = session.chat([{"role": "user", "content": "Where?"}])
            self.assertIn("Where?", chat)
            self.assertTrue(chat.startswith(session.chat([{"role": "user", "content": "Where?"}], add_generation_prompt=False)))
            self.assertEqual((info.max_length, info.vocab_size, info.kv_cache_dtype), (128, 160, "float16"))
            with open(os.path.join(DATA, "chat_template.jinja"), encoding="utf-8") as file:
                self.assertEqual(info.chat_template, file.read())


class Life(Case):
    def test_errors(self):
        with self.assertRaisesRegex(kvcal.Error, "tokenizer"):
            kvcal.Session(MODEL)
        with self.assertRaisesRegex(kvcal.Error, "exclude each other"):
            kvcal.Session(self.model(), scales=MODEL, unit_scales=True)
        session = kvcal.Session(self.model(), device="reference")
        for words, call in {
            r"text 0 has no context": lambda: session.score([([], [1])]),
            r"texts\[0\]\[1\]: found -1, expected a token id": lambda: session.score([([1], [-1])]),
            r"texts\[1\]": lambda: session.score([([1], [2]), ([1], ["2"])]),
            r"token id 160 is outside": lambda: session.score([([1], [160])]),
            r"prompt 0 has no token": lambda: session.generate([([], 3)]),
            r"prompts\[0\]: found -1 new tokens": lambda: session.generate([([1], -1)]),
            r"batch_size": lambda: session.score([([1], [2])], batch_size=-1),
        }.items():
            with self.assertRaisesRegex(kvcal.Error, words):
                call()
        self.assertEqual((session.score([]), session.generate([])), ([], []))
        session.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            session.encode("a")
        plain = self.model()
        os.remove(os.path.join(plain, "chat_template.jinja"))
        with kvcal.Session(plain, device="reference") as session:
            self.assertIsNone(session.info.chat_template)
            with self.assertRaisesRegex(kvcal.Error, "has no chat template"):
                session.chat([{"role": "user", "content": "Where?"}])

    def test_harness_that_is_not_there(self):
        if importlib.util.find_spec("lm_eval"):
            self.skipTest("lm-eval is installed")
        done = subprocess.run([sys.executable, "-m", "kvcal.lm_eval", "--tasks", "arc_easy"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("kvcal.lm_eval needs lm-evaluation-harness (pip install lm-eval)", done.stderr)

    def test_interrupt_leaves_the_session(self):
        done = []

        def progress(stage, count, total, unit):
            done.append((stage, count, total, unit))
            if len(done) == 1:
                signal.raise_signal(signal.SIGINT)

        with kvcal.Session(self.model({}), device="reference", progress=progress) as session:
            prompts = [([5, 6, 7], 4), ([8, 9], 6)]
            with self.assertRaises(KeyboardInterrupt):
                session.generate(prompts * 40, batch_size=1)
            self.assertEqual(done[0], ("generate", 1, 80, "texts"))
            again = session.generate(prompts)
            self.assertEqual(again, session.generate(prompts, batch_size=1))

    def test_two_sessions_and_threads(self):
        one, two = (kvcal.Session(self.model(), device="reference", kv_cache_dtype=dtype) for dtype in ("float32", "bfloat16"))
        texts = [([1, 5, 9], [3, 4]), ([7], [2])]
        alone = [one.score(texts), two.score(texts)]
        found = {}

        def work(name, session):
            found[name] = [session.score(texts) for _ in range(5)]

        threads = [threading.Thread(target=work, args=(i, session)) for i, session in enumerate((one, two))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([found[0], found[1]], [[alone[0]] * 5, [alone[1]] * 5])
        del one
        gc.collect()
        self.assertEqual(two.score(texts), alone[1])


if __name__ == "__main__":
    unittest.main()

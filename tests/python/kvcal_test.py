"""`import kvcal` against the program: the same bytes, the same words, and what only a call can do.

KVCAL names the program and KVCAL_MODULE the compiled module; the package is found by PYTHONPATH.
"""

import array
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

import kvcal

try:
    import numpy
except ImportError:
    numpy = None

PROGRAM = os.environ["KVCAL"]
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.path.join(TESTS, "cli", "data")
MODEL = os.path.join(TESTS, "fixtures", "models", "llama")
RECIPE = os.path.join(DATA, "recipe.yaml")
IDS = os.path.join(DATA, "small.jsonl")
CALIBRATION = {"recipe": RECIPE, "dataset": IDS, "device": "reference", "reproducible": True}
GATES = {"task": "kl", "device": "reference", "kv_cache_dtype": "fp8_e5m2", "unit_scales": True}


def program(*words):
    """Runs the program; its status and what it printed."""
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def files_of(folder):
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                found[os.path.relpath(os.path.join(place, name), folder)] = file.read()
    return found


class Case(unittest.TestCase):
    """A scratch folder for each test, which is the working folder. Warnings are not what most tests are about."""

    maxDiff = None

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore", kvcal.KvcalWarning)

    def model_with_tokenizer(self):
        shutil.copytree(MODEL, "model")
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(os.path.join(DATA, name), "model")
        return "model"

    def write_sweep(self):
        with open("sweep.yaml", "w") as file:
            json.dump({"name": "small", "models": [MODEL], "recipes": [{"max": RECIPE}],
                       "calibration": {"dataset": IDS, "max_seq_length": 16}, "evaluation": {"dataset": IDS, "num_samples": 2},
                       "grid": [{"recipes": "max", "num_calibration_samples": [1, 3]}]}, file)

    def expect_words(self, error, status, *words):
        """The error's text is what the program says."""
        found, _, stderr = program(*words)
        self.assertEqual(found, status)
        text = str(error)
        self.assertIn(text, stderr)


class EqualsProgram(Case):
    def test_module(self):
        self.assertEqual(os.path.realpath(kvcal._kvcal.__file__), os.path.realpath(os.environ["KVCAL_MODULE"]))
        self.assertEqual("kvcal " + kvcal.__version__, program("--version")[1].strip())

    def calibrate(self, folder, *words):
        status, _, stderr = program("calibrate", MODEL, "--recipe", RECIPE, "--dataset", IDS, "--device", "reference",
                                    "--reproducible", "--output", folder, *words)
        self.assertEqual(status, 0, stderr)

    def test_calibrate(self):
        self.calibrate("cli")
        out = kvcal.calibrate(MODEL, output="call", **CALIBRATION)
        self.assertEqual(files_of("call"), files_of("cli"))
        self.assertIn("model.safetensors", files_of("call"))
        self.assertEqual(out.manifest, json.loads(files_of("cli")["kvcal_manifest.json"]))
        self.assertEqual([(one.format, str(one.path)) for one in out.folders], [("compressed-tensors", "call")])
        self.assertIn(("vllm", "loaded"), [(one.name, one.verdict) for one in out.engines])

    def test_measure(self):
        self.calibrate("cli", "--num-samples", "2", "--measure")
        out = kvcal.calibrate(MODEL, output="call", num_samples=2, measure=True, **CALIBRATION)
        self.assertEqual(files_of("call"), files_of("cli"))
        self.assertGreater(out.measured["calibrated"]["kl_mean"], 0)

    def test_two_calls_after_each_other(self):
        for folder in ("one", "two"):
            kvcal.calibrate(MODEL, output=folder, **CALIBRATION)
        self.assertEqual(files_of("one"), files_of("two"))

    def test_several_formats(self):
        self.calibrate("cli", "--format", "modelopt", "--format", "tgi")
        out = kvcal.calibrate(MODEL, output="call", format=["modelopt", "tgi"], **CALIBRATION)
        self.assertEqual(files_of("call"), files_of("cli"))
        self.assertEqual([one.format for one in out.folders], ["modelopt", "tgi"])

    def test_scales(self):
        self.calibrate("cli", "--kv-forward", "exact", "--save-statistics", "seen.safetensors")
        status, _, stderr = program("scales", "--statistics", "seen.safetensors", "--recipe", "fp8_kv_mse", "--model", MODEL,
                                    "--output", "cli-mse")
        self.assertEqual(status, 0, stderr)
        out = kvcal.scales("seen.safetensors", recipe="fp8_kv_mse", model=MODEL, output="call-mse")
        self.assertEqual(files_of("call-mse"), files_of("cli-mse"))
        self.assertEqual(kvcal.scales("seen.safetensors").folders, [])
        self.assertEqual(out.path.name, "call-mse")

    def test_convert_and_apply(self):
        self.calibrate("source")
        for words in (("convert", "source", "--format", "modelopt", "--output", "cli-modelopt"),
                      ("convert", "source", "--format", "compressed-tensors", "--scales-only", "--output", "overlay"),
                      ("apply", "overlay", MODEL, "--output", "cli-applied")):
            status, _, stderr = program(*words)
            self.assertEqual(status, 0, stderr)
        out = kvcal.convert("source", format="modelopt", output="call-modelopt")
        self.assertEqual(files_of("call-modelopt"), files_of("cli-modelopt"))
        self.assertEqual([one["layer"] for one in out.losses], [0, 1])
        kvcal.apply("overlay", MODEL, output="call-applied")
        self.assertEqual(files_of("call-applied"), files_of("cli-applied"))

    def test_inspect_and_verify(self):
        self.calibrate("source")
        _, printed, _ = program("inspect", "source", "--json", "--tensors")
        self.assertEqual(kvcal.inspect("source", tensors=True), json.loads(printed))
        _, printed, _ = program("verify", "source", "--engine", "vllm", "--json")
        verified = kvcal.verify("source", engine="vllm")
        printed = json.loads(printed)
        self.assertEqual((printed.pop("verdict"), printed.pop("problem")), ("used", None))
        self.assertEqual(verified.reports, [printed])
        self.assertEqual(verified.holding, ["vllm"])

    def test_evaluate(self):
        _, printed, _ = program("eval", MODEL, "--task", "perplexity", "--dataset", IDS, "--device", "reference", "--json")
        self.assertEqual(kvcal.evaluate(MODEL, task="perplexity", dataset=IDS, device="reference"), json.loads(printed))
        _, printed, _ = program("eval", MODEL, "--task", "sensitivity", "--dataset", IDS, "--device", "reference", "--json",
                                "--unit-scales", "--kv-cache-dtype", "fp8_e4m3")
        found = kvcal.evaluate(MODEL, task="sensitivity", dataset=IDS, device="reference", unit_scales=True,
                               kv_cache_dtype="fp8_e4m3")
        self.assertEqual(found, json.loads(printed))

    def test_sweep(self):
        self.write_sweep()
        told = []
        plan = kvcal.sweep("sweep.yaml", dry_run=True).results
        self.assertFalse(os.path.exists("out"))
        swept = kvcal.sweep("sweep.yaml", output="out", device="reference", progress=lambda *event: told.append(event))
        with open(os.path.join("out", "results.json")) as file:
            self.assertEqual(swept.results, json.load(file))
        self.assertEqual(len(swept.results["cells"]), 2)
        self.assertEqual(len(plan["cells"]), 2)
        stage, done, total, unit = told[-1]
        self.assertEqual((stage, done, unit), ("sweep", total, "tasks"))
        self.assertTrue(os.path.exists(os.path.join("out", "report.html")))


class DataInMemory(Case):
    def scales_of(self, dataset, **more):
        model = more.pop("model", MODEL)
        out = kvcal.calibrate(model, output="out", overwrite=True, **{**CALIBRATION, **more, "dataset": dataset})
        self.assertEqual(out.manifest["dataset"]["path"], "in memory" if not isinstance(dataset, str) else dataset)
        return [(one["k_scale"], one["v_scale"]) for one in out.manifest["layers"]]

    def test_token_ids(self):
        with open(IDS) as file:
            ids = [json.loads(line)["input_ids"] for line in file]
        self.assertEqual(self.scales_of(ids), self.scales_of(IDS))
        if numpy:
            self.assertEqual(self.scales_of(numpy.array(one) for one in ids), self.scales_of(IDS))

    def test_ids_in_any_container(self):
        ids = [[3, 1, 4, 1, 5], [9, 2, 6]]
        expected = self.scales_of(ids)
        twice = array.array("q", [one for one in ids[0] for _ in range(2)])
        self.assertEqual(self.scales_of([memoryview(twice)[::2], tuple(ids[1])]), expected)
        self.assertEqual(self.scales_of([bytes(ids[0]), bytearray(ids[1])]), expected)
        if numpy:
            for dtype in ("int8", "uint16", ">i4", "<i8", "O"):
                arrays = [numpy.array(one[::-1], dtype)[::-1] for one in ids]
                self.assertEqual(self.scales_of(arrays), expected, dtype)

    def test_values_that_are_no_ids(self):
        odd = [[1.0, 2.7], array.array("d", [1, 2]), [None], [[1, 2]], ["a", 1]]
        if numpy:
            odd += [numpy.array([1.0, 2.7]), numpy.zeros((2, 2), "i8"), numpy.array([True]), numpy.array(["a", "b"])]
            odd += [numpy.array([1, 2], "f2"), numpy.array([1 + 2j]), numpy.array(["2026-11-30"], "M8[D]"), numpy.array(5),
                    numpy.zeros(2, [("a", "i4")]), numpy.ma.masked_array([1, 2], [False, True])]
        for one in odd:
            with self.assertRaises(TypeError, msg=repr(one)):
                self.scales_of([one])
        outside = [[-1], [2**40], [2**70], [10**6]]
        if numpy:
            outside += [numpy.array([2**63], "u8"), numpy.broadcast_to(numpy.int64(-2), 3)]
        for one in outside:
            with self.assertRaisesRegex(kvcal.Error, r"input_ids\[0\]", msg=repr(one)):
                self.scales_of([one])
        self.assertEqual(os.listdir("."), [])

    def test_data_that_raise(self):
        class Raises:
            def __iter__(self):
                raise ZeroDivisionError("of the data")

            __index__ = __iter__

        def records():
            yield [1, 2]
            raise KeyError("of the data")

        for data, kind in ((Raises(), ZeroDivisionError), ([Raises()], ZeroDivisionError), ([[Raises()]], ZeroDivisionError), (records(), KeyError)):
            with self.assertRaisesRegex(kind, "of the data"):
                self.scales_of(data)
        self.assertEqual(os.listdir("."), [])

    def test_texts_and_conversations(self):
        model = self.model_with_tokenizer()
        chat = [{"role": "user", "content": "Is the sea calm?"}, {"role": "assistant", "content": "It is."}]
        with open("data.jsonl", "w") as file:
            file.write(json.dumps({"messages": chat}) + "\n" + json.dumps({"text": "The sea was calm."}) + "\n")
        expected = self.scales_of("data.jsonl", model=model)
        self.assertEqual(self.scales_of([chat, "The sea was calm."], model=model), expected)
        self.assertEqual(self.scales_of([{"messages": chat}, {"text": "The sea was calm."}], model=model), expected)

    def test_columns(self):
        model = self.model_with_tokenizer()
        with open("tickets.csv", "w") as file:
            file.write('id,body\n1,"The sea, they say, was calm."\n2,It is.\n')
        expected = self.scales_of(["The sea, they say, was calm.", "It is."], model=model)
        self.assertEqual(self.scales_of("tickets.csv", model=model, text_column="body"), expected)
        with self.assertRaisesRegex(kvcal.Error, "--text-column 'body'"):
            self.scales_of("tickets.csv", model=model)
        result = kvcal.evaluate(model, task="perplexity", dataset="tickets.csv", text_column="body", device="reference")
        self.assertEqual(result["task"], "perplexity")


class Errors(Case):
    def test_words_are_the_programs(self):
        with self.assertRaises(kvcal.Error) as caught:
            kvcal.inspect("nothing")
        self.expect_words(caught.exception, 1, "inspect", "nothing")
        self.assertIsInstance(caught.exception, RuntimeError)
        with self.assertRaises(kvcal.Error) as caught:
            kvcal.calibrate(MODEL, output="out", **{**CALIBRATION, "recipe": "nothing.yaml"})
        self.expect_words(caught.exception, 1, "calibrate", MODEL, "--recipe", "nothing.yaml", "--dataset", IDS, "--output", "out")
        self.assertEqual(os.listdir("."), [])

    def test_existing_output(self):
        kvcal.calibrate(MODEL, output="out", **CALIBRATION)
        with self.assertRaisesRegex(kvcal.Error, "out"):
            kvcal.calibrate(MODEL, output="out", **CALIBRATION)

    def test_arguments(self):
        for more, words in (({"num_samples": 0}, "num_samples: found '0', expected an integer from 1 to"),
                            ({"num_samples": "4"}, "num_samples"),
                            ({"format": [1]}, "format"),
                            ({"output": ""}, "output: is empty"),
                            ({"device": "abacus"}, "abacus")):
            with self.subTest(more), self.assertRaisesRegex(kvcal.Error, words):
                kvcal.calibrate(MODEL, **{"output": "out", **CALIBRATION, **more})
        with self.assertRaises(TypeError):
            kvcal.calibrate(MODEL, output="out", samples=4)
        with self.assertRaisesRegex(kvcal.Error, "max_kl is for task kl; task is perplexity"):
            kvcal.evaluate(MODEL, task="perplexity", dataset=IDS, max_kl=1)
        with self.assertRaisesRegex(kvcal.Error, "chat_template and chat_template_kwargs need apply_chat_template"):
            kvcal.evaluate(MODEL, task="gsm8k", dataset=IDS, fewshot_dataset=IDS, chat_template_kwargs={"mark": "!"})

    def test_lost_scales(self):
        kvcal.calibrate(MODEL, output="out", format="tgi", **CALIBRATION)
        with self.assertRaises(kvcal.CheckFailed) as caught:
            kvcal.verify("out", engine="vllm")
        self.expect_words(caught.exception, 1, "verify", "out", "--engine", "vllm")
        self.assertEqual(caught.exception.result.holding, [])

    def test_no_scales(self):
        program("synth", "--config", os.path.join(TESTS, "fixtures", "models", "qwen3", "config.json"), "--seed", "1", "model")
        with self.assertRaises(kvcal.CheckFailed) as caught:
            kvcal.verify("model", engine="vllm")
        self.expect_words(caught.exception, 1, "verify", "model", "--engine", "vllm")
        self.assertEqual(kvcal.verify("model", engine="vllm", allow_16_bit=True).holding, [])

    def test_missed_gate(self):
        with self.assertRaisesRegex(kvcal.CheckFailed, "gate missed: .*max-kl") as caught:
            kvcal.evaluate(MODEL, dataset=IDS, max_kl=1e-9, **GATES)
        self.assertGreater(caught.exception.result["kl_mean"], 1e-9)
        self.assertGreater(kvcal.evaluate(MODEL, dataset=IDS, max_kl=10, **GATES)["kl_mean"], 0)

    def test_warnings(self):
        warnings.simplefilter("always", kvcal.KvcalWarning)
        with self.assertWarnsRegex(kvcal.KvcalWarning, "3") as caught:
            kvcal.calibrate(MODEL, output="out", num_samples=100, **CALIBRATION)
        self.assertEqual(caught.filename, __file__)
        warnings.simplefilter("error", kvcal.KvcalWarning)
        with self.assertRaises(kvcal.KvcalWarning):
            kvcal.calibrate(MODEL, output="other", num_samples=100, **CALIBRATION)


class RunningCalls(Case):
    def test_progress(self):
        told = []
        kvcal.calibrate(MODEL, output="out", progress=lambda *event: told.append((*event, threading.get_ident())), **CALIBRATION)
        self.assertTrue(told)
        for stage, done, total, unit, thread in told:
            self.assertIsInstance(stage, str)
            self.assertIsInstance(unit, str)
            self.assertLessEqual(done, total)
            self.assertEqual(thread, threading.get_ident())

    def interrupted(self, stop, error):
        told = []

        def progress(*event):
            told.append(event)
            stop()

        with self.assertRaises(error):
            kvcal.calibrate(MODEL, output="out", progress=progress, state="none", **CALIBRATION)
        self.assertEqual(len(told), 1, "nothing is told after the call was stopped")
        self.assertEqual(os.listdir("."), [])
        kvcal.calibrate(MODEL, output="out", **CALIBRATION)

    def test_keyboard_interrupt(self):
        self.interrupted(lambda: signal.raise_signal(signal.SIGINT), KeyboardInterrupt)

    def test_exception_of_progress(self):
        self.interrupted(lambda: {}["nothing"], KeyError)

    def test_interrupted_sweep(self):
        """What is done is kept, and the same call goes on from there."""
        self.write_sweep()

        def progress(stage, done, total, unit):
            if done == 1:
                signal.raise_signal(signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            kvcal.sweep("sweep.yaml", output="out", device="reference", progress=progress)
        totals = set()
        swept = kvcal.sweep("sweep.yaml", output="out", device="reference", progress=lambda _, done, total, unit: totals.add(total))
        self.assertEqual(len(swept.results["cells"]), 2)
        whole = kvcal.sweep("sweep.yaml", dry_run=True).results
        self.assertEqual(totals, {sum(one["number"] for one in whole["tasks"]) - 1})

    def test_signal_handler_that_goes_on(self):
        seen = []
        before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        try:
            kvcal.calibrate(MODEL, output="out", progress=lambda *_: seen or signal.raise_signal(signal.SIGINT), **CALIBRATION)
        finally:
            signal.signal(signal.SIGINT, before)
        self.assertEqual(seen, [1])

    def test_collection_and_forks_in_a_call(self):
        def progress(*_):
            gc.collect()
            child = os.fork()
            if child == 0:
                os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

        with_both = kvcal.calibrate(MODEL, output="out", progress=progress, **CALIBRATION)
        self.assertEqual(files_of(with_both.path), files_of(kvcal.calibrate(MODEL, output="other", **CALIBRATION).path))

    def test_a_fork_behind_a_call(self):
        kvcal.calibrate(MODEL, output="out", **CALIBRATION)
        child = os.fork()
        if child == 0:
            try:
                kvcal.calibrate(MODEL, output="other", **CALIBRATION)
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(files_of("other"), files_of("out"))

    def test_other_threads_run(self):
        """With an endless switch interval another thread gets the GIL only where it is given up."""
        may_run, has_run, before = threading.Lock(), [], sys.getswitchinterval()
        may_run.acquire()

        def other():
            with may_run:
                has_run.append(1)

        thread = threading.Thread(target=other)
        thread.start()
        sys.setswitchinterval(1e6)
        try:
            may_run.release()
            for _ in range(1000):
                kvcal.inspect(MODEL)
                if has_run:
                    break
        finally:
            sys.setswitchinterval(before)
        thread.join()
        self.assertEqual(has_run, [1])

    def test_calls_of_two_threads(self):
        results = {}
        first_runs = threading.Event()

        def work(name):
            results[name] = kvcal.calibrate(MODEL, output=name, progress=lambda *_: first_runs.set(), **CALIBRATION)

        threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
        threads[0].start()
        first_runs.wait()
        threads[1].start()
        for thread in threads:
            thread.join()
        self.assertEqual(files_of("one"), files_of("two"))

    def test_call_within_a_call(self):
        with self.assertRaisesRegex(kvcal.Error, "another call"):
            kvcal.calibrate(MODEL, output="out", progress=lambda *_: kvcal.inspect(MODEL), **CALIBRATION)


@unittest.skipUnless(numpy, "needs numpy")
class Statistics(Case):
    def test_layers(self):
        out = kvcal.calibrate(MODEL, output="out", **CALIBRATION)
        layers = out.manifest["layers"]
        for source in (out, out.manifest, kvcal.inspect("out")):
            seen = kvcal.layer_statistics(source, "v")
            self.assertEqual(seen.layer.tolist(), [0, 1])
            self.assertEqual(seen.amax.tolist(), [one["v_amax"] for one in layers])
            self.assertEqual(seen.scale.shape, (2, 1))
            self.assertEqual(seen.head_amax.max(axis=1).tolist(), seen.amax.tolist())
        histograms = kvcal.layer_statistics(out, "v").histograms
        for layer, counts in zip(layers, histograms.counts):
            self.assertEqual(counts.sum(), sum(layer["v_histogram"]["counts"]))
            top = histograms.edges[numpy.flatnonzero(counts).max() + 1]
            self.assertTrue(top / 1.5 <= layer["v_amax"] < top)

    def test_saved(self):
        kvcal.calibrate(MODEL, output="out", kv_forward="exact", save_statistics="seen.safetensors", **CALIBRATION)
        arrays = kvcal.load_statistics("seen.safetensors")
        edges = kvcal.histogram_edges()
        ranges = arrays["model.layers.0.self_attn.k.ranges"]
        counts = arrays["model.layers.0.self_attn.k.histogram"].sum(axis=0)
        self.assertEqual(ranges.shape, (3, 2, 2))
        self.assertEqual((len(edges), len(counts)), (385, 384))
        largest = numpy.abs(ranges).max()
        last = numpy.flatnonzero(counts).max()
        self.assertTrue(edges[last] <= largest < edges[last + 1])
        with self.assertRaisesRegex(ValueError, "is no file of"):
            kvcal.load_statistics(os.path.join(MODEL, "model.safetensors"))
        with open("seen.safetensors", "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x7f")
        with self.assertRaisesRegex(ValueError, "has changed since it was written"):
            kvcal.load_statistics("seen.safetensors")


class OtherModules(unittest.TestCase):
    def test_openssl_of_python_works_behind_this_module(self):
        """Libraries of the module that show an OpenSSL of their own must not take the system's place."""
        done = subprocess.run([sys.executable, "-c", "import kvcal, hashlib, ssl; ssl.create_default_context(); print(hashlib.sha3_256(b'').hexdigest())"],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.strip()[:16]), (0, "a7ffc6f8bf1ed766"), done.stderr)


if __name__ == "__main__":
    unittest.main()

"""Rules of `kvcal.lm_eval` that need none of lm-evaluation-harness. The harness itself is asked by reference/lm_eval_judge.py."""

import unittest

import kvcal
from kvcal._requests import (
    END_MARK,
    command_line,
    fitted,
    known_arguments,
    order_of,
    prompt_of,
    sampling_of,
    slots_of,
    text_that_goes_on,
)


class Tokens(unittest.TestCase):
    def test_contexts_lose_their_beginning(self):
        # The model reads all but the last token, so that 4 positions score a text of 5.
        self.assertEqual(fitted([1, 2, 3], [4, 5], 4), ([1, 2, 3], [4, 5]))
        self.assertEqual(fitted([0, 1, 2, 3], [4, 5], 4), ([1, 2, 3], [4, 5]))
        self.assertEqual(fitted([1, 2], [3, 4, 5, 6], 4), ([2], [3, 4, 5, 6]))
        with self.assertRaisesRegex(kvcal.Error, "a continuation has 5 tokens, the model's maximum is 4"):
            fitted([1], [2, 3, 4, 5, 6], 4)

    def test_prompts_leave_room(self):
        self.assertEqual(prompt_of([1, 2, 3, 4], 2, 5, None), ([2, 3, 4], 2))
        self.assertEqual(prompt_of([1, 2], 2, 5, None), ([1, 2], 2))
        # max_length counts context and text.
        self.assertEqual(prompt_of([1, 2, 3, 4], 2, 5, 4), ([2, 3, 4], 1))
        self.assertEqual(prompt_of([1, 2, 3, 4], 2, 5, 2), ([2, 3, 4], 0))
        with self.assertRaisesRegex(kvcal.Error, "max_gen_toks is 5, the model's maximum of 5 tokens leaves no context"):
            prompt_of([1], 5, 5, None)

    def test_order(self):
        texts = [([1], [2]), ([5, 6], [7, 1]), ([3, 4, 5], [6]), ([5, 6], [7, 0]), ([1, 2, 3, 4], [5])]
        order = order_of(texts)
        self.assertEqual(sorted(order), [0, 1, 2, 3, 4])
        self.assertEqual(order[0], 4)
        self.assertEqual(order[-1], 0)
        self.assertEqual(abs(order.index(1) - order.index(3)), 1)
        # Texts of one context stay together, whatever their lengths.
        texts = [([1] * 9, [2]), ([3] * 9, [4] * 5), ([1] * 9, [5] * 8), ([3] * 9, [6] * 6), ([1] * 9, [2])]
        self.assertEqual(order_of(texts), [2, 0, 4, 3, 1])


class Settings(unittest.TestCase):
    def test_greedy(self):
        plain = {"repetition_penalty": None}
        self.assertEqual(sampling_of({"do_sample": False, "temperature": 0.0, "top_p": 0.9, "min_p": 0.1, "seed": 3}, 0.8, 20), plain)
        self.assertEqual(sampling_of({"do_sample": False, "use_cache": True}, None, None), plain)
        self.assertEqual(sampling_of({"repetition_penalty": 1.2}, None, None), {"repetition_penalty": 1.2})

    def test_sampled(self):
        def of(top_p=None, top_k=None, **more):
            found = sampling_of({"do_sample": True, "temperature": 0.7, **more}, top_p, top_k)
            return found["temperature"], found["top_p"], found["top_k"]

        self.assertEqual(of(), (0.7, 1.0, 50))
        self.assertEqual(of(top_p=0.8, top_k=20), (0.7, 0.8, 20))
        self.assertEqual(sampling_of({"do_sample": True, "temperature": 1, "top_p": 0.5, "top_k": 0}, 0.8, 20),
                         {"repetition_penalty": None, "temperature": 1.0, "top_p": 0.5, "top_k": 0})

    def test_what_is_not_followed(self):
        with self.assertRaisesRegex(kvcal.Error, "that kvcal does not have: num_beams, typical_p"):
            sampling_of({"do_sample": False, "typical_p": 0.5, "num_beams": 4}, None, None)
        with self.assertRaisesRegex(kvcal.Error, "that kvcal does not have: min_p"):
            sampling_of({"do_sample": True, "temperature": 1.0, "min_p": 0.1}, None, None)
        for settings in ({"do_sample": True}, {"do_sample": True, "temperature": 0.0}):
            with self.assertRaisesRegex(kvcal.Error, "needs a temperature over 0"):
                sampling_of(settings, None, None)

    def test_batch_sizes(self):
        found = [slots_of(*given) for given in ((None, None), ("auto", None), ("auto:4", 8), (3, 8), ("3", None))]
        self.assertEqual(found, [None, None, 8, 3, 3])
        for wrong in (0, -1, "many"):
            with self.assertRaisesRegex(kvcal.Error, f"batch_size: found {wrong!r}, expected auto, or a number"):
                slots_of(wrong, None)

    def test_arguments(self):
        self.assertEqual(known_arguments({"scales": "a", "trust_remote_code": True}, ["scales", "dtype"]), {"scales": "a"})
        with self.assertRaisesRegex(kvcal.Error, "--model_args: unknown argument 'scale', expected one of dtype, scales"):
            known_arguments({"scale": "a"}, ["scales", "dtype"])


class Chats(unittest.TestCase):
    MESSAGES = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "It is "}]

    def rendered(self, render):
        return text_that_goes_on(self.MESSAGES, render)

    def test_message_that_goes_on(self):
        def joined(strip, end):
            def render(messages):
                texts = (one["content"].strip() if strip else one["content"] for one in messages)
                return "".join(f"<{text}{end}>" for text in texts)
            return render

        self.assertEqual(self.rendered(joined(False, "")), "<Where?><It is ")
        self.assertEqual(self.rendered(joined(True, "|")), "<Where?|><It is")
        self.assertEqual(self.MESSAGES[1]["content"], "It is ")
        with self.assertRaisesRegex(kvcal.Error, "leaves the last message out"):
            self.rendered(lambda messages: messages[0]["content"])
        self.assertTrue(END_MARK.endswith(" "))


class CommandLine(unittest.TestCase):
    def test_what_is_added(self):
        both = ["--model", "kvcal", "--batch_size", "auto"]
        for words, more in {
            ("--tasks", "arc_easy"): both,
            ("run", "--tasks", "arc_easy"): both,
            ("--tasks", "arc_easy", "--model=kvcal"): both[2:],
            ("-M", "kvcal", "-b", "4", "-t", "arc_easy"): [],
            ("--tasks", "arc_easy", "--batch_size=4"): both[:2],
            ("--config", "run.yaml"): [],
            ("ls", "tasks"): [],
            ("run", "--help"): [],
            ("run",): [],
            (): [],
        }.items():
            self.assertEqual(command_line(list(words)), [*words, *more])


if __name__ == "__main__":
    unittest.main()

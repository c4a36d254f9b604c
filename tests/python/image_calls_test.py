"""`kvcal.calibrate` with samples that hold images: of files, and the same rows in memory.

PYTHONPATH finds the package.
"""

import os
import pathlib
import tempfile
import unittest

import kvcal
from kvcal.images.samples import read_tensors

try:
    import numpy
except ImportError:
    numpy = None

TESTS = pathlib.Path(__file__).resolve().parents[1]
MODEL = TESTS / "fixtures/images/qwen3_vl"
SETTINGS = {"recipe": str(TESTS / "cli/data/recipe.yaml"), "device": "reference", "reproducible": True}


class ImageCalls(unittest.TestCase):
    """Each test has a scratch folder, which is the working folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def calibrate(self, output, **arguments):
        return kvcal.calibrate(str(MODEL), output=output, **SETTINGS, **arguments)

    def arrays(self):
        kinds = {"I32": "<i4", "F32": "<f4"}
        return [{name: numpy.frombuffer(one.data, kinds[one.dtype]).reshape(one.shape) for name, one in read_tensors(file.read_bytes(), file.name).items()}
                for file in sorted((MODEL / "samples").glob("*.safetensors"))]  # fmt: skip

    def test_files(self):
        made = self.calibrate("files", dataset=str(MODEL / "samples"))
        self.assertGreater(made.manifest["summary"]["images"]["k"]["ratio"], 0)
        self.assertEqual(set(made.manifest["layers"][0]["tokens"]), {"text", "images"})

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_arrays_in_memory(self):
        files = self.calibrate("files", dataset=str(MODEL / "samples"))
        arrays = self.calibrate("arrays", dataset=self.arrays())
        self.assertEqual(pathlib.Path("arrays/model.safetensors").read_bytes(), pathlib.Path("files/model.safetensors").read_bytes())
        self.assertEqual(arrays.manifest["summary"], files.manifest["summary"])

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_wrong_arrays(self):
        records = self.arrays()
        records[1]["other"] = records[1].pop("embedded_positions")
        with self.assertRaisesRegex(kvcal.Error, r"dataset\[1\]: found the keys .*expected input_ids, embedded_positions"):
            self.calibrate("wrong", dataset=records)
        records[1] = {"text": "no rows"}
        with self.assertRaisesRegex(kvcal.Error, r"dataset\[1\]: has no 'embeddings'"):
            self.calibrate("wrong", dataset=records)
        self.assertFalse(os.path.exists("wrong"))

    def test_pictures_that_are_not_there(self):
        with self.assertRaisesRegex(kvcal.Error, "images and dataset: found both"):
            self.calibrate("wrong", dataset=str(MODEL / "samples"), images="pictures")
        with self.assertRaisesRegex(kvcal.Error, "pictures"):
            self.calibrate("wrong", images="pictures")


if __name__ == "__main__":
    unittest.main()

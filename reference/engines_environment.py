"""An environment for one release of an engine: what its judge imports, by a file of requirements, and the engine's wheels without what they ask for, much of
which (CUDA's libraries, kernels) the loading code does without. Where a wheel asks for another version of a package that is there and that its loading code
goes by, it gets that. FOLLOWED are these packages.
"""
import json
import subprocess
import sys

UV = "uv==0.13.9"
FOLLOWED = ["transformers", "tokenizers", "compressed-tensors", "huggingface-hub", "safetensors", "mistral-common", "depyf", "pydantic", "numpy"]
# Prints the requirements of the distributions named that are not met, and versions of these distributions.
UNMET = """
import json, sys
from importlib import metadata
from packaging.requirements import Requirement
unmet = []
for name in sys.argv[1:]:
    for text in metadata.requires(name) or []:
        one = Requirement(text)
        if one.marker and not one.marker.evaluate({"extra": ""}):
            continue
        try:
            if not one.specifier.contains(metadata.version(one.name), prereleases=True):
                unmet.append([one.name.lower().replace("_", "-"), f"{one.name}{one.specifier}"])
        except metadata.PackageNotFoundError:
            pass
print(json.dumps(dict(unmet=unmet, versions={name: metadata.version(name) for name in sys.argv[1:]})))
"""


class Environment:
    def __init__(self, folder, name, requirements, packages):
        self.folder, self.home, self.requirements, self.packages = folder, folder / name, requirements, packages
        self.python = self.home / "bin" / "python"

    def make(self):
        """Its python; says what it installed beyond the requirements."""
        if (self.home / "made").exists():
            return self.python
        self.uv("venv", "--allow-existing", "--python", "3.11", self.home)
        self.install("--requirement", self.requirements)
        if self.packages:
            self.install("--no-deps", "--upgrade", *self.packages)
        self.follow()
        (self.home / "made").write_text("".join(f"{package}\n" for package in self.pinned()))
        return self.python

    def names(self):
        return [package.partition("==")[0] for package in self.packages]

    def pinned(self):
        """The packages with the versions that they turned out to be."""
        versions = self.unmet()["versions"]
        return [f"{name}=={versions[name]}" for name in self.names()]

    def follow(self):
        for _ in range(4):  # a package that was changed may ask for another one
            chosen = set(self.names())
            wanted = {text for name, text in self.unmet(*FOLLOWED)["unmet"] if name in FOLLOWED and name not in chosen}
            if not wanted:
                return
            print(f"{self.home.name}: installs {', '.join(sorted(wanted))}, which its packages ask for", file=sys.stderr)
            self.install("--no-deps", *sorted(wanted))

    def unmet(self, *more):
        present = [name for name in more if self.has(name)]
        told = subprocess.run([self.python, "-c", UNMET, *self.names(), *present], capture_output=True, text=True, check=True)
        return json.loads(told.stdout)

    def has(self, name):
        return subprocess.run([self.python, "-c", f"from importlib import metadata; metadata.version({name!r})"], capture_output=True).returncode == 0

    def install(self, *arguments):
        self.uv("pip", "install", "--python", self.python, *arguments)

    def uv(self, *arguments):
        """uv links a package of several environments instead of copying it: torch alone is 5 GB."""
        uv = self.folder / "uv" / "bin" / "uv"
        if not uv.exists():
            subprocess.run([sys.executable, "-m", "venv", self.folder / "uv"], check=True)
            subprocess.run([self.folder / "uv" / "bin" / "pip", "install", "--quiet", UV], check=True)
        subprocess.run([uv, arguments[0], "--quiet", *arguments[1:]], check=True)

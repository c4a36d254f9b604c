# %% [markdown]
# # A sweep from Python
# Which observer is best for this model, and how many samples does it need? Cells of an editor or of Jupyter; ctest runs
# them from top to bottom. MODEL and TEXTS are the only lines to change.

# %%
import json
import os
import tempfile
from pathlib import Path

import kvcal

FIXTURES = Path(__file__).resolve().parents[1]
MODEL = os.environ.get("MODEL", FIXTURES / "fixtures" / "models" / "llama")
TEXTS = os.environ.get("TEXTS", FIXTURES / "cli" / "data" / "small.jsonl")
work = Path(tempfile.mkdtemp())

# %% [markdown]
# ## The grid
# YAML, of which JSON is a part: two observers, one and three samples, and scale 1.0 beside them.

# %%
grid = {
    "name": "observers",
    "models": [str(MODEL)],
    "recipes": [{"max": "fp8_kv_tensor"}, {"mse": "fp8_kv_mse"}],
    "calibration": {"dataset": str(TEXTS), "max_seq_length": 512},
    "evaluation": {"dataset": str(TEXTS), "num_samples": 3},
    "grid": [
        {"recipes": ["max", "mse"], "num_calibration_samples": [1, 3]},
        {"kv_cache_dtypes": ["fp8_e4m3"], "scales": "unit", "recipes": []},
    ],
}
(work / "grid.yaml").write_text(json.dumps(grid))
plan = kvcal.sweep(work / "grid.yaml", dry_run=True).results
print(len(plan["cells"]), "cells")

# %%
swept = kvcal.sweep(
    work / "grid.yaml",
    output=work / "sweep",
    progress=lambda stage, done, total, unit: print(f"\r{stage}: {done} of {total} {unit}", end=""),
)
print()
for cell in sorted(swept.results["cells"], key=lambda cell: cell["kl_mean"]):
    print(f"{cell['kl_mean']:.6f}  {cell['id']}")
best = min(swept.results["cells"], key=lambda cell: cell["kl_mean"])

# %% [markdown]
# ## The same in one process
# One exact pass keeps all that was seen; the scales of every recipe follow from it.

# %%
kvcal.calibrate(
    MODEL, output=work / "max", dataset=TEXTS, num_samples=3, kv_forward="exact", save_statistics=work / "seen.safetensors"
)
made = {name: kvcal.scales(work / "seen.safetensors", recipe=name) for name in ("fp8_kv_tensor", "fp8_kv_mse")}
for name, output in made.items():
    print(name, [layer["k_scale"] for layer in output.manifest["layers"]])

# %% [markdown]
# ## Statistics as arrays

# %%
try:
    import numpy as np
except ImportError:
    print("without numpy there are no arrays")
else:
    seen = kvcal.layer_statistics(made["fp8_kv_tensor"], "k")
    print("amax of K over the layers:", np.round(seen.amax, 3))
    shares = seen.histograms.counts / seen.histograms.counts.sum(axis=1, keepdims=True)
    print("most values lie from", seen.histograms.edges[shares.argmax(axis=1)])

# %%
assert len(plan["cells"]) == len(swept.results["cells"]) == 5
assert not swept.failed
assert (work / "sweep" / "report.html").exists()

#!/usr/bin/env python3
"""tgi_draft_scales.py DRAFTS OUT.json [NAME...]

What TGI makes of KV scales of multi-token prediction layers (draft_scales.py says more). DRAFTS: tests/fixtures/drafts. Its server is told
to speculate, and it asks for tensors by name: "draft" is true where it asked for one of the layer, and else null; where it refuses the
configuration, that is asked of the checkpoint without it. Its own code is run as engines_tgi.py says; the cache is told FP8. OUT.json is committed as tests/fixtures/engines/drafts_tgi.json.

Reference: as engines_tgi.py. Run with that environment's python, and TGI_SERVER.
"""
import engines_tgi as tgi  # sets the environment first
from text_generation_server.utils.weights import Weights

from draft_scales import attempt, layer_names, run, with_draft_scales, without_declaration

ASKED = set()


def note_names():
    get = Weights.get_filename

    def noted(self, name):
        ASKED.add(name)
        return get(self, name)

    Weights.get_filename = noted


def tried(source, folder, form):
    main_scales, _ = with_draft_scales(source, folder, form)
    own = layer_names(folder)

    def main():
        seen = tgi.observe(folder, {"kv_cache_dtype": "fp8_e4m3fn"}, speculate=2)
        found = {layer: (sides["k"], sides["v"]) for layer, sides in seen["layers"].items()}
        return True if found == main_scales else f"holds {found}, written were {main_scales}"

    def draft():
        if result["main"] is not True:
            without_declaration(folder)
            tgi.observe(folder, {"kv_cache_dtype": "fp8_e4m3fn"}, speculate=2)
        assert ASKED
        return True if any(own.search(name) for name in ASKED) else None

    ASKED.clear()
    result = {"main": attempt(main, folder)}
    result["draft"] = attempt(draft, folder)
    return result, []


if __name__ == "__main__":
    tgi.stop_after_construction()
    note_names()
    run("tgi", "db931fcf", tried)

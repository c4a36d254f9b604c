#!/usr/bin/env python3
"""Judges the judge: changes one place of a kernel's PTX, runs the smallest test that sees it, and expects what the judge
or the test must say.

usage: mutations.py TEST_PROGRAM CUBLASLT [NAME...]

A mutation that nothing reports, that is reported as something else, or whose place is not there any more, is an error.
"""
import os
import re
import subprocess
import sys
from dataclasses import dataclass


@dataclass
class Mutation:
    name: str
    kernel: str  # part of the mangled name
    text: str
    replacement: str
    which: str  # occurrence of text in each of the kernels, from 0, or all
    file: str  # of tests/
    case: str  # of the file; * at its end as Catch2 has it
    expected: str  # regular expression over what the program says
    chip: str = "90"
    attention: str = "mma"
    products: str = "library"


# What Catch2 says when numbers disagree.
WRONG = r"FAILED:\n  (CHECK|REQUIRE)\("
WARPGROUPS = dict(kernel="attend_with_warpgroups", file="attention_half_test", attention="wgmma",
                  case="attention in 16 bits: history*")
MATRICES = dict(kernel="attend_with_matrices", file="attention_half_test", case="attention in 16 bits: history*")
NORM = dict(kernel="11norm_kernel", file="norm_test", case="norm: every backend*")
SCALE = dict(kernel="12scale_kernel", file="elementwise_test", case="scale: every element once*")

MUTATIONS = [
    # Asynchronous products.
    Mutation("proxy_fence_missing", text="fence.proxy.async.shared::cta;", replacement="", which="all",
             expected="reads shared memory that no fence.proxy.async published", **WARPGROUPS),
    Mutation("product_fence_missing", text="wgmma.fence.sync.aligned;", replacement="", which="all",
             expected="a product without wgmma.fence", **WARPGROUPS),
    Mutation("wait_weakened", text="wgmma.wait_group.sync.aligned 0;", replacement="wgmma.wait_group.sync.aligned 1;",
             which="all", expected="was written while a product may read it|changed", **WARPGROUPS),
    Mutation("descriptor_bit", text="4611686293305360384", replacement="9223372311732748288", which="all",
             expected="a descriptor is not of the swizzle of 128 bytes", **WARPGROUPS),
    Mutation("descriptor_stride", text="4611686293305360384", replacement="4611686430744313856", which="all",
             expected="shared access out of bounds|no fence.proxy|may read it|race|" + WRONG, **WARPGROUPS),
    Mutation("product_barrier_missing", text="bar.sync 0;", replacement="", which="2",
             expected="race|no fence.proxy.async published", **WARPGROUPS),
    # Copies and matrices of a warp.
    Mutation("copy_not_awaited", text="cp.async.wait_all;", replacement="", which="all",
             expected="race|" + WRONG, **MATRICES),
    Mutation("matrix_address", text="ldmatrix.sync.aligned.m8n8.x4.shared.b16", which="0",
             replacement="ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", expected=WRONG, **MATRICES),
    Mutation("tile_barrier_missing", text="bar.sync 0;", replacement="", which="2",
             expected=r"race: warp \d+ wrote", **MATRICES),
    # Lanes and warps.
    Mutation("reduction_barrier_missing", text="bar.sync 0;", replacement="", which="0",
             expected="race: .*another warp read", **NORM),
    Mutation("shuffle_mask", text="-1;", replacement="2147483647;", which="0",
             expected="has the mask 0x7fffffff, which differs from others or does not name the lane", **NORM),
    Mutation("shuffle_distance", text="shfl.sync.bfly.b32", replacement="shfl.sync.down.b32", which="0", expected=WRONG,
             **NORM),
    Mutation("barrier_of_some_lanes", text="bar.sync 0;", which="0",
             replacement="setp.lt.u32 %p0, %tid.x, 5; @%p0 bar.sync 0;",
             expected="wait for others that never come here|have exited", **NORM),
    # Memory.
    Mutation("guard_off_by_one", text="setp.ge.s64", replacement="setp.gt.s64", which="0",
             expected="global access out of bounds", **SCALE),
    Mutation("guard_missing", text="setp.ge.s64", replacement="setp.lt.s64", which="0",
             expected="global access out of bounds|" + WRONG, **SCALE),
    Mutation("shared_offset", text="st.shared.f32 [", replacement="st.shared.f32 [131072], 0f00000000; //", which="0",
             expected="shared access out of bounds: 4 bytes at 0x20000", **NORM),
    Mutation("parameter_offset", text="_param_0+40]", replacement="_param_0+48]", which="0",
             expected="access of parameters out of bounds", **SCALE),
    Mutation("alignment", text="shl.b64", replacement="shr.u64", which="all", expected="not aligned|out of bounds",
             **SCALE),
    Mutation("register_not_initialized", text="0f00000000;", replacement="%f0;", which="0", expected=WRONG, **NORM),
    Mutation("product_barrier_missing_80", kernel="13matmul_kernelIfE", text="bar.sync 0;", replacement="", which="0",
             file="matmul_test", case="matmul: every backend*", expected="race", chip="80", products="kernels"),
    Mutation("atomic_missing", kernel="18enter_cache_kernelINS1_7NothingELb1E", text="atom.global.max.u32", which="all",
             replacement="atom.global.min.u32", file="kv_test", case="observe_kv: every backend*", expected=WRONG),
    Mutation("histogram_barrier_missing", kernel="18enter_cache_kernelINS1_7NothingELb1E", text="bar.sync 0;", replacement="",
             which="0", file="kv_test", case="observe_kv: every backend*", expected="race: .*since the block's last barrier"),
    # What a launch may ask for, and what the judge must know.
    Mutation("launch_bounds", text="1024, 1, 1", replacement="32, 1, 1", which="0",
             expected="does not start: .* its launch bounds allow 32", **NORM),
    Mutation("unknown_instruction", text="mul.wide.u32", replacement="mul.wide.u33", which="0",
             expected=r"kernel \S*scale_kernel\S*, line \d+, `mul.wide.u33 .*`: the judge does not know this instruction",
             **SCALE),
]


def run(mutation, program, library):
    environment = {
        **os.environ, "KVCAL_PTX_MUTATION": "\n".join([mutation.kernel, mutation.text, mutation.replacement or " ",
                                                       mutation.which]),
        "KVCAL_PTX_CHIP": mutation.chip, "KVCAL_GPU_ATTENTION": mutation.attention, "KVCAL_PTX_PRODUCTS": mutation.products,
        "KVCAL_GPU_LIBRARY_PATH": library, "KVCAL_REQUIRE_GPU": "1", "KVCAL_TEST_BACKENDS": "gpu"}
    # Commas and stars have a meaning in names of cases.
    arguments = [program, "--filenames-as-tags", f"[#{mutation.file}]{mutation.case}"]
    return subprocess.run(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)


def problem_of(mutation, program, library):
    """What is wrong with how a mutation was met; "" where it was caught."""
    done = run(mutation, program, library)
    said = done.stdout
    if "ptx: mutated: " not in said:
        return "the place to change was not found"
    if done.returncode == 0:
        return "nothing noticed it"
    if not re.search(mutation.expected, said):
        return "expected '" + mutation.expected + "', found:\n" + said[-3000:]
    return ""


def main():
    program, library, *names = sys.argv[1:]
    unknown = set(names) - {mutation.name for mutation in MUTATIONS}
    if unknown:
        sys.exit(f"error: no mutation is called {', '.join(sorted(unknown))}")
    failed = 0
    for mutation in MUTATIONS:
        if names and mutation.name not in names:
            continue
        problem = problem_of(mutation, program, library)
        failed += problem != ""
        print(f"{mutation.name}: {problem or 'caught'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Tells which kernels the tests on the judge launched; each __global__ function must have been, in one instance at least.

usage: coverage.py ALL LAUNCHED     files of mangled names, one a line
"""
import subprocess
import sys


def demangled(path):
    names = sorted(set(open(path, encoding="utf-8").read().split()))
    found = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True).stdout
    return {name.replace("(anonymous namespace)::", "") for name in found.splitlines()}


# Launched beside rocBLAS alone, which has no bias.
OF_OTHER_VENDORS = {"kvcal::gpu::add_bias_kernel"}


def without_parameters(name):
    """kvcal::gpu::norm_kernel<float, false> of void kvcal::gpu::norm_kernel<float, false>(...)."""
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if depth == 0:
            return name[:at].removeprefix("void ")
    return name


def function_of(name):
    return without_parameters(name).split("<")[0]


def main():
    everything, launched = (demangled(path) for path in sys.argv[1:3])
    missing = everything - launched
    print(f"{len(everything & launched)} of {len(everything)} kernels were launched; not:")
    for name in sorted(missing):
        print("  " + without_parameters(name))
    never = sorted({function_of(name) for name in missing} - {function_of(name) for name in launched} - OF_OTHER_VENDORS)
    if never:
        print("error: no instance was launched of " + ", ".join(never), file=sys.stderr)
    return 1 if never or not everything else 0


if __name__ == "__main__":
    sys.exit(main())

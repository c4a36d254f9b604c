#!/usr/bin/env python3
"""Checks tools/cluster/mpijob.yaml against the schema of the resource, its volumes against their mounts, and the arguments of
kvcal against its help. Then breaks it in several ways, each of which must be found.

usage: check_mpijob.py KVCAL
"""
import copy
import json
import pathlib
import subprocess
import sys

import jsonschema
import yaml

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA = json.loads((HERE / "mpijob_schema.json").read_text())


def problems(job, options):
    found = [f"{list(error.absolute_path)}: {error.message}" for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(job)]
    if found:
        return found
    replicas = job["spec"]["mpiReplicaSpecs"]
    for name, replica in replicas.items():
        pod = replica["template"]["spec"]
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        for container in pod["containers"]:
            for mount in container.get("volumeMounts", []):
                if mount["name"] not in volumes:
                    found.append(f"{name}: mount {mount['name']} of no volume")
    args = replicas["Launcher"]["template"]["spec"]["containers"][0]["args"]
    if args[args.index("-n") + 1] != str(replicas["Worker"]["replicas"] * job["spec"]["slotsPerWorker"]):
        found.append("mpirun starts another number of ranks than the workers have slots")
    for word in args[args.index("calibrate"):]:
        if word.startswith("--") and word not in options:
            found.append(f"calibrate has no option {word}")
    return found


def broken(job):
    def change(path, value):
        copied = copy.deepcopy(job)
        place = copied
        for key in path[:-1]:
            place = place[key]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        return copied

    launcher = ["spec", "mpiReplicaSpecs", "Launcher"]
    container = [*launcher, "template", "spec", "containers", 0]
    yield change(["spec", "mpiReplicaSpec"], {})
    yield change(["apiVersion"], "kubeflow.org/v1")
    yield change([*launcher, "restartPolicy"], "Always")
    yield change([*launcher, "replicas"], 2)
    yield change([*container, "args", 1], 4)
    yield change([*container, "args", 1], "5")
    yield change([*container, "args", -1], "--go-on")
    yield change([*container, "volumeMounts", 0, "name"], "others")
    yield change(["spec", "runPolicy", "backoffLimits"], 1)
    yield change(["spec", "mpiReplicaSpecs", "Worker"], None)


def main():
    help_text = subprocess.run([sys.argv[1], "calibrate", "--help"], check=True, capture_output=True, text=True).stdout
    options = {word for word in help_text.split() if word.startswith("--")}
    job = yaml.safe_load((HERE.parent.parent / "tools/cluster/mpijob.yaml").read_text())
    found = problems(job, options)
    for number, other in enumerate(broken(job)):
        if not problems(other, options):
            found.append(f"break {number} is not noticed")
    print("\n".join(found) or "mpijob.yaml is what the operator takes")
    return 1 if found else 0


sys.exit(main())

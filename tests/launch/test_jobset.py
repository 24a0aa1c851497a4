"""The manifest for Kubernetes: filled in as docs/launching.md says, valid, and consistent."""

import copy
import json
import math
import os
import pathlib
import re
import shutil
import string
import subprocess

import jsonschema
import pytest
import yaml

from tests.launch import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "launch/jobset.yaml"
SCHEMA = json.loads((pathlib.Path(__file__).parent / "schemas/jobset.json").read_text())
# | slice | ACCELERATOR | TOPOLOGY | HOSTS | CHIPS |
ROWS = re.findall(
    r"(?m)^\| (v\S+) \| (tpu-\S+) \| ([\dx]+) \| (\d+) \| (\d+) \|$",
    (ROOT / "docs/launching.md").read_text(),
)


def values(accelerator="tpu-v5-lite-podslice", topology="4x4", hosts="4", chips="4"):
    return {
        "NAME": "bfcl",
        "QUEUE": "tpu",
        "IMAGE": "us-docker.pkg.dev/project/images/genenv_jax:tpu",
        "BUCKET": "my-bucket",
        "CONFIG": "configs/bfcl.py",
        "ACCELERATOR": accelerator,
        "TOPOLOGY": topology,
        "HOSTS": hosts,
        "CHIPS": chips,
    }


def render(**changes):
    return yaml.safe_load(string.Template(MANIFEST.read_text()).substitute(values(**changes)))


def job_of(manifest):
    (replicated,) = manifest["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]


def pod_of(manifest):
    return job_of(manifest)["template"]["spec"]


def container_of(manifest):
    (container,) = pod_of(manifest)["containers"]
    return container


def errors(manifest):
    return [
        error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(manifest)
    ]


def test_it_is_valid():
    assert errors(render()) == []


def _job(change):
    return lambda manifest: change(job_of(manifest))


@pytest.mark.parametrize(
    "damage",
    [
        lambda m: m["spec"].update(failurePolice={}),
        lambda m: m["spec"]["failurePolicy"].update(maxRestarts="20"),
        lambda m: m["spec"]["failurePolicy"]["rules"][0].update(action="Fail"),
        lambda m: m["spec"]["failurePolicy"]["rules"][0].pop("name"),
        lambda m: m.update(apiVersion=1),
        _job(lambda job: job.update(completions="four")),
        _job(lambda job: job["podFailurePolicy"]["rules"][0].update(onExitCode={})),
        _job(lambda job: job["template"]["spec"].update(nodeSelector=["gke"])),
        _job(lambda job: job["template"]["spec"]["containers"][0].update(arguments=[])),
        _job(lambda job: job["template"]["spec"]["volumes"][0]["csi"].pop("driver")),
    ],
)
def test_what_is_invalid_is_seen(damage):
    manifest = copy.deepcopy(render())
    damage(manifest)
    assert errors(manifest)


@pytest.mark.skipif(shutil.which("envsubst") is None, reason="needs envsubst")
def test_envsubst_fills_it_in():
    done = subprocess.run(
        ["envsubst"],
        input=MANIFEST.read_text(),
        env=os.environ | values(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert yaml.safe_load(done.stdout) == render()


def test_the_docs_set_what_it_takes():
    template = string.Template(MANIFEST.read_text())
    assert set(template.get_identifiers()) == set(values())
    for text in (MANIFEST.read_text(), (ROOT / "docs/launching.md").read_text()):
        lines = re.search(r"export NAME=.*\n.*CHIPS=\d+", text)[0]
        assert set(re.findall(r"([A-Z]+)=", lines)) == set(values())


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_one_pod_a_host_and_all_chips_of_the_topology(row):
    name, accelerator, topology, hosts, chips = row
    manifest = render(accelerator=accelerator, topology=topology, hosts=hosts, chips=chips)
    job, limits = job_of(manifest), container_of(manifest)["resources"]["limits"]
    assert job["completions"] == job["parallelism"] == int(hosts)
    assert job["completionMode"] == "Indexed"
    size = math.prod(map(int, topology.split("x")))
    assert limits["google.com/tpu"] * job["completions"] == size
    # v4 and v5p are named by their TensorCores, two a chip, and have topologies of three sides.
    cores = name.startswith(("v4", "v5p"))
    assert int(name.split("-")[1]) == size * (2 if cores else 1)
    assert topology.count("x") == (2 if cores else 1)
    selector = pod_of(manifest)["nodeSelector"]
    assert selector == {
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": topology,
    }


def test_the_table_of_slices_was_read():
    assert len(ROWS) == 8


def test_a_failed_pod_restarts_all_and_a_refusal_ends_all():
    manifest = render()
    job, policy = job_of(manifest), manifest["spec"]["failurePolicy"]
    # Any failed pod fails the job, which restarts the set; 2 is the exit code of `cli.fail`.
    assert job["backoffLimit"] == 0 and policy["maxRestarts"] > 0
    assert pod_of(manifest)["restartPolicy"] == "Never"  # what podFailurePolicy asks for
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"] == {
        "containerName": container_of(manifest)["name"],
        "operator": "In",
        "values": [2],
    }
    (rule,) = policy["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])
    assert pod_of(manifest)["terminationGracePeriodSeconds"] >= 120
    assert manifest["spec"]["network"]["enableDNSHostnames"] is True
    assert manifest["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "tpu"}


def test_the_workdir_is_in_the_bucket():
    container, pod = container_of(render()), pod_of(render())
    (volume,), (mount,) = pod["volumes"], container["volumeMounts"]
    assert volume["name"] == mount["name"]
    assert volume["csi"]["driver"] == "gcsfuse.csi.storage.gke.io"
    assert volume["csi"]["volumeAttributes"]["bucketName"] == "my-bucket"
    annotations = job_of(render())["template"]["metadata"]["annotations"]
    assert annotations == {"gke-gcsfuse/volumes": "true"}
    # What the launcher of TPU VMs mounts with.
    worker = (ROOT / "launch/tpu_vm_worker.sh").read_text()
    options = volume["csi"]["volumeAttributes"]["mountOptions"].split(",")
    assert "implicit-dirs" in options and "--implicit-dirs" in worker
    for option in options[1:]:
        group, key, value = option.split(":")
        prefix = "" if group == "file-system" else f"{group}-"
        assert f"--{prefix}{key}={value}" in worker
    paths = [item["value"] for item in container["env"] if "value" in item]
    places = ("--workdir=", "--config.model.make.cache_dir=")
    paths += [a.split("=")[1] for a in container["args"] if a.startswith(places)]
    names = ("data", "xla_cache", "runs/bfcl", "runs/bfcl/models")
    assert paths == [f"{mount['mountPath']}/{name}" for name in names]


def test_the_program_takes_its_arguments():
    assert "command" not in container_of(render())  # the image's, see test_image.py
    assert programs.accepted(container_of(render())["args"]) is True

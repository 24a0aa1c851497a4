"""The manifest for Kubernetes: filled in as docs/launching.md says, valid, and consistent."""

import math
import re
import string

import yaml

from tests.commands import ROOT
from tests.launch import programs

MANIFEST = ROOT / "launch/jobset.yaml"
# | slice | ACCELERATOR | TOPOLOGY | HOSTS | CHIPS |
ROWS = re.findall(
    r"(?m)^\| (v\S+) \| (tpu-\S+) \| ([\dx]+) \| (\d+) \| (\d+) \|$", (ROOT / "docs/launching.md").read_text()
)
VALUES = {
    "NAME": "bfcl", "QUEUE": "tpu", "IMAGE": "us-docker.pkg.dev/project/images/genenv_jax:tpu",
    "BUCKET": "my-bucket", "CONFIG": "configs/bfcl.py", "ACCELERATOR": "tpu-v5-lite-podslice",
    "TOPOLOGY": "4x4", "HOSTS": "4", "CHIPS": "4",
}  # fmt: skip


def render(**changes):
    return yaml.safe_load(string.Template(MANIFEST.read_text()).substitute(VALUES | changes))


def job_of(manifest):
    (replicated,) = manifest["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]


def pod_of(manifest):
    return job_of(manifest)["template"]["spec"]


def container_of(manifest):
    (container,) = pod_of(manifest)["containers"]
    return container


def test_it_is_valid_and_the_program_takes_its_arguments():
    manifest = render()
    assert programs.schema_errors("jobset", manifest) == []
    assert "command" not in container_of(manifest)  # the image's, see test_image.py
    assert programs.accepted(container_of(manifest)["args"]) is True
    manifest["spec"]["failurePolicy"]["rules"][0].pop("name")
    assert programs.schema_errors("jobset", manifest)


def test_the_comment_sets_what_it_takes():
    text = MANIFEST.read_text()
    assert set(string.Template(text).get_identifiers()) == set(VALUES)
    assert set(re.findall(r"([A-Z]+)=", re.search(r"export NAME=.*\n.*CHIPS=\d+", text)[0])) == set(VALUES)


def test_one_pod_a_host_and_all_chips_of_the_topology():
    assert len(ROWS) == 8
    for name, accelerator, topology, hosts, chips in ROWS:
        manifest = render(ACCELERATOR=accelerator, TOPOLOGY=topology, HOSTS=hosts, CHIPS=chips)
        job, limits = job_of(manifest), container_of(manifest)["resources"]["limits"]
        assert job["completions"] == job["parallelism"] == int(hosts)
        assert job["completionMode"] == "Indexed"
        size = math.prod(map(int, topology.split("x")))
        assert limits["google.com/tpu"] * job["completions"] == size
        # v4 and v5p are named by their TensorCores, two per chip, and have three-dimensional topologies.
        cores = name.startswith(("v4", "v5p"))
        assert int(name.split("-")[1]) == size * (2 if cores else 1)
        assert topology.count("x") == (2 if cores else 1)
        assert pod_of(manifest)["nodeSelector"] == {
            "cloud.google.com/gke-tpu-accelerator": accelerator,
            "cloud.google.com/gke-tpu-topology": topology,
        }


def test_a_failed_pod_restarts_all_and_a_refusal_ends_all():
    manifest = render()
    job, policy = job_of(manifest), manifest["spec"]["failurePolicy"]
    # Any failed pod fails the job, which restarts the set; 2 is the exit code of `cli.fail`.
    assert job["backoffLimit"] == 0 and policy["maxRestarts"] > 0
    assert pod_of(manifest)["restartPolicy"] == "Never"  # podFailurePolicy requires this
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob" and rule["onExitCodes"]["values"] == [2]
    assert rule["onExitCodes"]["containerName"] == container_of(manifest)["name"]
    (rule,) = policy["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])
    assert pod_of(manifest)["terminationGracePeriodSeconds"] >= 120
    assert manifest["spec"]["network"]["enableDNSHostnames"] is True


def test_the_workdir_is_in_the_bucket():
    container, pod = container_of(render()), pod_of(render())
    (volume,), (mount,) = pod["volumes"], container["volumeMounts"]
    assert volume["name"] == mount["name"]
    assert volume["csi"]["volumeAttributes"]["bucketName"] == "my-bucket"
    # The mount options of the TPU VM launcher.
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

"""The TPU launcher against a stand-in for gcloud, whose workers run what ssh is given in a real bash."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import time

import pytest

from tests.launch import fake_gcloud

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ("tpu_vm.sh", "tpu_vm_worker.sh")
SLICE = ["--name=slice", "--zone=us-west4-a", "--project=my-project"]
ONE_HOST = [*SLICE, "--accelerator_type=v5litepod-8"]
TWO_HOSTS = [*SLICE, "--accelerator_type=v5p-16"]
FOUR_HOSTS = [*SLICE, "--accelerator_type=v5litepod-16"]
BUCKET = "--bucket=gs://results/genenv"
PROGRAM = ["--", "--config=configs/quickstart.py", "--distributed=auto"]
AT_ONCE = ["--poll_seconds=0", "--retry_seconds=0"]

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("bash", "git", "flock", "setsid", "timeout", "ps")),
    reason="needs bash, git and the tools of a Linux worker",
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with the launcher and a config, all committed."""
    path = tmp_path_factory.mktemp("repository")
    (path / "launch").mkdir()
    for script in SCRIPTS:
        shutil.copy(ROOT / "launch" / script, path / "launch")
    (path / "configs").mkdir()
    (path / "configs/quickstart.py").write_text("def get_config(): ...\n")
    (path / ".gitignore").write_text("runs/\n")
    identity = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "all"]):
        subprocess.run(["git", *arguments], cwd=path, check=True)
    return path


class Cloud:
    """One test's cloud and the launcher that runs in it."""

    def __init__(self, repository, path, **scenario):
        self.repository, self.path, self.control = repository, path, path / "control"
        fake_gcloud.install(path / "commands", self.control, **scenario)
        (self.control / "buckets/results/genenv").mkdir(parents=True)
        self.results = path / "results"
        self.environment = os.environ | {
            "PATH": f"{path / 'commands'}:{os.environ['PATH']}",
            "TMPDIR": str(path),
        }

    def command(self, *arguments):
        head, tail = list(arguments), []
        if "--" in head:
            head, tail = head[: head.index("--")], head[head.index("--") :]
        script = self.repository / "launch/tpu_vm.sh"
        return [script, *head, f"--local_dir={self.results}", *AT_ONCE, *tail]

    def launch(self, *arguments):
        return subprocess.run(
            self.command(*arguments),
            cwd=self.repository,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def existing(self, state="READY", kind="v5litepod-8", workers=1):
        """A slice that was there before."""
        (self.control / "state").write_text(state)
        (self.control / "type").write_text(kind)
        for worker in range(workers):
            (self.control / "workers" / str(worker)).mkdir()

    @property
    def calls(self):
        file = self.control / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def verbs(self):
        """What was called, without the looks at the slice and what came after each other twice."""
        verbs = []
        for call in self.calls:
            verb = call[3] if call[0] == "compute" else " ".join(call[:2])
            command = next((a for a in call if a.startswith("--command=")), "")
            for part in (
                "unpack",
                "install",
                "mount",
                "start",
                "follow",
                "forget",
                "status",
                "tail",
                "stop",
            ):
                if f"worker.sh {part}" in command or (part == "unpack" and "tar -xzf" in command):
                    verb = part
                    break
            if verb != "describe" and verbs[-1:] != [verb]:
                verbs.append(verb)
        return verbs

    def call(self, verb):
        return next(call for call in self.calls if verb in call)

    def program(self, worker=0):
        return json.loads((self.control / f"program/{worker}.json").read_text())

    def exit_code(self, worker, code):
        (self.control / f"exit/{worker}").write_text(str(code))


@pytest.fixture
def cloud(repository, tmp_path):
    yield lambda **scenario: Cloud(repository, tmp_path, **scenario)
    for file in (tmp_path / "control").glob("hang*"):  # what still runs comes to its end
        file.unlink()


WHOLE = ["status", "scp", "unpack", "install", "start", "follow", "status"]


# ---- the way through ------------------------------------------------------------------------------


def test_a_run_on_a_new_slice(cloud):
    cloud = cloud()
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert cloud.verbs == ["create", *WHOLE, "ssh", "delete"]
    assert cloud.call("create") == [
        *"compute tpus tpu-vm create slice --version=v2-alpha-tpuv5-lite".split(),
        *"--zone=us-west4-a --project=my-project --quiet --accelerator-type=v5litepod-8".split(),
    ]
    assert "epoch 1 on worker 0" in done.stdout and "epoch 2 on worker 0" in done.stdout
    assert (cloud.results / "launch/worker-0.log").read_text() == done.stdout
    assert (cloud.results / "metrics.jsonl").read_text() == "{}\n"
    assert (cloud.results / "checkpoints/1").exists()
    program = cloud.program()
    home = cloud.control / "workers/0"
    assert program["cwd"] == f"{home}/genenv_jax/source"
    assert program["arguments"] == [f"--workdir={home}/genenv_jax/workdir/slice", *PROGRAM[1:]]
    installed = (cloud.control / "pip").read_text().splitlines()[-1]
    assert installed.endswith(f"--editable {home}/genenv_jax/source[tpu]")


def test_all_workers_of_a_slice_share_the_bucket(cloud):
    cloud = cloud(workers=4)
    done = cloud.launch(*FOUR_HOSTS, "--spot", BUCKET, "--run=first", *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert "--spot" in cloud.call("create")
    assert cloud.verbs == ["create", *WHOLE[:4], "mount", *WHOLE[4:], "storage rsync", "delete"]
    for worker in range(4):
        home = cloud.control / f"workers/{worker}"
        workdir = f"--workdir={home}/genenv_jax/bucket/genenv/first"
        assert cloud.program(worker)["arguments"] == [workdir, *PROGRAM[1:]]
    assert (cloud.control / "buckets/results/genenv/first/metrics.jsonl").exists()
    assert (cloud.results / "metrics.jsonl").exists()


@pytest.mark.slow
def test_arguments_arrive_as_they_were_given(cloud):
    odd = [
        "--config.a=two words",
        """--config.b='single' "double" $HOME `id` \\n ; & | * ?""",
        "--config.c=line\nbreak",
        "--config.d=",
        "--config.e=é ü",
    ]
    cloud = cloud(workers=2)
    done = cloud.launch(*TWO_HOSTS, "--bucket=gs://results/", *PROGRAM, *odd)
    assert done.returncode == 0, done.stderr
    for worker in range(2):
        assert cloud.program(worker)["arguments"][3:] == odd


def test_a_dry_run_prints_what_a_run_calls(cloud):
    cloud = cloud(workers=4)
    odd = "--config.a='two words' \"$HOME\""
    arguments = [*FOUR_HOSTS, "--spot", BUCKET, *PROGRAM, odd]
    dry = cloud.launch("--dry_run", *arguments)
    assert dry.returncode == 0, dry.stderr
    assert cloud.calls == [] and not cloud.results.exists()
    assert subprocess.run(["bash", "-n"], input=dry.stdout, text=True, check=False).returncode == 0
    printed = [shlex.split(line) for line in dry.stdout.splitlines() if line.startswith("gcloud ")]
    printed = [line[1 : line.index("|") if "|" in line else None] for line in printed]
    assert cloud.launch(*arguments).returncode == 0
    assert printed == cloud.calls
    for line in printed:
        for word in line:
            if word.startswith("--command="):
                subprocess.run(["bash", "-n", "-c", word.removeprefix("--command=")], check=True)


def test_data_and_environment_reach_the_program_and_no_log(cloud, tmp_path):
    (tmp_path / "my data").mkdir()
    (tmp_path / "my data/tasks.json").write_text("[]")
    secrets = tmp_path / "secrets"
    secrets.write_text("# keys\n\nHF_TOKEN=hf_se cret$(touch /)'\"\n")
    cloud = cloud()
    options = [f"--data_dir={tmp_path / 'my data'}", f"--env_file={secrets}", "--keep"]
    done = cloud.launch(*ONE_HOST, *options, *PROGRAM)
    assert done.returncode == 0, done.stderr
    program = cloud.program()
    assert program["token"] == "hf_se cret$(touch /)'\""
    assert (pathlib.Path(program["data"]) / "tasks.json").read_text() == "[]"
    assert not (cloud.control / "workers/0/genenv_jax/run.env").exists()
    assert "hf_se" not in done.stdout + done.stderr + json.dumps(cloud.calls)


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("v6e-8", "v2-alpha-tpuv6e"),
        ("v5p-8", "v2-alpha-tpuv5"),
        ("v4-8", "tpu-ubuntu2204-base"),
        ("v5litepod-1", "v2-alpha-tpuv5-lite"),
    ],
)
def test_one_host_by_generation(cloud, kind, version):
    done = cloud().launch("--dry_run", *SLICE, f"--accelerator_type={kind}", *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert f"--version={version} " in done.stdout and "(1 host)" in done.stdout


@pytest.mark.parametrize(
    ("kind", "hosts"),
    [("v5litepod-16", 4), ("v5litepod-256", 64), ("v6e-32", 8), ("v5p-16", 2), ("v4-32", 4)],
)
def test_several_hosts_without_a_shared_workdir_are_refused(cloud, kind, hosts):
    cloud = cloud()
    done = cloud.launch(*SLICE, f"--accelerator_type={kind}", *PROGRAM)
    assert done.returncode == 2 and cloud.calls == []
    assert f"{kind} has {hosts} hosts" in done.stderr and "--bucket" in done.stderr


# ---- reuse, keep, teardown ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_slice_that_exists_is_used(cloud):
    cloud = cloud()
    cloud.existing()
    done = cloud.launch(*ONE_HOST, "--keep", *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert cloud.verbs == [*WHOLE, "ssh", "forget"]
    assert "kept and costs" in done.stderr and "delete --name=slice" in done.stderr
    again = cloud.launch(*ONE_HOST, *PROGRAM)
    assert again.returncode == 0, again.stderr
    assert cloud.verbs == [*WHOLE, "ssh", "forget", *WHOLE, "ssh", "delete"]


@pytest.mark.parametrize(
    ("slice_", "message"),
    [
        ({"kind": "v5litepod-4"}, "is a v5litepod-4; expected v5litepod-8"),
        ({"state": "STOPPED"}, "STOPPED; expected READY"),
    ],
)
def test_a_slice_that_does_not_suit_is_left_alone(cloud, slice_, message):
    cloud = cloud()
    cloud.existing(**slice_)
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 1 and message in done.stderr
    assert cloud.verbs == []


@pytest.mark.slow
def test_a_slice_that_was_preempted_before_is_made_anew(cloud):
    cloud = cloud()
    cloud.existing("PREEMPTED")
    assert cloud.launch(*ONE_HOST, *PROGRAM).returncode == 0
    assert cloud.verbs[:2] == ["delete", "create"]


@pytest.mark.slow
def test_a_slice_is_waited_for(cloud):
    cloud = cloud(states=["CREATING", "CREATING"])
    done = cloud.launch(*ONE_HOST, "--fetch=records", *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert [call[3] for call in cloud.calls][1:6] == ["create", *["describe"] * 3, "ssh"]
    assert (cloud.results / "metrics.jsonl").exists()
    assert not (cloud.results / "checkpoints").exists()


def test_a_slice_that_never_gets_ready_is_given_up_and_deleted(cloud):
    cloud = cloud(create=[[0, "", "CREATING"]])
    done = cloud.launch(*ONE_HOST, "--ready_timeout=0", *PROGRAM)
    assert done.returncode == 1 and "is CREATING, and not READY after 0 s" in done.stderr
    assert cloud.verbs == ["create", "delete"]


@pytest.mark.slow
def test_a_queued_slice(cloud):
    cloud = cloud()
    done = cloud.launch(*ONE_HOST, "--queued", "--spot", "--create_flag=--reserved", *PROGRAM)
    assert done.returncode == 0, done.stderr
    created = cloud.call("create")
    assert created[:5] == ["compute", "tpus", "queued-resources", "create", "slice"]
    assert {"--node-id=slice", "--spot", "--reserved"} < set(created)
    assert cloud.call("delete")[2:6] == ["queued-resources", "delete", "slice", "--force"]


def test_what_gcloud_says_of_a_failed_creation_is_shown(cloud):
    quota = "ERROR: Quota 'TPUV5sLitepodPerProjectPerZone' exceeded. Limit: 0"
    cloud = cloud(create=[[1, quota, ""]])
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 1
    assert quota in done.stderr and "could not be created" in done.stderr
    assert cloud.verbs == ["create"]


def test_a_creation_that_fails_half_way_leaves_nothing_behind(cloud):
    cloud = cloud(create=[[1, "timed out", "CREATING"]])
    assert cloud.launch(*ONE_HOST, *PROGRAM).returncode == 1
    assert cloud.verbs == ["create", "delete"]


def test_a_failure_to_look_is_no_absence(cloud):
    cloud = cloud(describe_error="ERROR: PERMISSION_DENIED: tpu.nodes.get")
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 1 and "PERMISSION_DENIED" in done.stderr
    assert cloud.verbs == []


@pytest.mark.parametrize("keep", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_exit_code_of_the_run_is_passed_on_and_the_slice_deleted(cloud, keep):
    cloud = cloud(workers=2)
    cloud.exit_code(0, 134)  # aborted, since another one is gone
    cloud.exit_code(1, 3)
    done = cloud.launch(*TWO_HOSTS, BUCKET, *["--keep"] * keep, *PROGRAM)
    assert done.returncode == 3, done.stderr
    assert "t1v-n-w-1 exit:3" in done.stderr
    assert "[t1v-n-w-1] epoch 2 on worker 1" in done.stdout  # the tails of all
    end = ["stop", "tail", "storage rsync", "forget" if keep else "delete"]
    assert cloud.verbs[-len(end) :] == end
    assert (cloud.results / "metrics.jsonl").exists()


@pytest.mark.slow
def test_the_others_are_stopped_when_one_fails(cloud):
    cloud = cloud(workers=2)
    cloud.exit_code(1, 5)
    (cloud.control / "hang-others").touch()
    done = cloud.launch(*TWO_HOSTS, BUCKET, "--keep", *PROGRAM)
    assert done.returncode == 5, done.stderr
    # Worker 0 hung, so its log was looked at more than once, and shown once.
    assert sum(" follow " in call[-1] for call in cloud.calls) > 1
    assert done.stdout.splitlines().count("epoch 1 on worker 0") == 1
    for worker in range(2):  # a run holds its lock
        lock = cloud.control / f"workers/{worker}/genenv_jax/run/lock"
        subprocess.run(["flock", "--nonblock", lock, "true"], check=True)


@pytest.mark.slow
def test_results_that_cannot_be_fetched_are_not_deleted(cloud):
    cloud = cloud()
    cloud.results.mkdir()
    (cloud.results / "metrics.jsonl").mkdir()  # a file of that name cannot be unpacked here
    (cloud.results / "metrics.jsonl/x").touch()
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 1
    assert "could not be fetched" in done.stderr and "not deleted" in done.stderr
    assert "delete" not in cloud.verbs


@pytest.mark.slow
def test_fetch_and_delete_by_themselves(cloud):
    cloud = cloud()
    assert cloud.launch(*ONE_HOST, "--keep", "--fetch=none", *PROGRAM).returncode == 0
    assert not (cloud.results / "metrics.jsonl").exists()
    before = len(cloud.calls)
    assert cloud.launch("fetch", *ONE_HOST).returncode == 0
    assert (cloud.results / "metrics.jsonl").exists()
    assert cloud.launch("delete", *ONE_HOST).returncode == 0
    assert [call[3] for call in cloud.calls[before:]] == ["ssh", "delete"]


# ---- interruptions --------------------------------------------------------------------------------


def test_a_preempted_run_goes_on_in_the_same_workdir(cloud):
    cloud = cloud(workers=2, follow=["PREEMPTED"])
    (cloud.control / "hang").touch()
    done = cloud.launch(*TWO_HOSTS, "--spot", BUCKET, "--retries=1", *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert "PREEMPTED; retry 1 of 1" in done.stderr
    through = [*WHOLE[:4], "mount", "start", "follow"]
    assert cloud.verbs == [
        *["create", *through, "delete"],
        # The lock that names the first slice's host is removed before the second start.
        *["create", *through[:-2], "ssh", *through[-2:], "status", "storage rsync", "delete"],
    ]
    calls = (cloud.control / "calls.jsonl").read_text()
    assert calls.count("/run.lock") == 1
    assert (cloud.results / "metrics.jsonl").read_text() == "{}\n{}\n"  # both starts wrote there


@pytest.mark.slow
def test_a_run_preempted_too_often_is_given_up(cloud):
    cloud = cloud(workers=2, follow=["PREEMPTED"])
    (cloud.control / "hang").touch()
    done = cloud.launch(*TWO_HOSTS, BUCKET, *PROGRAM)
    assert done.returncode == 75
    assert "taken away during the run: it is PREEMPTED" in done.stderr
    assert cloud.verbs[-3:] == ["follow", "storage rsync", "delete"]


@pytest.mark.slow
def test_no_capacity_after_a_preemption_is_retried(cloud):
    create = [[0, "", "READY"], [1, "no more capacity in the zone", ""], [0, "", "READY"]]
    cloud = cloud(workers=2, follow=["PREEMPTED"], create=create)
    (cloud.control / "hang").touch()
    done = cloud.launch(*TWO_HOSTS, BUCKET, "--retries=2", *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert [call[3] for call in cloud.calls].count("create") == 3


@pytest.mark.slow
def test_a_run_lost_in_a_restart_is_started_again(cloud):
    cloud = cloud(workers=2, follow=["restart"])
    (cloud.control / "hang").touch()
    done = cloud.launch(*TWO_HOSTS, BUCKET, "--retries=1", *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert "is lost" in done.stderr
    assert cloud.verbs.count("create") == 1 and cloud.verbs.count("start") == 2


@pytest.mark.slow
def test_a_run_lost_too_often_is_fetched_before_its_slice_is_deleted(cloud):
    cloud = cloud(follow=["restart"])
    (cloud.control / "hang").touch()
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 75 and "is lost" in done.stderr
    assert (cloud.results / "metrics.jsonl").exists()
    assert cloud.verbs[-2:] == ["ssh", "delete"]


def test_a_dropped_connection_loses_nothing(cloud):
    cloud = cloud(follow=["drop", "drop"])
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "epoch 1 on worker 0\nepoch 2 on worker 0\n"
    assert cloud.verbs.count("start") == 1


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def interrupt(cloud, *arguments):
    """Sends Ctrl-C to a launcher whose run goes on, in a session of its own; returns the launcher's exit
    code and messages."""
    (cloud.control / "hang").touch()
    log = cloud.results / "launch/worker-0.log"
    launcher = subprocess.Popen(
        cloud.command(*ONE_HOST, *arguments, *PROGRAM),
        cwd=cloud.repository,
        env=cloud.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that run in the background may have been told to ignore it, and so would the script.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        wait_for(lambda: log.exists() and log.stat().st_size > 0)
        pid = int((cloud.control / "workers/0/genenv_jax/run/pid").read_text())
        assert os.getsid(launcher.pid) == launcher.pid != os.getsid(pid)
        os.killpg(launcher.pid, signal.SIGINT)
        errors = launcher.communicate(timeout=30)[1]
    except BaseException:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.communicate()
        raise
    return launcher.returncode, errors


def test_after_ctrl_c_the_run_goes_on_and_is_found_again(cloud):
    cloud = cloud()
    code, errors = interrupt(cloud)
    assert code == 130 and "kept and costs" in errors
    assert "delete" not in cloud.verbs
    other = cloud.launch(*ONE_HOST, "--run=other", *PROGRAM)
    assert other.returncode == 1 and "busy with run slice" in other.stderr
    (cloud.control / "hang").unlink()
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "epoch 1 on worker 0\nepoch 2 on worker 0\n"
    assert cloud.verbs.count("start") == 1 and cloud.verbs[-1] == "delete"


@pytest.mark.slow
def test_ctrl_c_deletes_where_asked(cloud):
    cloud = cloud()
    code, _ = interrupt(cloud, "--delete_on_interrupt")
    assert code == 130 and cloud.verbs[-1] == "delete"


# ---- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*SLICE, *PROGRAM], "--accelerator_type is missing"),
        ([*SLICE, "--accelerator_type=a100-8", *PROGRAM], "a100-8: expected a Cloud TPU type"),
        ([*SLICE, "--accelerator_type=v5litepod-12", *PROGRAM], "v5litepod-12: expected 1, 4, 8"),
        ([*SLICE, "--accelerator_type=v5p-12", *PROGRAM], "v5p-12: expected a multiple of 8"),
        ([*ONE_HOST, "--name=a;rm -rf", *PROGRAM], "--name=a;rm -rf: expected"),
        ([*ONE_HOST, "--zone=$(id)", *PROGRAM], r"--zone=$(id): expected a zone"),
        ([*ONE_HOST, "--run=../up", *PROGRAM], "--run=../up: expected"),
        ([*ONE_HOST, "--retries=many", *PROGRAM], "--retries=many: expected a whole number"),
        ([*ONE_HOST, "--retries=1", *PROGRAM], "nothing to continue"),
        ([*ONE_HOST, "--fetch=none", *PROGRAM], "would be deleted"),
        ([*ONE_HOST, "--bucket=results", *PROGRAM], "--bucket=results: expected gs://"),
        ([*ONE_HOST, "--bucket=gs://results/../x", *PROGRAM], "no . or .."),
        ([*ONE_HOST, BUCKET, "--shared_dir=/nfs", *PROGRAM], "expected one of them"),
        ([*ONE_HOST, "--data_dir=/nowhere", *PROGRAM], "--data_dir=/nowhere: expected a directory"),
        ([*ONE_HOST, "--spott", *PROGRAM], "unknown option '--spott'"),
        ([*ONE_HOST, "--zone=", *PROGRAM], "--zone= is empty"),
        (ONE_HOST, "no --config"),
        ([*ONE_HOST, "--", "--config=configs/none.py"], "configs/none.py is not in HEAD"),
        ([*ONE_HOST, *PROGRAM, "--workdir=x"], "--workdir=x: the workdir is set by"),
        ([*TWO_HOSTS, BUCKET, *PROGRAM[:-1]], "expected --distributed=auto after --"),
    ],
)
def test_bad_input_is_named_before_any_call(cloud, arguments, message):
    cloud = cloud()
    done = cloud.launch(*arguments)
    assert done.returncode == 2 and message in done.stderr
    assert cloud.calls == [] and done.stdout == ""


def test_an_environment_file_is_judged_without_being_shown(cloud, tmp_path):
    file = tmp_path / "secrets"
    file.write_text("A=1\nhf_secret\n")
    done = cloud().launch(*ONE_HOST, f"--env_file={file}", *PROGRAM)
    assert done.returncode == 2 and "line 2 is not KEY=value" in done.stderr
    assert "hf_secret" not in done.stderr


def test_uncommitted_changes_are_warned_of(cloud, repository):
    file = repository / "new.py"
    file.touch()
    try:
        done = cloud().launch("--dry_run", *ONE_HOST, *PROGRAM)
    finally:
        file.unlink()
    assert "uncommitted changes are not copied" in done.stdout


def test_help_names_every_option():
    script = ROOT / "launch/tpu_vm.sh"
    shown = subprocess.run([script, "--help"], capture_output=True, text=True, check=True).stdout
    text = script.read_text()
    read = text[text.index("case $option in") : text.index('*) refuse "unknown option')]
    options = set(re.findall(r"--[a-z][a-z_]*(?==\*|\))", read))
    assert len(options) > 20 and "--accelerator_type" in options
    assert sorted(option for option in options if option not in shown) == []

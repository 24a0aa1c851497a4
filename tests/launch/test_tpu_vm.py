"""The TPU launcher against a stand-in for gcloud, whose workers run what ssh is given in a real bash."""

import json
import os
import shutil
import signal
import subprocess

import pytest

from tests.commands import ROOT
from tests.launch import fake_gcloud, programs

SCRIPTS = ("tpu_vm.sh", "tpu_vm_worker.sh")
SLICE = ["--name=slice", "--zone=us-west4-a", "--bucket=results"]
ONE_HOST = [*SLICE, "--accelerator_type=v5litepod-8"]
TWO_HOSTS = [*SLICE, "--accelerator_type=v5p-16"]
FOUR_HOSTS = [*SLICE, "--accelerator_type=v5e-16"]  # the same as v5litepod-16
PROGRAM = ["--", "--config=configs/quickstart.py", "--distributed=auto"]

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
    return programs.committed(path)


class Cloud:
    """One test's cloud and the launcher that runs in it."""

    def __init__(self, repository, path):
        self.repository, self.path, self.control = repository, path, path / "control"
        fake_gcloud.install(path / "commands", self.control)
        self.bucket = self.control / "buckets/results"
        self.bucket.mkdir()
        self.environment = os.environ | {
            "PATH": f"{path / 'commands'}:{os.environ['PATH']}",
            "TMPDIR": str(path),
            "PYTHON": str(path / "commands/python3.11"),
        }

    def command(self, *arguments):
        head, tail = list(arguments), []
        if "--" in head:
            head, tail = head[: head.index("--")], head[head.index("--") :]
        return [self.repository / "launch/tpu_vm.sh", *head, "--poll_seconds=0", *tail]

    def launch(self, *arguments):
        return subprocess.run(
            self.command(*arguments), cwd=self.repository, env=self.environment, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip

    def scenario(self, **changes):
        """Changes what the stand-in does from now on."""
        file = self.control / "scenario.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    def existing(self, state="READY", kind="v5litepod-8", workers=1):
        """A slice that was there before and that somebody else created."""
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
        """The verbs called, without looks at the slice and immediate repetitions."""
        verbs = []
        for call in self.calls:
            verb = call[3] if call[0] == "compute" else call[1]
            command = next((a for a in call if a.startswith("--command=")), "")
            for part in ("unpack", "install", "start", "follow", "status", "tail", "stop"):
                if f"worker.sh {part}" in command or (part == "unpack" and "tar -xzf" in command):
                    verb = part
                    break
            if verb not in ("describe", "ls") and verbs[-1:] != [verb]:
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
    yield Cloud(repository, tmp_path)
    for file in (tmp_path / "control").glob("hang*"):  # so that what still runs ends
        file.unlink()


WHOLE = ["status", "scp", "unpack", "install", "start", "follow", "status"]


def test_a_run_on_a_new_slice(cloud):
    (cloud.bucket / "data").mkdir()
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert cloud.verbs == ["create", *WHOLE, "delete"]
    assert cloud.call("create") == [
        *"compute tpus tpu-vm create slice --version=v2-alpha-tpuv5-lite".split(),
        *"--zone=us-west4-a --quiet --accelerator-type=v5litepod-8 --labels=launcher=genenv".split(),
    ]
    assert done.stdout == "epoch 1 on worker 0\nepoch 2 on worker 0\n"
    assert (cloud.bucket / "runs/slice/metrics.jsonl").read_text() == "{}\n"
    assert "the workdir is gs://results/runs/slice" in done.stderr
    program = cloud.program()
    home = cloud.control / "workers/0"
    assert program["cwd"] == f"{home}/genenv_jax/source"
    assert program["data"] == f"{home}/genenv_jax/bucket/data"
    workdir = f"{home}/genenv_jax/bucket/runs/slice"
    models = f"--config.model.make.cache_dir={workdir}/models"
    assert program["arguments"] == [f"--workdir={workdir}", *PROGRAM[1:], models]
    package, scorer = (cloud.control / "pip").read_text().splitlines()[-2:]
    assert package.endswith(f"--editable {home}/genenv_jax/source[tpu,bfcl]")
    assert scorer.endswith("--no-deps bfcl-eval==2026.3.23")
    (checked,) = (cloud.control / "checked").read_text().splitlines()
    assert checked == "--topology=v5e-8 --fast --config=configs/quickstart.py"
    assert "warning" not in done.stderr


def test_a_dry_run_prints_what_a_run_on_four_workers_calls(cloud):
    cloud.scenario(workers=4)
    odd = "--config.a='two words' \"$HOME\" `id` \\n ; & | * ?\nline=é"
    own = "--config.model.make.cache_dir=/of/my/own"  # takes the place of the launcher's
    arguments = [*FOUR_HOSTS, "--spot", "--run=first", *PROGRAM, odd, own]
    dry = cloud.launch("--dry_run", *arguments)
    assert dry.returncode == 0, dry.stderr
    assert cloud.calls == []
    assert not list(cloud.path.glob("*.tar.gz"))
    assert subprocess.run(["bash", "-n"], input=dry.stdout, text=True, check=False).returncode == 0
    # Has bash read the printed lines, whose quoting may be specific to bash.
    pasted = f"gcloud() {{ printf '%s\\0' \"$@\" ''; }}\ngit() {{ :; }}\n{dry.stdout}"
    said = subprocess.run(["bash", "-c", pasted], capture_output=True, text=True, check=True)
    printed = [call.split("\0") for call in said.stdout.removesuffix("\0\0").split("\0\0")]
    done = cloud.launch(*arguments)
    assert done.returncode == 0, done.stderr
    assert printed == cloud.calls
    assert cloud.verbs == ["create", *WHOLE, "delete"] and "--spot" in cloud.call("create")
    assert "--accelerator-type=v5litepod-16" in cloud.call("create")
    for worker in range(4):
        home = cloud.control / f"workers/{worker}"
        workdir = f"--workdir={home}/genenv_jax/bucket/runs/first"
        assert cloud.program(worker)["arguments"] == [workdir, *PROGRAM[1:], odd, own]
    assert (cloud.bucket / "runs/first/metrics.jsonl").exists()


def test_the_environment_reaches_the_program_and_no_log(cloud, tmp_path):
    secrets = tmp_path / "secrets"
    secrets.write_text("# keys\n\nHF_TOKEN=hf_se cret$(touch /)'\"\n")
    done = cloud.launch(*ONE_HOST, f"--env_file={secrets}", "--keep", *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert cloud.program()["token"] == "hf_se cret$(touch /)'\""
    assert not (cloud.control / "workers/0/genenv_jax/run.env").exists()
    assert "hf_se" not in done.stdout + done.stderr + json.dumps(cloud.calls)


@pytest.mark.parametrize(
    ("slice_", "scenario", "code", "message", "verbs"),
    [
        ({"kind": "v5litepod-4"}, {}, 1, "is a v5litepod-4; expected v5litepod-8", []),
        ({"state": "STOPPED"}, {}, 1, "STOPPED; expected READY", []),
        ({}, {"create": [[1, "ERROR: Quota exceeded", ""]]}, 1, "Quota exceeded", ["create"]),
        ({}, {"create": [[1, "slow", "CREATING"]]}, 1, "slow", ["create", "delete"]),  # half made
        ({"state": "PREEMPTED"}, {}, 1, "not created by this launcher", []),
        ({}, {"describe_error": "PERMISSION_DENIED"}, 1, "PERMISSION_DENIED", []),  # not taken for absence
        ({}, {"create": [[0, "", ""]], "queued": ["FAILED"]}, 75, "is FAILED", ["create", "delete"]),
        ({}, {"delete": [[1, "503"]]}, 1, "STILL EXISTS AND COSTS", ["create", *WHOLE, "delete"]),
    ],
)
def test_nothing_is_left_behind_unsaid(cloud, slice_, scenario, code, message, verbs):
    cloud.scenario(**scenario)
    if slice_:
        cloud.existing(**slice_)
    done = cloud.launch(*ONE_HOST, *["--queued"] * ("queued" in scenario), *PROGRAM)
    assert done.returncode == code and message in done.stderr
    assert cloud.verbs == verbs


@pytest.mark.parametrize(
    ("found", "verbs"),
    [
        (["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"], [*WHOLE, "delete"]),  # as after Ctrl-C
        # Its slice was preempted, whose lock is removed.
        (["SUSPENDED"], ["delete", "create", *WHOLE[:4], "ssh", *WHOLE[4:], "delete"]),
    ],
)
def test_a_queued_request_that_is_there_is_waited_for_or_replaced(cloud, found, verbs):
    cloud.scenario(queued=found)
    (cloud.control / "request").touch()
    done = cloud.launch(*ONE_HOST, "--queued", *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert cloud.verbs == verbs and not (cloud.control / "request").exists()


def test_a_slice_that_others_created_is_used_and_kept(cloud):
    cloud.existing()
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 0 and "is kept and costs" in done.stderr
    assert cloud.verbs == WHOLE  # neither created nor deleted


def test_what_is_created_in_place_of_a_slice_of_others_is_deleted(cloud):
    cloud.scenario(follow=["GONE"])
    cloud.existing()
    (cloud.control / "hang").touch()
    done = cloud.launch(*ONE_HOST, "--retries=1", *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert cloud.verbs[:7] == [*WHOLE[:6], "create"] and cloud.verbs[-1] == "delete"


def test_nothing_is_created_for_a_run_that_cannot_be(cloud):
    """It does not fit, or its bucket is missing; a check that cannot run is reported."""
    (cloud.control / "fits").write_text("1")
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 2 and "aot_check.py ended with exit code 1" in done.stderr
    assert cloud.verbs == []
    other = cloud.launch(*ONE_HOST, "--bucket=none", *PROGRAM)
    assert other.returncode == 1 and "gs://none cannot be listed" in other.stderr and cloud.verbs == []
    assert cloud.launch(*ONE_HOST, "--no_check", *PROGRAM).returncode == 0
    (cloud.control / "no_libtpu").touch()
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 0 and "not checked: " in done.stderr
    assert "there is no gs://results/data/" in done.stderr


def test_the_exit_code_of_the_run_is_passed_on_and_the_slice_deleted(cloud):
    cloud.scenario(workers=2)
    cloud.exit_code(0, 134)  # aborted, since another one is gone
    cloud.exit_code(1, 3)
    done = cloud.launch(*TWO_HOSTS, *PROGRAM)
    assert done.returncode == 3, done.stderr
    assert "t1v-n-w-1 exit:3" in done.stderr
    assert "[t1v-n-w-1] epoch 2 on worker 1" in done.stdout  # every worker's tail
    assert "STILL EXISTS" not in done.stderr
    assert cloud.verbs[-2:] == ["tail", "delete"]


def test_a_preempted_run_goes_on_in_the_same_workdir(cloud):
    cloud.scenario(workers=2, follow=["PREEMPTED"])
    (cloud.control / "hang").touch()
    done = cloud.launch(*TWO_HOSTS, "--spot", "--retries=1", *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert "it is PREEMPTED\ntpu_vm: retry 1 of 1" in done.stderr
    again = ["create", *WHOLE[:4], "ssh"]  # which removes the lock that names the first slice's host
    assert cloud.verbs == ["create", *WHOLE[:6], "delete", *again, *WHOLE[4:], "delete"]
    calls = (cloud.control / "calls.jsonl").read_text()
    assert "/runs/slice/run.lock" in calls and "/runs/slice/models/.*.lock" in calls
    assert (cloud.bucket / "runs/slice/metrics.jsonl").read_text() == "{}\n{}\n"  # both starts wrote there


def test_a_dropped_connection_loses_nothing(cloud):
    cloud.scenario(follow=["drop", "drop"])
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "epoch 1 on worker 0\nepoch 2 on worker 0\n"
    assert cloud.verbs.count("start") == 1


def interrupt(cloud):
    """Sends Ctrl-C to a launcher whose run goes on; returns the launcher's exit code and messages."""
    (cloud.control / "hang").touch()
    with subprocess.Popen(
        cloud.command(*ONE_HOST, *PROGRAM), cwd=cloud.repository, env=cloud.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        # Tests in the background may ignore SIGINT, which the script would inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as launcher:  # fmt: skip
        assert launcher.stdout.readline() == "epoch 1 on worker 0\n"
        os.killpg(launcher.pid, signal.SIGINT)
        return launcher.wait(30), launcher.stderr.read()


def test_after_ctrl_c_the_run_goes_on_and_is_found_again(cloud):
    code, errors = interrupt(cloud)
    assert code == 130 and "kept and costs" in errors
    assert "delete" not in cloud.verbs
    other = cloud.launch(*ONE_HOST, "--run=other", *PROGRAM)
    assert other.returncode == 1 and "busy with run slice" in other.stderr
    # The launcher must find the run before it ends, so the stand-in releases it once followed.
    cloud.scenario(follow=["release"])
    done = cloud.launch(*ONE_HOST, *PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "epoch 1 on worker 0\nepoch 2 on worker 0\n"
    assert cloud.verbs.count("start") == 1 and cloud.verbs[-1] == "delete"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*SLICE, *PROGRAM], "--accelerator_type is missing"),
        ([*SLICE, "--accelerator_type=a100-8", *PROGRAM], "a100-8: expected v5litepod- (v5e)"),
        ([*SLICE, "--accelerator_type=v5p-12", *PROGRAM], "v5p-12: expected a multiple of 8"),
        ([*ONE_HOST, "--name=a;rm -rf", *PROGRAM], "--name=a;rm -rf: expected"),
        ([*ONE_HOST, "--zone=$(id)", *PROGRAM], r"--zone=$(id): expected a zone"),
        ([*ONE_HOST, "--run=../up", *PROGRAM], "--run=../up: expected"),
        ([*ONE_HOST, "--retries=many", *PROGRAM], "--retries=many: expected a whole number"),
        ([*ONE_HOST, "--bucket=gs://results", *PROGRAM], "without gs://"),
        ([*ONE_HOST, "--env_file=/nowhere", *PROGRAM], "--env_file=/nowhere: expected a file"),
        ([*ONE_HOST, "--env_file=secrets", *PROGRAM], "line 2 is not KEY=value"),
        ([*ONE_HOST, "--spott", *PROGRAM], "unknown option '--spott'"),
        (ONE_HOST, "no --config"),
        ([*ONE_HOST, "--", "--config=configs/none.py"], "configs/none.py is not in HEAD"),
        ([*ONE_HOST, *PROGRAM, "--workdir=x"], "--workdir=x: the workdir is set by"),
        ([*FOUR_HOSTS, *PROGRAM[:-1]], "has 4 hosts, each of which would run alone"),
    ],
)
def test_bad_input_is_named_before_any_call(cloud, repository, arguments, message):
    (repository / "secrets").write_text("A=1\nhf_secret\n")
    done = cloud.launch(*arguments)
    (repository / "secrets").unlink()
    assert done.returncode == 2 and message in done.stderr and "hf_secret" not in done.stderr
    assert cloud.calls == [] and done.stdout == ""

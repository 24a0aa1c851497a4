"""A stand-in for gcloud whose workers are directories on this machine.

`install` puts three commands into a directory for PATH.  They share a control directory:

    calls.jsonl     every call of gcloud, its arguments as a list
    state           the slice's state; no file: no slice
    type            the slice's accelerator type
    request         while this file exists there is a queued request
    workers/N/      the home directory of worker N; what ssh is given runs there in a real bash
    buckets/B/      a Cloud Storage bucket
    exit/N          exit code of the program on worker N (default 0)
    hang            while this file exists the program runs on
    program/N.json  the arguments that the program was started with on worker N
    pip             what pip was called with, one line a call
    checked, fits   what aot_check.py was called with, a line a call, and its exit code (default 0)
    no_libtpu       while this file exists, that check cannot run

Scenario of a test, in scenario.json:

    workers          how many a slice has
    create           [[exit code, message, state], …]: the results of successive calls of create;
                     the last one repeats
    delete           [[exit code, message], …], likewise; then it succeeds
    queued           what describing a queued request says, likewise; "ACTIVE": its slice is there now
    follow           what reading the log does, likewise: "drop" (the connection); while `hang` exists,
                     "release" (the run), "PREEMPTED" (the slice) or "GONE" (no slice is left)
    describe_error   message with which describe fails
"""

import json
import os
import pathlib
import shutil
import signal
import stat
import sys
import time

GCLOUD = """#!/bin/sh
exec {python} -S -E {this} {control} "$@"
"""

# Python on a worker: makes a virtual environment of itself, pretends to be pip, and is the program.
PYTHON = r"""#!/bin/bash
control=@CONTROL@ worker=${HOSTNAME##*-}
case "$1 $2" in
  "-c import genenv_jax"*) ! [ -e "$control/no_libtpu" ] ;;
  *aot_check.py*) echo "${*:2}" >>"$control/checked"; exit "$(cat "$control/fits" 2>/dev/null || echo 0)" ;;
  "-c "*) ;;
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip") echo "$worker ${*:3}" >>"$control/pip" ;;
  "-m genenv_jax.main")
    workdir=${3#--workdir=}
    [ "$worker" = 0 ] && echo '{}' >>"$workdir/metrics.jsonl"
    @PYTHON@ -S -E -c 'import json, os, sys
value = {"arguments": sys.argv[2:], "cwd": os.getcwd()}
value["token"] = os.environ.get("HF_TOKEN")
value["data"] = os.environ.get("GENENV_DATA")
json.dump(value, open(sys.argv[1], "w"))' "$control/program/$worker.json" "${@:3}"
    echo "epoch 1 on worker $worker"
    while [ -e "$control/workers/$worker" ]; do
      [ -e "$control/hang" ] || break
      sleep 0.05
    done
    echo "epoch 2 on worker $worker"
    exit "$(cat "$control/exit/$worker" 2>/dev/null || echo 0)"
    ;;
  *) exit 9 ;;
esac
"""

# As if mounted: the directory becomes a link to the bucket.
GCSFUSE = """#!/bin/bash
bucket=${{*: -2:1}} directory=${{*: -1}}
[ -d {control}/buckets/$bucket ] || exit 1
rmdir "$directory" && ln -s {control}/buckets/$bucket "$directory"
"""
MOUNTPOINT = """#!/bin/sh
[ -L "$2" ]
"""


def install(commands: pathlib.Path, control: pathlib.Path) -> None:
    """Writes the commands for PATH and the control directory of one test."""
    for directory in ("workers", "buckets", "exit", "program"):
        (control / directory).mkdir(parents=True)
    (control / "scenario.json").write_text(json.dumps({"workers": 1}))
    this = pathlib.Path(__file__).resolve()
    files = {
        "gcloud": GCLOUD.format(python=sys.executable, this=this, control=control),
        "python3.11": PYTHON.replace("@CONTROL@", str(control)).replace("@PYTHON@", sys.executable),
        "gcsfuse": GCSFUSE.format(control=control),
        "mountpoint": MOUNTPOINT,
    }
    commands.mkdir()
    for name, text in files.items():
        file = commands / name
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)


def power_off(home: pathlib.Path, started: pathlib.Path) -> None:
    """Kills all processes of a worker's run at once, after its program has written `started`."""
    for _ in range(2000):
        if started.exists():
            break
        time.sleep(0.01)
    pid = int((home / "genenv_jax/run/pid").read_text())
    assert b"tpu_vm_worker.sh" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    os.killpg(os.getpgid(pid), signal.SIGKILL)


def main(control: pathlib.Path, arguments: list[str]) -> int:
    with (control / "calls.jsonl").open("a") as file:
        file.write(json.dumps(arguments) + "\n")
    flags = dict(a.split("=", 1) for a in arguments if a.startswith("--") and "=" in a)
    scenario_file = control / "scenario.json"
    scenario = json.loads(scenario_file.read_text())

    def take(key, default=None):
        """The next entry of a scenario's list; the last one of "create" stays."""
        entries = scenario.get(key) or [default]
        entry = entries[0]
        if key != "create" or len(entries) > 1:
            scenario[key] = entries[1:]
            scenario_file.write_text(json.dumps(scenario))
        return entry

    state = control / "state"
    if arguments[:3] == ["compute", "tpus", "tpu-vm"]:
        verb = arguments[3]
    elif arguments[:3] == ["compute", "tpus", "queued-resources"]:
        verb = f"queued {arguments[3]}"
    else:
        verb = ""
    workers = control / "workers"
    request = control / "request"

    def begin(new_state, described):
        state.write_text(new_state)
        (control / "type").write_text(described)
        for worker in range(scenario["workers"]):
            (workers / str(worker)).mkdir()

    if verb == "queued create":
        if request.exists():
            print(f"ERROR: ALREADY_EXISTS: {request}", file=sys.stderr)
            return 1
        request.touch()
    if verb in ("create", "queued create"):
        code, message, new_state = take("create", [0, "", "READY"])
        print(message, file=sys.stderr)
        if new_state:
            begin(new_state, f"{flags['--accelerator-type']}\t{flags['--labels'].split('=')[1]}")
        return code
    if verb in ("delete", "queued delete"):
        code, message = take("delete", [0, ""])
        if code:
            print(message, file=sys.stderr)
            return code
        state.unlink(missing_ok=True)
        request.unlink(missing_ok=True)
        for worker in workers.iterdir():
            shutil.rmtree(worker)
        return 0
    if verb == "queued describe":
        if not request.exists():
            print("ERROR: NOT_FOUND: no such request", file=sys.stderr)
            return 1
        entry = take("queued", "PROVISIONING")
        if entry == "ACTIVE":
            begin("READY", "v5litepod-8\tgenenv")
        print(f"{entry}\tgenenv")
        return 0
    if arguments[:2] == ["storage", "ls"]:
        bucket = control / "buckets" / arguments[2].removeprefix("gs://")
        if not bucket.exists():
            print("ERROR: 404 The specified bucket does not exist.", file=sys.stderr)
            return 1
        print("".join(f"{arguments[2]}/{path.name}/\n" for path in bucket.iterdir()), end="")
        return 0
    if verb == "describe":
        if scenario.get("describe_error"):
            print(scenario["describe_error"], file=sys.stderr)
            return 1
        if not state.exists():
            print("ERROR: (gcloud.compute.tpus.tpu-vm.describe) NOT_FOUND: no such", file=sys.stderr)
            return 1
        print(f"{state.read_text()}\t{(control / 'type').read_text()}")
        return 0
    chosen = flags.get("--worker", "0")
    homes = sorted(workers.iterdir()) if chosen == "all" else [workers / chosen]
    if verb == "scp":
        source, target = arguments[4:6]
        for home in homes:
            (home / target.split(":", 1)[1]).write_bytes(pathlib.Path(source).read_bytes())
        return 0
    if verb == "ssh":
        command = flags["--command"]
        if " follow " in command:
            event = take("follow")
            if event == "drop":
                return 255
            if event == "release":
                (control / "hang").unlink()
            if event in ("PREEMPTED", "GONE"):
                for home in workers.iterdir():
                    power_off(home, control / f"program/{home.name}.json")
                (control / "hang").unlink()
                state.write_text(event)
                if event == "GONE":
                    state.unlink()
                    for home in workers.iterdir():
                        shutil.rmtree(home)
                return 255
        processes = []
        for home in homes:  # `subprocess` takes longer to import than all of the rest to run
            environment = os.environ | {"HOME": str(home), "HOSTNAME": f"t1v-n-w-{home.name}"}
            words = ["bash", "-c", f'cd "$HOME"\n{command}']
            processes.append(os.spawnvpe(os.P_NOWAIT, "bash", words, environment))
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        # With several workers gcloud reports only that one has failed.
        return codes[0] if len(codes) == 1 else 255 if any(codes) else 0
    print(f"unknown call {arguments}", file=sys.stderr)
    return 99


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2:]))

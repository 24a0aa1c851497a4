"""What code in a worker process can do to the world around it: nothing, where the kernel can prevent it.

Each attempt is made in a real worker.  A protection that this system lacks is skipped by its name.
"""

import contextlib
import json
import os
import pathlib
import pickle
import platform
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld
from genenv_jax.scoring import isolation, landlock
from genenv_jax.scoring.requests import SCORE
from genenv_jax.scoring.scorer import Scorer, ScoringConfig
from genenv_jax.scoring.worker import NoAnswer, Worker, _kill
from tests.commands import printed
from tests.isolated_toys import Escaping, send
from tests.scoring.test_scorer import alive, wait_until

SECRETS = {"HF_TOKEN": "hf_1", "AWS_SECRET_ACCESS_KEY": "aws_2", "OPENAI_API_KEY": "sk_3"}
TASK = Escaping().tasks("seed")[0]


@pytest.fixture(scope="module", autouse=True)
def secrets():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        yield


@contextlib.contextmanager
def made(*needs, timeout=10.0, memory=0.5):
    with contextlib.closing(Worker(Escaping(*needs), timeout, memory)) as worker:
        worker.start()
        yield worker


@pytest.fixture(scope="module")
def plain(secrets):
    """A worker that needs nothing."""
    with made() as worker:
        yield worker


@pytest.fixture(scope="module")
def writer(secrets):
    """A worker that needs files and the network."""
    with made("files", "network") as worker:
        yield worker


# What the code in a worker may try with `x`, by name; the last line is its result.
TRIES = {
    "write": "x and pathlib.Path(x).write_text('x')",
    "append": "open(x, 'a').write('x')",
    "remove": "os.remove(x)",
    "rename": "os.rename(x, x + '.moved')",
    "make_directory": "os.mkdir(x)",
    "link": "os.symlink('/', x)",
    "truncate": "os.truncate(x, 0)",
    "open_and_cut": "os.close(os.open(x, os.O_RDONLY | os.O_TRUNC))",
    "change_mode": "os.chmod(x, 0o777)",
    "change_times": "os.utime(x, (0, 0))",
    "change_attributes": "os.setxattr(x, 'user.x', b'x')",
    # Through a read-only descriptor.
    "lock": "f = open(x)\nfcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "lock_a_part": "f = open(x)\nfcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB, 1)",
    "lease": "f = open(x)\nfcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)",
    "hear_of_changes": "f = os.open(os.path.dirname(x), 0)\nfcntl.fcntl(f, fcntl.F_NOTIFY, 2)",
    "change_flags": "f = open(x)\nfcntl.ioctl(f, 0x40086602, bytes(8))",
    "read": "pathlib.Path(x).read_text()",
    "here": "json.dumps([os.getcwd(), os.listdir('.')])",
    "one_large_file": "f = open('large', 'wb')\n[f.write(bytes(2**20)) for _ in range(1024)]",
    "many_files": "for n in range(10**6):\n with open(str(n), 'wb') as f: f.write(bytes(int(x)))\n0",
    "fork": "os.fork() or os._exit(0)",
    "run": "subprocess.run([x], check=False)",
    "execute": "os.execv(x, [x])",
    "threads": "t = threading.Thread(target=lambda: None)\nt.start(), t.join()\n'a thread'",
    "kill": "os.kill(int(x), signal.SIGTERM)",
    "kill_by_handle": "signal.pidfd_send_signal(os.pidfd_open(int(x)), signal.SIGTERM)",
    "bind_to_a_core": "os.sched_setaffinity(int(x), {0})",
    "starve": "resource.prlimit(int(x), resource.RLIMIT_NOFILE, (3, 3))",
    "system_call": (
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "done = libc.syscall(*(int(number, 0) for number in x.split()))\n"
        "if done < 0: raise OSError(ctypes.get_errno(), '')\n"
        "done"
    ),
    "tcp": "socket.create_connection(('127.0.0.1', int(x)), 2.0).sendall(b'hello')",
    "udp": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'hello', ('127.0.0.1', int(x)))",
    "unix": "s = socket.socket(socket.AF_UNIX)\ns.connect(x)\ns.sendall(b'hello')",
    "listen": "s = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()",
    "look_up": "socket.getaddrinfo(x, 80)",
    "socket_pair": "socket.socketpair()",
    "large_pipe": "fcntl.fcntl(os.pipe()[1], 1031, 2**20)",
    "many_pipes": "[os.pipe() for _ in range(10**4)]",
    "variables": "json.dumps(dict(os.environ))",
    "open_files": (
        "files = [f'/proc/self/fd/{n}' for n in os.listdir('/proc/self/fd')]\n"
        "json.dumps([os.readlink(file) for file in files if os.path.exists(file)])"
    ),
    "privileges": (
        "lines = pathlib.Path('/proc/self/status').read_text().splitlines()\n"
        "next(line.split()[1] for line in lines if line.startswith('CapEff'))"
    ),
    "fill_memory": "len([bytearray(2**24) for _ in range(2**10)])",
    "fill_shared_memory": "len([mmap.mmap(-1, 2**28) for _ in range(64)])",
    "memory_file": "os.memfd_create('x')",
    "more_memory": "resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2)",
    # Nobody waits for the answer, and alarms are not heard.
    "loop_deafly": "signal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass\n0",
    "announce": "os.write(connection.fileno(), (60 * 2**20).to_bytes(4, 'big'))\ntime.sleep(60)",
    "drip": (
        "os.write(connection.fileno(), (2**20).to_bytes(4, 'big'))\n"
        "while True: os.write(connection.fileno(), b' '), time.sleep(0.05)\n0"
    ),
    "complain_and_die": "os.write(2, b'first\\nout of plums\\n\\n')\nos._exit(3)",
    "chatter": "[os.write(2, bytes(2**20)) for _ in range(64)]",
    # Sends the run something else in the answer's place.
    "forge": "connection.send_bytes(x.encode())",
}
_BEFORE = (
    "from multiprocessing.connection import Connection\n"
    "(connection,) = (thing for thing in gc.get_objects() if type(thing) is Connection)\n"
)


def attempt(worker, name, x=""):
    return worker.ask(SCORE, (TASK, f"{_BEFORE}x = {str(x)!r}\n{TRIES[name]}")).reason


def needs_protection(worker, name):
    how = next(how for key, how in worker.protections.items() if key.startswith(name))
    if how.startswith("NO"):
        pytest.skip(f"{name}: {how}")


# -- files ------------------------------------------------------------------------------------------------

CHANGES = ["write", "append", "remove", "rename", "open_and_cut"]
METADATA = ["truncate", "change_mode", "change_times", "change_attributes", "change_flags"]
METADATA += ["lock", "lock_a_part", "lease", "hear_of_changes"]


@pytest.mark.parametrize("kind", ["plain", "writer"])
@pytest.mark.parametrize("name", CHANGES + METADATA)
def test_a_file_of_the_run_stays_as_it_is(request, tmp_path, kind, name):
    worker = request.getfixturevalue(kind)
    needs_protection(worker, "no process" if name in METADATA else "no writing")
    if name == "open_and_cut" and landlock.version() < 3:
        pytest.skip("Landlock before version 3 does not know truncation")
    file = tmp_path / "metrics.jsonl"
    file.write_text("{}\n")
    before = file.stat()
    assert attempt(worker, name, file) in ("EACCES", "EPERM")
    after = file.stat()
    assert file.read_text() == "{}\n" and list(tmp_path.iterdir()) == [file]
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


@pytest.mark.parametrize("kind", ["plain", "writer"])
@pytest.mark.parametrize("name", ["write", "make_directory", "link"])
def test_nothing_new_outside_its_directory(request, tmp_path, kind, name):
    worker = request.getfixturevalue(kind)
    needs_protection(worker, "no writing")
    places = [tmp_path, tempfile.gettempdir(), pathlib.Path.home(), "/dev/shm", os.getcwd()]
    for place in places:
        path = pathlib.Path(place, f"escaped-{os.getpid()}")
        assert attempt(worker, name, path) in ("EACCES", "EPERM", "EROFS"), path
        assert not os.path.lexists(path)


def test_it_begins_in_an_empty_directory(plain, writer):
    for worker in (plain, writer):
        place, found = json.loads(attempt(worker, "here"))
        assert found == [] and os.path.samefile(place, worker._room.path)
    needs_protection(plain, "no writing")
    assert attempt(plain, "write", "mine") == "EACCES"
    assert attempt(plain, "write", "/dev/null") == "1"


def test_its_own_directory_is_of_use_where_files_are_needed(writer):
    for name, argument in (("make_directory", "a"), ("write", "a/b"), ("append", "a/b"), ("rename", "a/b")):
        attempt(writer, name, argument)
    assert json.loads(attempt(writer, "here"))[1] == ["a"]
    assert attempt(writer, "read", "a/b.moved") == "xx"
    assert attempt(writer, "remove", "a/b.moved") == "None"


def test_a_file_has_a_largest_size(writer):
    room = pathlib.Path(writer._room.path)
    assert attempt(writer, "one_large_file") == "EFBIG"
    assert (room / "large").stat().st_size <= isolation.MAX_FILE
    attempt(writer, "remove", "large")


@pytest.mark.slow
@pytest.mark.parametrize(("size", "message"), [(2**22, "256 MiB"), (1, "10,000 files")])
def test_many_files_end_the_process(size, message):
    """Too many count as a crash and are removed."""
    with made("files", timeout=60.0) as worker:
        room = worker._room.path
        with pytest.raises(NoAnswer, match=message) as caught:
            attempt(worker, "many_files", size)
        assert caught.value.how == "crash" and not os.path.exists(room)
        assert attempt(worker, "threads") == "a thread"  # in the process that took its place


def test_what_it_says_on_standard_error_is_bounded_and_quoted():
    with made() as worker:
        with pytest.raises(NoAnswer, match="^.*exit code 3: out of plums"):
            attempt(worker, "complain_and_die")
        assert attempt(worker, "chatter") == "EFBIG"
        assert os.fstat(worker._room.errors.fileno()).st_size <= 2**20


# -- network ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def listener(kind, family=socket.AF_INET, address=("127.0.0.1", 0)):
    """The address of a listening socket, and a function that says whether anybody came."""
    with socket.socket(family, kind) as server:
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen()
        server.settimeout(0.2)

        def heard():
            try:
                if kind == socket.SOCK_DGRAM:
                    return bool(server.recv(16))
                server.accept()[0].close()
                return True
            except TimeoutError:
                return False

        yield server.getsockname(), heard


@pytest.mark.parametrize("kind", ["tcp", "udp", "unix", "abstract"])
def test_no_connection_reaches_this_machine(plain, writer, tmp_path, kind):
    needs_protection(plain, "no network")
    arguments = {
        "tcp": (socket.SOCK_STREAM,),
        "udp": (socket.SOCK_DGRAM,),
        "unix": (socket.SOCK_STREAM, socket.AF_UNIX, str(tmp_path / "s")),
        "abstract": (socket.SOCK_STREAM, socket.AF_UNIX, f"\0genenv-{os.getpid()}"),
    }
    with listener(*arguments[kind]) as (address, heard):
        target = address[1] if kind in ("tcp", "udp") else os.fsdecode(address)
        name = "unix" if kind == "abstract" else kind
        assert attempt(plain, name, target) == "EPERM"
        assert not heard()
        # The attempt is real: with a network it succeeds.
        attempt(writer, name, target)
        assert heard()


@pytest.mark.parametrize("name", ["listen", "look_up localhost.example"])
def test_no_other_network(plain, name):
    needs_protection(plain, "no network")
    assert attempt(plain, *name.split()) in ("EPERM", "gaierror")


# -- other processes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fork", "run /bin/true", "execute /bin/true"])
def test_it_starts_no_process(plain, writer, name):
    needs_protection(plain, "no process")
    for worker in (plain, writer):
        assert attempt(worker, *name.split()) == "EPERM"
    assert attempt(plain, "threads") == "a thread"


def test_it_does_not_read_the_run_and_has_no_privileges(plain):
    """Where root runs the tests, the worker may still read other users' files."""
    needs_protection(plain, "no access to other processes")
    for file in ("environ", "maps", "fd/0"):
        assert attempt(plain, "read", f"/proc/{os.getpid()}/{file}") in ("EACCES", "EPERM")
    needs_protection(plain, "no privileges")
    assert int(attempt(plain, "privileges"), 16) & ~0b110 == 0


@pytest.mark.parametrize("name", ["kill", "kill_by_handle", "bind_to_a_core", "starve"])
def test_it_does_not_touch_the_run(plain, writer, name):
    needs_protection(plain, "no signal")
    came = []
    before = signal.signal(signal.SIGTERM, lambda *_: came.append(1))
    try:
        for worker in (plain, writer):
            assert attempt(worker, name, os.getpid()) in ("EPERM", "ENOSYS")
            if platform.machine() == "x86_64":  # PTRACE_SEIZE
                assert attempt(worker, "system_call", f"101 0x4206 {os.getpid()} 0 0") == "EPERM"
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not came


def test_what_ends_a_worker_ends_what_it_has_started(tmp_path):
    """Even where no filter keeps it from starting processes."""
    script = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    file = tmp_path / "pid"
    wait_until(lambda: file.exists() and file.read_text().strip())
    _kill(process)
    wait_until(lambda: not alive(int(file.read_text())))


# -- what it was given ------------------------------------------------------------------------------------


def test_no_secret_is_inherited(plain, writer):
    variables = json.loads(attempt(plain, "variables"))
    assert not SECRETS.keys() & variables.keys()
    text = attempt(plain, "read", "/proc/self/environ")
    assert not any(value in text for value in SECRETS.values())
    room = plain._room.path
    assert (variables["HOME"], variables["TMPDIR"]) == (room, room)
    allowed = {*isolation._INHERITED, "HOME", "TMPDIR", "GENENV_DATA", "TFDS_DATA_DIR"}
    allowed |= {"PYTHONUSERBASE", "PYTHONHASHSEED", "OMP_NUM_THREADS"}
    assert {n for n in variables if not n.startswith("LC_")} <= allowed
    # The key for an endpoint goes with the network, and nothing else does.
    variables = json.loads(attempt(writer, "variables"))
    assert SECRETS.keys() & variables.keys() == {"OPENAI_API_KEY"}


def test_places_of_data_stay_where_they_are(monkeypatch):
    monkeypatch.setenv("GENENV_DATA", "relative")
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    made_for = isolation.environment("/empty")
    assert made_for["GENENV_DATA"] == os.path.abspath("relative")
    assert made_for["TFDS_DATA_DIR"] == os.path.expanduser("~/tensorflow_datasets")


def test_relative_paths_mean_the_same_there():
    given = ALFWorld(data_dir="games")
    there = pickle.loads(pickle.dumps(given))
    assert there.data_dir == os.path.abspath("games")
    assert pickle.loads(pickle.dumps(ALFWorld())).data_dir == ""


def test_no_open_file_is_inherited(tmp_path):
    with open(tmp_path / "open", "w") as file, made() as worker:
        os.set_inheritable(file.fileno(), True)
        with made() as worker:
            links = json.loads(attempt(worker, "open_files"))
    assert not any(str(tmp_path / "open") in link for link in links)
    kinds = sorted(link.split(":")[0] for link in links if not link.startswith("/proc/"))
    assert kinds[:2] == ["/dev/null"] * 2 and kinds[-1] == "socket" and len(kinds) == 4


# -- memory and time --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fill_memory", "fill_shared_memory"])
def test_memory_is_bounded(plain, name):
    needs_protection(plain, "memory")
    assert attempt(plain, name) in ("MemoryError", "ENOMEM")


def test_no_way_around_the_limits(plain):
    needs_protection(plain, "no privileges")
    assert attempt(plain, "more_memory") in ("ValueError", "EPERM")  # above its maximum
    needs_protection(plain, "no process")
    assert attempt(plain, "memory_file") == "EPERM"
    assert attempt(plain, "system_call", "425 1 0") == "ENOSYS"  # io_uring_setup
    assert attempt(plain, "system_call", "1000 1 0") == "ENOSYS"  # a future system call
    if platform.machine() == "x86_64":
        # socket by the other calling convention's number, inotify_init1, io_setup, open_by_handle_at, sync
        for call in ("0x40000029 2 1 0", "294 0", "206 65536 0", "304 0 0 0", "162"):
            assert attempt(plain, "system_call", call) == "EPERM", call


def test_no_memory_of_the_kernel_is_filled(plain, writer):
    needs_protection(plain, "no process")
    for worker in (plain, writer):
        assert attempt(worker, "large_pipe") == "EPERM"
        assert attempt(worker, "many_pipes") == "EMFILE"
    assert attempt(plain, "socket_pair") == "EPERM"


@pytest.mark.parametrize(("name", "how"), [("announce", "crash"), ("drip", "timeout")])
def test_an_answer_has_one_time_limit_and_a_largest_size(name, how):
    with made(timeout=2.0) as worker:
        with pytest.raises(NoAnswer) as caught:
            attempt(worker, name)
        assert caught.value.how == how
        assert attempt(worker, "threads") == "a thread"


def test_cpu_time_ends_a_worker_that_nobody_waits_for():
    with made(timeout=0.5) as worker:
        send(worker, (SCORE, (TASK, TRIES["loop_deafly"])))
        process = worker._process
        assert process.wait(60) == -signal.SIGXCPU


@pytest.mark.parametrize(
    "message",
    [
        "", "[1, 2, 3]", '[null, ""]', '[["score", [1]], ""]', '[["what", 1], ""]', "[" * 50_000,
        "cos\nsystem\n(S'touch {}/run'\ntR.",  # pickled
    ],
)  # fmt: skip
def test_a_forged_answer_fails_its_text_alone_and_is_never_unpickled(plain, tmp_path, message):
    with pytest.raises(NoAnswer) as caught:
        attempt(plain, "forge", message.replace("{}", str(tmp_path), 1))
    assert not list(tmp_path.iterdir())
    assert caught.value.how == "crash" and "not an answer" in caught.value.detail
    assert attempt(plain, "threads") == "a thread"


# -- runs -------------------------------------------------------------------------------------------------


def rooms(pid):
    place = pathlib.Path(tempfile.gettempdir())
    return list(place.glob(f".genenv-worker-*.{socket.gethostname()}.{pid}.tmp"))


def test_a_run_says_what_is_in_force_and_leaves_nothing(caplog):
    before = rooms(os.getpid())
    with caplog.at_level("INFO", logger="absl"), Scorer(Escaping(), str, ScoringConfig(2)) as scorer:
        assert len(rooms(os.getpid())) == len(before) + 1  # the others start with their first text
        (line,) = [r.getMessage() for r in caplog.records if "isolated" in r.getMessage()]
    assert line.startswith("worker processes are isolated: no network (")
    assert scorer._workers[0].protections["no inherited environment"] == "in force"
    assert rooms(os.getpid()) == before


def test_a_killed_run_takes_its_workers_along_and_the_next_one_cleans_up():
    script = (
        "import os, time\n"
        "from genenv_jax.scoring.worker import Worker\n"
        "from tests.isolated_toys import Escaping, send\n"
        "worker = Worker(Escaping(), timeout=600.0)\n"
        "worker.start()\n"
        "worker.task = Escaping().tasks('seed')[0]\n"
        f"send(worker, ('score', (worker.task, {TRIES['loop_deafly']!r})))\n"
        "time.sleep(0.2)\n"
        "print(worker.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with process:
        pid = int(process.stdout.read())
    if sys.platform == "linux":
        wait_until(lambda: not alive(pid))
    assert len(rooms(process.pid)) == 1
    with Scorer(Escaping(), str, ScoringConfig(1)):
        assert not rooms(process.pid)


def test_what_a_system_lacks_and_what_nobody_knows_is_named():
    """A process whose kernel has neither Landlock nor filters."""
    program = (
        "import json, os, sys\n"
        "from genenv_jax.scoring import isolation, landlock, seccomp\n"
        "def lacks(*_): raise OSError(38, 'Function not implemented')\n"
        "landlock.restrict = seccomp.install = lacks\n"
        "print(json.dumps(isolation.summary(isolation.isolate(0, (), os.getcwd()))))\n"
    )
    with pytest.raises(ValueError, match="worker_needs: 'wings', expected some of network, files"):
        Worker(Escaping("wings"), 1.0)
    line, complete = json.loads(printed(program))
    lack = line.partition("NOT on this system: ")[2]
    assert not complete and "no privileges" not in lack
    for name in ("no network (seccomp", "no process (", "no writing (Landlock, [Errno 38]"):
        assert name in lack


def test_each_promise_of_the_documentation_names_its_tests():
    page = pathlib.Path(__file__).parents[2] / "docs" / "benchmarks.md"
    section = page.read_text().partition("## Isolation")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    for _, promise, tests, _ in rows:
        for name in tests.split(","):
            begin = "test_" + name.strip(" `")
            assert any(known.startswith(begin) for known in globals()), promise

"""What the code in a worker process may try: each a function of one word, that returns what it got."""

import ctypes
import json
import mmap
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import threading

# -- files ------------------------------------------------------------------------------------------------


def write(path):
    pathlib.Path(path).write_text("x")
    return "written"


def append(path):
    with open(path, "a") as file:
        file.write("x")
    return "written"


def remove(path):
    os.remove(path)
    return "removed"


def rename(path):
    os.rename(path, path + ".moved")
    return "moved"


def make_directory(path):
    os.mkdir(path)
    return "made"


def link(path):
    os.symlink("/", path)
    return "made"


def truncate(path):
    os.truncate(path, 0)
    return "cut"


def open_and_cut(path):
    os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))
    return "cut"


def change_mode(path):
    os.chmod(path, 0o777)
    return "changed"


def change_times(path):
    os.utime(path, (0, 0))
    return "changed"


def change_attributes(path):
    os.setxattr(path, "user.x", b"x")
    return "changed"


def read(path):
    return pathlib.Path(path).read_text()


def here(_):
    return json.dumps([os.getcwd(), os.listdir(".")])


def one_large_file(_):
    with open("large", "wb") as file:
        for _ in range(1024):
            file.write(bytes(2**20))
    return "1 GiB"


def many_files(size):
    """Its directory is looked at from outside while it goes on."""
    for number in range(1_000_000):
        with open(str(number), "wb") as file:
            file.write(bytes(int(size)))
    return "filled"


# -- other processes --------------------------------------------------------------------------------------


def fork(_):
    if os.fork() == 0:
        os._exit(0)
    return "forked"


def fork_bomb(_):
    """How many processes it got; they end by themselves."""
    count = 0
    while count < 50:
        try:
            if os.fork() == 0:
                os._exit(0)
        except OSError:
            break
        count += 1
    return count


def run(program):
    return subprocess.run([program], capture_output=True, check=False).returncode


def execute(program):
    os.execv(program, [program])


def threads(_):
    got = []
    thread = threading.Thread(target=lambda: got.append("a thread"))
    thread.start()
    thread.join()
    return got[0]


def kill(pid):
    os.kill(int(pid), signal.SIGTERM)
    return "sent"


def kill_by_handle(pid):
    signal.pidfd_send_signal(os.pidfd_open(int(pid)), signal.SIGTERM)
    return "sent"


def bind_to_a_core(pid):
    os.sched_setaffinity(int(pid), {0})
    return "bound"


def starve(pid):
    resource.prlimit(int(pid), resource.RLIMIT_NOFILE, (3, 3))
    return "limited"


def trace(pid):
    return system_call(f"101 {0x4206} {pid} 0 0")  # PTRACE_SEIZE, x86_64


def system_call(numbers):
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(*(int(number, 0) for number in numbers.split()))
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


# -- network ----------------------------------------------------------------------------------------------


def tcp(port):
    with socket.create_connection(("127.0.0.1", int(port)), 2.0) as connection:
        connection.sendall(b"hello")
    return "sent"


def udp(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"hello", ("127.0.0.1", int(port)))
    return "sent"


def unix(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path.replace("@", "\0"))
        connection.sendall(b"hello")
    return "sent"


def listen(_):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
    return "listening"


def look_up(name):
    return socket.getaddrinfo(name, 80)[0][4][0]


# -- what it was given ------------------------------------------------------------------------------------


def variables(_):
    return json.dumps(dict(os.environ))


def open_files(_):
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # that of the listing
            continue
    return json.dumps(found)


def privileges(_):
    status = pathlib.Path("/proc/self/status").read_text()
    return next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))


# -- memory and time --------------------------------------------------------------------------------------


def fill_memory(_):
    return len([bytearray(2**24) for _ in range(2**10)])


def fill_shared_memory(_):
    return len([mmap.mmap(-1, 2**28) for _ in range(64)])


def memory_file(_):
    os.memfd_create("x")
    return "made"


def more_memory(_):
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2)
    except ValueError as error:
        return error
    return "raised"


def loop_deafly(_):
    """Alone: nobody waits for the answer, and alarms are not heard."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True:
        pass


def complain_and_die(_):
    sys.stderr.write("first\nout of plums\n\n")
    sys.stderr.flush()
    os._exit(3)


def chatter(_):
    for _ in range(64):
        os.write(2, bytes(2**20))
    return "said"


def forge(message):
    """Writes to the run what is no answer, in the answer's place."""
    import gc
    from multiprocessing.connection import Connection

    (connection,) = (thing for thing in gc.get_objects() if type(thing) is Connection)
    connection.send_bytes(message.encode())
    return "forged"

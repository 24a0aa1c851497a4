"""Shared by all commands: flags, and errors; a user's mistake ends in one line on stderr and exit code 2."""

import argparse
import contextlib
import difflib
import errno
import itertools
import os
import pathlib
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from genenv_jax.benchmarks.places import place
from genenv_jax.run import allocator
from genenv_jax.system import signals
from genenv_jax.system.keys import as_line, visible, without_keys

_FAULTS = {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE}  # of a machine


@contextlib.contextmanager
def one_line_errors(
    kinds: tuple[type[Exception], ...] = (ValueError, OSError), code: int = 2
) -> Iterator[None]:
    """Turns errors into one line: by default bad values, and files that are missing or cannot be written.

    `code` is the exit code, but it is 1 for a fault of the machine, so that a launcher restarts the command:
    a TimeoutError, a lost connection, a full or broken disk.  With GENENV_TRACEBACK=1 the error is
    raised with its traceback.
    """
    try:
        yield
    except kinds as error:
        if os.environ.get("GENENV_TRACEBACK"):
            raise
        lost = isinstance(error, TimeoutError | ConnectionError)
        fail(error, 1 if lost or getattr(error, "errno", None) in _FAULTS else code)


def fail(error: BaseException | str, code: int = 2) -> NoReturn:
    """Prints an error as one line and exits."""
    print(f"error: {as_line(error)}", file=sys.stderr)
    sys.exit(code)


class _Formatter(logging.PythonFormatter):
    def format(self, record: Any) -> str:
        return visible(without_keys(super().format(record)))


class Parser(argparse.ArgumentParser):
    """The parser of commands that take no configuration."""

    def error(self, message: str) -> NoReturn:
        """Prints the error as one line and exits."""
        fail(f"{message}; {self.prog} --help says more")


# genenv_jax/configs has the files of configs/, in a checkout through a link.
_PACKAGE = pathlib.Path(__file__).resolve().parent
_FLAGS = ("--config", "-config")
_MISSING = "--config is missing: expected a file such as configs/quickstart.py"
_HELP = {"help", "helpshort", "helpfull", "helpxml", "?"}
_REQUIRED = re.compile(r"flag --(\w+)=None: Flag --\1 must have a value other than None")


def _missing(name: str) -> str:
    """The message for a required flag that is missing."""
    text = flags.FLAGS[name].help.rstrip(".")
    what = f"the {text[:1].lower() if text[1:2].islower() else text[:1]}{text[1:]}"
    return _MISSING if name == "config" else f"--{name} is missing: expected {what}"


def _flag_error(error: Exception) -> str:
    """The message for flags that cannot be parsed."""
    text = str(error).strip()
    if isinstance(error, flags.UnrecognizedFlagError):
        name, dot, rest = error.flagname.partition(".")
        if name == "config":  # settings become flags once --config is given
            return _missing(name)
        close = difflib.get_close_matches(name, list(flags.FLAGS), 1)
        hint = f"did you mean --{close[0]}{dot}{rest}?" if close else "--help lists the flags"
        return f"--{error.flagname} is not a flag; {hint}"
    if missing := _REQUIRED.match(text):
        return _missing(missing[1])
    # An error in a configuration file arrives as a whole traceback; its last line is the message.
    return f"bad flags: {text.splitlines()[-1] if 'Traceback' in text else text}"


def _check_names(argv: Sequence[str]) -> None:
    """Raises UnrecognizedFlagError for an unknown flag, before the configuration imports JAX."""
    for argument in itertools.takewhile(lambda argument: argument != "--", argv[1:]):
        name = argument.partition("=")[0].removeprefix("--")
        known = {name, name.removeprefix("no"), name.partition(".")[0]} & set(flags.FLAGS)
        if argument.startswith("--") and not known:
            raise flags.UnrecognizedFlagError(name, argument)


def _unknown(error: str, argv: Sequence[str]) -> str:
    """The message for a setting in a group that does not exist.

    error: begins with the group's name in quotes; the closest name may follow on the next line.
    """
    named, _, meant = error.partition("\n")
    group = named.strip("'\"")
    names = [argument.partition("=")[0].lstrip("-") for argument in argv]
    given = next((name for name in names if group in name.split(".")[1:-1]), group)
    close = meant.split('"')[1:2]
    return f"{given} is not a setting: " + (
        f"did you mean {given.replace(group, close[0], 1)}?" if close else f"there is no group {group!r}"
    )


def find_config(path: str) -> str:
    """The path, or the package's file if the working directory has none; prints a line on stderr if so.

    path: "FILE.py" or "FILE.py:ARGUMENT"; the package is searched only for files in the relative configs/.
    """
    file, colon, argument = path.partition(":")
    relative = pathlib.PurePath(file)
    if pathlib.Path(file).exists() or relative.parts[:1] != ("configs",):
        return path
    found = _PACKAGE / relative
    if not found.is_file():
        return path
    print(f"config: there is no {file} here; using {found}", file=sys.stderr)
    return f"{found}{colon}{argument}"


def _find_configs(argv: Sequence[str]) -> list[str]:
    """The command-line arguments, with --config's path replaced by the one from `find_config`.

    If there is no --config, a first argument that is not a flag is the path.
    Raises ValueError if --config names a file that does not exist; the message lists existing ones.
    """
    named = {argument.partition("=")[0] for argument in argv}.intersection(_FLAGS)
    if argv[1:] and not named and not argv[1].startswith("-"):
        argv = [argv[0], f"--config={argv[1]}", *argv[2:]]
    found = []
    for argument, before in zip(argv, ["", *argv], strict=False):
        name, equals, value = argument.partition("=")
        if equals and name in _FLAGS:
            argument = f"{name}={_existing(value)}"
        elif before in _FLAGS:
            argument = _existing(argument)
        found.append(argument)
    return found


def _existing(path: str) -> str:
    file = path.partition(":")[0]
    if not file:
        raise ValueError(_MISSING)
    found = find_config(path)
    if pathlib.Path(found.partition(":")[0]).is_file():
        return found
    asked, configs = pathlib.Path(file), pathlib.Path("configs")
    there = {name.stem: name for name in asked.parent.glob("*.py")}
    known = {name.stem: configs / name.name for name in (_PACKAGE / configs).glob("*.py")}
    for files in (there, known):
        if close := difflib.get_close_matches(asked.stem, files, 1):
            raise ValueError(f"--config={file}: no such file; did you mean {files[close[0]]}?")
    folder = asked.parent if there and asked.parent != pathlib.Path() else configs
    names = sorted(name.name for name in (there if folder != configs else known).values())
    raise ValueError(f"--config={file}: no such file; {folder}/ has {', '.join(names)}")


def load_config(path: str, where: str) -> ConfigDict:
    """The result of `get_config` in "FILE.py" or "FILE.py:ARGUMENT".

    Raises ValueError, with a message that begins with `where`, if anything fails in the file.
    """
    file, colon, argument = find_config(path).partition(":")
    if not pathlib.Path(file).is_file():
        raise ValueError(f"{where}{path}: no such file {file}")
    try:
        # Not imported: Python's cached bytecode can hide an edit made within the same second.
        own = sys.modules["configuration"] = types.ModuleType("configuration")
        own.__file__, module = file, own.__dict__
        exec(compile(pathlib.Path(file).read_bytes(), file, "exec"), module)
        if "get_config" not in module:
            raise ValueError("no get_config: expected a function that returns a ConfigDict")
        config = module["get_config"](argument) if colon else module["get_config"]()
        if not isinstance(config, ConfigDict):
            raise ValueError(f"get_config returns {type(config).__name__}: expected a ConfigDict")
    except signals.Ended:
        raise
    except (Exception, SystemExit) as error:  # the file is user code
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        raise ValueError(f"{where}{path}: {kind}{' '.join(str(error).split())}{place(error)}") from error
    return config


def define_config(help_string: str) -> None:
    """Defines --config, a configuration file, and --config.KEY=VALUE for any of its settings.

    If configs/ in the working directory has no such file, the installed package's is used; see `find_config`.
    Keys that are not in the file are accepted here, since benchmarks have their own options; `validate`
    rejects unknown ones.
    """
    config_flags.DEFINE_config_file(
        "config",
        None,
        f"{help_string}  As the first argument it needs no --config=.  --config.KEY=VALUE changes any "
        "of its settings.",
        lock_config=False,
        accept_new_attributes=True,
    )
    # Otherwise --help would show "None" as the default file.
    flags.FLAGS["config"].default_as_str = None


def player_of(run: str, role: str) -> str:
    """The directory of a finished run's player.  Raises ValueError if there is none."""
    player = pathlib.Path(run, role)
    if not player.is_dir():
        raise ValueError(f"--run={run}: expected a finished run, but it has no {role}/")
    return str(player)


def define_process_flags() -> None:
    """Defines the flags of a multi-process run; `run` joins the processes before it calls main."""
    flags.DEFINE_string(
        "coordinator_address", None, "host:port of process 0, where the processes of a run meet."
    )
    flags.DEFINE_integer("num_processes", None, "How many processes the run has.")
    flags.DEFINE_integer("process_id", None, "Number of this process, from 0.")
    flags.DEFINE_enum(
        "distributed",
        "flags",
        ["flags", "auto"],
        "auto: JAX finds address, number and id from the environment (Cloud TPU pods, Slurm, Open MPI, "
        "Kubernetes).",
    )
    flags.DEFINE_float("initialization_timeout", 300.0, "Seconds to wait for the other processes.", 1.0)
    flags.DEFINE_float(
        "heartbeat_timeout", 100.0, "Seconds of silence after which a process counts as dead.", 10.0
    )


def _config_fault(argv: Sequence[str]) -> str:
    """What is wrong with the configuration file, whose errors absl reports as those of flags; or ""."""
    for argument, after in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, path = argument.partition("=")
        if name in _FLAGS:
            try:
                load_config(path if equals else after, "--config=")
            except ValueError as error:
                if not isinstance(error.__cause__, flags.Error):  # its own flags are there already
                    return str(error)
    return ""


def _parse(argv: Sequence[str]) -> list[str]:
    """Parses the flags; exits with one line if they are wrong."""
    argv = ["--help" if argument == "-h" else argument for argument in argv]
    try:
        argv = _find_configs(argv)
    except ValueError as error:
        fail(error)
    for name in flags.FLAGS.flags_by_module_dict()[__name__]:
        # Makes --help show them with the command's own flags.
        flags.FLAGS.register_key_flag_for_module(argv[0], name)
    try:
        _check_names(argv)
        rest = flags.FLAGS(argv)
        # A file that cannot be loaded raises on first use.  Some commands need no configuration.
        config = flags.FLAGS.config
        if not isinstance(config, ConfigDict) and (fault := _config_fault(argv)):
            fail(fault)
    except signals.Ended:
        raise
    except SystemExit as end:
        # absl exits with 1 after showing the help.
        names = {argument.partition("=")[0].lstrip("-") for argument in argv}
        if names & _HELP:
            sys.exit(0)
        if end.code != 2 and (fault := _config_fault(argv)):
            fail(fault)
        raise
    except Exception as error:
        if fault := _config_fault(argv):
            fail(fault)
        if isinstance(error, KeyError):  # an unknown group; it holds only the name
            fail(f"bad flags: {_unknown(str(error.args[0]), argv)}")
        # A misspelt setting raises AttributeError.
        if isinstance(error, flags.Error | AttributeError | OSError | ValueError | TypeError):
            fail(_flag_error(error))
        raise
    if len(rest) > 1:
        fail(f"unexpected argument {rest[1]!r}: expected one configuration; settings are --config.KEY=VALUE")
    for name in ("workdir", "out", "run"):
        given = flags.FLAGS[name].value if name in flags.FLAGS else None
        if given and "://" in given:
            fail(f"--{name}={given}: expected a directory (a bucket can be mounted with gcsfuse)")
        if given:
            flags.FLAGS[name].value = os.path.expanduser(given)
    return rest


def run(main: Callable[[], Any]) -> None:
    """Parses the flags, keeps libraries' progress messages off the terminal, and calls `main`.

    SIGTERM and SIGINT end the command with exit codes 143 and 130 and one line of output.
    """
    if allocator.arrays_in_host_memory():
        allocator.use_huge_pages()
        allocator.keep_freed_buffers()
    signals.resumes.set(True)
    logging.get_absl_handler().setFormatter(_Formatter())

    def call(_: Sequence[str]) -> None:
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)
        # Imported here because it imports JAX, so that a wrong flag is reported at once.
        from genenv_jax.parallel import joining, processes
        from genenv_jax.parallel.mesh import assume_devices

        given = flags.FLAGS
        if "device_memory" in given and given.device_memory:
            with one_line_errors():
                assume_devices(given.config.mesh)
        if "num_processes" in given:
            with one_line_errors():
                joining.initialize(
                    given.coordinator_address,
                    given.num_processes,
                    given.process_id,
                    auto=given.distributed == "auto",
                    timeout=given.initialization_timeout,
                    heartbeat_timeout=given.heartbeat_timeout,
                )
        with processes.together():
            main()

    with signals.ending(*signals.BOTH):
        try:
            app.run(call, flags_parser=_parse)
        except SystemExit as end:
            signals.say(end.code)
            raise

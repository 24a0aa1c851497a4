"""Calls on the official stateful classes: their results, and that hostile calls are harmless."""

import pytest

from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.bfcl import backends
from genenv_jax.benchmarks.bfcl.backends import Backends, decode, same_state, scenario
from tests.benchmarks.bfcl_tasks import FILES, SCENARIO
from tests.commands import printed

needs_package = pytest.mark.skipif(not backends.is_installed(), reason=backends.INSTALL)


@pytest.fixture
def made(executable):
    """A file system with a file and a directory, and the calculator."""
    return Backends(SCENARIO)


def _run(made, text):
    calls = decode(text)
    assert not isinstance(calls, Rejection), calls
    return [made.run(call) for call in calls]


def test_results_are_text_and_state_remains(made):
    assert _run(made, "[touch(file_name='x'), ls(), cd(folder='work'), pwd()]") == [
        "None",
        '{"current_directory_content": ["notes", "work", "x"]}',
        '{"current_working_directory": "work"}',
        '{"current_working_directory": "/home/work"}',
    ]
    # Values that JSON lacks are written as in Python.
    assert _run(made, "square_root(number=4, precision=3)") == ["{'result': Decimal('2')}"]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("nothing(a=1)", "name 'nothing' is not defined"),
        ("api.pwd()", "name 'api' is not defined"),
        ("kill(a=1)", "Function call kill is not allowed."),
        ("a.run(b=1)", "Function call run is not allowed."),
        ("_load_scenario(scenario={'a': 1})", "name '_load_scenario' is not defined"),
        ("__init__()", "name '__init__' is not defined"),
        ("pwd.__call__()", "name 'pwd' is not defined"),
        ("__import__(name='os')", "name '__import__' is not defined"),
        ("dict(result=5)", "name 'dict' is not defined"),
        ("eval(source='1')", "name 'eval' is not defined"),
        ("open(file='/etc/passwd')", "name 'open' is not defined"),
        ("ls(**{'a': True})", "invalid syntax"),
        ("add(a=1e999, b=1)", "name 'inf' is not defined"),
        ("cd()", "GorillaFileSystem.cd() missing 1 required positional argument: 'folder'"),
        ("cd('work')", "GorillaFileSystem.cd() missing 1 required positional argument: 'folder'"),
    ],
)
def test_calls_that_fail_say_so(made, text, result):
    assert _run(made, text) == [f"Error during execution: {result}"]
    assert backends.is_error(_run(made, text)[0])


def test_a_dictionary_of_dictionaries_is_a_call_inside_the_call(made):
    # As in the official executor, both forms run `touch`, and the outer call gets its result.
    for text in ("absolute_value(number=touch(file_name='x'))",
                 "absolute_value(number={'touch': {'file_name': 'y'}})"):  # fmt: skip
        assert _run(made, text) == ['{"error": "Input must be a number"}']
    assert _run(made, "ls()") == ['{"current_directory_content": ["notes", "work", "x", "y"]}']
    # Inside a list it is just a dictionary, and a call without named arguments just text.
    _run(made, "[mean(numbers=[{'touch': {'file_name': 'z'}}]), absolute_value(number=pwd())]")
    assert '"z"' not in _run(made, "ls()")[0]
    assert isinstance(decode("[absolute_value(number={})]"), Rejection)
    assert _run(made, "absolute_value(number={'k': 1})") == ['{"error": "Input must be a number"}']


def test_state_is_compared_by_public_attributes(executable):
    one, other = Backends(SCENARIO), Backends(SCENARIO)
    assert same_state(one, other)
    _run(one, "cd(folder='work')")  # the working directory is private
    assert same_state(one, other)
    _run(one, "touch(file_name='x')")
    assert not same_state(one, other)
    _run(other, "rm(file_name='notes')")  # nothing is shared with the scenario
    assert same_state(Backends(SCENARIO), Backends(SCENARIO)) and "notes" in str(FILES)
    assert not same_state(other, Backends(SCENARIO))


def test_unknown_classes_and_broken_states_are_named(executable):
    with pytest.raises(ValueError, match="'Nothing': expected one of GorillaFileSystem"):
        Backends(scenario(("Nothing",), {}))
    broken = {"GorillaFileSystem": {"root": {"a": {"type": "directory"}}}}
    with pytest.raises(ValueError, match="initial state of GorillaFileSystem does not load"):
        Backends(scenario(("GorillaFileSystem",), broken))
    with pytest.raises(ValueError, match="do not parse"):
        backends.reference(["cd("], {})


@pytest.mark.slow
@needs_package
def test_only_the_classes_modules_are_imported():
    program = (
        "import sys\n"
        "from genenv_jax.benchmarks.bfcl.backends import CLASSES, Backends, scenario\n"
        "Backends(scenario(CLASSES, {}))\n"
        "print([m for m in sys.modules if m.startswith(('bfcl_eval.', 'jax', 'requests'))])\n"
    )
    said = printed(program)
    for name in ("constants", "model_handler", "utils", "jax", "requests"):
        assert name not in said.replace("genenv_jax", "")
    assert "func_source_code" in said

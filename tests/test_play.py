import pytest

from genenv_jax.config import validate
from genenv_jax.play import play, read
from genenv_jax.players import build
from genenv_jax.supervised import base_model
from tests.commands import QUICK, call
from tests.runs import toy_config


def typing(lines):
    """Stands in for `input` until the lines end."""
    lines = iter(lines)

    def ask(prompt):
        for line in lines:
            return line
        raise EOFError

    return ask


def session(cache, *typed, players=("", "")):
    """What is shown before the lines and for each.  players: directories of the agent and the simulator."""
    shown, line = [[]], typing(typed)

    def ask(prompt):
        text = line(prompt)
        shown.append([])
        return text

    play(validate(toy_config(cache)), *players, ask, lambda text: shown[-1].append(text))
    return ["\n".join(of) for of in shown]


def test_a_session(cache):
    """Commands, a typed task, its copy, and text that is no task."""
    first = session(cache)[0]
    example = first.splitlines()[-1]
    assert "/write" in first and "as the simulator should write a task" in first
    _, task, written, seed, *typed = session(
        cache, "/task", "/write", "/seed", *(example, ""), *("\x1b[2J nonsense", ""), *("7 long.", ""),
        *("/dance\x1b[2J", ""), "/ask draw it at once", *("/ask", "draw it", "at once", ""), *("/ask", ""),
        *("exit", "x"),
    )  # fmt: skip
    assert task.startswith("the agent is asked:") and "reference: " in task
    assert task.splitlines()[-1].startswith("p̂ = ") and "R_env = " in task.splitlines()[-1]
    attempts = [line for line in task.splitlines() if " × reward " in line]
    assert sum(int(line.split("×")[0]) for line in attempts) == 4  # the group
    verdicts = written.count("admitted") + written.count("rejected: ")
    assert written.count("the simulator's variation") == verdicts
    assert seed.startswith("seed ") and seed.splitlines()[-1] != example
    (_, copy, _, nonsense, _, unread, dance, empty, asked, *_, lines, _, nothing, quitted) = typed
    assert copy.startswith("rejected: duplicate")  # of a seed
    assert "\\u001b[2J nonsense" in nonsense and "\x1b" not in nonsense
    # Unparsable text is answered with a correct example.
    assert unread.startswith("rejected: unparsable") and unread.endswith(f"\n{seed}")
    assert "as the simulator should write" not in copy
    for shown in (asked, lines):
        answers = [line.split(" × ")[0] for line in shown.splitlines() if " × " in line]
        assert sum(map(int, answers)) == 4 and "reward" not in shown
    assert nothing == "the request is empty; expected /ask and a request"
    assert dance == "/dance\\u001b[2J is not a command; /help lists them" and empty == quitted == ""


def test_a_task_that_the_agent_cannot_read_is_rejected_and_the_session_goes_on(cache):
    *_, long, task = session(cache, "red green " * 60 + "okay", "", "/task")
    assert long.startswith("rejected: too_long") and "prompt tokens, limit 128" in long
    assert "p̂ = " in task


def test_prompts_are_in_the_form_of_the_models_that_play(cache, monkeypatch):
    """Those that are named, not the configuration's, which need not be there."""
    own = build.make_benchmark
    opened = []
    monkeypatch.setattr(build, "make_benchmark", lambda c: opened.append(c.model.path) or own(c))
    config = validate(toy_config(cache))
    directory = str(base_model(config, own(config), build.open_mesh(config)))
    assert "p̂ = " in session(cache, "/task", players=(directory, directory))[1]
    assert opened == [directory]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["/task"], "/task"),
        (["quit"], "quit"),
        (["/ask a"], "/ask a"),
        (["/ask", "a", "b", ""], "/ask\na\nb"),
        (["a", " b", "", "c"], "a\n b"),
        (["a"], "a"),
        ([""], ""),
    ],
)
def test_what_is_typed(typed, message):
    assert read(typing(typed)) == message


def test_a_run_that_has_not_finished_is_named(tmp_path):
    result = call("play", QUICK, f"--run={tmp_path}")
    assert result.returncode == 2
    assert result.stderr == (f"error: --run={tmp_path}: expected a finished run, but it has no agent/\n")

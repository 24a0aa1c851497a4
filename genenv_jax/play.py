"""A session with both players: type tasks and watch how they are checked, answered and scored.

    genenv play --config=configs/quickstart.py --run=runs/quickstart

loads the players that a run has exported.  --agent and --simulator name other model directories; without any,
the configuration's own model plays both roles.  You type a task as the simulator would write it for the
current seed, with its reference answer, and end it with an empty line.  /ask takes just a request, and /help
lists the other commands.
"""

import collections
import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Generator, Iterator, Sequence

import jax
from absl import flags
from ml_collections import ConfigDict

from genenv_jax import cli
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Benchmark, Rejection, Task, asking_for
from genenv_jax.config import Config, use_model, validate
from genenv_jax.evaluate.held_out import EvaluationConfig
from genenv_jax.players import build
from genenv_jax.players.lengths import check_length, check_prompts
from genenv_jax.players.policy import Policy
from genenv_jax.results.untrusted import bounded
from genenv_jax.rl.rewards import curriculum_reward, success_rate
from genenv_jax.sampling import decoding
from genenv_jax.sampling.sampler import Completion
from genenv_jax.scoring.attempts import Attempt, attempt
from genenv_jax.scoring.requests import BROKEN_EPISODES, VERIFY
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.scoring.verification import Verifier
from genenv_jax.supervised import base_model
from genenv_jax.system import signals
from genenv_jax.system.keys import visible
from genenv_jax.typing import Params, PRNGKey

HELP = """\
/task      the agent answers the next held-out task
/write     the simulator varies the current seed, and the agent attempts what is admitted
/seed      goes to the next seed, and shows it as the simulator should write it
/ask TEXT  the agent answers TEXT in place of the seed's request, unscored; after /ask alone, many lines
/help      this
/quit      ends, as do quit, exit and the end of the input
Anything else is a task for the current seed.  An empty line ends a text of several lines."""

_ENDS = ("/quit", "/exit", "quit", "exit")
# Reasons to reject a text for its form.
_FORM = (base.UNPARSABLE, base.BAD_TOOLS, base.BAD_ANSWER)


@dataclasses.dataclass
class Game:
    """Both players, with the verifier, which rejects copies of admitted tasks, and the scorer.

    agent, simulator: policies that sample a group of attempts, and the variations of a seed.
    """

    config: Config
    benchmark: Benchmark
    agent: Policy
    simulator: Policy
    verifier: Verifier
    scorer: Scorer

    def __post_init__(self):
        self._held_out = itertools.cycle(self.config.evaluation.tasks(self.benchmark))
        self._seeds = itertools.cycle(self.benchmark.tasks("seed"))
        self._seed, self._turns = next(self._seeds), itertools.count()

    def answer(self, line: str) -> Iterator[str]:
        """Handles a line of user input; yields lines to show.  Raises EOFError for /quit."""
        command = line.strip()
        if command in _ENDS:
            raise EOFError
        if command == "/help":
            yield HELP
        elif command == "/task":
            task = next(self._held_out, None)
            yield from self._attempt(task) if task else ["there are no held-out tasks"]
        elif command == "/seed":
            self._seed = next(self._seeds)
            yield from self._show_seed()
        elif command == "/write":
            yield from self._write()
        elif command.split()[:1] == ["/ask"]:
            yield from self._ask(command.removeprefix("/ask").strip())
        elif command.startswith("/"):
            yield f"{_shown(command.split()[0])} is not a command; /help lists them"
        elif command:
            reason = yield from self._judge(line, True)
            if reason in _FORM:
                yield from self._show_seed()

    def _show_seed(self) -> Iterator[str]:
        yield f"seed {self._seed.id}, as the simulator should write a task:"
        yield _shown(self.benchmark.simulator_answer(self._seed))

    def _ask(self, request: str) -> Iterator[str]:
        """The agent's answers to a request that replaces the current seed's last message."""
        policy = dataclasses.replace(self.agent, key=self._key())
        asked = self.benchmark.agent_messages(self._seed)
        messages = [*asked[:-1], {**asked[-1], "content": request}]
        if not request or not policy.fits(messages):
            yield f"the request is {'empty' if not request else 'too long'}; expected /ask and a request"
            return
        said: collections.Counter[str] = collections.Counter()
        policy.answer([messages], lambda answer: said.update([policy.text(answer.content)]))
        for text, count in said.most_common():
            yield f"  {count} × {_shown(text)}".replace("\n", "\n      ")

    def _write(self) -> Iterator[str]:
        asking = asking_for(self.benchmark, self._seed, self._seed)
        messages = self.benchmark.simulator_messages(self._seed, asking)
        written: list[Completion] = []
        policy = dataclasses.replace(self.simulator, key=self._key())
        policy.answer([messages], written.append)
        for number, completion in enumerate(written):
            text = policy.text(completion.content)
            yield f"\nthe simulator's variation {number + 1} of {self._seed.id}:\n{_shown(text)}"
            yield from self._judge(text, completion.ended)

    def _judge(self, text: str, done: bool) -> Generator[str, None, str]:
        """The gate's verdict on a task by the simulator or the user, and the agent's attempts at it.

        Returns the reason for a rejection, or "".
        """
        turn, batch = next(self._turns), self.scorer.batch()
        about = done, self._seed, f"played-{turn}", turn, self.config.verification.admit
        batch.add(Completion(0, 0, text, done), VERIFY, *about)
        ((_, outcome),) = batch.collect()
        verdict = self.verifier.decide(outcome)
        if isinstance(verdict, Rejection):
            yield f"rejected: {verdict.reason}  {_shown(verdict.detail)}".rstrip()
            return verdict.reason
        yield "admitted"
        yield from self._attempt(verdict)
        return ""

    def _attempt(self, task: Task) -> Iterator[str]:
        policy = dataclasses.replace(self.agent, key=self._key())
        yield f"the agent is asked:\n{_shown(self.benchmark.agent_messages(task)[-1]['content'])}"
        (attempts,) = attempt(self.benchmark, [task], policy, self.scorer)
        alike = collections.Counter((a.score.reward, a.score.reason, _spoken(a)) for a in attempts)
        for (reward, reason, said), count in alike.items():
            yield f"  {count} × reward {reward:.2f}  {reason or 'right'}\n    {said}"
        judged = [a.score.success for a in attempts if a.score.reason not in BROKEN_EPISODES]
        c = self.config.curriculum
        yield f"reference: {_shown(self.benchmark.agent_answer(task))}"
        if not judged:
            return
        p_hat = success_rate(sum(judged), len(judged))
        yield (
            f"p̂ = {sum(judged)}/{len(judged)} = {p_hat:.2f}, "
            f"R_env = {float(curriculum_reward(p_hat, c.alpha, c.beta)):.2f}"
        )

    def _key(self) -> PRNGKey:
        return jax.random.fold_in(self.agent.key, next(self._turns))


def _spoken(attempt: Attempt) -> str:
    """The agent's answers, and the environment's replies in an episode."""
    turns = itertools.zip_longest(attempt.answers, attempt.replies)
    said = (_shown(answer) + (f"\n→ {_shown(reply)}" if reply else "") for answer, reply in turns)
    return "\n".join(said).replace("\n", "\n    ")


def _shown(text: str) -> str:
    return visible(bounded(text))


def load(
    config: Config, benchmark: Benchmark, path: str, role: str = "agent"
) -> tuple[build.ModelOnMesh, Params]:
    """The model in the directory `path`, or the role's own of the configuration if `path` is ""."""
    config = _with_model(config, path)
    mesh = build.open_mesh(config)
    host = build.open_model(config, base_model(config, benchmark, mesh, role), mesh)
    with host.activate():
        return host, decoding.cast(host.load_params(config.model.dtype), host.model.config)


def _with_model(config: Config, path: str) -> Config:
    if not path:
        return config
    given = ConfigDict(config.to_dict())
    use_model(given, path)
    return validate(given)


def policies(
    config: Config, benchmark: Benchmark, agent: str, simulator: str
) -> tuple[build.ModelOnMesh, Policy, Policy]:
    """The agent's model and both players' policies; agent, simulator: as `path` in `load`."""
    one = load(config, benchmark, agent)
    alike = simulator == agent and (agent or not config.separate_start)
    other = one if alike else load(config, benchmark, simulator, "simulator")
    return one[0], _policy(config, *one, "agent"), _policy(config, *other, "simulator")


def _policy(config: Config, host: build.ModelOnMesh, params: Params, role: str) -> Policy:
    """A policy that answers one prompt at a time, or as many as the mesh's data axes require."""
    rows = host.mesh.shape["data"] * host.mesh.shape["fsdp"] if host.mesh else 1
    draws = config.agent.draws if role == "agent" else config.simulator.draws
    return build.make_policy(config, host, params, role, *draws, rows)


def play(config: Config, agent: str, simulator: str, ask: Callable[[str], str], say: Callable) -> None:
    """Loads the players and answers until `ask`, which takes a prompt, raises EOFError.

    Raises ValueError or FileNotFoundError if something is missing or invalid.
    """
    benchmark = build.make_benchmark(_with_model(config, agent))
    config = dataclasses.replace(config, evaluation=EvaluationConfig(max_tasks=64))
    host, first, second = policies(config, benchmark, agent, simulator)
    held_out, seeds = benchmark.tasks("eval"), benchmark.tasks("seed")
    check_prompts(config.limits, host.model, benchmark, seeds, config.evaluation.tasks(benchmark))
    fits = functools.partial(check_length, host.model, config.limits.agent_prompt, benchmark)
    verifier = Verifier(benchmark, seeds, held_out, config.verification, fits)

    def decode(completion: Sequence[int] | str) -> str:
        return completion if isinstance(completion, str) else host.model.decode(completion)

    with Scorer(benchmark, decode, config.scoring) as scorer, host.activate():
        game = Game(config, benchmark, first, second, verifier, scorer)
        say(f"{benchmark.name}: {len(seeds):,} seeds, {len(held_out):,} held-out tasks\n{HELP}")
        for line in game._show_seed():
            say(line)
        while True:
            try:
                for line in game.answer(read(ask)):
                    say(line)
            except EOFError:
                return


def read(ask: Callable[[str], str]) -> str:
    """Reads a command, or lines up to an empty one.  Raises EOFError at the end of the input."""
    lines = [ask("> ")]
    first = lines[0].strip()
    ends = first in _ENDS or (first.startswith("/") and first != "/ask")
    while lines[-1].strip() and not ends:
        try:
            lines.append(ask("(an empty line ends the text) > "))
        except EOFError:
            break
    return "\n".join(lines).rstrip()


def main() -> None:
    """The command; see the module's docstring."""
    given = flags.FLAGS
    signals.resumes.set(False)
    with cli.one_line_errors():
        config, players = validate(given.config), {}
        for role, path in (("agent", given.agent), ("simulator", given.simulator)):
            players[role] = path or (cli.player_of(given.run, role) if given.run else "")
        typed = sys.stdin.isatty()
        ask = lambda prompt: input(prompt if typed else "")  # noqa: E731
        play(config, players["agent"], players["simulator"], ask, print)


if __name__ == "__main__":
    cli.define_config("Configuration file.")
    flags.DEFINE_string("run", "", "Workdir of a finished run, for both players.")
    flags.DEFINE_string("agent", "", "Model directory or hub id of the agent.")
    flags.DEFINE_string("simulator", "", "Model directory or hub id of the simulator.")
    flags.mark_flag_as_required("config")
    cli.run(main)

"""Held-out scores of a chat model, and the evaluations of a run."""

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from genenv_jax.benchmarks import thoughts
from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.benchmarks.shown import reference_text, request_text
from genenv_jax.evaluate.intervals import evaluation_metrics, share_sizes
from genenv_jax.parallel import processes
from genenv_jax.players.agent import Agent
from genenv_jax.players.policy import Policy
from genenv_jax.run.jsonl import write_jsonl
from genenv_jax.run.samples import answer_row, spread
from genenv_jax.run.session import Session
from genenv_jax.run.streams import Stream
from genenv_jax.sampling.sampler import Sampler, bucket
from genenv_jax.scoring.attempts import Attempt, ChatModel, Waiting, attempt
from genenv_jax.scoring.requests import BROKEN_EPISODES, FAILED_SCORES
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.settings import Settings, within
from genenv_jax.tasks.generation import Generation
from genenv_jax.typing import Params, WarmUp


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(Settings):
    """`config.evaluation`.

    Attributes:
      every: epochs between evaluations, which also come before the first epoch and after the last; 0: only
        before the first.
      batch_size: tasks answered at the same time.
      sampled: samples per task at `temperature`; 0: none.
      temperature: sampling temperature of these samples.
      greedy: whether each task also gets one greedy answer.
      max_tasks: maximum held-out tasks, spread evenly over all; 0: all.
      reroll: fresh tasks per epoch whose success rates are measured again, by rollouts that affect nothing
        and are not counted.
    """

    every: int = within(1, 0)
    batch_size: int = within(64, 1, 2**16)
    sampled: int = within(1, 0, 2**12)
    temperature: float = within(1.0, 0.01, 100)
    greedy: bool = True
    max_tasks: int = within(0, 0)
    reroll: int = within(0, 0, 2**16)

    def __post_init__(self):
        super().__post_init__()
        if not self.sampled and not self.greedy:
            raise ValueError("sampled = 0 and greedy = False: expected at least one answer to a task")

    def modes(self) -> dict[str, tuple[int, float]]:
        """(samples, temperature) by mode: "sampled", "greedy"."""
        wanted = {"sampled": (self.sampled, self.temperature), "greedy": (int(self.greedy), 0.0)}
        return {mode: how for mode, how in wanted.items() if how[0]}

    def tasks(self, benchmark: Benchmark, split: str = "eval") -> list[Task]:
        """The held-out tasks that are scored, or the seeds: all, or `max_tasks` spread evenly over them."""
        tasks = benchmark.tasks(split)
        return spread(tasks, self.max_tasks or len(tasks))


def evaluate(
    benchmark: Benchmark,
    tasks: Sequence[Task],
    chat_model: ChatModel,
    scorer: Scorer,
    on_end: Callable[[], object] = lambda: None,
    waiting: Waiting = contextlib.nullcontext,
) -> tuple[dict[str, float], list[list[Attempt]]]:
    """Attempts every task `chat_model.samples` times.

    scorer, on_end, waiting: see `attempt`.

    Returns the benchmark's metrics over all attempts, and the attempts by task.  An answer cut off by the
    token limit is scored as it stands.  If answers could not be scored, the metrics count them by reason.  If
    there are thoughts, the metrics have the mean lengths of thoughts and of answers.
    """
    attempts = attempt(benchmark, tasks, chat_model, scorer, on_end, waiting)
    reasons = [a.score.reason for of in attempts for a in of]
    failed = collections.Counter(reason for reason in reasons if reason in FAILED_SCORES)
    metrics = evaluation_metrics(benchmark, attempts) | dict(failed)
    return metrics | thoughts.lengths([said for of in attempts for a in of for said in a.answers]), attempts


def beside(benchmark: Benchmark, task: Task) -> dict[str, str]:
    """What is written beside an answer to a task: the request and the reference, in words."""
    return {"request": request_text(benchmark, task), "reference": reference_text(benchmark, task)}


def metric_name(mode: str, name: str) -> str:
    """The name "eval/<split>/<mode>/<metric>" for a benchmark's "<split>/<metric>".

    The split is "test" if the benchmark names none.
    """
    split, _, metric = name.rpartition("/")
    return f"eval/{split or 'test'}/{mode}/{metric}"


def warm_up(
    policies: Sequence[Policy], benchmark: Benchmark, tasks: Sequence[Task], params: Callable[[], Params]
) -> list[WarmUp]:
    """Steps that compile evaluations: the tasks' prompt widths, and all widths if some tasks are episodes.

    policies: all of the same model.
    params: returns the decoder's parameters; called when a step runs.
    """
    played = any(benchmark.is_interactive(task) for task in tasks)
    asked = [benchmark.agent_messages(task) for task in tasks if not benchmark.is_interactive(task)]
    lengths = [policies[0].tokens(messages) for messages in asked]
    steps: list[WarmUp] = []
    for policy in policies:
        sampler = policy.sampler
        widths = {bucket(length, sampler.prompt_buckets, "a task") for length in lengths}
        narrow = dataclasses.replace(sampler, prompt_buckets=tuple(sorted(widths)))
        steps += narrow.warm_up(params)
        if played and policy.continues and benchmark.episodes:
            steps += sampler.warm_up(params, episodes=True)
        elif played:  # an episode's conversation grows through all widths
            steps += policy.turns.warm_up(params)
    return steps


class HeldOut:
    """The evaluations of a run's agent; they do not train it or count towards the run's cost."""

    def __init__(
        self,
        config: EvaluationConfig,
        agent: Agent,
        tasks: Sequence[Task],
        benchmark: Benchmark,
        scorer: Scorer,
        session: Session,
    ):
        self._config, self._agent, self._tasks = config, agent, tasks
        self._benchmark, self._scorer = benchmark, scorer
        self._session = session
        self._samplers = agent.evaluating(config.modes(), config.batch_size)

    def after(self, epoch: int) -> dict[str, float]:
        """Held-out metrics after an epoch if an evaluation is due, else {}."""
        every, done = self._config.every, epoch + 1
        if not every or not (self._session.is_last(epoch) or done % every == 0):
            return {}
        return self.evaluate(done)

    def evaluate(self, step: int) -> dict[str, float]:
        """The "eval/..." metrics; every step uses the same random draws, so that curves are comparable."""
        metrics, session = {}, self._session
        self._agent.load_for("sample")
        for mode, sampler in self._samplers.items():
            total, name = len(self._tasks) * sampler.options.group_size, f"evaluate ({mode})"
            with session.phase(name, total, "answers", epoch=step) as display, session.measure(name):
                scores, attempts = evaluate(
                    self._benchmark,
                    self._tasks,
                    self._policy(sampler),
                    self._scorer,
                    display.advance,
                    lambda: session.measure("score"),
                )
            metrics |= {metric_name(mode, name): value for name, value in scores.items()}
            if not step:
                sizes = share_sizes(self._benchmark, attempts)
                tasks = session.about.setdefault("tasks", {})
                tasks |= {metric_name(mode, name): size for name, size in sizes.items()}
            answers = [a for of in attempts for a in of]
            session.sample(f"held_out_{mode}", answers, lambda a: answer_row(step, a.task, a.record()))
            # Prefer the greedy answers: they are the same for the same agent.
            if mode == "greedy" or "greedy" not in self._samplers:
                self._keep(step, mode, attempts)
        return metrics

    def _keep(self, step: int, mode: str, attempts: Sequence[Sequence[Attempt]]) -> None:
        """Writes one answer per task into the workdir: those before training, and the latest."""
        if not processes.is_writer():
            return
        directory = self._session.workdir / "held_out"
        directory.mkdir(parents=True, exist_ok=True)
        records = (
            {"step": step, "mode": mode, **first.record(), **beside(self._benchmark, first.task)}
            for first, *_ in attempts
        )
        write_jsonl(directory / ("after.jsonl" if step else "before.jsonl"), records)

    def reroll(self, epoch: int, fresh: Sequence[Generation]) -> None:
        """Measures the success rates of some fresh tasks again, by rollouts that nothing else depends on.

        The p̂ of kept tasks is biased towards alpha, since tasks are selected by it; these rates are not.
        """
        count, session = min(self._config.reroll, len(fresh)), self._session
        if not count:
            return
        order = session.rng(Stream.REROLLED, epoch).permutation(len(fresh))
        chosen = [fresh[i] for i in sorted(order[:count])]
        with session.measure("interact"):
            attempts = attempt(
                self._benchmark,
                [g.task for g in chosen],
                self._agent.policy(session.key(Stream.REROLL, epoch)),
                self._scorer,
                waiting=lambda: session.measure("score"),
            )
        for g, of in zip(chosen, attempts, strict=True):
            judged = [a.score.success for a in of if a.score.reason not in BROKEN_EPISODES]
            g.rerolled = float(np.mean(judged)) if judged else None

    def warm_up(self) -> list[WarmUp]:
        """Steps that compile evaluations, see `warm_up`."""
        policies = [self._policy(sampler) for sampler in self._samplers.values()]
        return warm_up(policies, self._benchmark, self._tasks, self._agent.sampling_params)

    def _policy(self, sampler: Sampler) -> Policy:
        key = self._session.key(Stream.EVALUATE)
        return Policy(self._agent.model, sampler, self._agent.params, key)

"""The offline teacher: tasks that a model behind an OpenAI-compatible server writes once.

The seeds' prompts, as the simulator would get them before there are any statistics, are sent in turn until
enough answers pass the same verification as the simulator's generations.  Files in the workdir:

    teacher_answers.jsonl      every answer as it arrives, so that none is paid for twice
    teacher_generations.jsonl  every generation with its verdict, in order
    teacher.json               cost and outcome

The resulting tasks depend only on the answers, not on when they arrive or how often the command was
killed.  In a run with several processes, the first one sends the requests and all of them judge the answers.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Benchmark, Rejection, SeedStatistics, Task
from genenv_jax.parallel import processes
from genenv_jax.players.endpoint import BudgetSpent, Endpoint, EndpointError, RequestRefused
from genenv_jax.run.jsonl import JsonLines, write_json
from genenv_jax.run.streams import Stream, rng
from genenv_jax.sampling.sampler import Completion
from genenv_jax.scoring.requests import VERIFY
from genenv_jax.scoring.scorer import Scorer, ScoringConfig
from genenv_jax.scoring.verification import PROVEN
from genenv_jax.settings import Settings, within
from genenv_jax.system.keys import check_url
from genenv_jax.tasks.generation import Generation

REFUSED = "refused"  # the server refused to answer this prompt

# If none of the first `HOPELESS` generations passes verification, the model does not know the format.
HOPELESS = 64
ATTEMPTS = 10  # maximum generations per wanted task
CONCURRENCY = 8  # requests in flight at the same time
TEMPERATURE = 1.0  # of its answers
TIMEOUT = 120.0  # seconds per request
RETRIES = 5  # per request, after transient failures
_WAVES = 4  # rounds of concurrent requests before their answers are judged
_CHARS_A_TOKEN = 16  # no genuine answer has more


@dataclasses.dataclass(frozen=True)
class TeacherConfig(Settings):
    """`config.tasks.teacher`: a server that writes tasks.

    Attributes:
      url: an OpenAI-compatible server such as http://localhost:8000/v1, whose key is $OPENAI_API_KEY; "": the
        benchmark's own generator.
      model: the name of the model on that server.
      per_seed: tasks per seed, if `tasks.count` is 0.
      max_tokens: maximum tokens per answer.
      budget: maximum tokens of all prompts and answers together; 0: no limit.
    """

    url: str = ""
    model: str = ""
    per_seed: float = within(0.0, 0)
    max_tokens: int = within(1024, 1)
    budget: int = within(0, 0)

    def __post_init__(self):
        super().__post_init__()
        if self.url:
            check_url(self.url, "url")
        if bool(self.url) != bool(self.model):
            raise ValueError(f"url = {self.url!r}, model = {self.model!r}: expected both, or neither")


class Teacher:
    """See the module's docstring.  Every process of a run makes one, and all call `write` together.

    Raises EndpointError if the `openai` package is missing, and ValueError, naming the line, if
    teacher_answers.jsonl is damaged.
    """

    def __init__(self, benchmark: Benchmark, settings: TeacherConfig, workdir: pathlib.Path, seed: int):
        self._benchmark, self._settings, self._seed = benchmark, settings, seed
        self._workdir = workdir
        self._endpoint: Endpoint | None = None
        if processes.is_writer():
            self._endpoint = Endpoint(
                settings.url,
                settings.model,
                max_tokens=settings.max_tokens,
                cache=workdir / "teacher_answers.jsonl",
                timeout=TIMEOUT,
                retries=RETRIES,
                max_tokens_total=settings.budget,
            )

    def write(
        self,
        count: int,
        seeds: Sequence[Task],
        decide: Callable[[Task | Rejection], Task | Rejection],
        scoring: ScoringConfig,
        on_tasks: Callable[[int], None] = lambda count: None,
    ) -> list[Task]:
        """`count` tasks that pass verification, as variations of `seeds` in turn.

        Args:
          count: at least 1.
          seeds: at least one.
          decide: gives the verdict on an inspected generation (`Verifier.decide`).
          scoring: `config.scoring`, for the scorer that parses and verifies texts.
          on_tasks: called with the number of new tasks.
        Raises:
          EndpointError: the server fails, the budget is spent, or too few answers pass; the message says
            how many tasks there are and how to continue.
        """
        order = rng(self._seed, Stream.TEACHER_SEEDS).permutation(len(seeds))
        limit = ATTEMPTS * count
        generations: list[Generation] = []
        tasks: list[Task] = []
        path = self._workdir / "teacher_generations.jsonl"
        self._records = JsonLines(path, read_only=not processes.is_writer())
        self._records.clear()
        with contextlib.closing(self._records), Scorer(self._benchmark, str, scoring) as scorer:
            while len(tasks) < count:
                asked = len(generations)
                most = limit if tasks else min(limit, HOPELESS)
                if asked >= most:
                    raise EndpointError(self._too_few(count, generations, asked < limit))
                # Never request more than are missing: every answer is paid for.
                size = min(count - len(tasks), _WAVES * CONCURRENCY, most - asked)
                jobs = [(place, seeds[order[place % len(seeds)]]) for place in range(asked, asked + size)]
                answers, failure = self._ask(jobs)
                judged = self._judge(dict(jobs), answers, decide, scorer)
                generations += judged
                fresh = [g.task for g in judged if g.task]
                tasks += fresh
                self._record(count, judged, generations)
                on_tasks(len(fresh))
                if failure:
                    raise EndpointError(
                        f"config.tasks.teacher: {failure['text']}; {len(tasks)} of {count} tasks are "
                        "written, and the same command"
                        + (" with a larger budget" if failure["budget"] else "")
                        + " continues without repeating answered requests"
                    )
        return tasks

    def _ask(
        self, jobs: Sequence[tuple[int, Task]]
    ) -> tuple[list[tuple[int, str | None, Any]], dict[str, Any] | None]:
        """(place, text, whether it ended) or (place, None, why it was refused) by job; and any failure.

        All processes return what the first one received.
        """
        packed = json.dumps(self._request(jobs)) if processes.is_writer() else ""
        answers, failure = json.loads(processes.agree("the teacher's answers", packed))
        return answers, failure

    def _request(self, jobs: Sequence[tuple[int, Task]]) -> tuple[list, dict[str, Any] | None]:
        longest = _CHARS_A_TOKEN * self._settings.max_tokens

        def answer(place: int, seed: Task) -> tuple[int, str | None, Any]:
            messages = self._benchmark.simulator_messages(seed, SeedStatistics())
            number = int(rng(self._seed, Stream.TEACHER_ANSWER, place).integers(2**31))
            try:
                completion = self._endpoint.complete(messages, number, TEMPERATURE)
            except RequestRefused as error:
                return place, None, str(error)
            fits = len(completion.text) <= longest
            return place, completion.text[:longest], completion.ended and fits

        threads = concurrent.futures.ThreadPoolExecutor(CONCURRENCY, "teacher")
        try:
            futures = [threads.submit(answer, *job) for job in jobs]
            concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
        finally:  # after a failure, requests in flight still finish
            threads.shutdown(wait=True, cancel_futures=True)
        ended = [future for future in futures if not future.cancelled()]
        answers = sorted(future.result() for future in ended if not future.exception())
        error = next(filter(None, (future.exception() for future in ended)), None)
        if error is None:
            return answers, None
        if not isinstance(error, EndpointError):
            raise error
        return answers, {"text": str(error), "budget": isinstance(error, BudgetSpent)}

    def _judge(
        self,
        seeds: Mapping[int, Task],
        answers: Sequence[tuple[int, str | None, Any]],
        decide: Callable[[Task | Rejection], Task | Rejection],
        scorer: Scorer,
    ) -> list[Generation]:
        batch = scorer.batch()
        for place, text, ended in answers:
            if text is not None:
                about = ended, seeds[place], f"teacher-{place}", 0, PROVEN
                batch.add(Completion(place, 0, text, ended), VERIFY, *about)
        inspected = {completion.row: outcome for completion, outcome in batch.collect()}
        judged = []
        for place, text, detail in answers:  # in the order of the requests
            generation = Generation(place, 0, seeds[place], SeedStatistics(), text or "")
            verdict = Rejection(REFUSED, detail) if text is None else decide(inspected[place])
            generation.set_verdict(verdict)
            judged.append(generation)
        return judged

    # -- records ------------------------------------------------------------------------------------

    def _record(self, count: int, judged: Sequence[Generation], generations: Sequence[Generation]) -> None:
        if not processes.is_writer():
            return
        self._records.append(
            {
                "id": f"teacher-{g.row}",
                "seed_id": g.seed.id,
                "text": g.text,
                "verdict": g.rejection.reason if g.rejection else "accepted",
                "detail": g.rejection.detail if g.rejection else "",
            }
            for g in judged
        )
        usage = self._endpoint.usage()
        tokens = usage["prompt_tokens"] + usage["completion_tokens"]
        accepted = sum(g.task is not None for g in generations)
        about = {
            "url": self._settings.url,
            "model": self._settings.model,
            "wanted": count,
            "generations": len(generations),
            "accepted": accepted,
            "rejected": dict(_reasons(generations)),
            **usage,
            "total_tokens": tokens,
            "tasks_per_1k_tokens": 1000 * accepted / tokens if tokens else None,
        }
        write_json(self._workdir / "teacher.json", about)

    def _too_few(self, count: int, generations: Sequence[Generation], hopeless: bool) -> str:
        accepted = sum(g.task is not None for g in generations)
        reasons = ", ".join(f"{reason} {n}" for reason, n in _reasons(generations).most_common())
        detail = next((g.rejection.detail for g in reversed(generations) if g.rejection), "")
        way = (
            "expected a model that follows the prompts of the benchmark's simulator"
            if hopeless
            else "expected a smaller config.tasks.count or tasks.teacher.per_seed, or a better model"
        )
        return (
            f"config.tasks.teacher.model = {self._settings.model!r}: {accepted} of {count} tasks passed "
            f"verification in {len(generations)} generations (rejected: {reasons}; the last one: "
            f"{detail[:200]!r}); {way}; see {self._workdir / 'teacher_generations.jsonl'}"
        )


def _reasons(generations: Sequence[Generation]) -> collections.Counter[str]:
    return collections.Counter(g.rejection.reason for g in generations if g.rejection)

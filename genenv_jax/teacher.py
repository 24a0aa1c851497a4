"""The offline teacher: tasks that a model behind an OpenAI-compatible server writes once.

Each seed's conversation, as the simulator would get it before there are any statistics, is sent in turn,
until enough of the answers have passed the gate that the simulator's own generations pass.  The workdir
gets

    teacher_answers.jsonl      every answer as it arrives: what was paid for is not asked again
    teacher_generations.jsonl  every generation with its verdict, in order
    teacher.json               what it cost and what came of it

Which tasks come out depends on the answers alone, not on when they arrive or how often the command was
killed.  In a run of several processes the first one asks, and all of them judge.
"""

from __future__ import annotations

import collections
import concurrent.futures
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from genenv_jax.benchmarks.base import Benchmark, Rejection, SeedStatistics, Task
from genenv_jax.evaluation.endpoint import BudgetSpent, Endpoint, EndpointError, RequestRefused
from genenv_jax.generation import Generation
from genenv_jax.parallel import processes
from genenv_jax.run.streams import Stream, rng
from genenv_jax.scoring.questions import VERIFY
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.verification import PROVEN

REFUSED = "refused"  # the server would not answer this conversation

# A server none of whose first generations passes the gate does not know the format.
HOPELESS = 64
_WAVES = 4  # requests between two looks at what came, for each that is on its way
_CHARS_A_TOKEN = 16  # no honest answer is longer


class Teacher:
    """See the module's docstring.  Every process of a run makes one and calls `write` together.

    Args:
      benchmark: writes the conversations, parses and verifies.
      settings: `config.tasks.teacher`.
      workdir: of the files.
      seed: of the order of the seeds and of the requests.
    Raises:
      EndpointError: the `openai` package is missing.
      ValueError: teacher_answers.jsonl is damaged; names the line.
    """

    def __init__(
        self, benchmark: Benchmark, settings: ConfigDict, workdir: pathlib.Path, seed: int
    ):
        self._benchmark, self._settings, self._seed = benchmark, settings, seed
        self._workdir = workdir
        self._endpoint: Endpoint | None = None
        if processes.is_writer():
            self._endpoint = Endpoint(
                settings.url,
                settings.model,
                temperature=settings.temperature,
                max_tokens=settings.max_tokens,
                cache=workdir / "teacher_answers.jsonl",
                timeout=settings.timeout,
                retries=settings.retries,
                max_tokens_total=settings.budget,
            )

    def write(
        self,
        count: int,
        seeds: Sequence[Task],
        decide: Callable[[Task | Rejection], Task | Rejection],
        scoring: Mapping[str, Any],
        on_tasks: Callable[[int], None] = lambda count: None,
    ) -> list[Task]:
        """`count` tasks that pass the gate, variations of `seeds` in turn.

        Args:
          count: at least 1.
          seeds: at least one.
          decide: the gate's verdict on an inspected generation (`Verifier.decide`).
          scoring: `config.scoring`, where texts are parsed and verified.
          on_tasks: is told how many more there are.
        Raises:
          EndpointError: the server fails, the budget is spent, or too little passes the gate; says how
            many tasks there are and how to go on.
        """
        settings = self._settings
        order = rng(self._seed, Stream.TEACHER_SEEDS).permutation(len(seeds))
        limit = settings.attempts * count
        generations: list[Generation] = []
        tasks: list[Task] = []
        self._start_record()
        with Scorer(self._benchmark, str, **scoring) as scorer:
            while len(tasks) < count:
                asked = len(generations)
                most = limit if tasks else min(limit, HOPELESS)
                if asked >= most:
                    raise EndpointError(self._too_few(count, generations, asked < limit))
                # Never more than are missing, so that none is paid for in vain.
                size = min(count - len(tasks), _WAVES * settings.concurrency, most - asked)
                jobs = [
                    (place, seeds[order[place % len(seeds)]])
                    for place in range(asked, asked + size)
                ]
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
                        + " goes on without asking again for what is answered"
                    )
        return tasks

    def _ask(
        self, jobs: Sequence[tuple[int, Task]]
    ) -> tuple[list[tuple[int, str | None, Any]], dict[str, Any] | None]:
        """(place, text, whether it ended) or (place, None, why it was refused); and what went wrong.

        On all processes what the first one got.
        """
        packed = ""
        if processes.is_writer():
            packed = json.dumps(self._request(jobs))
        answers, failure = json.loads(processes.agree("the teacher's answers", packed))
        return answers, failure

    def _request(self, jobs: Sequence[tuple[int, Task]]) -> tuple[list, dict[str, Any] | None]:
        longest = _CHARS_A_TOKEN * self._settings.max_tokens

        def answer(place: int, seed: Task) -> tuple[int, str | None, Any]:
            messages = self._benchmark.simulator_messages(seed, SeedStatistics())
            number = int(rng(self._seed, Stream.TEACHER_ANSWER, place).integers(2**31))
            try:
                completion = self._endpoint.complete(messages, number)
            except RequestRefused as error:
                return place, None, str(error)
            fits = len(completion.text) <= longest
            return place, completion.text[:longest], completion.ended and fits

        answers: list[tuple[int, str | None, Any]] = []
        failure = None
        threads = concurrent.futures.ThreadPoolExecutor(self._settings.concurrency, "teacher")
        try:
            futures = [threads.submit(answer, *job) for job in jobs]
            for future in concurrent.futures.as_completed(futures):
                try:
                    answers.append(future.result())
                except concurrent.futures.CancelledError:
                    continue
                except EndpointError as error:
                    failure = failure or {
                        "text": str(error),
                        "budget": isinstance(error, BudgetSpent),
                    }
                    for waiting in futures:
                        waiting.cancel()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
        return sorted(answers), failure

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
                seed = seeds[place]
                batch.add((place, 0), text, VERIFY, ended, seed, f"teacher-{place}", 0, PROVEN)
        inspected = batch.collect()
        judged = []
        for place, text, detail in answers:  # in the order of the requests
            generation = Generation(place, 0, seeds[place], SeedStatistics(), text or "")
            if text is None:
                generation.settle(Rejection(REFUSED, detail))
            else:
                generation.settle(decide(inspected[place, 0][1]))
            judged.append(generation)
        return judged

    # -- what is written down -----------------------------------------------------------------------

    def _start_record(self) -> None:
        if processes.is_writer():
            (self._workdir / "teacher_generations.jsonl").write_text("")

    def _record(
        self, count: int, judged: Sequence[Generation], generations: Sequence[Generation]
    ) -> None:
        if not processes.is_writer():
            return
        with (self._workdir / "teacher_generations.jsonl").open("a") as file:
            for g in judged:
                record = {
                    "id": f"teacher-{g.row}",
                    "seed_id": g.seed.id,
                    "text": g.text,
                    "verdict": g.rejection.reason if g.rejection else "accepted",
                    "detail": g.rejection.detail if g.rejection else "",
                }
                file.write(json.dumps(record) + "\n")
        usage = self._endpoint.total_usage()
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
        path = self._workdir / "teacher.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(about, indent=2) + "\n")
        os.replace(partial, path)

    def _too_few(self, count: int, generations: Sequence[Generation], hopeless: bool) -> str:
        accepted = sum(g.task is not None for g in generations)
        reasons = ", ".join(f"{reason} {n}" for reason, n in _reasons(generations).most_common())
        detail = next((g.rejection.detail for g in reversed(generations) if g.rejection), "")
        way = (
            "expected a model that writes what the benchmark's simulator is asked for"
            if hopeless
            else "with larger config.tasks.teacher.attempts the same command goes on"
        )
        return (
            f"config.tasks.teacher.model = {self._settings.model!r}: {accepted} of {count} tasks passed the "
            f"gate in {len(generations)} generations (turned away: {reasons}; the last one: "
            f"{detail[:200]!r}); {way}; see {self._workdir / 'teacher_generations.jsonl'}"
        )


def _reasons(generations: Sequence[Generation]) -> collections.Counter[str]:
    return collections.Counter(g.rejection.reason for g in generations if g.rejection)

"""TravelPlanner, sole-planning mode with reference information, scored as its authors score it.

The agent reads a query and the information that a plan needs, shortened to the prompt's length, and
answers with a plan, which eight commonsense and up to five hard constraints judge (`constraints`).

Scores are the official ones: all rates, and `Score.success` of held-out tasks.  What trains, the reward
and `Score.success` of other tasks (p̂ must count what is paid for), asks besides that what a plan names
exists (`grounding`).

The official flight table is not published with the repository.  Without it, flights are those of the
reference information, which has all that the training queries can use; results say so (`about`).
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import (
    BAD_ANSWER,
    EMPTY,
    MALFORMED,
    UNPARSABLE,
    Message,
    Rejection,
    Score,
    SeedStatistics,
    Task,
)
from genenv_jax.benchmarks.options import check_choice, check_integers, check_shares
from genenv_jax.benchmarks.records import Published
from genenv_jax.benchmarks.safe_parse import check_text, parse_json
from genenv_jax.benchmarks.subsets import stable_position
from genenv_jax.benchmarks.travelplanner import compaction, plans, prompts, records
from genenv_jax.benchmarks.travelplanner.constraints import (
    COMMONSENSE,
    HARD,
    judge,
    total_cost,
    undelivered,
)
from genenv_jax.benchmarks.travelplanner.grounding import judge_grounded
from genenv_jax.benchmarks.travelplanner.metrics import (
    GROUNDED,
    grounded_metrics,
    official_metrics,
)
from genenv_jax.benchmarks.travelplanner.planner import find_plan
from genenv_jax.benchmarks.travelplanner.queries import LOCAL_CONSTRAINTS, Query, parse_query
from genenv_jax.benchmarks.travelplanner.references import (
    Reference,
    adapt,
    build_reference,
    choose_cities,
)

TEXT_DIFFERS = "text_differs"  # the text of a query and its fields do not say the same
UNSOLVABLE = "unsolvable"  # the planner finds no plan that passes all constraints

_EVAL = ("held_out", "validation")
_REWARDS = ("final", "micro")
_MIN_PROMPT_CHARS = 6_000
_SIMULATOR_DEPTH = 8


@dataclasses.dataclass(kw_only=True, eq=False)
class TravelPlanner(Published):
    """TravelPlanner's tasks, prompts and scoring; a `Benchmark`.

    Args, beside those of `Published`:
      eval: "held_out": training queries that are kept from training; "validation": the official
        validation queries.  Their reference information (validation_ref_info.jsonl) and the flight table
        are used where they are there; else the information is made from the data base, without flights,
        and numbers cannot be compared with published ones.
      seed_fraction: with eval="held_out", the share of training queries that become seeds, in each of
        the nine strata of level and days by a hash; 0.6 gives 27 seeds and 18 held-out tasks.  0 holds
        all 45 out, which makes "train" numbers that can be compared.  With eval="validation" all are
        seeds.
      flights: the official clean_Flights_2022.csv, or "" for the flights of the reference information.
      reward: "final": 1 for a plan that passes all constraints, else 0; "micro": the share of the
        constraints that apply which a plan passes.  In both, a plan must pass them as the official code
        reads it and as `grounding` does, so that nothing is paid for what does not exist.
      prompt_chars: of the agent's whole prompt.  4,096 tokens hold about 12,000 characters of it.
      simulator_chars: of the information in the simulator's prompt.
      answer_chars: an agent's answer.
      generation_chars: a simulator's generation.
      query_chars: the text of the query in it.
    """

    name = records.NAME

    eval: str = "held_out"
    seed_fraction: float = 0.6
    flights: str | os.PathLike[str] = ""
    reward: str = "final"
    prompt_chars: int = 11_500
    simulator_chars: int = 6_000
    answer_chars: int = 16_384
    generation_chars: int = 8_192
    query_chars: int = 2_000

    def __post_init__(self):
        super().__post_init__()
        check_choice("eval", self.eval, _EVAL)
        check_choice("reward", self.reward, _REWARDS)
        check_shares(seed_fraction=self.seed_fraction)
        check_integers(_MIN_PROMPT_CHARS, prompt_chars=self.prompt_chars)
        check_integers(0, simulator_chars=self.simulator_chars)
        check_integers(1, answer_chars=self.answer_chars, query_chars=self.query_chars)
        check_integers(1, generation_chars=self.generation_chars)
        self._world: records.World | None = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_world": None}

    def _read(self) -> records.World:
        if self._world is None:
            directory = records.find_directory(self.data_dir)
            self._world = records.read_world(directory, self.flights, self.verify_files)
        return self._world

    def facts(self) -> dict[str, str]:
        world = self._read()
        flights = (
            f"the flight table {os.path.basename(self.flights)}"
            if self.flights
            else "of the reference information only, the official flight table being absent: a plan "
            "with another flight fails, whether or not the table has that flight"
        )
        source = "published, shortened to the prompt's length"
        if self.eval == "validation" and "validation_1" not in world.references:
            source = (
                "made from the data base without flights, because validation_ref_info.jsonl is absent: "
                "not comparable with published numbers"
            )
        held_out = (
            "the official validation queries"
            if self.eval == "validation"
            else f"{1 - self.seed_fraction:.0%} of the 45 training queries, by level and days"
        )
        return {
            "mode": "sole-planning, direct",
            "evaluator": "constraints of OSU-NLP-Group/TravelPlanner at da7c1d4",
            "held_out": held_out,
            "flights": f"{world.database.flights.size} flights, {flights}",
            "reference_information": source,
            "query_fields": "read from the texts of the queries",
            "success": "final pass: no constraint failed; in training, of grounded plans only",
            "reward": {
                "final": "1 for a grounded final pass, else 0",
                "micro": "share of the constraints that apply which the plan passes, grounded",
            }[self.reward],
            "grounded": "constraints of the plan as it is written and of the part of it that exists: whole "
            "names, and legs with a price, from the departure on; the rates without that word are official",
        }

    def load(self, split: str) -> list[Task]:
        """FileNotFoundError where eval="validation" and the validation queries are absent."""
        if split == "eval":
            return self._held_out()
        return self.sound(self._train("seed"), self._held_out())

    def _train(self, split: str) -> list[Task]:
        """Training queries of a side: of each stratum the first by hash are seeds."""
        tasks = self._read().tasks[records.TRAIN]
        strata: dict[str, list[Task]] = {}
        for task in tasks:
            strata.setdefault(task.category, []).append(task)
        seeds: set[str] = set()
        for stratum in strata.values():
            stratum.sort(key=lambda task: stable_position(task.id))
            seeds.update(task.id for task in stratum[: round(self.seed_fraction * len(stratum))])
        if self.eval == "validation":
            seeds = {task.id for task in tasks}
        return [_as(task, split) for task in tasks if (task.id in seeds) == (split == "seed")]

    def _held_out(self) -> list[Task]:
        if self.eval == "held_out":
            return self._train("eval")
        tasks = self._read().tasks.get(records.VALIDATION)
        if tasks is None:
            raise FileNotFoundError(
                "eval = 'validation': no example_evaluation.jsonl (HEAD/postprocess) in "
                f"{records.find_directory(self.data_dir)}; run `genenv datasets "
                "--name=travelplanner` to download it"
            )
        return [_as(task, "eval") for task in tasks]

    def _reference(self, task: Task, query: Query) -> Reference | None:
        """The published reference information of a task, or what its route takes of its seed's.

        None for a validation query whose information is not there.  ValueError where the seed's describes no
        such route.
        """
        world = self._read()
        name = task.answer["reference"]
        if name not in world.references and name.startswith(f"{records.VALIDATION}_"):
            return None
        if name not in world.references:
            raise ValueError(f"no reference information {name!r}")
        published = world.references[name]
        return published if name == task.id else adapt(published, query, world.database)

    def _information(self, task: Task, query: Query, max_chars: int) -> Reference:
        """The reference information of a task, shortened; made from the data base where there is none."""
        database = self._read().database
        try:
            reference = self._reference(task, query)
        except ValueError:  # another route, which `verify` rejects
            reference = None
        if reference is None:
            cities = choose_cities(query, database) or [query.dest]
            # Too few cities: no plan can pass, and the agent sees what there is.
            cities = (cities * query.visiting_city_number)[: query.visiting_city_number]
            reference = build_reference(query, cities, database)
        return compaction.compact(reference, query, database, max_chars)

    def _shown(self, task: Task) -> tuple[Query, Reference]:
        """The fields of a task, and the information that the agent is shown."""
        query = Query.from_json(task.answer["query"])
        space = self.prompt_chars - prompts.agent_overhead(self.text(task))
        return query, self._information(task, query, space)

    def prompt(self, task: Task) -> list[Message]:
        _, reference = self._shown(task)
        return prompts.agent_messages(compaction.render(reference), self.text(task))

    def worked(self, seed: Task) -> tuple[list[Message], str]:
        """With as much information as the simulator is shown, and a plan that is made of it."""
        query = Query.from_json(seed.answer["query"])
        reference = self._information(seed, query, self.simulator_chars)
        plan = find_plan(query, reference, self._read().database) or []
        shown = prompts.agent_messages(compaction.render(reference), self.text(seed))
        return shown, plans.write_plan(plan)

    def agent_answer(self, task: Task) -> str:
        """A plan that passes all constraints, made of the rows of the agent's prompt.

        The annotated plans use rows that a shortened prompt may not have, so they are not taken.  "[]"
        for a task that the planner cannot solve (a validation query without its flights).
        """
        query, reference = self._shown(task)
        return plans.write_plan(find_plan(query, reference, self._read().database) or [])

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        """See `Benchmark.simulator_messages`."""
        world = self._read()
        query, shown = self._shown(seed)
        plan = find_plan(query, shown, world.database)
        cost = None if plan is None else total_cost(query, plan, world.database)
        reference = self._information(seed, query, self.simulator_chars)
        names = [city.name for city in reference.cities]
        destinations = f"for 3 days and 1 city {' or '.join(names)}"
        states = {world.database.states.get(name) for name in names}
        if len(states) == 1 and len(names) > 1:
            state = states.pop()
            destinations += f"; for 5 days and 2 cities the state {state}"
            if len(names) > 2:
                destinations += f"; for 7 days and 3 cities the state {state}"
        return prompts.simulator_messages(
            compaction.render(reference),
            self.simulator_answer(seed),
            seed.answer["query"],
            destinations,
            cost,
            statistics,
        )

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        """See `Benchmark.simulator_answer`: one JSON object, the text and the official fields."""
        return json.dumps({"query": self.text(task), **task.answer["query"]}, ensure_ascii=False)

    def parse(self, text: str, seed: Task, task_id: str, generation: int) -> Task | Rejection:
        """See `Benchmark.parse`.

        One JSON object, perhaps in a code fence.  Reasons: EMPTY, NOT_TEXT, TOO_LONG, TOO_DEEP,
        UNPARSABLE, BAD_ANSWER (fields).  `verify` compares fields and text, and looks at the route; a task of
        another route than its seed's can be shown and scored all the same.
        """
        rejection = check_text(text, self.generation_chars)
        if rejection:
            return rejection
        begin, end = text.find("{"), text.rfind("}")
        if begin < 0 or end < begin:
            return Rejection(UNPARSABLE, "no JSON object")
        outside = (text[:begin] + text[end + 1 :]).replace("```json", "").replace("```", "").strip()
        if outside:
            return Rejection(UNPARSABLE, "text beside the JSON object")
        record = parse_json(text[begin : end + 1], self.generation_chars, _SIMULATOR_DEPTH)
        if isinstance(record, Rejection):
            return record
        wording = record.pop("query", None)
        rejection = check_text(wording, self.query_chars)
        if rejection:
            reason = UNPARSABLE if rejection.reason == EMPTY else rejection.reason
            return Rejection(reason, f"query: {rejection.detail or 'empty'}")
        try:
            query = Query.from_json(record)
        except MALFORMED as error:
            return Rejection(BAD_ANSWER, str(error)[:200])
        return records.make_task(
            task_id,
            wording.strip(),
            query,
            reference=seed.answer["reference"],
            seed_id=seed.id,
            origin="generated",
            generation=generation,
        )

    def fault(self, task: Task) -> Rejection | None:
        """TEXT_DIFFERS, BAD_ANSWER or UNSOLVABLE.

        The text must say what the fields say, the route must be one that the seed's reference
        information describes, and there must be a plan, made of the rows that the agent is shown, which
        passes all constraints.
        """
        query = Query.from_json(task.answer["query"])
        try:
            said = parse_query(self.text(task), self._read().gazetteer)
        except ValueError as error:
            return Rejection(TEXT_DIFFERS, str(error)[:200])
        if said != query:
            read, given = said.to_json(), query.to_json()
            fields = [name for name in given if given[name] != read[name]]
            return Rejection(TEXT_DIFFERS, f"other {', '.join(fields)} in the text"[:200])
        try:
            self._reference(task, query)
        except ValueError as error:
            return Rejection(BAD_ANSWER, str(error)[:200])
        score = self.score(task, self.agent_answer(task))
        if score.reward < 1.0:
            return Rejection(UNSOLVABLE, "no plan passes all constraints")
        return None

    def canonical(self, task: Task) -> str:
        """See `Benchmark.canonical`: the fields without the day of departure and the budget.

        Those two are left out so that a held-out query is found again behind small changes.
        """
        query = task.answer["query"]
        local = query["local_constraint"]
        wishes = {**local, "cuisine": sorted(local["cuisine"] or [])}
        fields = [query[name] for name in ("org", "dest", "days", "people_number")]
        return json.dumps([*fields, sorted(wishes.items())], ensure_ascii=False)

    def signature(self, task: Task) -> str:
        """See `Benchmark.signature`: the days, and which local constraints there are."""
        query = Query.from_json(task.answer["query"])
        asked = [name for name in LOCAL_CONSTRAINTS if getattr(query, name)]
        return " ".join([f"{query.days} days", *asked])

    def skills(self, task: Task) -> Collection[str]:
        """See `Benchmark.skills`: the days, and each local constraint."""
        query = Query.from_json(task.answer["query"])
        asked = {name for name in LOCAL_CONSTRAINTS if getattr(query, name)}
        return asked | {f"{query.days} days"}

    def difficulty(self, task: Task) -> float:
        """See `Benchmark.difficulty`: cities to visit and local constraints together."""
        query = Query.from_json(task.answer["query"])
        return float(query.visiting_city_number + query.asked)

    def text(self, task: Task) -> str:
        """See `Benchmark.text`: the query."""
        return task.messages[-1]["content"] if task.messages else ""

    def verdict(self, task: Task, answer: str) -> Score:
        """`reason` is why no plan was delivered (`plans.read_plan`), or the first constraint that failed.

        For a plan that fails only as `grounding` reads it, it is "missing_" and the first slot of what does
        not exist, or the first constraint that failed in that reading.  A plan on which the official code
        raises an exception is not valid.  `detail` has the official "delivered", "hard_evaluated", "crashed"
        and "constraints": True, False or None (not asked) for each; and "grounded": "constraints",
        "hard_evaluated" and "missing" (slots) of that reading.
        """
        query = Query.from_json(task.answer["query"])
        plan = plans.read_plan(answer, self.answer_chars)
        reason = ""
        if isinstance(plan, Rejection):
            reason, plan = plan.reason, []
        database = self._read().database
        verdicts, evaluated, crashed = judge(query, plan, database)
        grounded = judge_grounded(query, plan, database, verdicts, evaluated)
        earned, _, missing = grounded
        failed, unpaid = _failed(verdicts), _failed(earned)
        success = not failed if task.origin == "eval" else not unpaid
        if not reason and not success:
            unread = [f"missing_{slot}" for slot in missing]
            reason = [*failed, *unread, *unpaid][0]
        share = sum(v is True for v in earned.values()) / sum(
            v is not None for v in earned.values()
        )
        return Score(
            reward=float(not unpaid) if self.reward == "final" else share,
            success=success,
            valid=bool(plan) and not crashed,
            reason=reason,
            detail={
                "delivered": bool(plan),
                "hard_evaluated": evaluated,
                "crashed": crashed,
                "constraints": verdicts,
                GROUNDED: dict(
                    zip(("constraints", "hard_evaluated", "missing"), grounded, strict=True)
                ),
            },
        )

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        """See `Benchmark.aggregate`; "accuracy" is the official final pass rate (`metrics` has all names)."""
        details = [score.detail or _undelivered(task) for task, score in results]
        metrics = official_metrics(details) | grounded_metrics(details)
        strata: dict[str, list[float]] = {}
        for (task, _), detail in zip(results, details, strict=True):
            final = float(not _failed(detail["constraints"]))
            strata.setdefault(task.category, []).append(final)
        final = {f"{name}_final_pass_rate": sum(v) / len(v) for name, v in sorted(strata.items())}
        return {"accuracy": metrics.get("final_pass_rate", 0.0), **metrics, **final}


def _failed(verdicts: Mapping[str, bool | None]) -> list[str]:
    """The constraints that failed, in the order of the official evaluator."""
    return [name for name in (*COMMONSENSE, *HARD) if verdicts[name] is False]


def _undelivered(task: Task) -> dict[str, Any]:
    """`Score.detail` of an answer that was never judged, as where its process was lost."""
    verdicts = undelivered(Query.from_json(task.answer["query"]))
    judged = {"constraints": verdicts, "hard_evaluated": False}
    return {"delivered": False, "crashed": [], **judged, GROUNDED: {**judged, "missing": []}}


def _as(task: Task, split: str) -> Task:
    record = task.to_json() | {"origin": split}
    return Task.from_json(record)

"""TravelPlanner, sole-planning mode with reference information, scored as its authors score it.

The prompt has a query and the information that a plan needs, shortened to the prompt's length.  The answer
is a plan, which eight commonsense and up to five hard constraints judge (`scoring`).

All rates, and `Score.success` of held-out tasks, are the official ones.  The training signals are the
reward, and `Score.success` of other tasks (p̂ must count what the reward pays for).  They also require that
everything a plan names exists (`reward`).
"""

import dataclasses
import functools
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Message, Rejection, Score, SeedStatistics, Task
from genenv_jax.benchmarks.headers import part_fault
from genenv_jax.benchmarks.lenient import parse_lenient
from genenv_jax.benchmarks.options import check_choice, check_integers, check_shares
from genenv_jax.benchmarks.records import Published
from genenv_jax.benchmarks.subsets import stable_position
from genenv_jax.benchmarks.travelplanner import prompts, scoring, tasks
from genenv_jax.benchmarks.travelplanner.planner import find_plan
from genenv_jax.benchmarks.travelplanner.plans import read_plan, write_plan
from genenv_jax.benchmarks.travelplanner.queries import Query, parse_query
from genenv_jax.benchmarks.travelplanner.references import Reference
from genenv_jax.benchmarks.travelplanner.reward import FINAL, MICRO, score_plan
from genenv_jax.benchmarks.travelplanner.tasks import VALIDATION, make_task, query_of

HELD_OUT = "held_out"
TEXT_DIFFERS = "text_differs"  # the text of a query and its fields disagree
UNSOLVABLE = "unsolvable"  # the planner finds no plan that passes all constraints
_MIN_PROMPT_CHARS = 6_000
_MAX_QUERY = 2_000  # characters of the text of a query
_MAX_DEPTH = 8  # nesting of the JSON in a generation


@dataclasses.dataclass(kw_only=True, eq=False)
class TravelPlanner(Published):
    """TravelPlanner's tasks, prompts and scoring.

    Args, besides those of `Published`:
      eval: "held_out": training queries that are kept from training; "validation": the official
        validation queries.  Their reference information (validation_ref_info.jsonl) and the flight table
        are used if present.  Otherwise the information is built from the database, without flights, and
        the numbers are not comparable with published ones.
      seed_fraction: with eval="held_out", the share of training queries that become seeds.  A hash picks
        them in each of the nine strata of level and days; 0.6 gives 27 seeds and 18 held-out tasks.  0 holds
        out all 45, so that "train" numbers are comparable.  With eval="validation" all are seeds.
      flights: the official clean_Flights_2022.csv, or "" for the flights of the reference information.
      reward: "final": 1 for a plan that passes all constraints, else 0; "micro": the share of the
        applicable constraints that the plan passes.  Either way a constraint counts as passed only if both
        the official code and `reward` accept it, so things that do not exist earn nothing.
      prompt_chars: limit on the agent's whole prompt.  4,096 tokens hold about 12,000 characters of it.
      simulator_chars: limit on the information in the simulator's prompt.
    """

    name = tasks.NAME

    eval: str = HELD_OUT
    seed_fraction: float = 0.6
    flights: str | os.PathLike[str] = ""
    reward: str = FINAL
    prompt_chars: int = 11_500
    simulator_chars: int = 6_000

    def __post_init__(self):
        super().__post_init__()
        check_choice("eval", self.eval, (HELD_OUT, VALIDATION))
        check_choice("reward", self.reward, (FINAL, MICRO))
        check_shares(seed_fraction=self.seed_fraction)
        check_integers(_MIN_PROMPT_CHARS, prompt_chars=self.prompt_chars)
        check_integers(0, simulator_chars=self.simulator_chars)

    @functools.cached_property
    def world(self) -> tasks.World:
        """Everything read from the files; read on first use."""
        directory = tasks.find_directory(self.data_dir)
        return tasks.read_world(directory, self.flights, self.verify_files)

    def facts(self) -> dict[str, str]:
        world = self.world
        flights = (
            f"the flight table {os.path.basename(self.flights)}"
            if self.flights
            else "only those of the reference information, since the official flight table is absent: a plan "
            "with another flight fails, whether or not the table has that flight"
        )
        source = "published, shortened to the prompt's length"
        if self.eval == VALIDATION and "validation_1" not in world.references:
            source = (
                "made from the database without flights, because validation_ref_info.jsonl is absent: "
                "not comparable with published numbers"
            )
        held_out = (
            "the official validation queries"
            if self.eval == VALIDATION
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
                "micro": "share of the applicable constraints that the plan passes, grounded",
            }[self.reward],
            "grounded": "the constraints hold for the plan as written and for the part of it that exists: "
            "whole names, and legs with a price, from the departure on; other rates are official",
        }

    def load(self, split: str) -> list[Task]:
        """Raises FileNotFoundError if eval="validation" and the validation queries are absent."""
        world = self.world
        published = world.tasks[tasks.TRAIN]
        fraction = 1.0 if self.eval == VALIDATION else self.seed_fraction
        strata: dict[str, list[str]] = {}
        for task in sorted(published, key=lambda task: stable_position(task.id)):
            strata.setdefault(task.category, []).append(task.id)
        ids = {name for of in strata.values() for name in of[: round(fraction * len(of))]}
        seeds = [dataclasses.replace(task, origin="seed") for task in published if task.id in ids]
        held_out = [task for task in published if task.id not in ids]
        if self.eval == VALIDATION:
            if VALIDATION not in world.tasks:
                raise FileNotFoundError(
                    "eval = 'validation': no example_evaluation.jsonl (HEAD/postprocess) in "
                    f"{tasks.find_directory(self.data_dir)}; run `genenv datasets "
                    "--name=travelplanner` to download it"
                )
            held_out = world.tasks[VALIDATION]
        return held_out if split == "eval" else self.sound(seeds, held_out)

    def _shown(self, task: Task) -> Reference:
        """The information that the agent is shown."""
        space = self.prompt_chars - prompts.agent_overhead(self.text(task))
        return self.world.information(task, space)

    def _plan(self, task: Task, shown: Reference) -> list[dict[str, Any]] | None:
        return find_plan(query_of(task), shown, self.world.database)

    def prompt(self, task: Task) -> list[Message]:
        return prompts.agent_messages(prompts.render(self._shown(task)), self.text(task))

    def worked(self, seed: Task) -> tuple[list[Message], str]:
        """A prompt with as much information as the simulator is shown, and a plan made from it."""
        shown = self.world.information(seed, self.simulator_chars)
        messages = prompts.agent_messages(prompts.render(shown), self.text(seed))
        return messages, write_plan(self._plan(seed, shown) or [])

    def agent_answer(self, task: Task) -> str:
        """A plan that passes all constraints, made of the rows in the agent's prompt; "[]" if there is none.

        The annotated plans are not used, because a shortened prompt may lack their rows.
        """
        return write_plan(self._plan(task, self._shown(task)) or [])

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        world = self.world
        plan = self._plan(seed, self._shown(seed))
        cost = None if plan is None else scoring.total_cost(query_of(seed), plan, world.database)
        shown = world.information(seed, self.simulator_chars)
        return prompts.simulator_messages(
            prompts.render(shown),
            self.simulator_answer(seed),
            seed.answer["query"],
            _destinations(shown, world),
            cost,
            statistics,
        )

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        """One JSON object with the text of the query and its official fields."""
        return json.dumps({"query": self.text(task), **task.answer["query"]}, ensure_ascii=False)

    def read(self, text: str, seed: Task) -> Task | Rejection:
        """Reasons: NOT_TEXT, TOO_LONG, TOO_DEEP, UNPARSABLE, BAD_ANSWER (fields)."""
        record = parse_lenient(text, self.max_generation, _MAX_DEPTH)
        if isinstance(record, Rejection):
            return record
        if not isinstance(record, dict):
            return Rejection(base.UNPARSABLE, "no JSON object")
        wording = record.pop("query", None)
        if rejection := part_fault(wording, "query", _MAX_QUERY):
            return rejection
        try:
            query = Query.from_json(record)
        except base.MALFORMED as error:
            return Rejection(base.BAD_ANSWER, str(error)[:200])
        return make_task(seed.id, wording.strip(), query, seed.answer["reference"])

    def fault(self, task: Task) -> Rejection | None:
        """Reasons: TEXT_DIFFERS, BAD_ANSWER, UNSOLVABLE.

        The text must say what the fields say, the seed's reference information must describe the route, and
        some plan made of the rows that the agent is shown must pass all constraints.
        """
        query = query_of(task)
        try:
            said = parse_query(self.text(task), self.world.gazetteer)
        except ValueError as error:
            return Rejection(TEXT_DIFFERS, str(error)[:200])
        if said != query:
            read, given = said.to_json(), query.to_json()
            fields = [name for name in given if given[name] != read[name]]
            return Rejection(TEXT_DIFFERS, f"the text says otherwise on {', '.join(fields)}"[:200])
        try:
            self.world.reference(task)
        except ValueError as error:
            return Rejection(base.BAD_ANSWER, str(error)[:200])
        if super().fault(task) is None:
            return None
        return Rejection(UNSOLVABLE, "no plan passes all constraints")

    def canonical(self, task: Task) -> str:
        """The fields without the day of departure and the budget, which are easily changed."""
        query = task.answer["query"]
        local = query["local_constraint"]
        wishes = {**local, "cuisine": sorted(local["cuisine"] or [])}
        fields = [query[name] for name in ("org", "dest", "days", "people_number")]
        return json.dumps([*fields, sorted(wishes.items())], ensure_ascii=False)

    def signature(self, task: Task) -> str:
        return " ".join(self.skills(task))

    def skills(self, task: Task) -> Collection[str]:
        """The days and each local constraint asked for."""
        query = query_of(task)
        return [f"{query.days} days", *query.asked]

    def difficulty(self, task: Task) -> float:
        """The number of cities to visit plus that of local constraints."""
        query = query_of(task)
        return float(query.visiting_city_number + len(query.asked))

    def verdict(self, task: Task, answer: str) -> Score:
        return score_plan(task, answer, self.world.database, self.reward)

    def official_row(self, task: Task, answers: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
        """A line of the authors' evaluation/eval.py, which reads a whole split in order."""
        split, _, number = task.id.rpartition("_")
        plan = read_plan(answers[-1] if answers else "")
        row = {"idx": int(number), "query": task.messages[-1]["content"], "plan": None}
        if not isinstance(plan, Rejection):
            row["plan"] = plan
        return f"{split}.jsonl", row

    def read_official(self, row: Mapping[str, Any], tasks: Mapping[str, Task]) -> tuple[str, str] | None:
        query, plan = row.get("query"), row.get("plan")
        if not isinstance(query, str) or not isinstance(plan, list | None):
            raise ValueError('expected "query", a text, and "plan", a list of days or null')
        by_query = (name for name, task in tasks.items() if task.messages[-1]["content"] == query)
        found = next(by_query, None)
        return found and (found, json.dumps(plan) if plan else "")

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        """An answer that was never judged, for example because its process was lost, is undelivered."""
        return scoring.official_metrics(results, lambda task: self.verdict(task, "").detail)


def _destinations(reference: Reference, world: tasks.World) -> str:
    """The destinations that a variation may have, in words."""
    names = [city.name for city in reference.cities]
    found = f"for 3 days and 1 city {' or '.join(names)}"
    states = {world.database.states.get(name) for name in names}
    if len(states) == 1 and len(names) > 1:
        state = states.pop()
        found += f"; for 5 days and 2 cities the state {state}"
        if len(names) > 2:
            found += f"; for 7 days and 3 cities the state {state}"
    return found

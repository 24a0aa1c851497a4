"""Algorithm 1 of arXiv 2512.19682: the agent and its simulator, trained against each other.

One epoch, as `Coevolution.epoch` runs it:
  1. generation     the simulator writes n variations of each seed; the gate admits the valid ones
     interaction    the agent attempts every task g times: R_agent, p̂ and R_env follow
  2. dual update    GRPO on the agent, batch by batch; filtered, weighted RWR on the simulator
  3. aggregation    valid traces go to D_train, weighted generations to D_env

Everything random is drawn from (seed, epoch, phase), and everything else that an epoch depends on is in
the checkpoint of the epoch before, so an interrupted run repeats itself exactly.

For the same reason several processes can run it side by side: each executes all of this on the same
data and comes to the same decisions, its devices hold their parts of the arrays, and what is sampled is
fetched whole by all.  Only the first process writes files (`workdir.RunFiles`).
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import pathlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from absl import logging
from ml_collections import ConfigDict

from genenv_jax import evaluate as evaluation
from genenv_jax import task_sources
from genenv_jax.benchmarks.base import Rejection, Task, is_interactive
from genenv_jax.checkpoint import Checkpoints
from genenv_jax.curriculum import Curriculum
from genenv_jax.evaluation.answerers import EngineAnswerer
from genenv_jax.generation import (
    Generation,
    assign_rewards,
    diversity_metrics,
    generation_metrics,
    reroll_metrics,
)
from genenv_jax.group_selection import FRONTIER, select_groups
from genenv_jax.metrics import EpochMeans
from genenv_jax.parallel import processes
from genenv_jax.players import building
from genenv_jax.players.prompts import check_prompts
from genenv_jax.progress import Progress
from genenv_jax.replay_pool import ReplayPool
from genenv_jax.rl import rewards
from genenv_jax.rl.advantages import zero_variance
from genenv_jax.rl.weights import seed_group_advantages
from genenv_jax.run import streams
from genenv_jax.run.streams import Stream, rng
from genenv_jax.sampling.engine import Rollouts, bucket
from genenv_jax.scoring.questions import FAILED_SCORES, SCORE, VERIFY
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.stopwatch import Compilations, Stopwatch
from genenv_jax.teacher import Teacher
from genenv_jax.verification import Verifier
from genenv_jax.workdir import RunConfig, RunFiles, compare_data


class Coevolution:
    """A run in a workdir.  The constructor loads and checks everything; `run` trains.

    Args:
      config: validated configuration.
      workdir: made if missing; an interrupted run in it is continued.
    Raises:
      ValueError, FileNotFoundError: something that the configuration names is missing or unfit.
    """

    def __init__(self, config: ConfigDict, workdir: pathlib.Path):
        self.config, self.workdir = config, workdir
        workdir_config = RunConfig(workdir)
        workdir_config.compare(config)
        if config.compilation_cache:
            jax.config.update("jax_compilation_cache_dir", str((workdir / "xla_cache").absolute()))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
        self.benchmark = building.make_benchmark(config)
        compare_data(self.benchmark)
        server = config.tasks.teacher.url
        task_sources.check(config.tasks.source, self.benchmark, server)
        self.fixed = task_sources.FixedTasks(
            workdir / "fixed_tasks.jsonl", self.make_fixed_tasks, config.seed
        )
        self.teacher = None  # what is missing for it shows before a model is loaded
        if server and not self.fixed.exist():
            self.teacher = Teacher(self.benchmark, config.tasks.teacher, workdir, config.seed)
        self.fresh = config.tasks.source == task_sources.SIMULATOR
        seeds = self.benchmark.tasks("seed")
        self.eval_tasks = building.evaluation_tasks(config, self.benchmark)
        host = building.open_model(config, self.benchmark)
        self.model, self._mesh = host.model, host.activate
        check_prompts(config, self.model, self.benchmark, seeds, self.eval_tasks)
        self.scorer = Scorer(self.benchmark, self.model.decode, **config.scoring.to_dict())
        with self._mesh():
            self.agent, self.simulator = building.make_players(config, host)
        self.eval_engines = evaluation.evaluation_engines(config, self.agent.model, host.put)
        self.curriculum = Curriculum(seeds, config.curriculum.seeds_per_epoch, config.seed)
        gate = config.verification
        self.verifier = Verifier(
            self.benchmark,
            seeds,
            self.benchmark.tasks("eval"),
            gate.near_duplicate,
            gate.pool_epochs,
        )
        self._root_key = jax.random.key(config.seed)
        self.total_rollouts = 0
        self.replay = ReplayPool(
            config.agent.replay_priority,
            config.agent.replay_capacity,
            config.agent.replay_staleness,
        )
        self.finished_epochs = 0
        self._watch = Stopwatch()
        self._sampled: dict[str, float] = {}  # the engines' seconds up to the last line
        workdir_config.write(config, self.model.path)
        if self.teacher:  # offline: a server that fails is no matter of a run under way
            self.fixed.tasks()
        self.files = RunFiles(workdir, config.tensorboard)
        self.checkpoints = Checkpoints(workdir / "checkpoints", config.checkpoint.keep)
        self._continue()

    # -- the run ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Trains until `config.epochs` epochs are finished, or `config.rollouts` are spent.

        SIGTERM ends the run at once with exit code 143, after pending checkpoints are on disk: the
        interrupted epoch is repeated when the run is continued.
        """

        def terminate(*_):
            raise SystemExit(143)

        in_main_thread = threading.current_thread() is threading.main_thread()
        previous = signal.signal(signal.SIGTERM, terminate) if in_main_thread else None
        self.progress = Progress(
            self.config.epochs,
            start_epoch=self.finished_epochs,
            silent=not processes.is_writer(),
        )
        self._watch, self._compilations = Stopwatch(), Compilations()
        try:
            with self._mesh():
                if self.config.compile_ahead and not self.finished:
                    self.warm_up()
                if self.finished_epochs == 0:
                    self._log(0, self.evaluate(0), summary=None)
                while not self.finished:
                    self.epoch(self.finished_epochs)
                if self.config.export:
                    self.export()
            processes.barrier("the run is finished")
        finally:
            self.scorer.close()
            self._compilations.close()
            self.checkpoints.close()
            self.files.close()
            if in_main_thread:
                signal.signal(signal.SIGTERM, previous)

    def warm_up(self) -> None:
        """Compiles every program of an epoch, so that no prompt width first comes up in the middle."""
        played = [task for task in self.eval_tasks if is_interactive(self.benchmark, task)]
        answered = [task for task in self.eval_tasks if not is_interactive(self.benchmark, task)]
        tasks = [self.model.encode_messages(self.benchmark.agent_messages(t)) for t in answered]
        widths = {bucket(len(tokens), self.agent.buckets, "a task") for tokens in tasks}
        with self.progress.phase("compile"), self._watch.measure("compile"):
            for player in (self.agent, self.simulator):
                player.warm_up()
            self.agent.enter("sample")
            for engine in self.eval_engines.values():
                for_answers = dataclasses.replace(engine, prompt_buckets=tuple(sorted(widths)))
                for_answers.warm_up(self.agent.params)
                if played:  # a conversation grows through all widths
                    key = self._root_key
                    answerer = EngineAnswerer(self.model, engine, self.agent.params, key)
                    answerer.turns.warm_up(self.agent.params)

    @property
    def finished(self) -> bool:
        """Whether all epochs, or all rollouts, are done."""
        spent = self.config.rollouts and self.total_rollouts >= self.config.rollouts
        return bool(spent) or self.finished_epochs >= self.config.epochs

    def epoch(self, epoch: int) -> None:
        """One epoch of Algorithm 1; `epoch` counts from 0."""
        # 1. Generation: n variations of each seed, conditioned on how its last ones fared.
        generations, texts = self.generate(epoch) if self.fresh else (self.draw(epoch), None)
        fresh = [generation for generation in generations if generation.task]
        rerolled = self.reroll(epoch, fresh)

        # 1. Interaction and 2. GRPO, a batch of tasks at a time: each batch is rolled out by the agent
        # that the batch before has trained, so the updates stay on-policy.
        traces, agent_metrics = self.interact_and_update_agent(epoch, fresh)

        # 1. p̂ and R_env of each batch, then 2. the filter, the weights and RWR on the simulator.
        assign_rewards(generations, self.config)
        simulator_metrics = {}
        if texts is not None:
            simulator_metrics = self.update_simulator(epoch, generations, texts)

        # 3. Aggregation.
        self.aggregate(epoch, generations, traces)
        metrics = generation_metrics(generations, self.config) | agent_metrics | simulator_metrics
        metrics |= diversity_metrics([g.task for g in fresh], self.benchmark)
        metrics |= reroll_metrics(rerolled, self.config)
        metrics["rollouts/total"] = self.total_rollouts
        self.finished_epochs = epoch + 1
        every = self.config.evaluation.every
        if every and (self.finished or self.finished_epochs % every == 0):
            metrics |= self.evaluate(self.finished_epochs)
        self._log(self.finished_epochs, metrics, summary=self._summary(metrics))
        if self.finished or self.finished_epochs % self.config.checkpoint.every == 0:
            with self._watch.measure("checkpoint"):
                self._save()

    # -- 1. generation and interaction --------------------------------------------------------------

    def generate(
        self,
        epoch: int,
        write: Callable[..., Rollouts] | None = None,
        stream: Stream = Stream.GENERATE,
    ) -> tuple[list[Generation], Rollouts]:
        """Variations of the epoch's seeds, each verified; and their tokens.

        write: who writes, by default the simulator as it is.  stream: of the draws, by epoch.
        """
        write = write or self.simulator.generate
        seeds = self.curriculum.choose(epoch)
        statistics = [self.curriculum.statistics(seed.id) for seed in seeds]
        contexts = [
            self.benchmark.simulator_messages(seed, stats)
            for seed, stats in zip(seeds, statistics, strict=True)
        ]
        total = len(seeds) * self.config.simulator.variations
        inspections = self.scorer.batch()
        with self.progress.phase("generate", total=total, unit="tasks") as phase:

            def finished(row: int, column: int, tokens: list[int], done: bool) -> None:
                task_id = f"generated-{epoch + 1}-{row}-{column}"
                about = done, seeds[row], task_id, epoch, self.config.verification.admit
                inspections.add((row, column), tokens, VERIFY, *about)
                phase.advance()

            with self._watch.measure("generate"):
                key = self._key(stream, epoch)
                texts = write(contexts, key, finished)
            with self._watch.measure("verify"):
                inspected = inspections.collect()
        generations = []
        for (row, column), (text, outcome) in inspected.items():
            generation = Generation(row, column, seeds[row], statistics[row], text)
            # In their order, since it is the later of two copies that is turned away.
            generation.settle(self._decide(outcome))
            generations.append(generation)
        return generations, texts

    def _decide(self, outcome: Task | Rejection) -> Task | Rejection:
        """The gate's verdict on an inspected generation."""
        check = functools.partial(self.agent.check_length, self.benchmark)
        return self.verifier.decide(outcome, check)

    def draw(self, epoch: int) -> list[Generation]:
        """The epoch's tasks where the simulator does not write them (`config.tasks`)."""
        count = self.curriculum.seeds_per_epoch * self.config.simulator.variations
        if self.config.tasks.source == task_sources.ORACLE:
            tasks = task_sources.oracle_tasks(
                self.benchmark,
                self.curriculum,
                count,
                self.config.curriculum.alpha,
                self.config.seed,
                epoch,
            )
        else:
            tasks = self.fixed.choose(epoch, count)
        return task_sources.as_generations(tasks)

    def make_fixed_tasks(self) -> list[Task]:
        """The tasks of `config.tasks.source` "teacher" or "static".

        Raises ValueError where too few pass the gate, or the teacher's server fails.
        """
        settings = self.config.tasks
        if settings.source == task_sources.TEACHER:
            seeds = self.curriculum.seeds
            variations = self.config.simulator.variations
            count = task_sources.teacher_count(settings, len(seeds), variations)
            if self.teacher is None:
                return task_sources.teacher_tasks(self.benchmark, count, self.config.seed)
            display = Progress(0, silent=not processes.is_writer())
            with display.phase("ask the teacher", total=count, unit="tasks") as phase:
                scoring = self.config.scoring.to_dict()
                return self.teacher.write(count, seeds, self._decide, scoring, phase.advance)
        seeds, tasks, rounds = len(self.curriculum.seeds), [], 0
        once = math.ceil(
            seeds / self.curriculum.seeds_per_epoch
        )  # rounds in which all seeds come up
        wanted = settings.count or math.inf
        while len(tasks) < wanted and rounds < (once if not settings.count else 50 * once):
            generations, _ = self.generate(
                rounds, self.simulator.generate_initial, Stream.GENERATE_STATIC
            )
            tasks += [g.task for g in generations if g.task]
            rounds += 1
        if len(tasks) < wanted and settings.count:
            raise ValueError(
                f"config.tasks.count = {settings.count}: the initial simulator wrote {len(tasks)} tasks "
                f"that pass the gate in {rounds} rounds"
            )
        return tasks[: settings.count or None]

    def training_tasks(
        self, epoch: int, fresh: list[Generation]
    ) -> list[tuple[Task, Generation | None]]:
        """The epoch's mixture of fresh, base and replayed tasks, in random order.

        The counts follow from the number of generations asked for rather than of those accepted, so a
        simulator that writes little of use does not starve the agent.
        """
        c, draws = self.config.agent, rng(self.config.seed, Stream.MIXTURE, epoch)
        asked = self.curriculum.seeds_per_epoch * self.config.simulator.variations
        fresh_share = 1.0 - c.base_share - c.replay_share
        base = draws.permutation(len(self.curriculum.seeds))[
            : round(asked * c.base_share / fresh_share)
        ]
        replay = self.replay.choose(draws, round(asked * c.replay_share / fresh_share), epoch)
        mixture: list[tuple[Task, Generation | None]] = [(g.task, g) for g in fresh]
        mixture += [(self.curriculum.seeds[i], None) for i in base]
        mixture += [(task, None) for task in replay]
        return [mixture[i] for i in draws.permutation(len(mixture))]

    def interact_and_update_agent(
        self, epoch: int, fresh: list[Generation]
    ) -> tuple[list[dict[str, Any]], dict[str, float]]:
        """Rolls the agent out on the mixture and trains it by GRPO; fills in the generations' attempts.

        Returns the valid traces, as D_train keeps them, and metrics.
        """
        c = self.config.agent
        mixture = self.training_tasks(epoch, fresh)
        traces, means, all_rewards, lengths = [], EpochMeans(), [], []
        valid, failed = 0, collections.Counter()
        trained, pending = 0, []  # groups, and those that wait for a batch to be full
        alpha = self.config.curriculum.alpha
        outcomes: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
        total = len(mixture) * c.group_size
        phase = self.progress.phase("interact and update agent", total=total, unit="rollouts")
        with phase as display:
            chunk = c.batch_size * (c.frontier_factor if c.groups == FRONTIER else 1)
            for start in range(0, len(mixture), chunk):
                part = mixture[start : start + chunk]
                tasks = [task for task, _ in part]
                scores = self.scorer.batch()

                def finished(i, j, tokens, done, scores=scores, tasks=tasks) -> None:
                    scores.add((i, j), tokens, SCORE, tasks[i])
                    display.advance()

                with self._watch.measure("interact"):
                    key = self._key(Stream.INTERACT, epoch, start)
                    rollouts = self.agent.rollout(self.benchmark, tasks, key, finished)
                with self._watch.measure("score"):
                    scored = scores.collect()
                reward, success = np.zeros((2, *rollouts.lengths.shape))
                for (i, j), (answer, score) in scored.items():
                    task, generation = part[i]
                    reward[i, j], success[i, j] = score.reward, score.success
                    valid += score.valid
                    failed[score.reason] += score.reason in FAILED_SCORES
                    outcomes[task.id][0] += 1
                    outcomes[task.id][1] += score.success
                    if generation:
                        generation.attempts += 1
                        generation.successes += score.success
                        generation.response_tokens += int(rollouts.lengths[i, j])
                        generation.prompt_tokens = len(rollouts.prompts[i])
                    if score.valid:
                        traces.append(
                            {
                                "epoch": epoch + 1,
                                "task_id": task.id,
                                "origin": task.origin,
                                "answer": answer,
                                "reward": score.reward,
                                "success": score.success,
                            }
                        )
                all_rewards.append(reward)
                lengths.append(rollouts.lengths)
                keep = math.ceil(len(part) / c.frontier_factor)
                rows = select_groups(c.groups, reward, success, keep, alpha)
                trained += len(rows)
                pending.append((rollouts.take(rows), reward[rows]))
                count, last = sum(len(r) for _, r in pending), start + chunk >= len(mixture)
                # The agent has not changed since the first of them, so they are all its own.
                if c.train and count and (count >= c.batch_size or last):
                    together = Rollouts.one_after_the_other([taken for taken, _ in pending])
                    earned = np.concatenate([rewards for _, rewards in pending])
                    with self._watch.measure("update agent"):
                        update = self.agent.update(together, earned)
                    means.update(update, weight=count)
                    pending = []
        self.total_rollouts += total
        for task_id, (attempts, successes) in outcomes.items():
            self.replay.note(task_id, attempts, successes, epoch)
        if not mixture:
            return traces, {}
        reward = np.concatenate(all_rewards)
        return traces, {
            "agent/reward_mean": float(reward.mean()),
            "agent/response_length_mean": float(np.concatenate(lengths).mean()),
            "agent/zero_variance_share": float(zero_variance(reward).mean()),
            "agent/valid_share": valid / total,
            "agent/tasks": len(mixture),
            "agent/trained_share": trained / len(mixture),
            **{f"agent/{reason}": count for reason, count in failed.items() if count},
            **{f"agent/{name}": value for name, value in means.compute().items()},
        }

    def reroll(self, epoch: int, fresh: list[Generation]) -> list[tuple[Generation, float]]:
        """Success rates of some fresh tasks by rollouts that nothing else depends on.

        The p̂ that decide what is kept look closer to alpha than they are, for they were chosen; these
        were not.  They are evaluation: they train nothing and count for nothing.
        """
        count = min(self.config.evaluation.reroll, len(fresh))
        if not count:
            return []
        order = rng(self.config.seed, Stream.REROLLED, epoch).permutation(len(fresh))
        chosen = [fresh[i] for i in sorted(order[:count])]
        tasks, scores = [g.task for g in chosen], self.scorer.batch()

        def finished(i: int, j: int, tokens: list[int], done: bool) -> None:
            scores.add((i, j), tokens, SCORE, tasks[i])

        with self._watch.measure("interact"):
            self.agent.rollout(self.benchmark, tasks, self._key(Stream.REROLL, epoch), finished)
        with self._watch.measure("score"):
            scored = scores.collect()
        rates: list[list[bool]] = [[] for _ in tasks]
        for (i, _), (_, score) in scored.items():
            rates[i].append(score.success)
        return [(g, float(np.mean(rate))) for g, rate in zip(chosen, rates, strict=True)]

    # -- 2. the simulator's update -------------------------------------------------------------------

    def update_simulator(
        self, epoch: int, generations: list[Generation], texts: Rollouts
    ) -> dict[str, float]:
        """Reward-weighted regression on the filtered generations, or policy gradient on all."""
        c = self.config.simulator
        shape = (len(texts), c.variations)
        weights, r_env, valid = np.zeros(shape), np.zeros(shape), np.zeros(shape, bool)
        for g in generations:
            weights[g.row, g.column] = g.weight
            if g.attempts:
                r_env[g.row, g.column], valid[g.row, g.column] = g.r_env, True
        metrics = {
            "simulator/records": int((weights > 0).sum()),
            "simulator/effective_sample_size": rewards.effective_sample_size(weights[weights > 0]),
        }
        if not c.train:
            return metrics
        if c.method == "grpo":
            weights = seed_group_advantages(r_env, valid, invalid_reward=c.invalid_reward)
            metrics["simulator/records"] = int((weights != 0).sum())
        order = rng(self.config.seed, Stream.RECORDS, epoch)
        phase = self.progress.phase(
            "update simulator", total=metrics["simulator/records"], unit="records"
        )
        with phase, self._watch.measure("update simulator"):
            updated = self.simulator.update(texts, weights, order)
        return metrics | {f"simulator/{name}": value for name, value in updated.items()}

    # -- 3. aggregation -----------------------------------------------------------------------------

    def aggregate(
        self, epoch: int, generations: list[Generation], traces: list[dict[str, Any]]
    ) -> None:
        """Writes the epoch's generations, D_train and D_env, and notes the seeds' success."""
        self.files.tasks.append(
            g.record(epoch + 1, f"generated-{epoch + 1}-{g.row}-{g.column}") for g in generations
        )
        self.files.d_train.append(traces)
        self.files.d_env.append(
            {
                "epoch": epoch + 1,
                "task_id": g.task.id,
                "context": [
                    dict(m)
                    for m in self.benchmark.simulator_messages(
                        g.seed, self.curriculum.statistics(g.seed.id)
                    )
                ],
                "text": g.text,
                "p_hat": g.p_hat,
                "r_env": g.r_env,
                "weight": g.weight,
            }
            for g in generations
            if g.weight > 0 and self.fresh
        )
        if self.config.agent.replay_share:
            for g in generations:
                if g.task:
                    self.replay.add(g.task, g.attempts, g.successes, epoch)
            self.replay.trim()
        if self.config.tasks.source == task_sources.ORACLE:
            task_sources.record_difficulties(self.curriculum, generations)
        counts: dict[str, list[int]] = {}
        for g in generations if self.fresh else ():
            count = counts.setdefault(g.seed.id, [0, 0])
            count[0] += g.attempts
            count[1] += g.successes
        for seed_id, (attempts, successes) in counts.items():
            self.curriculum.record(seed_id, attempts, successes)

    # -- evaluation, logs, state --------------------------------------------------------------------

    def evaluate(self, step: int) -> dict[str, float]:
        """Held-out metrics of the agent; the same draws at every step, so curves compare like with like."""
        metrics = {}
        self.agent.enter("sample")
        for mode, engine in self.eval_engines.items():
            total, name = len(self.eval_tasks) * engine.options.group_size, f"evaluate ({mode})"
            phase = self.progress.phase(name, total=total, unit="answers", epoch=step)
            with phase as display, self._watch.measure(name):
                key = self._key(Stream.EVALUATE)
                answerer = EngineAnswerer(self.model, engine, self.agent.params, key)
                scores, _ = evaluation.evaluate(
                    self.benchmark,
                    self.eval_tasks,
                    answerer,
                    self.scorer,
                    lambda *_, display=display: display.advance(),
                    functools.partial(self._watch.measure, "score"),
                )
            metrics |= {evaluation.metric_name(mode, name): value for name, value in scores.items()}
        return metrics

    def export(self) -> None:
        """Writes both players as Hugging Face directories: workdir/agent and workdir/simulator."""
        for name, player in (("agent", self.agent), ("simulator", self.simulator)):
            player.export(self.workdir / name)

    def _key(self, stream: Stream, *ids: int) -> jax.Array:
        return streams.key(self._root_key, stream, *ids)

    def _log(self, step: int, metrics: dict[str, float], summary: str | None) -> None:
        self.files.metrics.write(step, metrics)
        self.files.timing.write(step, self._timing(metrics))
        if summary is not None:
            self.progress.epoch_done(step, summary)

    def _timing(self, metrics: dict[str, float]) -> dict[str, float]:
        """Where the time since the line before has gone, its checkpoint included.

        "seconds/host" is all that no other name accounts for.  The host's share is that with checkpoints
        and the waiting for verification and scores: the time in which the devices have nothing to do.
        """
        seconds = self._watch.lap(rest="host")
        timing = {f"seconds/{name}": value for name, value in seconds.items()}
        idle = sum(seconds.get(name, 0.0) for name in ("verify", "score", "checkpoint", "host"))
        timing["host_share"] = idle / seconds["total"]
        if seconds.get("interact"):
            rollouts = metrics["agent/tasks"] * self.config.agent.group_size
            timing["rollouts_per_second"] = rollouts / (seconds["interact"] + seconds["score"])
        compiled, loaded = self._compilations.lap()
        timing |= {"programs/compiled": compiled, "programs/loaded": loaded}
        # What the engines' share of sampling is, all of them together.
        engines = [self.agent.engine, self.simulator.engine, *self.eval_engines.values()]
        for name in engines[0].seconds:
            sampled = sum(engine.seconds[name] for engine in engines)
            timing[f"sampling/{name}"] = sampled - self._sampled.get(name, 0.0)
            self._sampled[name] = sampled
        return timing

    def _summary(self, metrics: dict[str, float]) -> str:
        parts = [f"valid {metrics['generated/valid_share']:.0%}"]
        if "generated/p_hat_mean" in metrics:
            parts.append(f"p̂ {metrics['generated/p_hat_mean']:.2f}")
        held_out = [
            v
            for k, v in metrics.items()
            if k.startswith("eval/") and k.endswith("sampled/accuracy")
        ]
        if held_out:
            parts.append(f"held-out {held_out[0]:.3f}")
        return "  ".join(parts)

    def _continue(self) -> None:
        """Takes up an interrupted run where its last checkpoint stands; cuts back what came after."""
        for player in (self.agent, self.simulator):
            # Bound to where they lie, as restored ones are: so the same programs serve both.
            player.state = jax.tree.map(lambda x: jax.device_put(x, x.sharding), player.state)
        found = self.checkpoints.restore(self._states())
        self.files.truncate(found[1]["offsets"] if found else None)
        if not found:
            return
        restored, host = found
        self.agent.state = type(self.agent.state)(*restored["agent"])
        self.simulator.state = type(self.simulator.state)(*restored["simulator"])
        self.finished_epochs = host["finished_epochs"]
        self.total_rollouts = host["total_rollouts"]
        self.curriculum.restore(host["curriculum"])
        tasks = [Task.from_json(r["task"]) for r in self.files.tasks if r["task"] is not None]
        self.verifier.restore(tasks)
        self.replay.restore(host.get("replay", {}), {task.id: task for task in tasks})
        logging.info("continuing after epoch %d", self.finished_epochs)

    def _states(self) -> dict[str, Any]:
        """The arrays of a checkpoint."""
        return {"agent": self.agent.state, "simulator": self.simulator.state}

    def _save(self) -> None:
        self.checkpoints.save(
            self.finished_epochs,
            self._states(),
            {
                "finished_epochs": self.finished_epochs,
                "total_rollouts": self.total_rollouts,
                "curriculum": self.curriculum.state(),
                "replay": self.replay.state(),
                "offsets": self.files.offsets(),
            },
        )

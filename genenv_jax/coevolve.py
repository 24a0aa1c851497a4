"""Algorithm 1 of arXiv 2512.19682: trains the agent and its simulator against each other.

All random numbers come from streams keyed by (seed, name, epoch).  Everything else that an epoch, or the rest
of one, depends on is in the checkpoint before it.  So a resumed run repeats an interrupted one exactly.

For the same reason a run can have several processes.  Each executes all of this on the same data and makes
the same decisions.  Its devices hold their shards of the arrays, and every process fetches all samples.  Only
the first process writes files.
"""

import functools
import pathlib
from collections.abc import Mapping, Sequence

from absl import logging

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.demonstrations import SIMULATOR
from genenv_jax.config import Config
from genenv_jax.evaluate.held_out import HeldOut
from genenv_jax.parallel import processes
from genenv_jax.players import build
from genenv_jax.players.lengths import check_length, check_prompts
from genenv_jax.publish import card, provenance
from genenv_jax.run.programs import compile_in_parallel, enable_compilation_cache
from genenv_jax.run.samples import answer_row, generation_row
from genenv_jax.run.session import Session
from genenv_jax.run.tracking import Trackers
from genenv_jax.run.workdir import RunSettings, compare_data
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.scoring.verification import Verifier
from genenv_jax.supervised import base_model
from genenv_jax.tasks.generation import TaskBatch
from genenv_jax.tasks.make import make_source, open_teacher
from genenv_jax.tasks.metrics import generation_metrics
from genenv_jax.tasks.mixture import Item, Mixture
from genenv_jax.tasks.objective import Objective
from genenv_jax.tasks.replay import TaskBuffer
from genenv_jax.tasks.seeds import SeedTasks
from genenv_jax.trainers.agent import AgentTrainer, Interaction
from genenv_jax.trainers.simulator import make_simulator_trainer

_FEW = 0.05  # share of valid generations below which a simulator hardly writes tasks
# Remedies by reason of rejection; for all others, a longer warm start.
_REMEDIES = {
    base.TRUNCATED: "a longer config.limits.simulator_response, or a longer warm start",
    base.DUPLICATE: "more seed tasks",
    base.NEAR_DUPLICATE: "more seed tasks",
}


class Coevolution:
    """A run in a workdir: its parts, built once from the configuration, and the training loop.

    The constructor loads and checks everything; `run` trains.

    Args:
      config: checked configuration.
      workdir: made if missing; an interrupted run in it is resumed.
      weights: False: the players have shapes but no values, for a dry run.
    Attributes:
      host: the model and its devices.
      session: workdir, records, checkpoints, clock and signals.
      source: provides an epoch's tasks.
      mixture: adds base data and tasks of D_train to them.
      objective: computes p̂, R_env, filter and weights.
      cards: makes the model cards of a finished run, by role.
    Raises:
      ValueError, FileNotFoundError: something that the configuration names is missing or invalid.
    """

    def __init__(self, config: Config, workdir: pathlib.Path, weights: bool = True):
        self.config = config
        config.tracking.check()
        settings = RunSettings(workdir, config.to_dict())
        if config.compilation_cache:
            enable_compilation_cache(workdir)
        self.benchmark = benchmark = build.make_benchmark(config)
        settings.add_tasks(compare_data(benchmark))
        config.tasks.check(benchmark)
        teacher = open_teacher(config, benchmark, workdir)
        seeds = SeedTasks(benchmark.tasks("seed"), config.curriculum.seeds_per_epoch, config.seed)
        eval_tasks = config.evaluation.tasks(benchmark)
        self.mesh = mesh = build.open_mesh(config)
        start = own = base_model(config, benchmark, mesh)
        if config.separate_start:
            own = base_model(config, benchmark, mesh, SIMULATOR)
        self.host = host = build.open_model(config, start, mesh, weights)
        simulators = None if own == start else build.open_model(config, own, mesh, weights)
        check_prompts(config.limits, host.model, benchmark, seeds.tasks, eval_tasks)
        self.scorer = scorer = Scorer(benchmark, host.model.decode, config.scoring)
        with host.activate():
            self.agent, self.simulator = agent, simulator = build.make_players(config, host, simulators)
        limits = config.epochs, config.rollouts, config.tokens
        self.session = session = Session(workdir, config.seed, *limits, config.checkpoint)
        fits = functools.partial(check_length, host.model, config.limits.agent_prompt, benchmark)
        verifier = Verifier(benchmark, seeds.tasks, benchmark.tasks("eval"), config.verification, fits)
        self.source = make_source(config, seeds, simulator, benchmark, scorer, verifier, session, teacher)
        asked, buffer = seeds.per_epoch * config.simulator.variations, TaskBuffer()
        shares = config.agent.base_share, config.agent.replay_share
        self.mixture = Mixture(seeds.tasks, asked, *shares, buffer, config.seed)
        self.agent_trainer = AgentTrainer(agent, benchmark, scorer, session)
        self.objective = Objective(config.curriculum, config.simulator, benchmark)
        self.simulator_trainer = make_simulator_trainer(simulator, benchmark, session)
        self.held_out = HeldOut(config.evaluation, agent, eval_tasks, benchmark, scorer, session)
        session.register(settings=settings, source=self.source, verifier=verifier, replay=buffer)
        session.register_players(agent=agent, simulator=simulator)
        if weights:
            settings.write(start, own)
        session.about |= provenance.made_with(config, self.mesh.devices.flat)
        about = host.model.path, len(eval_tasks), benchmark.about().get("tools", "")
        self.cards = functools.partial(card.of_run, config, workdir, *about, provenance.commit())
        with host.activate():
            self.source.prepare()
        session.open(Trackers(config.tracking, workdir, settings.state()))

    def run(self) -> None:
        """Trains until the run ends; see `Session`."""
        session = self.session
        with self.scorer, session.running(), self.host.activate():
            if self.config.compile_ahead and not session.ended:
                self.warm_up()
            if session.finished == 0 and not session.begun:
                session.log(self.held_out.evaluate(0))
            for epoch in session.epochs():
                self.epoch(epoch)
            if self.config.export:
                for role, player in (("agent", self.agent), ("simulator", self.simulator)):
                    cards = self.cards(role) if processes.is_writer() else {}
                    player.export(session.workdir / role, **cards)

    def epoch(self, epoch: int) -> None:
        """One epoch of Algorithm 1; `epoch` counts from 0."""
        # 1. Generation: n variations of each seed, conditioned on the agent's success so far.
        session, curriculum = self.session, self.config.curriculum
        if session.begun:
            batch = self.source.resume(epoch, session.begun["tasks"])
        else:
            batch = self.source.tasks(epoch)
            self.held_out.reroll(epoch, batch.accepted)
        session.within["tasks"] = batch.state

        # 1. Interaction and 2. GRPO, one batch of tasks at a time, so that updates stay on-policy.
        items = self.mixture.draw(epoch, batch)
        interaction = self.agent_trainer.step(epoch, items)

        # 1. p̂ and R_env of each task, then 2. filter, weights and RWR on the simulator.
        self.objective.assign(batch)
        update = self.simulator_trainer.step(epoch, batch)

        # 3. Aggregation into D_train and D_env, and statistics for the next epoch.
        self.aggregate(epoch, batch, items, interaction)
        metrics = generation_metrics(batch.generations, self.benchmark, curriculum.alpha, curriculum.k_min)
        metrics |= interaction.metrics | update
        if epoch == 0 and processes.is_writer() and (why := nothing_to_learn(metrics)):
            logging.warning("epoch 1: %s.  More in docs/running.md, When it does not work", why)
        metrics |= self.held_out.after(epoch)
        spent = {"rollouts/total": session.rollouts, "tokens/total": session.tokens}
        session.finish(epoch, metrics | spent)

    def aggregate(
        self, epoch: int, batch: TaskBatch, items: Sequence[Item], interaction: Interaction
    ) -> None:
        """Writes an epoch's generations, D_env and samples; updates source and mixture."""
        session, files, traces = self.session, self.session.files, interaction.traces
        records = [g.record(epoch + 1, self.benchmark) for g in batch.generations]
        files.tasks.append(records)
        files.d_env.append(self.source.d_env(epoch, batch))
        self.source.record(batch, items)
        tasks = {item.task.id: item.task for item in items}
        session.sample("generations", records, generation_row)
        session.sample("answers", traces, lambda t: answer_row(t["epoch"], tasks[t["task_id"]], t))
        self.mixture.record(batch)

    def warm_up(self) -> None:
        """Compiles every program of an epoch, so that no new prompt width compiles during training."""
        parts = self.agent_trainer, self.source, self.simulator_trainer, self.held_out
        chains = [part.warm_up() for part in parts]
        alone = self.mesh.size == 1 and self.mesh.devices.flat[0].platform == "cpu"
        side_by_side = alone and self.config.memory.offload == "none"
        with (
            self.session.phase("compile", sum(map(len, chains)), "parts", epoch=0) as display,
            self.session.measure("compile"),
        ):
            compile_in_parallel(chains, self.host.activate, side_by_side, display.advance)


def nothing_to_learn(metrics: Mapping[str, float]) -> str:
    """Why an epoch taught next to nothing, and which setting to change; "" if it taught something.

    metrics: the epoch's, named as in metrics.jsonl.
    """
    longer = "a longer warm start (config.warm_start.steps)"
    count, valid = metrics.get("generated/count", 0), metrics.get("generated/valid_share", 1.0)
    if count and valid < _FEW:
        prefix = "generated/rejected/"
        reasons = {name.removeprefix(prefix): n for name, n in metrics.items() if name.startswith(prefix)}
        most = max(reasons, key=reasons.__getitem__)
        remedy = _REMEDIES.get(most, f"{longer}, or another config.seed if the model is made here")
        shown = f"only {valid:.0%} of {count:.0f} generations are valid, and most are rejected as {most}"
        return f"{shown}: use {remedy}"
    same = metrics.get("agent/zero_variance_share", 0.0) == 1
    reward = metrics.get("agent/reward_mean")
    if same and reward == 0:
        return f"no attempt earned a reward: use easier seed tasks, {longer} or simulator.method=hindsight"
    if same and reward == 1:
        return "every attempt was right: use harder seed tasks, or config.curriculum.growth.share"
    return ""

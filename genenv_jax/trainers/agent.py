"""The agent's part of an epoch: it attempts the epoch's tasks and is trained on the rollouts with GRPO."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from genenv_jax.benchmarks import thoughts
from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.players.agent import Agent
from genenv_jax.players.policy import Policy
from genenv_jax.rl.advantages import group_advantages, zero_variance
from genenv_jax.run.checkpoint import pack_arrays, unpack_arrays
from genenv_jax.run.metrics import EpochMeans
from genenv_jax.run.session import Session
from genenv_jax.run.streams import Stream
from genenv_jax.sampling.sampler import Rollouts
from genenv_jax.scoring.attempts import Attempt, answer
from genenv_jax.scoring.requests import BROKEN_EPISODES, FAILED_SCORES
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.tasks.mixture import Item
from genenv_jax.trainers import divergence
from genenv_jax.trainers.grpo import GRPO
from genenv_jax.typing import WarmUp


@dataclasses.dataclass
class Interaction:
    """An epoch's attempts, so far.

    Attributes:
      traces: the valid rollouts, as D_train stores them.
      metrics: "agent/...", at the end.
      outcomes: attempts and successes of each item that has been attempted.
      trained: number of groups trained on.
      groups: statistics of all rollouts.
      means: the updates' mean metrics.
      pending: groups that wait for a full batch, with their rewards.
    """

    traces: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    outcomes: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    trained: int = 0
    groups: _Groups = dataclasses.field(default_factory=lambda: _Groups())
    means: EpochMeans = dataclasses.field(default_factory=EpochMeans)
    pending: list[tuple[Rollouts, np.ndarray]] = dataclasses.field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """What a mid-epoch checkpoint stores besides the traces, as plain JSON; a copy."""
        waiting = {}
        if self.pending:
            together, earned = self.together()
            waiting = {**together.arrays(), "earned": earned}
        return {
            "outcomes": list(self.outcomes),
            "trained": self.trained,
            "groups": self.groups.state(),
            "means": list(self.means.updates),
            "pending": pack_arrays(waiting),
        }

    @classmethod
    def resumed(cls, state: Mapping[str, Any], traces: list[dict[str, Any]]) -> Interaction:
        """Inverse of `state`."""
        waiting, result = unpack_arrays(state["pending"]), cls(traces)
        result.outcomes, result.trained = list(map(tuple, state["outcomes"])), state["trained"]
        result.groups.restore(state["groups"])
        result.means.updates = list(map(tuple, state["means"]))
        if waiting:
            result.pending = [(Rollouts.of_arrays(waiting), waiting["earned"])]
        return result

    def together(self) -> tuple[Rollouts, np.ndarray]:
        """The pending groups and their rewards."""
        rollouts, rewards = zip(*self.pending, strict=True)
        return Rollouts.concat(rollouts), np.concatenate(rewards)


class AgentTrainer:
    """Rolls the agent out on one batch of tasks at a time and trains on it, so updates stay on-policy."""

    def __init__(self, agent: Agent, benchmark: Benchmark, scorer: Scorer, session: Session):
        self._agent, self._benchmark, self._scorer, self._session = agent, benchmark, scorer, session
        self._grpo = GRPO(agent, agent.config, session)

    def step(self, epoch: int, items: Sequence[Item]) -> Interaction:
        """Attempts every task `group_size` times; updates the agent after each full batch of groups.

        Fills in the attempts of the items' generations, and writes D_train.  Continues after the batches that
        a mid-epoch checkpoint has.
        """
        c, session = self._agent.config, self._session
        result = self._begun(epoch, items)
        done = len(result.outcomes)
        session.within["agent"] = result.state
        total = (len(items) - done) * c.group_size
        with session.phase("interact and update agent", total, "rollouts") as display:
            for start in range(done, len(items), c.batch_size):
                part = items[start : start + c.batch_size]
                with session.batch(start + len(part)):
                    last = start + len(part) == len(items)
                    self._play(epoch, start, part, last, result, display.advance)
        if items:
            result.metrics = {
                "agent/tasks": len(items),
                "agent/trained_share": result.trained / len(items),
                **{f"agent/{name}": value for name, value in result.groups.metrics().items()},
                **{f"agent/{name}": value for name, value in result.means.compute().items()},
            }
        return result

    def _begun(self, epoch: int, items: Sequence[Item]) -> Interaction:
        """The interaction that a mid-epoch checkpoint holds; sets the items' attempts."""
        if not (state := self._session.begun.get("agent")):
            return Interaction()
        traces = [t for t in self._session.files.d_train if t["epoch"] == epoch + 1]
        result = Interaction.resumed(state, traces)
        for item, outcome in zip(items, result.outcomes, strict=False):
            item.attempts, item.successes = outcome
        return result

    def _play(
        self,
        epoch: int,
        start: int,
        part: Sequence[Item],
        last: bool,
        result: Interaction,
        advance: Callable[[], None],
    ) -> None:
        """Attempts the tasks from number `start` on, and updates the agent if the groups fill a batch."""
        c, session = self._agent.config, self._session
        with session.measure("interact"):
            policy = self._agent.policy(session.key(Stream.INTERACT, epoch, start))
            attempts, rollouts = self._attempt([item.task for item in part], policy, advance)
        session.tokens += rollouts.token_count
        reward = result.groups.add(attempts, rollouts)
        session.rollouts += reward.size
        before = len(result.traces)
        for item, prompt, lengths, of in zip(
            part, rollouts.prompts, rollouts.num_generated, attempts, strict=True
        ):
            _record(result, epoch, item, len(prompt), lengths, of)
        session.files.d_train.append(result.traces[before:])
        rows = np.arange(len(reward))
        if c.groups == "informative":
            rows = np.flatnonzero(~zero_variance(reward))
        result.trained += len(rows)
        result.pending.append((rollouts.take(rows), reward[rows]))
        count = sum(len(rewards) for _, rewards in result.pending)
        # The agent has not changed since the first pending group, so all of them are on-policy.
        if count and (count >= c.batch_size or last):
            with session.measure("update agent"):
                updated = self.update(*result.together())
            result.means.update(updated, weight=count)
            result.pending = []

    def _attempt(
        self, tasks: Sequence[Task], policy: Policy, on_end: Callable[[], None]
    ) -> tuple[list[list[Attempt]], Rollouts]:
        """Attempts each task `group_size` times, with one answer or one episode each."""
        waiting = functools.partial(self._session.measure, "score")
        if self._benchmark.episodes:
            return policy.play(tasks, self._scorer.episodes, on_end, waiting)
        return answer(self._benchmark, tasks, policy, self._scorer, on_end, waiting)

    def update(self, rollouts: Rollouts, rewards: np.ndarray) -> dict[str, float]:
        """One pass (or `update_epochs`) of GRPO over a batch of rollouts; see `GRPO.update`.

        Args:
          rollouts: of T tasks, sampled by the agent since its last update.
          rewards: (T, g), R_agent of each rollout; NaN marks an episode that its environment broke, which
            is left out.
        """
        c = self._agent.config
        kept = ~np.isnan(rewards)
        used = np.flatnonzero(kept.any(axis=1)) if kept.any() else np.arange(len(kept))
        advantages = group_advantages(rewards, c.advantages)
        result = self._grpo.update(rollouts.only(kept), advantages, used)
        divergence.check(self._session, "agent", result, rollouts, rewards)
        return result

    def warm_up(self) -> list[WarmUp]:
        """Functions that compile every program of a step, for every planned prompt width."""
        return self._agent.warm_up() + self._grpo.warm_up()


def _record(
    result: Interaction,
    epoch: int,
    item: Item,
    prompt_length: int,
    lengths: np.ndarray,
    attempts: Sequence[Attempt],
) -> None:
    """Records a task's attempts in its item and generation, and its valid ones in the traces."""
    task, generation = item.task, item.generation
    kept = [a.score.reason not in BROKEN_EPISODES for a in attempts]
    judged = list(itertools.compress(attempts, kept))
    item.attempts, item.successes = len(judged), sum(a.score.success for a in judged)
    result.outcomes.append((item.attempts, item.successes))
    if generation:
        generation.attempts += item.attempts
        generation.successes += item.successes
        generation.response_tokens += int(lengths[kept].sum())
        generation.prompt_tokens = prompt_length
    result.traces += [
        {
            "epoch": epoch + 1,
            "task_id": task.id,
            "origin": task.origin,
            "answer": a.answers[-1],
            **a.episode(),
            "reward": a.score.reward,
            "success": a.score.success,
            **({"reason": a.score.reason} if a.score.reason else {}),
        }
        for a in judged
        if a.score.valid
    ]


class _Groups:
    """Rewards, lengths and failures of an epoch's groups of rollouts."""

    def __init__(self):
        self._rewards: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []
        # Counts of valid answers, texts and characters (`thoughts.totals`), failures by reason, episodes.
        self._counts: collections.Counter[str] = collections.Counter()

    def state(self) -> dict[str, Any]:
        """For a checkpoint, as plain JSON; a copy."""
        arrays = {"rewards": self._rewards, "lengths": self._lengths}
        return {
            "arrays": pack_arrays({name: np.concatenate(x) for name, x in arrays.items()}),
            "counts": dict(self._counts),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        arrays = unpack_arrays(state["arrays"])
        self._rewards, self._lengths = [arrays["rewards"]], [arrays["lengths"]]
        self._counts = collections.Counter(state["counts"])

    def add(self, attempts: Sequence[Sequence[Attempt]], rollouts: Rollouts) -> np.ndarray:
        """Adds the groups of a batch; returns their rewards (T, g), NaN for a broken episode."""
        scores = [[a.score for a in of] for of in attempts]
        broken = np.array([[score.reason in BROKEN_EPISODES for score in of] for of in scores])
        reward = np.where(broken, np.nan, [[score.reward for score in of] for of in scores])
        self._rewards.append(reward)
        self._lengths.append(rollouts.num_generated)
        self._counts["valid"] += sum(score.valid for of in scores for score in of)
        self._counts["episodes"] += reward.size * (rollouts.loss_mask is not None)
        self._counts.update(score.reason for of in scores for score in of if score.reason in FAILED_SCORES)
        self._counts.update(thoughts.totals([answer for of in attempts for a in of for answer in a.answers]))
        return reward

    def metrics(self) -> dict[str, float]:
        """Means over all groups, and the number of answers that could not be scored, by reason.

        With thoughts, also mean lengths of thoughts and answers, in characters.
        """
        reward = np.concatenate(self._rewards)
        judged, counts = reward[~np.isnan(reward)], self._counts
        return {
            "reward_mean": float(judged.mean()) if judged.size else 0.0,
            "response_length_mean": float(np.concatenate(self._lengths).mean()),
            "zero_variance_share": float(zero_variance(reward).mean()),
            "valid_share": counts["valid"] / reward.size,
            **({"turns_mean": counts["texts"] / reward.size} if counts["episodes"] else {}),
            **thoughts.mean_lengths(counts),
            **{reason: counts[reason] for reason in FAILED_SCORES if counts[reason]},
        }

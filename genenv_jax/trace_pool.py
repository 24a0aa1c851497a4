"""Rollouts of earlier epochs that are trained on again as they are: no new rollouts, but stale ones.

What is replayed is the trace, so the agent of today has not sampled it: `Agent.weigh` gives its tokens
truncated importance weights.  (`replay_pool.py` replays tasks, which the agent attempts anew.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from genenv_jax.rl import replay
from genenv_jax.rl.advantages import zero_variance
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Rollouts, pad_rows


@dataclasses.dataclass(frozen=True)
class Traces:
    """N groups of rollouts that an earlier agent has sampled.

    rollouts: as stored, "logprobs" being those of the agent that sampled (`Agent.weigh` puts those of the
    agent as it is now in their place).  rewards: (N, g).  ages: (N,) epochs since they were sampled.
    weights: (N, g, c) of the tokens, 0 beyond the ends; None before they are weighed.
    """

    rollouts: Rollouts
    rewards: np.ndarray
    ages: np.ndarray
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rollouts)

    @property
    def mask(self) -> np.ndarray:
        """(N, g, c) bool: the tokens that were sampled."""
        tokens = self.rollouts.tokens
        return np.arange(tokens.shape[-1]) < self.rollouts.lengths[..., None]


class TracePool:
    """A bounded pool of groups that were informative: whose rewards differ, so that advantages are not 0.

    Groups are drawn by `rl.replay.priorities`.  The score is the unbiased variance of a group's rewards: for
    rewards of 0 and 1 that is a quarter of `difficulty.learnability`.  Staleness is how many epochs ago a
    group was last trained on.  A group comes up once an epoch at most.

    Args:
      options: of the agent's sampler; its group size and token limit are those of every group.
      prompt_limit: most tokens of a prompt.
      capacity: most groups kept, at least 1; those of highest score stay, of equal ones the newer.
      max_age: epochs after which a group leaves: one sampled in epoch e is last drawn in e + max_age.
      staleness_share: part of the priority that is staleness.
    """

    def __init__(
        self,
        options: SamplingParams,
        prompt_limit: int,
        capacity: int,
        max_age: int,
        staleness_share: float = 0.5,
    ):
        self._prompt_limit, self._capacity = prompt_limit, capacity
        self._max_age, self._staleness_share = max_age, staleness_share
        self._rollouts = Rollouts.empty([], options)
        self._rewards = np.zeros((0, options.group_size))
        # Of each group the epoch in which it was sampled, and that in which it was last trained on.
        self._sampled, self._used = np.zeros((2, 0), np.int32)

    def __len__(self) -> int:
        return len(self._rollouts)

    def add(self, rollouts: Rollouts, rewards: np.ndarray, epoch: int) -> None:
        """Takes up the informative groups among those that an epoch has sampled and trained on.

        Args:
          rollouts: of T tasks, with the log-probs of the agent that sampled them.
          rewards: (T, g).
        """
        rows = np.flatnonzero(~zero_variance(rewards))
        self._rollouts = Rollouts.one_after_the_other([self._rollouts, rollouts.take(rows)])
        self._rewards = np.concatenate([self._rewards, rewards[rows]])
        now = np.full(len(rows), epoch, np.int32)
        self._sampled = np.concatenate([self._sampled, now])
        self._used = np.concatenate([self._used, now])

    def trim(self, epoch: int) -> None:
        """Lets go of what is too old for `epoch`, and of the least worth of what is then too many."""
        self._keep(np.flatnonzero(epoch - self._sampled <= self._max_age))
        unknown = np.full(len(self), np.nan)  # no group leaves for being solved
        self._keep(replay.survivors(unknown, self._scores(), capacity=self._capacity))

    def choose(self, rng: np.random.Generator, count: int, epoch: int) -> Traces:
        """At most `count` groups to train on now: of earlier epochs, not too old, not yet used in this."""
        fit = np.flatnonzero((self._used < epoch) & (epoch - self._sampled <= self._max_age))
        weights = replay.priorities(
            self._scores()[fit], epoch - self._used[fit], staleness_share=self._staleness_share
        )
        rows = fit[replay.draw(rng, weights, count)]
        self._used[rows] = epoch
        ages = epoch - self._sampled[rows]
        return Traces(self._rollouts.take(rows), self._rewards[rows], ages)

    def state(self) -> dict[str, np.ndarray]:
        """The pool as arrays of `capacity` rows, whose shapes depend on the settings alone.

        Raises ValueError where the pool holds more than that: it is to be trimmed first.
        """
        count, pad = len(self), self._capacity - len(self)
        if pad < 0:
            raise ValueError(f"{count} groups: expected at most {self._capacity}, see `trim`")
        prompts, lengths = pad_rows(self._rollouts.prompts, self._prompt_limit, self._capacity)
        rows = {
            "tokens": self._rollouts.tokens,
            "lengths": self._rollouts.lengths,
            "logprobs": self._rollouts.logprobs,
            "done": self._rollouts.done,
            "rewards": self._rewards,
            "sampled": self._sampled,
            "used": self._used,
        }
        arrays = {name: np.pad(x, [(0, pad), *[(0, 0)] * (x.ndim - 1)]) for name, x in rows.items()}
        # Which rows are groups: a prompt has at least one token.
        return arrays | {"prompts": prompts, "prompt_lengths": lengths}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Inverse of `state`."""
        rows = np.flatnonzero(state["prompt_lengths"])
        prompts = [state["prompts"][row, : state["prompt_lengths"][row]].tolist() for row in rows]
        arrays = (state[name][rows] for name in ("tokens", "lengths", "logprobs", "done"))
        self._rollouts = Rollouts(prompts, *arrays)
        self._rewards = state["rewards"][rows]
        self._sampled, self._used = state["sampled"][rows], state["used"][rows]

    def _scores(self) -> np.ndarray:
        """(N,) unbiased variances of the groups' rewards."""
        return self._rewards.var(axis=1, ddof=1) if len(self) else np.zeros(0)

    def _keep(self, rows: np.ndarray) -> None:
        self._rollouts, self._rewards = self._rollouts.take(rows), self._rewards[rows]
        self._sampled, self._used = self._sampled[rows], self._used[rows]


def replay_metrics(replayed: Sequence[Traces], cap: float) -> dict[str, float]:
    """What an epoch has replayed.

    Args:
      replayed: of each update, weighed.
      cap: of the weights.
    Returns:
      "replayed_groups"; and where there are some "replay_age_mean" in epochs, over groups, and over tokens
      "replay_weight_mean" and "replay_truncated_share", the share whose weight is the cap.
    """
    metrics: dict[str, float] = {"replayed_groups": sum(map(len, replayed))}
    if metrics["replayed_groups"]:
        weights = np.concatenate([part.weights[part.mask] for part in replayed], dtype=float)
        metrics["replay_age_mean"] = float(np.concatenate([part.ages for part in replayed]).mean())
        metrics["replay_weight_mean"] = float(weights.mean())
        # The cap went through a logarithm and float32.
        metrics["replay_truncated_share"] = float((weights >= cap * (1 - 1e-6)).mean())
    return metrics

"""An agent that is a table, and what a perfect curriculum does for it under two optimisers.

The paper's argument for p = 1/2 is about the size of gradients.  AdamW divides sizes out.  Here both can be
seen without the noise of a network: the agent has a softmax for each tool over what a call to it may come
to, a task is a chain of calls that must all be right, and the curriculum is told the success rates.
"""

from __future__ import annotations

import dataclasses

import numpy as np

ADAM, SGD = "adam", "sgd"


@dataclasses.dataclass(frozen=True)
class World:
    """Tools, and the agent's first beliefs about each.

    Attributes:
      tools: how many.
      right, mistaken: probabilities that a call comes to the right result, and to one fixed wrong one; the
        rest is spread over the `others`.
      others: number of other results.
      depths: frequencies of chains of 1, 2, ... calls in what a frozen simulator writes.
    """

    tools: int = 12
    right: float = 0.42
    mistaken: float = 0.5
    others: int = 3
    depths: tuple[float, ...] = (0.03, 0.05, 0.08, 0.14, 0.2, 0.5)

    def logits(self) -> np.ndarray:
        """(tools, 2 + others) log-probabilities before training; the right result is the first."""
        rest = (1.0 - self.right - self.mistaken) / self.others
        row = np.log([self.right, self.mistaken, *[rest] * self.others])
        return np.tile(row, (self.tools, 1))


def accuracy(probabilities: np.ndarray, depths: int) -> float:
    """Expected success rate on uniform chains, averaged over depths 1 .. `depths`; exact.

    probabilities: (tools, results) of the agent; the first result of each tool is the right one.
    """
    return float(np.mean(probabilities[:, 0].mean() ** np.arange(1, depths + 1)))


def simulate(
    world: World,
    curriculum: bool,
    optimizer: str,
    learning_rate: float,
    steps: int = 20,
    tasks: int = 64,
    group: int = 10,
    delay: int = 4,
    alpha: float = 0.5,
    seed: int = 0,
) -> np.ndarray:
    """Held-out accuracy of the tabular agent before each policy-gradient step.

    Each step has `tasks` groups of `group` rollouts; the advantage is the reward less the group's mean, the
    gradient a mean over calls.

    Args:
      curriculum: from step `delay` on, tasks have the depth whose success rate is closest to `alpha`, or
        one of its neighbours; otherwise, and until then, depths are `world.depths`.
      optimizer: ADAM (b1 0.9, b2 0.999) or SGD.
    Returns:
      (steps,) accuracies.
    """
    if optimizer not in (ADAM, SGD):
        raise ValueError(f"optimizer {optimizer!r}: expected {ADAM!r} or {SGD!r}")
    rng, logits = np.random.default_rng(seed), world.logits()
    most = len(world.depths)
    frequencies = np.asarray(world.depths, float) / np.sum(world.depths)
    first, second = np.zeros_like(logits), np.zeros_like(logits)
    curve = []
    for step in range(steps):
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        curve.append(accuracy(p, most))
        if curriculum and step >= delay:
            rates = p[:, 0].mean() ** np.arange(1, most + 1)
            middle = int(np.argmin(np.abs(rates - alpha))) + 1
            chosen = np.clip(middle + rng.integers(-1, 2, tasks), 1, most)
        else:
            chosen = rng.choice(most, tasks, p=frequencies) + 1
        gradient = policy_gradient(p, chosen, group, rng)
        if optimizer == SGD:
            logits = logits + learning_rate * gradient
            continue
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        mean, square = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.999 ** (step + 1))
        logits = logits + learning_rate * mean / (np.sqrt(square) + 1e-8)
    return np.array(curve)


def policy_gradient(
    p: np.ndarray, depths: np.ndarray, group: int, rng: np.random.Generator
) -> np.ndarray:
    """One batch's estimate of the gradient of the mean reward with respect to the logits.

    Args:
      p: (tools, results) the agent's probabilities.
      depths: (tasks,) calls of each task; tools are drawn uniformly.
      group: rollouts a task.
    Returns:
      (tools, results): Σ A ∂log p over all calls, divided by their number.
    """
    gradient, calls = np.zeros_like(p), 0
    for depth in depths:
        tools = rng.integers(len(p), size=depth)
        draws = rng.random((group, depth, 1))
        results = np.minimum((draws > p[tools].cumsum(axis=1)).sum(axis=-1), p.shape[1] - 1)
        reward = (results == 0).all(axis=1).astype(float)
        advantage = reward - reward.mean()
        for place, tool in enumerate(tools):
            scores = np.eye(p.shape[1])[results[:, place]] - p[tool]
            gradient[tool] += advantage @ scores
        calls += group * depth
    return gradient / calls

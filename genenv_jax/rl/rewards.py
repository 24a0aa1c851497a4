"""The simulator's reward: Eq. 2 and 3 of arXiv 2512.19682, the difficulty filter and RWR weights.

Each benchmark defines the agent's reward, Eq. 1 (`Benchmark.verdict`).  Pure NumPy on the host: there are
only a handful of numbers per epoch.
"""

import math

import numpy as np


def success_rate(successes: int, attempts: int) -> float:
    """p̂ = k / n of Eq. 2; NaN without attempts."""
    return successes / attempts if attempts else math.nan


def curriculum_reward(p_hat, alpha: float, beta: float) -> np.ndarray:
    """R_env(p̂) = exp(-β (p̂ - α)²), Eq. 3: 1 at p̂ = α and less on either side."""
    return np.exp(-beta * np.square(np.asarray(p_hat, float) - alpha))


def difficulty_filter(p_hat, alpha: float, k_min: float) -> np.ndarray:
    """True where a batch enters the simulator's update: |p̂ - α| <= k_min (False for NaN).

    The comparison allows for the rounding of k / n, so that 4 of 10 is inside 0.5 ± 0.1.
    """
    return np.abs(np.asarray(p_hat, float) - alpha) <= k_min + 1e-9


def rwr_weights(rewards, temperature: float) -> np.ndarray:
    """w_i ∝ exp(λ R_env,i) with λ = `temperature`, normalised to a mean of 1 over the records.

    A mean of 1 (rather than a sum of 1) makes the loss independent of the number of records.
    """
    rewards = np.asarray(rewards, float)
    if rewards.size == 0:
        return rewards
    weights = np.exp(temperature * (rewards - rewards.max()))
    return weights / weights.mean()


def effective_sample_size(weights) -> float:
    """(Σw)² / Σw²: how many equally weighted records would carry as much information."""
    weights = np.asarray(weights, float)
    return float(weights.sum() ** 2 / np.square(weights).sum()) if weights.size else 0.0

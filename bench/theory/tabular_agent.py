"""What a perfect curriculum gains a tabular agent under Adam and under plain gradient descent.

    python -m bench.theory.tabular_agent

Prints the mean held-out accuracy over 20 steps (its area under the curve) on a frozen simulator's tasks and
on the curriculum's, for several learning rates, five seeds each.  Half a minute on a core.
"""

import numpy as np

from bench.theory import tabular

SEEDS = 5
RATES = {tabular.ADAM: (0.03, 0.1, 0.3), tabular.SGD: (5.0, 10.0, 20.0, 40.0)}


def main() -> None:
    """Prints a Markdown table."""
    print("| right at the start | optimiser | learning rate | frozen | curriculum | ratio |")
    print("|---:|---|---:|---:|---:|---:|")
    for right in (0.32, 0.42):
        world = tabular.World(right=right)
        for optimizer, rates in RATES.items():
            for rate in rates:
                frozen, chosen = (
                    np.mean(
                        [
                            tabular.simulate(world, curriculum, optimizer, rate, seed=seed)
                            for seed in range(SEEDS)
                        ]
                    )
                    for curriculum in (False, True)
                )
                print(
                    f"| {right} | {optimizer} | {rate:g} | {frozen:.3f} | {chosen:.3f} | "
                    f"{chosen / frozen:.2f} |"
                )


if __name__ == "__main__":
    main()

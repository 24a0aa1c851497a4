"""Plausible runs without a model; as a script, a stand-in for `genenv_jax.main`.

It reads only the flags that `suites.arm` sets, the seed, the epochs and the workdir.  It continues an
interrupted run, as the real one does, and appends a line to the suite's events.txt at start and end.
"""

import json
import pathlib
import signal
import sys
import time

import numpy as np

SPLITS = {"in_distribution": (0.2, 1.0), "deeper": (0.05, 0.5), "renamed": (0.15, 0.8)}


def records(gain: float, seed: int, epochs: int):
    """Lines of metrics.jsonl: held-out scores rise by `gain` from a start set by the seed."""
    shared, own = np.random.default_rng([seed]), np.random.default_rng([seed, int(gain * 1e4)])
    base, speed = shared.normal(0, 0.02), 1 + own.normal(0, 0.05)
    rollouts = 0
    for step in range(epochs + 1):
        done = (1 - np.exp(-2.5 * step / epochs)) / (1 - np.exp(-2.5)) * speed
        line: dict[str, float] = {"step": step}
        for split, (start, scale) in SPLITS.items():
            for mode, shift in (("greedy", 0.06), ("sampled", 0.0)):
                score = start + shift + base + scale * gain * done + own.normal(0, 0.01)
                line[f"eval/{split}/{mode}/accuracy"] = float(np.clip(score, 0, 1))
                if split == "in_distribution":
                    for depth in range(1, 7):
                        part = score * (2.1 - 0.3 * depth) + own.normal(0, 0.01)
                        line[f"eval/{split}/{mode}/depth_{depth}"] = float(np.clip(part, 0, 1))
        if step:
            rollouts += 2560 - int(own.integers(0, 200))
            p_hat = 0.2 + 0.3 * min(1, gain * 4) * done + own.normal(0, 0.02)
            line |= {
                "tokens/total": 60 * rollouts + 17 * step,
                "rollouts/total": rollouts,
                "agent/reward_mean": float(p_hat),
                "agent/response_length_mean": float(20 + 8 * gain * done + own.normal(0, 0.3)),
                "agent/zero_variance_share": float(0.6 - 0.5 * gain * done),
                "generated/p_hat_mean": float(p_hat),
                "generated/p_rerolled_mean": float(p_hat + own.normal(0, 0.02)),
                "generated/p_hat_in_band": float(0.2 + 0.3 * gain * done),
                "generated/solved_all": int(own.integers(20, 40)),
                "generated/solved_none": int(own.integers(30, 90)),
                "generated/task_length_mean": float(15 + 3 * done),
                "generated/difficulty_sd": float(1.5 - 0.4 * done),
                "generated/signature_entropy": float(3 - 0.3 * done),
                "generated/distinct_signatures": int(200 - 40 * done),
            }
        yield line


def write_run(directory: pathlib.Path, gain: float, seed: int, epochs: int = 4, change=lambda _: None):
    """Writes a whole run's files except its tasks; returns its lines, as `change` leaves them."""
    directory.mkdir(parents=True)
    config = {"seed": seed, "epochs": epochs, "benchmark": {"name": "embedded"}}
    config["curriculum"] = {"alpha": 0.5, "k_min": 0.1}
    (directory / "config.json").write_text(json.dumps(config))
    lines = list(records(gain, seed, epochs))
    change(lines)
    write_lines(directory, lines)
    timing = [{"step": line["step"], "seconds/interact": 6.0} for line in lines]
    (directory / "timing.jsonl").write_text("".join(json.dumps(t) + "\n" for t in timing))
    return lines


def accuracy_alone(lines) -> None:
    """Keeps only the step, the tokens and one accuracy: a `change` for `write_run`."""
    kept = ("step", "eval/in_distribution/sampled/accuracy", "tokens/total")
    lines[:] = [{k: v for k, v in line.items() if k in kept} for line in lines]


def write_lines(directory: pathlib.Path, lines) -> None:
    (directory / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))


def main() -> None:
    values = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:])
    gain, seed = float(values["config.agent.learning_rate"]), int(values["config.seed"])
    epochs, behaviour = int(values.get("config.epochs", 4)), values.get("config.model.path")
    directory = pathlib.Path(values["workdir"])
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "metrics.jsonl"
    written = path.read_text().count("\n") if path.exists() else 0

    def note(event):
        with (directory.parent.parent / "events.txt").open("a") as file:
            file.write(f"{time.monotonic()} {event} {directory.parent.name} {seed} {written}\n")

    note("start")
    print("words of the run\rthat overwrite \x1b[31meach other", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if behaviour == "fails":
        print("error: it was not to be")
        sys.exit(3)
    lines = list(records(gain, seed, epochs))
    for line in lines[written : len(lines) - (behaviour == "short")]:
        time.sleep(0.3 if behaviour == "slow" else 0.01)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
    note("end")


if __name__ == "__main__":
    main()

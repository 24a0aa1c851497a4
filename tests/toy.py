"""A benchmark on which a barely trained model succeeds about half of the time, so that a run of seconds
exercises every part: nearly any text is a task, and an answer succeeds if its length and the text's are
both even or both odd, which such a model cannot know."""

import numpy as np

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Benchmark, Episode, Rejection, Score, Task


class Toy(Benchmark):
    name = "toy"

    def __init__(self, num_seeds: int = 64, num_eval: int = 4):
        rng = np.random.default_rng(0)
        text = lambda: " ".join(rng.choice(["red", "blue", "green", "one", "two"], 4))  # noqa: E731
        self._seeds = [self.task(f"seed-{i}", text(), origin="seed") for i in range(num_seeds)]
        self._eval = [self.task(f"eval-{i}", text() + " ?", origin="eval") for i in range(num_eval)]

    def task(self, task_id, text, category="all", **fields):
        message = {"role": "user", "content": text}
        return Task(task_id, self.name, category, (message,), answer="even", **fields)

    def load(self, split):
        return {"seed": self._seeds, "eval": self._eval}[split]

    def simulator_messages(self, seed, statistics):
        rate = statistics.success_rate
        solved = "unknown" if rate is None else f"{rate:.1f}"
        return [{"role": "user", "content": f"{self.text(seed)}\n{solved}"}]

    def simulator_answer(self, task, seed=None):
        return self.text(task)

    def agent_answer(self, task):
        return "ok" if len(self.text(task)) % 2 == 0 else "yes"

    def parse(self, text, seed, task_id, generation):
        if len(text) % 7 == 0:
            return Rejection(base.UNPARSABLE, "a length that seven divides")
        return self.task(task_id, text, seed_id=seed.id, origin="generated", generation=generation)

    def canonical(self, task):
        return self.text(task)

    def verdict(self, task, answer):
        fits = (len(answer) + len(self.text(task))) % 2 == 0
        return Score(float(fits), fits, bool(answer), "" if fits else "odd")

    def aggregate(self, results):
        return {"accuracy": float(np.mean([score.success for _, score in results]))}


class Drawing(Toy):
    """Draws tasks itself and names their kinds."""

    difficulties = ("short", "long")

    def draw(self, rng, difficulty, task_id):
        words = " ".join(rng.choice(["red", "blue", "green"], 2 if difficulty == "short" else 5))
        return self.task(task_id, words, category=difficulty, origin="generated")

    def signature(self, task):
        return str(len(self.text(task)) % 3)

    def difficulty(self, task):
        return float(len(self.text(task).split()))


class Asking(Drawing):
    """Its prompts ask for a number of words."""

    def askable(self, seed):
        return (1, 2, 3)

    def simulator_messages(self, seed, statistics):
        wanted = statistics.difficulty and f"{statistics.difficulty} words"
        return (
            [{"role": "user", "content": wanted}] if wanted else super().simulator_messages(seed, statistics)
        )


TURNS = 3


class Talk(Episode):
    """An episode of `Talking`: TURNS answers, each told how long it was; an empty one ends it."""

    def __init__(self, benchmark, task):
        super().__init__(benchmark.agent_messages(task), TURNS)
        self._benchmark, self._task = benchmark, task

    def take(self, answer):
        if "!" in answer:
            return Score(0.0, False, False, base.ENVIRONMENT_ERROR)
        return [{"role": "user", "content": str(len(answer))}] if answer else self.stop()

    def stop(self):
        return self._benchmark.score(self._task, "".join(self.answers))


class Talking(Drawing):
    """Like the toy, but an answer consists of several turns, and "!" breaks the environment."""

    episodes = True

    def episode(self, task):
        return Talk(self, task)

    def agent_answers(self, task):
        return ["ok", "so", "ok" if len(self.text(task)) % 2 == 0 else "yes"]

"""A benchmark of games: say the number that the game shows, three times; imported without JAX too."""

import os
import time

from genenv_jax.benchmarks.base import Benchmark, Episode, Score, Task

STEPS = 3


class Game(Episode):
    """Ends after STEPS answers, or after the first "stop"; some answers are mischief."""

    def __init__(self, task):
        super().__init__(max_turns=STEPS)
        self.task, self.right = task, 0

    def messages(self):
        return [{"role": "user", "content": f"{self.task.id} turn {len(self.answers)} right {self.right}"}]

    def take(self, answer):
        if answer == "hang":
            time.sleep(600)
        if answer == "die":
            os._exit(1)
        if answer == "raise":
            raise KeyError("what an answer can do")
        self.right += answer == f"{self.task.answer}"
        return Score(0.0, False, False, "stopped", {"turns": len(self.answers)}) if answer == "stop" else []

    def stop(self):
        won = self.right == STEPS
        return Score(float(won), won, True, "" if won else "lost", {"turns": len(self.answers)})


class Games(Benchmark):
    """Tasks "game-..." are played; others are answered once, with their number."""

    name = "games"

    def __init__(self, isolated=False):
        self.isolated = isolated

    def task(self, task_id, number, category="all"):
        message = ({"role": "user", "content": task_id},)
        return Task(task_id, self.name, category, message, answer=number, origin="eval")

    def load(self, split):
        return []

    def is_interactive(self, task):
        return task.id.startswith("game")

    def episode(self, task):
        if task.answer == "broken":
            raise OSError("a game that does not open")
        return Game(task)

    def verdict(self, task, answer):
        right = answer == f"{task.answer}"
        return Score(float(right), right, True, "" if right else "wrong")

    def aggregate(self, results):
        successes = [score.success for _, score in results]
        return {"accuracy": sum(successes) / len(successes)}


class Scripted:
    """A chat model that answers with f(text of the last message, sample or turn)."""

    continues = False
    transcripts = False

    def __init__(self, script, samples=1, max_concurrent=4, limit=10**6):
        self.script, self.samples, self.max_concurrent, self.limit = (script, samples, max_concurrent, limit)
        self.sizes = []

    def answer(self, conversations, on_completion, turn=None):
        from genenv_jax.sampling.sampler import Completion  # imports JAX, which workers must not

        if turn is not None:
            self.sizes.append(len(conversations))
        for i, messages in reversed(list(enumerate(conversations))):
            for j in range(self.samples) if turn is None else (0,):
                text = self.script(messages[-1]["content"], j if turn is None else turn)
                on_completion(Completion(i, j, text, True))

    def fits(self, conversation):
        return len(conversation[-1]["content"]) < self.limit

    def text(self, completion):
        return completion

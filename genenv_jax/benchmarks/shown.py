"""What stands beside a task's answers in records: its request and its reference answer, in words."""

from __future__ import annotations

from genenv_jax.benchmarks.base import Benchmark, Task


def request_text(benchmark: Benchmark, task: Task) -> str:
    """What a task asks for: its last message; of a conversation the requests of all its turns."""
    message = task.messages[-1]["content"] if task.messages else ""
    wording = benchmark.text(task)
    # The wording of a conversation goes on where its first message ends; a game's is not for readers.
    return wording if wording.startswith(message) else message


def reference_text(benchmark: Benchmark, task: Task) -> str:
    """A task's own answer as the agent would write it; of an episode its answers, a line each."""
    if benchmark.is_interactive(task):
        return "\n".join(benchmark.agent_answers(task))
    return benchmark.agent_answer(task)

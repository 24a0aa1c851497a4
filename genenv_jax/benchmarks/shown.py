"""What records show next to a task's answers: its request and its reference answer, as text."""

from genenv_jax.benchmarks.base import Benchmark, Task


def request_text(benchmark: Benchmark, task: Task) -> str:
    """What a task asks for: its last message, or for a conversation the requests of all turns."""
    message = task.messages[-1]["content"] if task.messages else ""
    wording = benchmark.text(task)
    # A conversation's wording begins with its first message; a game's wording is not meant for people.
    return wording if wording.startswith(message) else message


def reference_text(benchmark: Benchmark, task: Task) -> str:
    """The reference answer as the agent would write it; for an episode, one answer a line."""
    if benchmark.is_interactive(task):
        return "\n".join(benchmark.agent_answers(task))
    return benchmark.agent_answer(task)

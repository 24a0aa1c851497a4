"""What an episode costs when each turn reads only what is new, beside reading the conversation anew.

    python bench/episodes.py
    python bench/episodes.py --turns=4,10 --episodes=8 --model=DIR

plays the same episodes both ways, in turns, in one process: the agent answers with a fixed number of tokens,
and reads an observation of a fixed number.  Prints tokens that pass through the model per episode, CPU
seconds of the process and episodes a minute of wall time.  By default the model is a small random one.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

_ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

import jax  # noqa: E402

from bench.arguments import numbers  # noqa: E402
from genenv_jax.models.config import TransformerConfig  # noqa: E402
from genenv_jax.models.language_model import LanguageModel  # noqa: E402
from genenv_jax.models.transformer import init_params  # noqa: E402
from genenv_jax.sampling.draw import SamplingParams  # noqa: E402
from genenv_jax.sampling.engine import Engine  # noqa: E402
from genenv_jax.sampling.episodes import EpisodeEngine, Row  # noqa: E402
from genenv_jax.typing import Params  # noqa: E402

_SMALL = TransformerConfig(
    vocab_size=512, hidden_size=256, intermediate_size=512, num_layers=4, num_heads=4, num_kv_heads=2,
    head_dim=64, unroll_layers=True,
)  # fmt: skip


@dataclasses.dataclass
class Fixed:
    """Environments that answer at once, with the same number of tokens, so many times."""

    turns: int
    tokens: int

    def __post_init__(self) -> None:
        self._taken: dict[Row, int] = {}
        self._replies: dict[Row, list[int] | None] = {}

    def answer(self, row: Row, tokens: Sequence[int], done: bool) -> None:
        taken = self._taken[row] = self._taken.get(row, 0) + 1
        self._replies[row] = [1 + taken % 7] * self.tokens if taken < self.turns else None

    def replies(self, wait: bool) -> Mapping[Row, Sequence[int] | None]:
        replies, self._replies = self._replies, {}
        return replies

    def no_room(self, row: Row) -> None:
        raise AssertionError("there is room for all turns")


def measure(play: Callable[[], int]) -> tuple[float, float, int]:
    """CPU seconds, wall seconds and tokens of the second of two calls; the first compiles."""
    play()
    cpu, wall = time.process_time(), time.perf_counter()
    tokens = play()
    return time.process_time() - cpu, time.perf_counter() - wall, tokens


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=numbers, default=[4, 10, 30], help="answers of an episode")
    parser.add_argument("--model", default="", help="a directory; by default a small random model")
    for name, default, text in (
        ("episodes", 16, "played side by side"),
        ("prompt", 256, "tokens before the first answer"),
        ("answer", 16, "tokens of an answer"),
        ("observation", 32, "tokens of what follows it"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=text)
    options = parser.parse_args()
    config, params = _model(options.model)
    answer, observed, start, n = (
        options.answer,
        options.observation,
        options.prompt,
        options.episodes,
    )
    prompts = [np.random.default_rng(i).integers(1, 500, start).tolist() for i in range(n)]
    print(f"`{' '.join(['python', 'bench/episodes.py', *sys.argv[1:]])}`: {n} episodes, ", end="")
    print(f"prompt {start}, answers {answer}, observations {observed} tokens\n")
    print("| turns | | tokens an episode | CPU s | episodes a minute |\n|---:|---|---:|---:|---:|")
    for turns in options.turns:
        length = turns * (answer + observed)
        sampling = SamplingParams(answer, 1, (config.vocab_size - 1,), temperature=0.0)
        engine = Engine(config, sampling, n, (start,), episode=length)

        def continued(engine=engine, turns=turns) -> int:
            environments = Fixed(turns, observed)
            found = EpisodeEngine(engine)(params, prompts, environments, jax.random.key(0))
            return found.token_count

        def anew(sampling=sampling, turns=turns) -> int:
            conversations, tokens = [list(prompt) for prompt in prompts], 0
            for turn in range(turns):
                width = (start + turn * (answer + observed),)
                found = Engine(config, sampling, n, width)(params, conversations, jax.random.key(0))
                tokens += found.token_count
                for i, conversation in enumerate(conversations):
                    conversation += [*found.completion(i, 0), *[1 + (turn + 1) % 7] * observed]
            return tokens

        for name, play in (("continued", continued), ("read anew", anew)):
            cpu, wall, tokens = measure(play)
            cells = f"{tokens / n:,.0f} | {cpu:.2f} | {60 * n / wall:.1f}"
            print(f"| {turns} | {name} | {cells} |", flush=True)


def _model(path: str) -> tuple[TransformerConfig, Params]:
    if path:
        model = LanguageModel.load(path, dtype="float32", unroll_layers=True)
        return model.config, model.load_params()
    boxed = init_params(_SMALL, jax.random.key(0))
    is_box = lambda x: hasattr(x, "unbox")  # noqa: E731
    return _SMALL, jax.tree.map(lambda x: x.unbox(), boxed, is_leaf=is_box)


if __name__ == "__main__":
    main()

"""Supervised training before the co-evolution, of a model made from scratch or of a given one."""

import collections
import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genenv_jax.benchmarks.base import Message
from genenv_jax.benchmarks.demonstrations import SIMULATOR, Completion, Demonstration, Transcript
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.lora import join
from genenv_jax.models.scoring import CompletionBatch, score_completions
from genenv_jax.parallel import processes
from genenv_jax.players import learner
from genenv_jax.players.lengths import LimitsConfig
from genenv_jax.players.offload import place
from genenv_jax.players.optimizer import OptimizerConfig, make_muon, make_optimizer
from genenv_jax.run.checkpoint import Checkpoints
from genenv_jax.run.programs import compile_in_parallel
from genenv_jax.run.progress import Progress
from genenv_jax.sampling.sampler import bucket, pad_rows
from genenv_jax.settings import Settings, choice, within
from genenv_jax.typing import Array, Params

# Completions of a simulator's prompt.  Not `simulator.variations`, which some arms set: all start alike.
VARIATIONS = 4
_WIDTHS = (32, 128, 256, 512)  # of completions
_NEAR_COPIES = 16  # of a token's row of the output matrix; as many mean that it was never trained
Shape = tuple[int, int, int]  # prompt width, completion width, number of completions


class Example(NamedTuple):
    """Tokens of a prompt and of its completions; the mask is true where the player wrote the token."""

    prompt: Sequence[int]
    completions: Sequence[Sequence[int]]
    loss_mask: Sequence[Sequence[bool]]


@dataclasses.dataclass(frozen=True)
class WarmStartConfig(Settings):
    """`config.warm_start`: supervised training before the co-evolution.

    Attributes:
      steps: number of training steps; 0: no warm start.
      batch_size: completions per step; with m < 4 micro-batches, a simulator's step has up to 4 / m times as
        many.
      learning_rate: peak; it warms up over a fifteenth of the steps, at most 50, then follows a cosine to 0.
      micro_batches: micro-batches per step, of equally many prompts, whose gradients accumulate; fewer for
        prompts with several completions, such as the simulator's.
      validation_share: share of the seed tasks held back; the step with the lowest loss on them is kept.
      validate_every: steps between two measurements of the validation loss.
      roles: players that are trained: "both" together, or the "simulator" alone.  The agent then starts from
        the given model, and each player has its own base.

    A model made from scratch trains all parameters on endless demonstrations.  A given one (`model.path`)
    trains on demonstrations of the seed tasks, in as many passes as `steps` batches need; with `lora.rank`,
    only its adapters train.  Its steps alternate between agent and simulator.  Only a given model uses the
    last four settings.
    """

    steps: int = within(0, 0)
    batch_size: int = within(64, 1, 2**16)
    learning_rate: float = within(3e-3, 0)
    micro_batches: int = within(1, 1, 2**16)
    validation_share: float = within(0.1, 0, 0.5)
    validate_every: int = within(20, 1)
    roles: str = choice("both", SIMULATOR)

    def __post_init__(self):
        super().__post_init__()
        if self.batch_size % self.micro_batches:
            raise ValueError(
                f"micro_batches = {self.micro_batches}: expected a divisor of batch_size = {self.batch_size}"
            )


def train(
    c: WarmStartConfig,
    limits: LimitsConfig,
    pairs: Iterable[tuple[Sequence[Message], Completion]],
    model: LanguageModel,
    params: Params,
) -> Params:
    """Trains a model made from scratch: `steps` steps of maximum likelihood with Muon, each pair used once.

    pairs: (messages, completion); those that exceed the limits are left out.

    Returns the trained parameters, on the host.  Raises ValueError if the final loss is not finite.
    """
    if not c.steps:
        return params
    optimizer = make_muon(c.learning_rate, _optimizer(c, weight_decay=0.1))
    state = learner.init_state(params, optimizer)
    step = learner.make_supervised_step(model.config, optimizer)
    prompts = _prompt_widths(limits)
    longest = max(limits.agent_response, limits.agent_episode, limits.simulator_response)

    def encoded() -> Iterator[Example]:
        for messages, completion in pairs:
            example = _encode(model, messages, (completion,))
            if len(example.prompt) <= prompts[-1] and len(example.completions[0]) <= longest:
                yield example

    widths = (longest + 1) // 2, longest  # separate short completions: much less padding

    def shape(example: Example) -> Shape:
        width = bucket(len(example.completions[0]), widths, "a completion")
        return bucket(len(example.prompt), prompts, "a prompt"), width, 1

    episodes = bool(limits.agent_episode)
    batches = _alike(encoded(), shape, lambda shape: c.batch_size, episodes)
    metrics: dict[str, Array] = {}

    def compile_for(prompt: int, width: int) -> None:
        step.lower(state, {}, _batch([], (prompt, width, 1), c.batch_size, episodes)).compile()

    chains = [[functools.partial(compile_for, *shape)] for shape in itertools.product(prompts, widths)]
    compile_in_parallel(chains, contextlib.nullcontext, side_by_side=True, done=lambda: None)
    with Progress(0).phase("train base model", c.steps, "steps") as phase:
        for batch in itertools.islice(batches, c.steps):
            before, (state, metrics) = metrics, step(state, {}, batch)
            jax.block_until_ready(before)  # count a step only when it is done
            phase.advance()
    _check_finite(float(metrics["loss"]))
    return jax.device_get(state.params)


@dataclasses.dataclass
class FineTuned:
    """The result of `fine_tune`.

    Attributes:
      params: the trained parameters at the best step, on the devices or in host memory.
      records: one per measurement: "step", the training "loss" of the steps before it, and
        "validation/<role>"; losses in nats a token.
      best: the best step.
    """

    params: Params
    records: list[dict[str, float]]
    best: int


def fine_tune(
    c: WarmStartConfig,
    limits: LimitsConfig,
    moments: str,
    model: LanguageModel,
    params: Params,
    frozen: Params,
    put: Callable[[Any], Any],
    demonstrations: Sequence[Demonstration],
    validation: Sequence[Demonstration],
    order: np.random.Generator,
    checkpoints: Checkpoints,
) -> FineTuned:
    """Trains a given model: maximum likelihood on the completions of demonstrations, in several passes.

    Steps alternate between agent and simulator and have about equally many completions.  An agent's answer
    may be a hundredth of a task's length, so fewer answers would give a noisy gradient.  A batch holds
    sequences of similar length: prompts are padded to one of `limits.prompt_buckets`, completions to
    one of a few widths.  Demonstrations that exceed their role's limits are left out.  A checkpoint is saved
    after each measurement; a restart with the same arguments continues from it to the same numbers.

    Args:
      moments: type of the optimiser's moments.
      params: trained parameters, float32: all, or the adapters.  Donated.
      frozen: the other parameters.
      order: shuffles each pass.
    Raises:
      ValueError: nothing fits the limits, adapters would have to write special tokens that the model was
        never trained on, a loss is not finite, or the first validation after the start shows a higher loss.
    """
    progress = Progress(0, silent=not processes.is_writer())
    examples, left_out = _examples(model, limits, demonstrations)
    held_back, _ = _examples(model, limits, validation)
    if not examples:
        raise ValueError(
            f"none of {len(demonstrations)} demonstrations fits config.limits: expected longer limits"
        )
    if frozen:
        _check_special_tokens(model, frozen, examples)
    shapes = _Shapes(limits)
    part = c.batch_size // c.micro_batches

    def size(shape: Shape) -> int:
        return part * math.ceil(c.micro_batches / shape[2])

    for role, of in examples.items():
        completions = sum(len(e.completions) for e in of)
        prompts = c.steps / len(examples) * np.mean([size(shapes(e)) for e in of])
        progress.line(
            f"warm start  {len(of)} prompts of the {role} with {completions} completions; "
            f"{prompts / len(of):.1f} passes"
        )
    progress.line(
        f"warm start  {left_out} completions too long; "
        f"{sum(map(len, held_back.values()))} prompts for validation"
    )
    optimizer = make_optimizer(c.learning_rate, _optimizer(c), moments)
    state = learner.init_state(params, optimizer, copy=False)
    steps = {
        parts: learner.make_supervised_step(model.config, optimizer, parts)
        for parts in {size(shapes(e)) // part for of in examples.values() for e in of}
    }
    of_roles = [_alike(_passes(of, order), shapes, size, shapes.episodes) for of in examples.values()]
    batches = itertools.chain.from_iterable(zip(*of_roles, strict=True))
    measure = _validation(held_back, shapes, part, model, frozen, put)
    saved = checkpoints.restore({"state": state, "best": state.params})
    if saved:
        state, host = saved[0]["state"], saved[1]
        result = FineTuned(place(saved[0]["best"], on_device=False), host["records"], host["best"])
        done, lowest = host["done"], host["lowest"]
        collections.deque(itertools.islice(batches, done), maxlen=0)
        progress.line(f"warm start  continues after step {done}/{c.steps}")
    else:
        with progress.phase("warm start, validation"):
            losses = measure(state.params)
        progress.line(f"warm start  step 0/{c.steps}{_shown(losses)}")
        result = FineTuned(_kept(state.params), [{"step": 0} | losses], 0)
        done, lowest = 0, _mean(losses)
    while done < c.steps:
        stretch = min(c.validate_every, c.steps - done)
        trained = []
        with progress.phase("warm start", stretch, "steps") as phase:
            for batch in itertools.islice(batches, stretch):
                step = steps[len(batch.prompts) // part]
                state, metrics = step(state, frozen, put(batch))
                trained.append(metrics["loss"])
                jax.block_until_ready(trained[-2:-1])  # count a step only when it is done
                phase.advance()
            loss = float(np.mean(processes.fetch(trained)))
        done += stretch
        with progress.phase("warm start, validation"):
            losses = measure(state.params)
        _check_finite(loss, *losses.values())
        result.records.append({"step": done, "loss": loss} | losses)
        progress.line(f"warm start  step {done}/{c.steps}  loss {loss:.3f}{_shown(losses)}")
        now = _mean(losses)
        if done == stretch and now > lowest:
            raise ValueError(
                f"the warm start's validation loss rose from {lowest:.3f} to {now:.3f} in its first "
                f"{done} steps: lower config.warm_start.learning_rate = {c.learning_rate}"
            )
        if now < lowest or not losses:  # without validation, keep the last step
            result.params, result.best, lowest = _kept(state.params), done, now
        if done < c.steps:
            trees = {"state": state, "best": place(result.params, on_device=True)}
            host = {"records": result.records, "best": result.best, "done": done, "lowest": lowest}
            checkpoints.save(done, trees, host)
    return result


def _optimizer(c: WarmStartConfig, **changes: float) -> OptimizerConfig:
    return OptimizerConfig(min(50, c.steps // 15), c.steps, b2=0.98, **changes)


def _check_finite(*losses: float) -> None:
    for loss in losses:
        if not math.isfinite(loss):
            raise ValueError(f"the warm start diverged (loss {loss}): lower config.warm_start.learning_rate")


def _check_special_tokens(
    model: LanguageModel, frozen: Params, examples: Mapping[str, Sequence[Example]]
) -> None:
    """Raises ValueError if completions have special tokens that the frozen model was never trained on.

    Training without them leaves the same row of the output matrix to all such tokens, so no adapter can
    prefer one.  In Qwen2.5-Coder-0.5B-Instruct `<tool_call>` has 2,400 near-copies, `<|im_end|>` none.
    """
    written = {
        token
        for example in itertools.chain.from_iterable(examples.values())
        for rows in zip(example.completions, example.loss_mask, strict=True)
        for token in itertools.compress(*rows)
    }
    ids = sorted(written & model.tokenizer.added_tokens_decoder.keys())
    copies = processes.fetch(_near_copies(frozen, jnp.array(ids, int))) if ids else ()
    untrained = [
        str(model.tokenizer.added_tokens_decoder[i])
        for i, n in zip(ids, copies, strict=True)
        if n >= _NEAR_COPIES
    ]
    if untrained:
        raise ValueError(
            f"{model.path}: the demonstrations have {', '.join(untrained)}, which the model was never "
            "trained on, so adapters cannot learn to write them; expected config.benchmark.tools_in = 'text' "
            "or config.warm_start.roles = 'simulator', or config.lora.rank = 0"
        )


@jax.jit
def _near_copies(params: Params, ids: Array) -> Array:
    """The number of other rows of the output matrix within .05 of its norm from each row of `ids` (k,)."""
    matrix = params["lm_head"]["kernel"].T if "lm_head" in params else params["embedding"]  # (v, d)
    product = functools.partial(jnp.einsum, precision="highest", preferred_element_type=jnp.float32)
    squares = product("vd,vd->v", matrix, matrix)
    distances = squares[ids, None] + squares - 2 * product("kd,vd->kv", matrix[ids], matrix)
    return jnp.sum(distances <= squares[ids, None] / 400, axis=1) - 1


def _encode(model: LanguageModel, messages: Sequence[Message], completions: Sequence[Completion]) -> Example:
    encoded = [
        _encode_transcript(model, messages, completion)
        if isinstance(completion, Transcript)
        else _encode_answer(model, completion)
        for completion in completions
    ]
    tokens, loss_mask = zip(*encoded, strict=True)
    return Example(model.encode_messages(messages), tokens, loss_mask)


def _encode_answer(model: LanguageModel, answer: str) -> tuple[list[int], list[bool]]:
    tag = model.opened_thought.strip()
    thought = tag and f"\n{tag.replace('<', '</')}\n\n"  # an empty one, as Qwen3's templates write it
    tokens = [*model.encode(thought + answer), model.eos_ids[0]]
    return tokens, [True] * len(tokens)


def _encode_transcript(
    model: LanguageModel, messages: Sequence[Message], transcript: Transcript
) -> tuple[list[int], list[bool]]:
    """An episode's tokens as the sampler would have them, and a mask of the answers' tokens."""
    conversation, tokens, loss_mask = list(messages), [], []
    for answer, reply in zip(transcript.answers, (*transcript.replies, ()), strict=True):
        own, theirs = _encode_answer(model, answer)
        if reply:
            follows = model.encode_reply(conversation, reply, done=True)
            own, theirs = own + follows, theirs + [False] * len(follows)
        tokens, loss_mask = tokens + own, loss_mask + theirs
        conversation += [{"role": "assistant", "content": answer}, *reply]
    return tokens, loss_mask


def _examples(
    model: LanguageModel, limits: LimitsConfig, demonstrations: Sequence[Demonstration]
) -> tuple[dict[str, list[Example]], int]:
    """The examples of each role, and how many completions were too long or had too long a prompt."""
    found: dict[str, list[Example]] = collections.defaultdict(list)
    for d in demonstrations:
        longest_prompt, *longest = limits.of(d.role)
        e = _encode(model, d.messages, d.completions)
        fits = [len(answer) <= max(longest) for answer in e.completions]
        if any(fits) and len(e.prompt) <= longest_prompt:
            parts = (list(itertools.compress(part, fits)) for part in (e.completions, e.loss_mask))
            found[d.role].append(Example(e.prompt, *parts))
    kept = sum(len(e.completions) for of in found.values() for e in of)
    return dict(found), sum(len(d.completions) for d in demonstrations) - kept


def _prompt_widths(limits: LimitsConfig) -> list[int]:
    longest = (limits.agent_prompt, limits.simulator_prompt)
    return sorted({width for limit in longest for width in limits.buckets(limit)})


class _Shapes:
    """The few shapes (prompt, completion, completions) that examples are padded to."""

    def __init__(self, limits: LimitsConfig):
        self._prompts = _prompt_widths(limits)
        answers = (limits.agent_response, limits.agent_episode, limits.simulator_response)
        widths = {*answers, *(w for w in _WIDTHS if w < max(answers))} - {0}
        self._completions, self.episodes = sorted(widths), bool(limits.agent_episode)

    def __call__(self, example: Example) -> Shape:
        completions = example.completions
        return (
            bucket(len(example.prompt), self._prompts, "a prompt"),
            bucket(max(map(len, completions)), self._completions, "a completion"),
            1 if len(completions) == 1 else VARIATIONS,
        )


def _batch(examples: Sequence[Example], shape: Shape, size: int, episodes: bool) -> CompletionBatch:
    """Pads to `size` examples with empty ones.  episodes: whether some completions may be episodes."""
    longest_prompt, longest, most = shape
    prompts, lengths = pad_rows([e.prompt for e in examples], longest_prompt, size)

    def padded(parts: Iterable[Sequence[Sequence[int]]]) -> tuple[np.ndarray, np.ndarray]:
        rows = [row for own in parts for row in (*own, *[()] * (most - len(own)))]
        values, counts = pad_rows(rows, longest, size * most)
        return values.reshape(size, most, -1), counts.reshape(size, most)

    tokens, token_counts = padded(e.completions for e in examples)
    loss_mask = padded(e.loss_mask for e in examples)[0].astype(bool) if episodes else None
    return CompletionBatch(prompts, np.maximum(lengths, 1), tokens, token_counts, loss_mask)


def _passes(examples: Sequence[Example], order: np.random.Generator) -> Iterator[Example]:
    """Endless passes over the examples, each in a new order."""
    while True:
        yield from (examples[i] for i in order.permutation(len(examples)))


def _alike(
    examples: Iterable[Example],
    shape_of: Callable[[Example], Shape],
    size_of: Callable[[Shape], int],
    episodes: bool,
) -> Iterator[CompletionBatch]:
    """Groups examples of the same shape; yields a batch as soon as it is full."""
    waiting: dict[Shape, list[Example]] = collections.defaultdict(list)
    for example in examples:
        shape = shape_of(example)
        waiting[shape].append(example)
        if len(waiting[shape]) == size_of(shape):
            yield _batch(waiting.pop(shape), shape, size_of(shape), episodes)


def _validation(
    examples: Mapping[str, Sequence[Example]],
    shapes: _Shapes,
    size: int,
    model: LanguageModel,
    frozen: Params,
    put: Callable[[Any], Any],
) -> Callable[[Params], dict[str, float]]:
    """A function that measures the loss of each role, in nats a token: {"validation/<role>": loss}."""
    of_roles: dict[str, list[CompletionBatch]] = {}
    for role, of in examples.items():
        alike = collections.defaultdict(list)
        for example in of:
            alike[shapes(example)].append(example)
        of_roles[f"validation/{role}"] = [
            _batch(some[i : i + size], shape, size, shapes.episodes)
            for shape, some in sorted(alike.items())
            for i in range(0, len(some), size)
        ]

    def measure(params: Params) -> dict[str, float]:
        losses = {}
        for name, batches in of_roles.items():
            total = tokens = 0.0
            for batch in batches:
                logp = score_completions(join(frozen, params), put(batch), model.config)
                total -= float(processes.fetch(jnp.sum(logp)))
                tokens += int(np.asarray(batch.mask).sum())
            losses[name] = total / tokens
        return losses

    return measure


def _shown(losses: Mapping[str, float]) -> str:
    return "".join(f"  {name} {value:.3f}" for name, value in losses.items())


def _mean(losses: Mapping[str, float]) -> float:
    return float(np.mean(list(losses.values()))) if losses else 0.0


def _kept(params: Params) -> Params:
    """A copy in host memory, since the next step donates its input arrays."""
    return place(jax.tree.map(jnp.copy, params), on_device=False)

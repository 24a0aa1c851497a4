"""Makes a small model with random weights and a tokenizer trained on given texts.

The result is an ordinary Hugging Face directory (a Qwen2 config.json, tokenizer.json and safetensors),
so everything else works as it does with a downloaded model.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import flax.linen as nn
import jax
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.huggingface.directory import read_json
from genenv_jax.models.huggingface.layouts import parameter_count
from genenv_jax.models.platform import check_memory
from genenv_jax.models.transformer import init_params
from genenv_jax.settings import Settings, within


@dataclasses.dataclass(frozen=True)
class MakeConfig(Settings):
    """`config.model.make`: the small Qwen2 model that is made if no model is named.

    Attributes:
      vocab_size: vocabulary size of the tokenizer, which is made too; 0: no model is made.
      hidden_size: width of a layer.
      intermediate_size: inner width of the MLP.
      num_layers: number of layers.
      num_heads: attention heads per layer.
      num_kv_heads: key-value heads per layer.
      cache_dir: where made models are kept; "": the user's cache directory.
    """

    vocab_size: int = within(0, 0, 2**20)
    hidden_size: int = within(64, 1, 2**14)
    intermediate_size: int = within(192, 1, 2**16)
    num_layers: int = within(2, 1, 2**8)
    num_heads: int = within(4, 1, 2**10)
    num_kv_heads: int = within(2, 1, 2**10)
    cache_dir: str = ""

    def shape(self) -> dict[str, int]:
        """What defines the model."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k != "cache_dir"}


PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def chat_text(messages: Iterable[Mapping[str, str]]) -> str:
    """The text of a conversation under `CHAT_TEMPLATE`, as the tokenizer will see it."""
    return "".join(f"{START}{turn['role']}\n{turn['content']}{END}\n" for turn in messages)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Any:
    """Trains a byte-level BPE tokenizer with ChatML control tokens, as a transformers fast tokenizer.

    Digits stay single tokens.  Text between digits may become one token, even a whole phrase, which keeps
    sequences short in a formulaic world.  Any text can be encoded.
    """
    from transformers import PreTrainedTokenizerFast

    tokenizer = _tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    # Added before training, so that texts are split at control tokens and no merge spans one.
    tokenizer.add_special_tokens([PAD, START, END])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, chat_template=CHAT_TEMPLATE
    )


def _tokenizer() -> Tokenizer:
    """An untrained tokenizer that has only the rules for splitting text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def has_made_tokenizer(directory: pathlib.Path) -> bool:
    """Whether a model directory's tokenizer splits text like those of `train_tokenizer`.

    If so, transformers' AutoTokenizer misreads it: it gives every Qwen2 model Qwen2's rules.
    """
    file = directory / "tokenizer.json"
    rules = json.loads(_tokenizer().to_str())["pre_tokenizer"]
    return file.is_file() and read_json(file).get("pre_tokenizer") == rules


def make_model(
    directory: str | os.PathLike, texts: Iterable[str], c: MakeConfig, *, max_positions: int, seed: int
) -> pathlib.Path:
    """Writes a randomly initialised Qwen2 model with tied embeddings; returns its directory.

    Args:
      directory: replaced as a whole if it exists.
      texts: training texts of the tokenizer.
      c: its shape; at least 259 tokens (256 bytes and three control tokens).
    """
    if c.vocab_size < 259:
        raise ValueError(f"model.make.vocab_size = {c.vocab_size}: expected at least 259")
    tokenizer = train_tokenizer(texts, c.vocab_size)
    hf_config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": len(tokenizer),
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": max_positions,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "torch_dtype": "float32",
    }
    config = TransformerConfig.from_huggingface(hf_config)
    check_memory("the model that config.model.make describes", 4 * parameter_count(config))
    params = nn.unbox(init_params(config, jax.random.key(seed)))
    return huggingface.save_model(directory, params, hf_config, tokenizer)

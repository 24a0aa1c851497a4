"""A language model as the host sees it: configuration, tokenizer and end tokens, but no weights."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from genenv_jax.models import huggingface, templates
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.huggingface.directory import refuse_pointer, tokenizer_files
from genenv_jax.models.make import CHAT_TEMPLATE, MakeConfig
from genenv_jax.settings import Settings, choice
from genenv_jax.typing import Params

TOOLS = "tools"  # role of a message whose content is a JSON list of tools, in OpenAI's format
TOOL = "tool"  # role of a message whose content is the result of one call
_PROBE = {"type": "object", "properties": {"x": {"type": "integer", "description": "A number."}}}
_PROBE_TOOL = {
    "type": "function",
    "function": {"name": "probe_tool", "description": "A probe.", "parameters": _PROBE},
}
_ASKED = ({"role": TOOLS, "content": json.dumps([_PROBE_TOOL])}, {"role": "user", "content": "probe 0"})
_RESULT_KEYS = {"tool_call_id": "probe0000", "name": "tool"}  # Mistral's ids have nine letters
# The tags of a thought; `benchmarks.thoughts` reads them in texts.
_THOUGHT = re.compile(r"</?(?:think|thinking|reasoning)>\s*", re.IGNORECASE)
HERMES_CALL = '<tool_call>\n{"name": "probe_tool", "arguments": {"x": 1}}\n</tool_call>'


@dataclasses.dataclass(frozen=True)
class ModelConfig(Settings):
    """`config.model`: what both players start from, and how it is computed.

    Attributes:
      path: directory or hub id; "": `make` makes a model.
      dtype: activation dtype; trained parameters are float32.
      matmul_dtype: with dtype "float32", "bfloat16" multiplies in bfloat16 and accumulates in float32, as
        TPUs do by default; this halves the time of products on a CPU with AVX512_BF16.
      remat: what is kept of each layer for the backward pass: "none": everything, "dots": the outputs of
        projections, "full": only its input, "offload": its input, in host memory.
      attention: the kernel; "auto": splash on TPUs, xla elsewhere.  With sliding windows, cudnn becomes xla.
      unroll_layers: unrolls the loop over layers, with `remat` only while decoding: on CPUs a third faster in
        float32; slower to compile.
      thinking: lets both players think before they answer, if the chat template has the switch
        `enable_thinking`.  Thoughts count towards the limits of answers, and are trained on.
      make: the small model that is made where `path` is "".
    """

    path: str = ""
    dtype: str = choice("bfloat16", "float32", "float16")
    matmul_dtype: str = choice("", "bfloat16")
    remat: str = choice("full", "none", "dots", "offload")
    attention: str = choice("auto", "xla", "splash", "cudnn")
    unroll_layers: bool = False
    thinking: bool = False
    make: MakeConfig = MakeConfig()

    def options(self, platform: str) -> dict[str, Any]:
        """The options of `TransformerConfig` that are settings, except adapters.

        platform: of the devices: "cpu", "gpu" or "tpu"; it resolves attention "auto".
        """
        names = ("dtype", "matmul_dtype", "remat", "attention", "unroll_layers")
        options = {name: getattr(self, name) for name in names}
        if options["attention"] == "auto":
            options["attention"] = "splash" if platform == "tpu" else "xla"
        return options


@dataclasses.dataclass(frozen=True, eq=False)
class LanguageModel:
    """Everything in a model directory except the weights.

    Attributes:
      hf_config: config.json as read.
      tokenizer: a transformers fast tokenizer.
      eos_ids: token ids that end a completion; the first is the one to write.
      pad_id: token id that fills unused positions; never used to tell padding from text.
      thinking: whether the chat template should switch thoughts on, if it can.
    """

    config: TransformerConfig
    hf_config: Mapping[str, Any]
    tokenizer: Any
    eos_ids: tuple[int, ...]
    pad_id: int
    path: pathlib.Path
    thinking: bool = False

    @classmethod
    def load(cls, path: str | os.PathLike, thinking: bool = False, **options: Any) -> LanguageModel:
        """Reads everything but the weights from a model directory or a model on the hub.

        The end tokens are the tokenizer's, plus those of generation_config.json (if it has none, those
        of config.json).

        Args:
          path: directory or hub id, see `huggingface.resolve`.
          thinking: see `ModelConfig`.
          options: see `TransformerConfig.from_huggingface`.
        Raises:
          FileNotFoundError: the directory, its configuration or its tokenizer is missing.
          ValueError: a file is damaged, the architecture is not supported, there is no end token,
            the tokenizer does not match the model, or the chat template cannot switch thoughts on, or takes
            too much time or memory.
        """
        path = huggingface.resolve(path)
        hf_config = huggingface.read_config(path)
        try:
            config = TransformerConfig.from_huggingface(hf_config, **options)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise ValueError(f"{path / 'config.json'}: {error}") from error
        generation = huggingface.read_generation_config(path)
        tokenizer = _load_tokenizer(path)

        largest = max(tokenizer.get_vocab().values(), default=-1)  # ids may have gaps
        if largest >= config.vocab_size:
            raise ValueError(
                f"{path}: the tokenizer has token ids up to {largest}, but the model's vocab_size is "
                f"{config.vocab_size}; they do not belong together"
            )
        own = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
        listed = _ids(generation, "eos_token_id") or _ids(hf_config, "eos_token_id")
        eos_ids = tuple(dict.fromkeys(own + listed))
        if not eos_ids:
            raise ValueError(
                f"{path}: no end token; expected eos_token_id in generation_config.json or "
                "config.json, or eos_token in tokenizer_config.json"
            )
        pad_ids = () if tokenizer.pad_token_id is None else (tokenizer.pad_token_id,)
        pad_ids += _ids(generation, "pad_token_id") + _ids(hf_config, "pad_token_id")
        pad_id = (pad_ids or eos_ids)[0]
        for name, token in [*(("eos", token) for token in eos_ids), ("pad", pad_id)]:
            if not 0 <= token < config.vocab_size:
                raise ValueError(
                    f"{path}: {name} token id {token} is outside the vocabulary of the model, "
                    f"whose vocab_size is {config.vocab_size}"
                )
        model = cls(config, hf_config, tokenizer, eos_ids, pad_id, path, thinking)
        off = dataclasses.replace(model, thinking=False)
        asked = _ASKED[1:]
        if thinking and not model.opened_thought and model._render(asked) == off._render(asked):
            raise ValueError(
                "config.model.thinking = True: expected a chat template with the switch enable_thinking; "
                f"that of {path} has none"
            )
        return model

    def load_params(self, shardings: Params | None = None, param_dtype: Any = "float32") -> Params:
        """Loads the directory's weights, see `huggingface.load_params`."""
        return huggingface.load_params(self.path, self.config, shardings, param_dtype)

    def save(self, path: str | os.PathLike, params: Params, **options: Any) -> pathlib.Path:
        """Saves `params` with this configuration and the tokenizer's files, see `huggingface.save_model`."""
        generation = huggingface.read_generation_config(self.path)
        generation |= {"eos_token_id": list(self.eos_ids), "pad_token_id": self.pad_id}
        return huggingface.save_model(
            path, params, self.hf_config, self.path, generation_config=generation, **options
        )

    def encode_messages(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation under the chat template, up to the assistant's next turn.

        A message cannot forge a turn: control tokens spelled out in its content are encoded as
        ordinary text.  All other conversations give exactly the tokens of the template's text.

        Args:
          messages: dicts with strings "role" and "content".  A message with the role `TOOLS` lists tools,
            which are passed to the template as tools.  One with the role `TOOL` becomes the user's if the
            template does not know that role.
        Raises:
          ValueError: the tokenizer has no chat template, a message is malformed, or the template
            refuses the conversation.
        """
        marked, contents, secret = self._mark(messages)
        return self._encode_marked(self._render(marked), contents, secret)

    def encode_reply(
        self, messages: Sequence[Mapping[str, str]], reply: Sequence[Mapping[str, str]], done: bool
    ) -> list[int]:
        """Token ids that follow an answer to `messages`, up to the assistant's next turn.

        `encode_messages(messages)`, the answer and these ids form the whole conversation's tokens, even if
        the tokenizer would split the answer's text differently.

        Args:
          reply: the messages after the answer, none from the assistant.
          done: whether the answer already ends with an end token, which is then not repeated.
        Raises:
          ValueError: as in `encode_messages`, or the template rewrites what comes before a reply, or it
            writes no end token after an answer.
        """
        _, after, contents, secret = self._around(messages, reply)
        ids = self._encode_marked(after, contents, secret)
        if not ids or ids[0] not in self.eos_ids:
            raise ValueError(
                f"{self.path}: the chat template writes no end token after an answer, so an episode cannot "
                "continue where it stopped"
            )
        return ids[1:] if done else ids

    @functools.cached_property
    def why_not_continuable(self) -> str:
        """Why the chat template cannot continue from an episode's tokens; "" if it can."""
        answer, reply = {"role": "assistant", "content": "b"}, [{"role": "user", "content": "c"}]
        result = [{"role": TOOL, "content": "d"}]
        turns = [(_ASKED[1:], reply)]
        if self.written_call:
            turns += [(_ASKED, result), ((*_ASKED, answer, *result), reply)]
        try:
            for opening, reply in turns:
                after = self.encode_reply(opening, reply, done=False)
                before, _, contents, secret = self._around(opening, reply)
                pieces = [*self._encode_marked(before, contents, secret), *self.encode("b"), *after]
                if pieces != self.encode_messages([*opening, answer, *reply]):
                    return (
                        f"{self.path}: the chat template's tokens for single turns differ from those for the "
                        "whole conversation"
                    )
        except ValueError as error:
            return str(error)
        return ""

    @functools.cached_property
    def written_call(self) -> str:
        """How the chat template writes an answer that calls `probe_tool(x=1)`; "" if it takes no tools.

        If a template shows tools but writes no calls, this is the Hermes form, the most common one.
        """
        try:
            shown = self._render(_ASKED)
        except ValueError:
            return ""
        if "probe_tool" not in shown:
            return ""
        for arguments in ({"x": 1}, '{"x": 1}'):  # templates accept one or the other
            function = {"name": "probe_tool", "arguments": arguments}
            call = {"id": "probe0000", "type": "function", "function": function}
            answer = {"role": "assistant", "content": "", "tool_calls": [call]}
            try:
                written = self._render([*_ASKED, answer]).removeprefix(shown)
            except ValueError:
                continue
            if "probe_tool" in written:
                return written
        return HERMES_CALL

    @functools.cached_property
    def _result_keys(self) -> dict[str, str] | None:
        """The keys that the template needs in results of calls; None if it does not know the role `TOOL`.

        A template that takes no tools may write any role, but its model has not learnt to read results.
        """
        if not self.written_call:
            return None
        roles = ("assistant", TOOL, TOOL, "assistant", TOOL, "assistant", "user")
        for keys in ({}, _RESULT_KEYS):
            said = [
                {**(keys if role == TOOL else {}), "role": role, "content": f"probe {number}"}
                for number, role in enumerate(roles, 1)
            ]
            try:
                shown = self._render([*_ASKED, *said])
            except ValueError:
                continue
            if all(message["content"] in shown for message in said):
                return keys
        return None

    @functools.cached_property
    def opened_thought(self) -> str:
        """The tag with which the chat template opens a thought before an answer; "" if it opens none."""
        try:
            shown = self._render(_ASKED[1:])
        except ValueError:
            return ""
        last = [found[0] for found in _THOUGHT.finditer(shown)][-1:]
        return next((tag for tag in last if shown.endswith(tag) and tag[1] != "/"), "")

    def _around(
        self, messages: Sequence[Mapping[str, str]], reply: Sequence[Mapping[str, str]]
    ) -> tuple[str, str, list[str], str]:
        """The template's text before and after the answer to `messages`, when `reply` follows the answer.

        The first text is that of `messages`, without what the template puts before an answer and later drops,
        such as Qwen3's empty thought.  Placeholders are as in `_mark`.
        """
        answered = [*messages, {"role": "assistant", "content": ""}, *reply]
        marked, contents, secret = self._mark(answered, hide_answers=True)
        last = max(n for n, message in enumerate(marked) if message["role"] == "assistant")
        before, answer, after = self._render(marked).partition(marked[last]["content"])
        if not answer or not self._render(marked[:last]).startswith(before):
            raise ValueError(
                f"{self.path}: the chat template writes a conversation differently once it has been "
                "answered, so an episode cannot continue where it stopped"
            )
        return before, after, contents, secret

    def _mark(
        self, messages: Sequence[Mapping[str, str]], hide_answers: bool = False
    ) -> tuple[list[dict[str, str]], list[str], str]:
        """The messages as the template takes them, with placeholders for control tokens in their contents.

        Also returns the texts behind the placeholders, by their numbers, and the placeholders' prefix.
        Raises ValueError for a malformed message.

        Args:
          messages: as in `encode_messages`.
          hide_answers: replaces whole answers, so that the template cannot react to their content: a model's
            tokens are kept, even thoughts that the template would drop.
        """
        if not self.tokenizer.chat_template:
            raise ValueError(
                f"{self.path}: the tokenizer has no chat template; expected chat_template in "
                "tokenizer_config.json or a file chat_template.jinja (an instruction-tuned model)"
            )
        for number, message in enumerate(messages):
            if not all(isinstance(message.get(part), str) for part in ("role", "content")):
                raise ValueError(f"message {number} lacks a string 'role' or 'content'")
        marked = [
            {**message, "content": _valid_unicode(message["content"])}
            for message in self._with_results(messages)
        ]
        for message in marked:
            if message["role"] == TOOLS:  # remove escapes, which could hide control tokens
                tools = json.loads(message["content"])
                message["content"] = json.dumps(tools, ensure_ascii=False)
        # A hash of all contents, so none of them can contain it.
        said = "\0".join(message["content"] for message in marked)
        secret = hashlib.sha256(said.encode()).hexdigest()
        hidden: list[str] = []
        for message in marked:
            whole = hide_answers and message["role"] == "assistant"
            # Only these parts: a template may change the rest, e.g. quote a result as JSON.
            for part in [message["content"]] if whole else self._control_tokens:
                if whole or part in message["content"]:
                    placeholder = f"{secret}:{len(hidden)}:"
                    message["content"] = message["content"].replace(part, placeholder)
                    hidden.append(part)
        return marked, hidden, secret

    def _with_results(self, messages: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
        """The messages with results of calls in the role that the template knows."""
        if self._result_keys is None:
            return results_as_users(messages)
        return [
            {**self._result_keys, **message} if message["role"] == TOOL else message for message in messages
        ]

    def _encode_marked(self, text: str, contents: Sequence[str], secret: str) -> list[int]:
        """Token ids of the template's text; the contents behind placeholders are encoded separately."""
        ids: list[int] = []
        for n, piece in enumerate(re.split(f"{secret}:([0-9]+):", text)):
            inside = n % 2 == 1
            ids += self.encode(contents[int(piece)] if inside else piece, control_tokens=not inside)
        return ids

    def encode(self, text: str, *, control_tokens: bool = False) -> list[int]:
        """Token ids of `text`, with nothing added around it.

        Control tokens (such as <|im_end|>) spelled out in the text are encoded as ordinary text, unless
        `control_tokens` is true; set it only for text that no model wrote.  Other special tokens, such as
        tags with a token of their own, keep their ids.  Never raises: lone surrogates are replaced.
        """
        text = _valid_unicode(text)
        control = [] if control_tokens else [t for t in self._control_tokens if t in text]
        if not control:
            return self.tokenizer.encode(text, add_special_tokens=False)
        ids: list[int] = []
        for piece in re.split(f"({'|'.join(map(re.escape, control))})", text):
            # In two parts: the option splits only tokens that are marked as special.
            for part in (piece[:1], piece[1:]) if piece in control else (piece,):
                ids += self.tokenizer.encode(
                    part, add_special_tokens=False, split_special_tokens=piece in control
                )
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of a completion's token ids, without control tokens; tags that are special tokens are kept.

        It begins with the tag of the thought that the template opened before the completion, if any.

        Never raises: ids without a token (models have more rows than tokens) are dropped, and bytes
        that are not UTF-8 become U+FFFD.
        """
        known, control = range(self.config.vocab_size), self._control_tokens.values()
        ids = (int(token) for token in ids)
        return self.opened_thought + self.tokenizer.decode(
            [token for token in ids if token in known and token not in control],
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )

    @functools.cached_property
    def _control_tokens(self) -> dict[str, int]:
        """The tokens that begin, end or pad texts and turns, with their ids.

        These are the special tokens in the template's plain conversations; without a template, all of them.
        Some tokenizers, such as R1's, do not mark theirs as special, but they stand in angle brackets.  The
        tags of thoughts are not among them, although a template may write one before an answer.
        """
        special = {
            token.content: number
            for number, token in self.tokenizer.added_tokens_decoder.items()
            if (token.special or re.fullmatch(r"<\S+>", token.content))
            and not _THOUGHT.fullmatch(token.content)
        }
        turns = [{"role": role, "content": "a"} for role in ("system", "user", "assistant", "user")]
        for messages in (turns, turns[1:]):  # some templates reject system messages
            try:
                text = self._render(messages)
            except ValueError:
                continue
            named = {self.tokenizer.bos_token_id, self.pad_id, *self.eos_ids}
            return {token: number for token, number in special.items() if token in text or number in named}
        return special

    def _render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        tools = [m["content"] for m in messages if m["role"] == TOOLS]
        try:
            return self.tokenizer.apply_chat_template(
                [m for m in messages if m["role"] != TOOLS],
                tools=[tool for content in tools for tool in json.loads(content)] or None,
                add_generation_prompt=True,
                tokenize=False,
                # Llama 3's templates insert today's date by default; a prompt must not depend on the day.
                date_string="26 Jul 2024",
                # Qwen3's think first by default.
                enable_thinking=self.thinking,
            )
        except Exception as error:  # a template is a program and may raise anything
            raise ValueError(f"{self.path}: the chat template refuses the messages: {error}") from error


def results_as_users(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Gives results of calls the user's role, except those with a "tool_call_id".

    They are merged with adjacent user messages: templates may insist that roles alternate.
    """
    said: list[Mapping[str, Any]] = []
    after_result = False
    for message in messages:
        result = message["role"] == TOOL and "tool_call_id" not in message
        if result:
            message = {**message, "role": "user"}
        if (result or after_result) and said and said[-1]["role"] == message["role"] == "user":
            message = {**message, "content": f"{said.pop()['content']}\n\n{message['content']}"}
        said.append(message)
        after_result = result
    return said


def _valid_unicode(text: str) -> str:
    """Replaces lone surrogates, which JSON can carry but no tokenizer accepts."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _ids(config: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Token ids under `name`: an int, a list of them, or nothing."""
    value = config.get(name)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(item) is not int for item in values):
        raise ValueError(f"{name} is {value!r}; expected an int or a list of ints")
    return tuple(values)


def _load_tokenizer(path: pathlib.Path) -> Any:
    if not (path / "tokenizer.json").is_file():
        raise FileNotFoundError(f"{path} holds no tokenizer.json; expected a fast tokenizer")
    files = tokenizer_files(path)
    for file in files:
        refuse_pointer(file)
    return _read_tokenizer(
        path, tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    )


@functools.lru_cache(maxsize=2)
def _read_tokenizer(path: pathlib.Path, state: tuple[Any, ...]) -> Any:
    """state: of its files, so that other ones are read again."""
    # Imported here: transformers takes seconds to import, and reading a configuration does not need it.
    from transformers import PreTrainedTokenizerFast

    try:
        # Not AutoTokenizer: for some families it overrides the splitting rules of tokenizer.json.
        tokenizer = PreTrainedTokenizerFast.from_pretrained(path)
    except Exception as error:  # the tokenizers library raises bare Exception
        raise ValueError(f"{path}: the tokenizer cannot be read: {error}") from error
    templates.check(path, tokenizer.chat_template, trusted=CHAT_TEMPLATE)
    return tokenizer

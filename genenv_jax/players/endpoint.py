"""Answers from a server that speaks OpenAI's chat completions: a hosted model, or vLLM, SGLang, TGI, ...

    endpoint = Endpoint("http://localhost:8000/v1", "Qwen/Qwen2.5-7B-Instruct", cache="answers.jsonl")
    endpoint.complete([{"role": "user", "content": "Hello"}], seed=0)   # an Answer

Requests go through the `openai` package (an extra), which retries transient failures.  Every answer is
written to a file as it arrives, so no request is paid for twice.
"""

import asyncio
import concurrent.futures
import dataclasses
import functools
import hashlib
import importlib
import json
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.calls import HERMES, write_calls
from genenv_jax.benchmarks.task import TOOLS, Message
from genenv_jax.models.language_model import TOOL, results_as_users
from genenv_jax.run.jsonl import JsonLines
from genenv_jax.sampling.sampler import Completion
from genenv_jax.scoring.attempts import ChatModel
from genenv_jax.system.keys import SHORTEST, as_line, check_url

_LONGEST = 1 << 24  # bytes of a response
_NEWER = "max_completion_tokens"
# A call as `_calls` writes it.
_CALL = re.compile(r"(?:\A|\n)<tool_call>\n(.+)\n</tool_call>(?=\n|\Z)")
_REACH = 10.0  # seconds that the first attempt to reach a server may take, half of them to connect
_MAX_COUNT = 2**40  # tokens that a server can have used for one answer


class EndpointError(ValueError):
    """The server cannot be used: it is unreachable, refuses, or the budget is spent."""


class ServerGone(EndpointError, ConnectionError):
    """The server fails, or can no longer be reached: the same command may continue later."""


class RequestRefused(EndpointError):
    """The server refuses this conversation: it is too long, or a filter rejected it."""


class BudgetSpent(EndpointError):
    """No more tokens may be spent."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer of a server.

    Attributes:
      text: "" if the model wrote none.
      ended: False if the text was cut off at the token limit.
      prompt_tokens, completion_tokens: as counted by the server; 0 if it does not report them.
    """

    text: str
    ended: bool
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Endpoint:
    """See the module's docstring.  Thread-safe.

    Args:
      url: base URL, including the path before "/chat/completions" (usually "/v1").
      max_tokens: longest answer, in tokens.
      cache: file of the answers so far, one JSON object a line; made if missing.  None: no cache.
      timeout: seconds for one exchange, from the connection to the end of the response.
      retries: retries of a request after a transient failure (no connection, 408, 409, 429, 5xx).
      max_tokens_total: limit on all prompt and completion tokens; 0: no limit.  Cached answers count, so
        restarts of a command share one budget.  Requests in flight when it is spent are still paid for.
      thinking: lets the model think, by the template's switch `enable_thinking`, as vLLM and SGLang take it
        (`chat_template_kwargs`).  False sends nothing, and the server's default applies.
    Raises:
      EndpointError: the `openai` package is missing, or the model is empty.
      ValueError: the URL is invalid, or the cache is damaged; the message names the line.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        max_tokens: int = 512,
        cache: str | os.PathLike[str] | None = None,
        timeout: float = 120.0,
        retries: int = 5,
        max_tokens_total: int = 0,
        thinking: bool = False,
    ):
        check_url(url, "--endpoint")
        if not model:
            raise EndpointError(
                "the endpoint's model is empty (--endpoint_model, config.tasks.teacher.model): expected its "
                "name on the server"
            )
        try:
            import openai
        except ImportError as error:
            raise EndpointError(
                "an endpoint needs the openai package: pip install -e '.[endpoint]'"
            ) from error
        self.url, self.model = url, model
        self._settings = {"model": model, "max_tokens": max_tokens}
        if thinking:
            self._settings["extra_body"] = {"chat_template_kwargs": {"enable_thinking": True}}
        self._limit = "max_tokens"  # the server's name for it
        self._budget = max_tokens_total
        self._unreachable = openai.APIConnectionError
        # Besides the client's own errors: a response that is not JSON, or nested too deeply.
        self._failures = (openai.OpenAIError, ValueError, RecursionError)
        self._refusals = (openai.BadRequestError, openai.UnprocessableEntityError)
        # The client requires a key; a local server accepts any.
        self._key = key = os.environ.get("OPENAI_API_KEY") or "none"
        self._client = openai.AsyncOpenAI(
            base_url=url,
            api_key=key,
            timeout=timeout,
            max_retries=retries,
            # A compressed response could exceed any size limit.
            default_headers={"Accept-Encoding": "identity"},
            http_client=_bounded_client(openai.DefaultAsyncHttpxClient),
        )
        self._reaching = openai.Timeout(_REACH, connect=_REACH / 2)
        self._lock = threading.Lock()
        self._known: dict[str, Answer] = {}
        self._cache = JsonLines(cache) if cache else None
        if self._cache:
            self._known = dict(_read_cache(self._cache))
        self._spent = sum(c.prompt_tokens + c.completion_tokens for c in self._known.values())

    def reach(self) -> None:
        """Raises EndpointError if no server can be reached: one attempt, none if the cache has answers.

        A server that is slow, refuses, or does not list its models counts as reachable.
        """
        if self._known:
            return
        try:
            client = self._client.with_options(max_retries=0, timeout=self._reaching)
            _wait(_list_models(client))
        except self._unreachable as error:
            cause = error.__cause__ or error
            if not type(cause).__name__.startswith("Read"):  # a read error means it connected
                raise EndpointError(f"{self.url}: the server cannot be reached ({_root(cause)})") from error
        except self._failures:
            pass

    def complete(self, messages: Sequence[Message], seed: int = 0, temperature: float = 0.0) -> Answer:
        """One answer, from the cache if possible.

        Args:
          seed: sent to the server, which may ignore it; distinguishes samples of one conversation.
          temperature: 0 for greedy.
        Raises RequestRefused, BudgetSpent or EndpointError, see these classes.
        """
        request = self._settings | _conversation(messages) | {"seed": seed, "temperature": temperature}
        text = json.dumps({"url": self.url, **request}, sort_keys=True)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        with self._lock:
            if digest in self._known:
                return self._known[digest]
            if self._budget and self._spent >= self._budget:
                kept = f"; the answers so far are kept in {self._cache.path}" if self._cache else ""
                raise BudgetSpent(f"{self._spent} tokens are spent, the limit is {self._budget}{kept}")
        try:
            response = self._create(request)
        except self._failures as error:
            gone = isinstance(error, self._unreachable) or getattr(error, "status_code", 0) >= 500
            refused = isinstance(error, self._refusals)
            kind = RequestRefused if refused else ServerGone if gone else EndpointError
            text = f"{self.url}: {type(error).__name__}: {str(error)[:1000]}"
            if error.__cause__ is not None:  # the client's message says little
                text += f" ({_root(error.__cause__)})"
            raise kind(as_line(self._without_key(text))) from error
        answer = _answer(response, self.url)
        answer = dataclasses.replace(answer, text=self._without_key(answer.text))
        with self._lock:
            tokens = answer.prompt_tokens + answer.completion_tokens
            self._spent += tokens
            self._known[digest] = answer
            if self._cache:
                self._cache.append([{"request": digest, **dataclasses.asdict(answer)}])
        if self._budget and not tokens:
            raise EndpointError(
                f"{self.url}: the response does not say how many tokens it took: expected its usage, or "
                "no limit on tokens"
            )
        return answer

    def _create(self, request: dict[str, Any]) -> Any:
        """The server's response.  OpenAI's newer models accept "max_tokens" only under another name."""
        name, longest = self._limit, request.pop("max_tokens")  # other threads may change the name
        try:
            return _wait(self._client.chat.completions.create(**request, **{name: longest}))
        except self._refusals as error:
            if name == _NEWER or _NEWER not in str(error):
                raise
        self._limit = _NEWER
        return _wait(self._client.chat.completions.create(**request, **{_NEWER: longest}))

    def _without_key(self, text: str) -> str:
        """Removes the key, which some servers repeat."""
        return text if len(self._key) < SHORTEST else text.replace(self._key, "(the key)")

    def usage(self) -> dict[str, int]:
        """Requests and tokens of all answers, including those that were in the cache."""
        with self._lock:
            known = list(self._known.values())
        return {
            "requests": len(known),
            "prompt_tokens": sum(c.prompt_tokens for c in known),
            "completion_tokens": sum(c.completion_tokens for c in known),
        }


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """An event loop in its own thread, so that an exchange can be cancelled at any point."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="endpoint", daemon=True).start()
    return loop


def _wait(exchange: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(exchange, _loop()).result()


def _root(error: BaseException | None) -> str:
    """The message or name of the root error in a chain."""
    said = ""
    while error is not None:
        said = str(error) or said or type(error).__name__
        error = error.__cause__ or error.__context__
    return said[:200]


async def _list_models(client: Any) -> None:
    await client.models.list()


def _bounded_client(make: Callable[..., Any]) -> Any:
    """A client that limits each exchange to its timeout as a whole, and its response to `_LONGEST` bytes.

    The HTTP library's own timeouts restart with each byte that arrives.

    make: the client class of whichever HTTP library the `openai` package uses.
    """
    http = importlib.import_module(make.__mro__[1].__module__.partition(".")[0])

    class Bounded(http.AsyncByteStream):
        def __init__(self, stream: Any):
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in self._stream:
                size += len(piece)
                if size > _LONGEST:
                    raise http.ReadError(f"a response of more than {_LONGEST:,} bytes")
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    class Client(make):
        async def send(self, request: Any, **options: Any) -> Any:
            seconds = request.extensions["timeout"]["read"]
            try:
                async with asyncio.timeout(seconds):
                    return await super().send(request, **options)
            except TimeoutError:
                raise http.ReadTimeout(
                    f"a response that had not ended after {seconds:g} s", request=request
                ) from None

    async def bound(response: Any) -> None:
        response.headers.pop("content-encoding", None)
        response.stream = Bounded(response.stream)

    return Client(event_hooks={"response": [bound]})


def _read_cache(file: JsonLines) -> Iterator[tuple[str, Answer]]:
    for number, record in enumerate(file, 1):
        try:
            request, answer = record.pop("request"), Answer(**record)
            counts = answer.prompt_tokens, answer.completion_tokens
            if type(answer.text) is not str or any(_count(n) != n for n in counts):
                raise TypeError("expected a text and token counts")
            yield request, answer
        except (KeyError, TypeError) as error:
            raise ValueError(f"{file.path}:{number}: damaged answer ({error}); delete the line") from None


def _answer(response: Any, url: str) -> Answer:
    """Parses a response; servers differ in what they leave out."""
    try:
        choice = response.choices[0]
        message = choice.message
        parts = message.content if isinstance(message.content, list) else [message.content]
        of_text = (part["text"] if _is_text(part) else part for part in parts)
        said = "".join(part for part in of_text if isinstance(part, str))
        text = "\n".join([*filter(None, [said]), *_calls(message)])
        thoughts = (getattr(message, name, "") for name in ("reasoning_content", "reasoning"))
        if not text and any(thoughts):  # a thought that did not end
            text = "<think>"
    except (AttributeError, LookupError, TypeError) as error:
        raise EndpointError(f"{url}: the response is not a chat completion ({error})") from error
    usage = getattr(response, "usage", None)
    return Answer(
        text,
        choice.finish_reason != "length",
        _count(getattr(usage, "prompt_tokens", 0)),
        _count(getattr(usage, "completion_tokens", 0)),
    )


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and "text" in part


def _calls(message: Any) -> Iterator[str]:
    """The tool calls of a message, each as text in Hermes' format; arguments as the model wrote them."""
    for call in getattr(message, "tool_calls", None) or ():
        function = getattr(call, "function", None)
        name = getattr(function, "name", None)
        name = name if isinstance(name, str) else ""  # `read_calls` refuses the call
        yield write_calls([{name: getattr(function, "arguments", None) or "{}"}], HERMES)


def _called(answer: str) -> tuple[str, list[dict[str, str]]]:
    """The text of an answer and its calls, if it ends with calls that `_calls` wrote; else the answer."""
    said, *parts = _CALL.split(answer)
    calls = []
    for written, after in zip(parts[::2], parts[1::2], strict=True):
        try:
            call = json.loads(written)
            calls.append({name: call[name] for name in ("name", "arguments")})
        except (ValueError, LookupError, TypeError, RecursionError):
            return answer, []
        # A call that the model wrote as text seldom has string arguments.
        if after or not all(isinstance(part, str) for part in calls[-1].values()):
            return answer, []
    return said, calls


def _structured(messages: Sequence[Message]) -> list[Mapping[str, Any]]:
    """Turns calls that came as `tool_calls` back into them, if each of them has its result.

    Other results are left alone.
    """
    structured: list[Mapping[str, Any]] = []
    ids: list[str] = []  # of the calls whose results follow
    for at, message in enumerate(messages):
        if message["role"] == TOOL and ids:
            message = {**message, "tool_call_id": ids.pop(0)}
        elif message["role"] == "assistant":
            said, calls = _called(message["content"])
            results = messages[at + 1 : at + 1 + len(calls)]
            if calls and [m["role"] for m in results] == [TOOL] * len(calls):
                ids = [f"call{at:03d}{n:02d}" for n in range(len(calls))]
                of = zip(ids, calls, strict=True)
                called = [{"id": i, "type": "function", "function": call} for i, call in of]
                message = {"role": "assistant", "content": said or None, "tool_calls": called}
        structured.append(message)
    return structured


def _conversation(messages: Sequence[Message]) -> dict[str, Any]:
    """A request's messages, and its tools if a message has some.

    OpenAI accepts letters, digits, "_" and "-" in a tool's name; other characters become "_".
    """
    said: list[Message] = [message for message in messages if message["role"] != TOOLS]
    tools = [json.loads(m["content"]) for m in messages if m["role"] == TOOLS]
    said = results_as_users(_structured(said) if tools else said)
    if not tools:
        return {"messages": said}
    functions = [dict(tool["function"]) for part in tools for tool in part]
    for function in functions:
        function["name"] = re.sub(r"[^\w-]", "_", function["name"], flags=re.ASCII)[:64]
    return {"messages": said, "tools": [{"type": "function", "function": f} for f in functions]}


def _count(tokens: Any) -> int:
    """A token count reported by a server; 0 if it is not a plausible positive integer."""
    return tokens if type(tokens) is int and 0 < tokens < _MAX_COUNT else 0


@dataclasses.dataclass(frozen=True)
class EndpointModel(ChatModel):
    """A `ChatModel` that asks a server; completions are texts.

    seed: of each conversation's first sample; later samples count up from it.
    concurrency: requests in flight at a time.
    """

    endpoint: Endpoint
    samples: int = 1
    max_concurrent: int = 64
    seed: int = 0
    concurrency: int = 8
    temperature: float = 0.0

    def answer(self, conversations, on_completion, turn=None) -> None:
        """See `ChatModel`.  Raises EndpointError if a request fails after all retries.

        In a turn each row has its own seed, since two attempts at one game begin with the same conversation.
        """
        threads = concurrent.futures.ThreadPoolExecutor(self.concurrency, "endpoint")
        try:
            futures = {}
            for i, messages in enumerate(conversations):
                for j in range(self.samples if turn is None else 1):
                    seed = self.seed + (j if turn is None else 1_000_003 * i + turn)
                    job = threads.submit(self.endpoint.complete, messages, seed, self.temperature)
                    futures[job] = i, j
            for future in concurrent.futures.as_completed(futures):
                answer = future.result()
                on_completion(Completion(*futures[future], answer.text, answer.ended))
        finally:
            # The first failure cancels the rest; answers so far are in the cache.
            threads.shutdown(wait=True, cancel_futures=True)

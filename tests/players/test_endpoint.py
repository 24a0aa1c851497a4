"""Answers from a server: what is sent, what is kept, what goes wrong."""

import errno
import json
import os
import sys

import pytest

from genenv_jax.benchmarks.tools import read_tool_calls
from genenv_jax.players.endpoint import (
    Answer,
    BudgetSpent,
    Endpoint,
    EndpointError,
    EndpointModel,
    RequestRefused,
)
from genenv_jax.scoring.attempts import attempt
from genenv_jax.scoring.scorer import Scorer
from tests.evaluate.fake_server import Endless, EndlessHead, Raw, called, completion, serve
from tests.evaluate.games import STEPS, Games

HELLO = [{"role": "user", "content": "Hello"}]


def test_a_request_says_what_was_asked(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serve(lambda _: "Good day") as (url, requests):
        endpoint = Endpoint(url, "m-7b", max_tokens=9)
        assert endpoint.complete(HELLO, seed=3, temperature=0.5) == Answer("Good day", True, 7, 3)
        Endpoint(url, "m-7b", thinking=True).complete(HELLO)
    assert requests.pop()["chat_template_kwargs"] == {"enable_thinking": True}
    assert requests == [
        {
            "path": "/v1/chat/completions", "key": "Bearer secret", "model": "m-7b", "messages": HELLO,
            "temperature": 0.5, "max_tokens": 9, "seed": 3,
        }
    ]  # fmt: skip
    assert endpoint.usage() == {"requests": 1, "prompt_tokens": 7, "completion_tokens": 3}


def thinking(text, thought):
    """The response of a server that separates the thought from the answer."""
    body = completion(text)
    body["choices"][0]["message"]["reasoning_content"] = thought
    return body


def test_responses_that_leave_something_out():
    for body, expected in (
        (completion("cut", "length"), Answer("cut", False, 7, 3)),
        (completion(None, "tool_calls"), Answer("", True, 7, 3)),
        (completion("x") | {"usage": None}, Answer("x", True)),
        (thinking(None, "Hm"), Answer("<think>", True, 7, 3)),
        (thinking("x", "Hm"), Answer("x", True, 7, 3)),
        (thinking(None, ""), Answer("", True, 7, 3)),
        (completion([{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]),
         Answer("42", True, 7, 3)),
        (completion([{"type": "image"}, {"text": 3}, "4", None]), Answer("4", True, 7, 3)),
    ):  # fmt: skip
        with serve(lambda _, body=body: (200, body)) as (url, _):
            assert Endpoint(url, "m").complete(HELLO) == expected


def test_tools_are_sent_beside_the_messages_and_calls_come_back_as_text():
    function = {"name": "m.f", "description": "d", "parameters": {"type": "object"}}
    asked = [{"role": "tools", "content": json.dumps([{"type": "function", "function": function}])}, *HELLO]
    call = ("m_f", '{"x": [1, "</tool_call>"]}')
    with serve(lambda _: (200, called(call, call, content="Well:"))) as (url, requests):
        text = Endpoint(url, "m").complete(asked).text
    assert requests[0]["messages"] == HELLO
    assert requests[0]["tools"][0]["function"] == function | {"name": "m_f"}
    assert text.startswith("Well:\n<tool_call>")
    assert read_tool_calls(text, [function]) == [{"m.f": {"x": [1, "</tool_call>"]}}] * 2


@pytest.mark.parametrize(
    ("call", "read"),
    [
        (("f", ""), [{"f": {}}]),
        (("f", None), [{"f": {}}]),
        (("f", '{"x": 1'), "unparsable"),
        (("f", '{"x": 1, "x": 2}'), "unparsable"),
        (("f", "[" * 100_000), "too_long"),
        (("f", "[" * 10_000), "unparsable"),
        (("f", 3), "unparsable"),
        ((None, "{}"), "unparsable"),
        (([], "{}"), "unparsable"),
        (("</tool_call>", "{}"), "unparsable"),
    ],
)
def test_calls_of_a_server_are_whatever_it_sends(call, read):
    with serve(lambda _: (200, called(call))) as (url, _):
        found = read_tool_calls(Endpoint(url, "m").complete(HELLO).text, [{"name": "f"}])
    assert getattr(found, "reason", found) == read


def test_calls_go_back_as_they_came_with_their_results():
    tools = {"role": "tools", "content": json.dumps([{"function": {"name": "f"}}])}
    own = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
    result = {"role": "tool", "content": "3"}
    with serve(lambda _: (200, called(("f", '{"x":1}'), ("g", "{}"), content="Well:"))) as (url, requests):
        endpoint = Endpoint(url, "m")
        text = endpoint.complete([tools, *HELLO]).text
        answer = {"role": "assistant", "content": text}
        endpoint.complete([tools, *HELLO, answer, result, result, result, *HELLO, answer, result, result])
        written = {"role": "assistant", "content": own}
        endpoint.complete([tools, *HELLO, written, result, result, answer, result, answer])
        endpoint.complete([*HELLO, answer, result, result])
    _, sent, unmatched, plain = (request["messages"] for request in requests)
    functions = [{"name": "f", "arguments": '{"x":1}'}, {"name": "g", "arguments": "{}"}]
    for at in (1, 5):
        assert sent[at]["content"] == "Well:"
        calls = sent[at]["tool_calls"]
        assert [call["function"] for call in calls] == functions
        assert [m.get("tool_call_id") for m in sent[at + 1 : at + 3]] == [call["id"] for call in calls]
    assert len({message["tool_call_id"] for message in sent if message["role"] == "tool"}) == 4
    assert sent[4] == {"role": "user", "content": "3\n\nHello"} and len(sent) == 8
    # What the model wrote as text stays text, and so do calls without results.
    users = [{"role": "user", "content": text} for text in ("3\n\n3", "3")]
    assert unmatched == [*HELLO, written, users[0], answer, users[1], answer]
    assert plain == [*HELLO, answer, users[0]]


HTML = "<!doctype html><html><title>502 Bad Gateway</title></html>"


@pytest.mark.parametrize("body", ["{", "[" * 100_000, "[1]", HTML, '{"choices": [{}]}', "{}"])
def test_a_hostile_body_is_an_endpoints_error(body):
    with serve(lambda _: (200, Raw(body))) as (url, _), pytest.raises(EndpointError, match="127.0"):
        Endpoint(url, "m", retries=0).complete(HELLO)


def test_a_passing_failure_is_tried_again_and_a_lasting_one_is_named():
    answers = iter([(500, {"error": "busy"}), "done"])
    with serve(lambda _: next(answers)) as (url, requests):
        assert Endpoint(url, "m", retries=2).complete(HELLO).text == "done"
        assert len(requests) == 2
    with (
        serve(lambda _: (401, {"error": {"message": "no such key"}})) as (url, requests),
        pytest.raises(EndpointError, match="AuthenticationError.*no such key"),
    ):
        Endpoint(url, "m").complete(HELLO)
    assert len(requests) == 1
    with pytest.raises(EndpointError, match="127.0.0.1:9/v1: APIConnectionError"):
        Endpoint("http://127.0.0.1:9/v1", "m", retries=0).complete(HELLO)
    # A server that is gone may come back: a launcher may start the command again.
    with (
        serve(lambda _: (503, {"error": "busy"})) as (url, _),
        pytest.raises(ConnectionError, match="InternalServerError"),
    ):
        Endpoint(url, "m", retries=0).complete(HELLO)


def test_an_endpoint_that_is_not_one_is_refused(monkeypatch):
    for url, model, message in (
        ("localhost:8000", "m", "expected a base URL"),
        ("http://user:s3cret@h/v1", "m", "without a key"),
        ("user:s3cret@h/v1", "m", "without a key"),
        ("http://h/v1?api_key=s3cret", "m", "without a key"),
        ("http://h/v1#s3cret", "m", "without a key"),
        ("http://h/v1", "", "expected its name"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            Endpoint(url, model)
        assert "s3cret" not in str(error.value)
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(EndpointError, match=r"needs the openai package: pip install -e '\.\[endp"):
        Endpoint("http://127.0.0.1:9/v1", "m")


def test_a_server_is_reached_once(tmp_path):
    """A server that cannot list models counts; with stored answers none is needed."""
    nowhere, cache = "http://127.0.0.1:9/v1", tmp_path / "answers.jsonl"
    with pytest.raises(EndpointError, match=f"{nowhere}: the server cannot be reached .*Connect call failed"):
        Endpoint(nowhere, "m").reach()
    with serve(lambda _: "x") as (url, requests):
        endpoint = Endpoint(url, "m", cache=cache)
        endpoint.reach()
        endpoint.complete(HELLO)
    assert len(requests) == 1
    Endpoint(nowhere, "m", cache=cache).reach()


def test_what_was_answered_is_not_asked_again(tmp_path):
    cache = tmp_path / "answers.jsonl"
    with serve(lambda request: f"{request['seed']}") as (url, requests):
        endpoint = Endpoint(url, "m", cache=cache)
        assert [endpoint.complete(HELLO, seed).text for seed in (1, 2, 1)] == ["1", "2", "1"]
        assert len(requests) == 2
        with cache.open("a") as file:
            file.write('{"request": "half a li')  # the process was killed here
        later = Endpoint(url, "m", cache=cache)
        assert [later.complete(HELLO, seed).text for seed in (2, 3)] == ["2", "3"]
        assert len(requests) == 3
        later.complete(HELLO, 2, 0.7)  # another question
        assert len(requests) == 4
    assert all(json.loads(line)["request"] for line in cache.read_text().splitlines())


@pytest.mark.parametrize(
    "line", [{"text": "b"}, {"request": "y", "text": 3, "ended": True},
             {"request": "y", "text": "b", "ended": True, "prompt_tokens": "3"}]
)  # fmt: skip
def test_a_damaged_cache_is_named(tmp_path, line):
    cache = tmp_path / "answers.jsonl"
    cache.write_text(f'{{"request": "x", "text": "a", "ended": true}}\n{json.dumps(line)}\n')
    with pytest.raises(ValueError, match=r"answers\.jsonl:2: damaged"):
        Endpoint("http://h/v1", "m", cache=cache)


def test_a_budget_ends_the_asking(tmp_path):
    with serve(lambda _: "x") as (url, requests):
        endpoint = Endpoint(url, "m", max_tokens_total=15, cache=tmp_path / "answers.jsonl")
        for seed in range(2):
            endpoint.complete(HELLO, seed)
        with pytest.raises(EndpointError, match=r"20 tokens are spent, the limit is 15"):
            endpoint.complete(HELLO, 2)
        assert endpoint.complete(HELLO, 1).text == "x"  # stored answers cost nothing
        later = Endpoint(url, "m", max_tokens_total=15, cache=tmp_path / "answers.jsonl")
        with pytest.raises(BudgetSpent, match=r"20 tokens are spent, .*answers\.jsonl"):
            later.complete(HELLO, 2)  # restarting does not evade the budget
        assert later.usage()["requests"] == 2
        larger = Endpoint(url, "m", max_tokens_total=30, cache=tmp_path / "answers.jsonl")
        larger.complete(HELLO, 2)
        assert larger.usage() == {"requests": 3, "prompt_tokens": 21, "completion_tokens": 9}
    assert len(requests) == 3


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": "many", "completion_tokens": -3},
        {"prompt_tokens": 1.5},
        {"prompt_tokens": 10**4000},
    ],
)
def test_a_budget_needs_a_server_that_counts(usage):
    with serve(lambda _: (200, completion("x") | {"usage": usage})) as (url, _):
        assert Endpoint(url, "m").complete(HELLO) == Answer("x", True)
        with pytest.raises(EndpointError, match="does not say how many tokens"):
            Endpoint(url, "m", max_tokens_total=9).complete(HELLO)


def test_two_temperatures_through_one_endpoint_and_a_conversation_that_is_refused():
    def reply(request):
        if request["messages"] != HELLO:
            return 422, {"error": {"message": "too\x1b[2J long"}}
        return f"{request['temperature']}"

    with serve(reply) as (url, requests):
        endpoint = Endpoint(url, "m")
        texts = [endpoint.complete(HELLO, 0, t).text for t in (0.5, 1.0, 0.0, 1.0)]
        with pytest.raises(RequestRefused, match=r"too.*long") as error:
            endpoint.complete(HELLO * 2)
    assert texts == ["0.5", "1.0", "0.0", "1.0"] and len(requests) == 4
    assert str(error.value).isprintable()


@pytest.mark.parametrize("status", [200, 401, 422])
def test_a_key_that_a_server_repeats_is_kept_nowhere(tmp_path, monkeypatch, status):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-s3cret-s3cret")

    def reply(request):
        said = f"no such key: {request['key']}"
        return said if status == 200 else (status, {"error": {"message": said}})

    cache = tmp_path / "answers.jsonl"
    with serve(reply) as (url, _):
        endpoint = Endpoint(url, "m", cache=cache)
        try:
            found = endpoint.complete(HELLO).text
        except EndpointError as error:
            found = str(error)
    assert "no such key: Bearer (the key)" in found
    assert "s3cret" not in found + cache.read_text()


def test_a_server_that_takes_the_limit_under_its_newer_name_only():
    refusal = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."

    def reply(request):
        if "max_tokens" in request:
            return 400, {"error": {"message": refusal}}
        return str(request["max_completion_tokens"])

    with serve(reply) as (url, requests):
        endpoint = Endpoint(url, "m", max_tokens=9)
        assert [endpoint.complete(HELLO, seed).text for seed in (0, 1)] == ["9", "9"]
    assert len(requests) == 3  # the first refusal is remembered
    with (
        serve(lambda _: (400, {"error": {"message": refusal}})) as (url, _),
        pytest.raises(RequestRefused, match="max_completion_tokens"),
    ):
        Endpoint(url, "m").complete(HELLO)


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize(
    ("body", "timeout", "message"),
    [
        (Endless("x" * 2**20), 60.0, "a response of more than 16,777,216 bytes"),
        (Endless(" "), 0.2, r"a response that had not ended after 0\.2 s"),
        (EndlessHead("|HTTP/1.1 102 Processing\r\n\r\n"), 0.2, "had not ended after"),
        (EndlessHead("|" + "HTTP/1.1 100 Continue\r\n\r\n" * 99), 0.2, "had not ended after"),
        (EndlessHead("HTTP/1.1 200 OK\r\n|A: b\r\n"), 0.2, "had not ended after"),
        (EndlessHead("HTTP/1.1 200 OK\r\nA: |a"), 0.2, "had not ended after"),
        (EndlessHead("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{|"), 0.2, "timed out"),
        (EndlessHead("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n|1\r\n{\r\n"), 0.2, "timed out"),
        (EndlessHead("|"), 0.2, "timed out"),
    ],
)
def test_a_response_without_an_end_is_given_up(status, body, timeout, message):
    with serve(lambda _: (status, body)) as (url, _), pytest.raises(EndpointError, match=message):
        Endpoint(url, "m", timeout=timeout, retries=0).complete(HELLO)


@pytest.mark.parametrize("place", ["/v1/chat/completions", "//127.0.0.1:9/v1", "file:///etc/passwd"])
def test_redirections_come_to_an_end(place):
    with serve(lambda _: (307, Raw(place))) as (url, requests), pytest.raises(EndpointError):
        Endpoint(url, "m", timeout=5.0, retries=0).complete(HELLO)
    assert len(requests) < 30


def test_an_answer_that_cannot_be_kept_names_the_file(tmp_path, monkeypatch):
    """Earlier answers stay intact."""
    cache = tmp_path / "answers.jsonl"
    with serve(lambda request: f"{request['seed']}") as (url, _):
        endpoint = Endpoint(url, "m", cache=cache)
        endpoint.complete(HELLO, 1)
        kept, write = cache.read_bytes(), os.write

        def full(handle, data):
            write(handle, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match=rf"No space left on device: '{cache}'"):
            endpoint.complete(HELLO, 2)
    assert cache.read_bytes() == kept


def test_answers_and_episodes_through_a_server():
    games = Games()
    tasks = [games.task(f"game-{i}", i) for i in range(3)] + [games.task("single-4", 4)]

    def reply(request):
        text = request["messages"][-1]["content"]
        return text.split()[0].rpartition("-")[2] if request["seed"] != 1 else "wrong"

    with serve(reply) as (url, requests):
        chat_model = EndpointModel(Endpoint(url, "m"), samples=2, concurrency=3)
        with Scorer(games, chat_model.text) as scorer:
            attempts = attempt(games, tasks, chat_model, scorer)
    verdicts = {(a.task.id, a.sample): a.score.success for of in attempts for a in of}
    assert verdicts.pop(("single-4", 0)) and not verdicts.pop(("single-4", 1))
    # Among the games, only the first gets seed 1, in its second turn.
    assert [key for key, won in verdicts.items() if not won] == [("game-0", 0)]
    assert len(requests) == 2 + 6 * STEPS


def test_a_server_that_fails_ends_the_evaluation():
    games = Games()
    with serve(lambda _: (400, {"error": {"message": "context too long"}})) as (url, _):
        chat_model = EndpointModel(Endpoint(url, "m"))
        with Scorer(games, chat_model.text) as scorer, pytest.raises(EndpointError, match="context too long"):
            attempt(games, [games.task("single-1", 1)], chat_model, scorer)

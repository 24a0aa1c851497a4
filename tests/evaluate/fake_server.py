"""A server that speaks OpenAI's chat completions, as far as an evaluation needs it."""

import contextlib
import http.server
import json
import threading
import time


class Raw(str):
    """A body to send verbatim, JSON or not."""


class Endless(str):
    """A body that is repeated until the client disconnects."""


class EndlessHead(str):
    """Sent in place of a response; the part after "|" is repeated until the client disconnects."""


@contextlib.contextmanager
def serve(reply):
    """Serves `reply(request) -> str | (status, body)`; yields the URL and the requests so far.

    A text becomes the answer; a status and an object, or a `Raw` or `Endless` text, are sent as they are.
    With status 307 a `Raw` text is the redirect's target.
    """
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request["path"] = self.path
            request["key"] = self.headers.get("Authorization")
            requests.append(request)
            answer = reply(request)
            status, body = answer if isinstance(answer, tuple) else (200, completion(answer))
            if isinstance(body, EndlessHead):
                begin, again = body.encode().split(b"|")
                self.wfile.write(begin)
                return self.repeat(again)
            data = (body if isinstance(body, Raw | Endless) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status == 307:
                self.send_header("Location", body)
            if not isinstance(body, Endless):
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            if isinstance(body, Endless):
                self.repeat(data)

        def repeat(self, data):
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(data)
                    time.sleep(1e-3)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
        server.shutdown()


def completion(text, finish_reason="stop"):
    """The response of a server that answers `text`."""
    message = {"role": "assistant", "content": text}
    return {
        "id": "1", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": message}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }  # fmt: skip


def called(*calls, content=None):
    """The response of a server that parses calls: (name, arguments) each."""
    body = completion(content, "tool_calls")
    body["choices"][0]["message"]["tool_calls"] = [
        {"id": f"own{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(calls)
    ]
    return body

"""A Cloud Storage of this machine: the part of its JSON API that gcsfs, Orbax and TensorStore use.

https://cloud.google.com/storage/docs/json_api/v1.  Every change is kept, in order, so that the buckets can be
shown as a process that was killed after any of them would have left them.
"""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse


class FakeGcs:
    """buckets: bucket to object's name to its bytes.  log: (bucket, name, bytes or None) of each change."""

    def __init__(self, *buckets):
        self.lock, self.log, self.count = threading.RLock(), [], 0
        self.buckets = {name: {} for name in buckets}
        self.generations, self.uploads = {}, {}
        self.refused = lambda bucket, name: False  # whether a change is answered with "forbidden"
        self.changed = lambda bucket, name: None  # called after each change
        fake = self

        class Handler(_Handler):
            store = fake

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                """Clients that end in the middle of a call are what is tested."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def environment(self):
        """The variables by which the clients find this server, and ask nobody for credentials."""
        return {
            "STORAGE_EMULATOR_HOST": self.url,
            "TENSORSTORE_GCS_HTTP_URL": self.url,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
            "FSSPEC_GCS_TOKEN": "anon",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # kinds of buckets that it asks for by gRPC
        }

    def put(self, bucket, name, data, match=None):
        """Writes an object, or removes it (None), where it has the generation `match`; whether it did."""
        with self.lock:
            before = self.generations.get((bucket, name), 0)
            if (match is not None and int(match) != before) or (data is None and not before):
                return False
            self.count += 1
            if data is None:
                del self.buckets[bucket][name], self.generations[bucket, name]
            else:
                self.buckets[bucket][name] = data
                self.generations[bucket, name] = self.count
            self.log.append((bucket, name, data))
        self.changed(bucket, name)
        return True

    def after(self, changes):
        """The buckets after so many changes."""
        buckets = {name: {} for name in self.buckets}
        for bucket, name, data in self.log[:changes]:
            if data is None:
                del buckets[bucket][name]
            else:
                buckets[bucket][name] = data
        return buckets

    def become(self, buckets):
        """Makes these the buckets, of which the log then tells."""
        with self.lock:
            self.log, self.buckets = [], {name: {} for name in buckets}
            self.generations = {}
            for bucket, objects in buckets.items():
                for name, data in objects.items():
                    self.put(bucket, name, data)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement
    store: FakeGcs

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.answer("GET")

    def do_POST(self):
        self.answer("POST")

    def do_PUT(self):
        self.answer("PUT")

    def do_DELETE(self):
        self.answer("DELETE")

    def answer(self, method):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match = re.fullmatch(
            r"/(?:upload/|download/)?(?:resumable/upload/)?storage/v1/b/([^/]+)(/o)?(?:/(.*))?",
            url.path,
        )
        if not match:
            return self.reply(404, {"error": {"code": 404, "message": f"no such call {self.path}"}})
        bucket, objects, name = match.groups()
        name = urllib.parse.unquote(name or "")
        if bucket not in self.store.buckets:
            return self.fail(404, "The specified bucket does not exist.")
        if method == "GET" and not objects:
            return self.reply(200, {"kind": "storage#bucket", "id": bucket, "name": bucket})
        if method != "GET" and self.store.refused(bucket, name or query.get("name", "")):
            return self.fail(403, "the caller does not have storage.objects.create access")
        if method == "GET":
            return self.read(bucket, name, query) if name else self.list(bucket, query)
        if method == "DELETE":
            done = self.store.put(bucket, name, None, query.get("ifGenerationMatch"))
            missing = name not in self.store.buckets[bucket]
            return (
                self.reply(204, None) if done else self.fail(404 if missing else 412, "not deleted")
            )
        return self.write(bucket, query, body)

    def read(self, bucket, name, query):
        with self.store.lock:
            data = self.store.buckets[bucket].get(name)
            generation = self.store.generations.get((bucket, name), 0)
        if data is None:
            return self.fail(404, f"No such object: {bucket}/{name}")
        if query.get("ifGenerationNotMatch") == str(generation):
            return self.reply(304, None)
        if query.get("ifGenerationMatch", str(generation)) != str(generation):
            return self.fail(412, "another generation")
        if query.get("alt") != "media":
            return self.reply(200, self.about(bucket, name))
        headers = {"x-goog-generation": str(generation), "ETag": str(generation)}
        if found := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            first, last = found.groups()
            start = int(first) if first else max(0, len(data) - int(last))
            end = min(int(last) + 1 if first and last else len(data), len(data))
            if start >= len(data):
                return self.fail(416, "no such range")
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            return self.reply(206, data[start:end], headers)
        return self.reply(200, data, headers)

    def about(self, bucket, name):
        data = self.store.buckets[bucket][name]
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": bucket,
            "generation": str(self.store.generations[bucket, name]),
            "metageneration": "1",
            "size": str(len(data)),
            "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
            "updated": "2026-01-01T00:00:00.000Z",
            "timeCreated": "2026-01-01T00:00:00.000Z",
        }

    def list(self, bucket, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        low, high = query.get("startOffset", ""), query.get("endOffset")
        items, prefixes = [], set()
        with self.store.lock:
            for name in sorted(self.store.buckets[bucket]):
                if not name.startswith(prefix) or name < low or (high and name >= high):
                    continue
                head, found, _ = name[len(prefix) :].partition(delimiter or "\0")
                if delimiter and found:
                    prefixes.add(prefix + head + delimiter)
                else:
                    items.append(self.about(bucket, name))
        self.reply(200, {"kind": "storage#objects", "items": items, "prefixes": sorted(prefixes)})

    def write(self, bucket, query, body):
        kind, name = query.get("uploadType"), query.get("name")
        match = query.get("ifGenerationMatch")
        if kind == "multipart":
            boundary = re.search(r'boundary="?([^";]+)"?', self.headers["Content-Type"])[1]
            # Between the boundaries, each behind its headers: what the object is, and its bytes.
            about, content = (
                re.split(rb"\r?\n\r?\n", part, maxsplit=1)[1]
                for part in body.split(f"--{boundary}".encode())[1:3]
            )
            name = name or json.loads(about)["name"]
            body = re.sub(rb"\r?\n\Z", b"", content)
        elif kind == "resumable" and "upload_id" not in query:
            name = name or json.loads(body)["name"]
            with self.store.lock:
                number = str(len(self.store.uploads))
                self.store.uploads[number] = [name, match, b""]
            here = f"{self.store.url}/upload/storage/v1/b/{bucket}/o"
            location = f"{here}?uploadType=resumable&upload_id={number}"
            return self.reply(200, b"", {"Location": location})
        elif kind == "resumable":
            upload = self.store.uploads[query["upload_id"]]
            upload[2] += body
            if self.headers.get("Content-Range", "").endswith("/*"):
                last = len(upload[2]) - 1
                return self.reply(308, b"", {"Range": f"bytes=0-{last}"} if last >= 0 else {})
            name, match, body = upload
        if not self.store.put(bucket, name, body, match):
            return self.fail(412, "At least one of the pre-conditions you specified did not hold.")
        return self.reply(200, self.about(bucket, name))

    def fail(self, code, message):
        error = {"code": code, "message": message, "errors": [{"message": message}]}
        self.reply(code, {"error": error})

    def reply(self, code, content, headers=()):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        data = b"" if content is None else data
        with contextlib.suppress(ConnectionError):
            self.send_response(code)
            for key, value in dict(headers).items():
                self.send_header(key, value)
            if code not in (204, 304):
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if code not in (204, 304):
                self.wfile.write(data)

"""A benchmark of questions from files, for users who have data and no code.

Files are JSON lines, a JSON list, or the parquet files that verl and the paper's authors use; each may be
gzipped.  Their first bytes say which, not their names.

A record is one of

  {"prompt": ..., "answer": ..., "tools"?, "checker"?, "category"?, "id"?}
  {"prompt": ..., "reward_model": {"ground_truth": ...}, "tools"?, "data_source"?, "extra_info"?, ...}

in any kind of file.  The prompt is a string, or a list of messages that ends with the user's, or its JSON
text.  Tools are a list of function descriptions for the checker `call`, or its JSON text.  A field that is
null or NaN is missing, at any depth: a table has every field in every row.  GenEnv's public code reads the
second form (Gen-Verse/GenEnv, README.md and genenv/utils/reward_functions.py): a ground truth may be
{"answer": ...}, or the JSON text of that, and a call has "parameters".  Other columns are ignored.
"""

import codecs
import collections
import dataclasses
import decimal
import gzip
import io
import math
import os
import pathlib
import zlib
from collections.abc import Collection, Iterator
from typing import Any

from genenv_jax.benchmarks import imported
from genenv_jax.benchmarks.base import Message, Rejection, Task
from genenv_jax.benchmarks.custom import hub
from genenv_jax.benchmarks.custom.benchmark import Custom, Question
from genenv_jax.benchmarks.custom.checkers import CALL, CHECKERS, EXACT
from genenv_jax.benchmarks.judge import EndpointJudge
from genenv_jax.benchmarks.options import check_choice, check_shares
from genenv_jax.benchmarks.safe_parse import parse_json, parse_literal
from genenv_jax.benchmarks.subsets import stable_position
from genenv_jax.benchmarks.wording import letters

_MAX_LINE = 2**20  # characters
_MAX_FILE = 2**30  # bytes of a file, also when unpacked
_MAX_LIST = 2**27  # characters of a JSON list, which is parsed as a whole
_MAX_RECORDS = 2**20
_MAX_VALUES = 2**22  # of a parquet column; equal ones take no room in the file
_BATCH = 2**28  # bytes that a batch of rows may be unpacked to
_ROLES = ("system", "user", "assistant")
_SHAREGPT = {"human": "user", "gpt": "assistant"}
_KEYS = ("prompt", "answer", "checker", "category", "id", "tools")
_EXPECTED = 'expected {"prompt": ..., "answer": ...}'
_REWARD = "reward_model"
_TOO_LARGE = f"more than {_MAX_FILE // 2**30} GiB of questions: expected a smaller file"
_LFS = b"version https://git-lfs.github.com/"


@dataclasses.dataclass(kw_only=True, eq=False)
class CustomFiles(Custom):
    """The questions of one or two files, compared by a checker.

    Args, besides those of `Benchmark`:
      checker: how answers are compared, one of `checkers.CHECKERS`; a question may override it.
      instruction: the agent's system message; None: the checker's, which says how to answer.
      reward: "module:name" of a function with the arguments of `Custom.grade`, which grades in its place and
        in worker processes; "": the checker does.
      judge_url: base URL of an OpenAI-compatible endpoint that is asked about the answers of `exact` and `f1`
        that earn less than full reward; "": none.  An answer that it calls correct earns 1.
      judge_model: the model's name there.
      train: the file with the seeds, or its address on the Hugging Face hub (`hub`).
      held_out: the file with the held-out questions; "": a share of `train`.
      seed_fraction: share of a single file's questions that become seeds, by a hash of the prompt, so the
        split depends neither on the order of the lines nor on other lines.
      data_dir: directory that relative paths start from; "": the working directory.
    """

    isolated = False  # all code that reads model output is bounded

    checker: str = EXACT
    instruction: str | None = None
    reward: str = ""
    judge_url: str = ""
    judge_model: str = ""
    train: str = ""
    held_out: str = ""
    seed_fraction: float = 0.8
    data_dir: str | os.PathLike[str] = ""

    def __post_init__(self):
        super().__post_init__()
        check_choice("checker", self.checker, CHECKERS)
        if self.instruction is not None and not isinstance(self.instruction, str):
            raise ValueError(f"instruction = {self.instruction!r}: expected a text or None")
        check_shares(seed_fraction=self.seed_fraction)
        if self.reward:
            form = "a function of a question and an answer"
            self._reward = imported.find_callable("reward", self.reward, form)
            self.isolated = True
        if self.judge_model and not self.judge_url:
            raise ValueError(f"judge_model = {self.judge_model!r}: expected judge_url with it")
        if self.judge_url:
            self.judge = EndpointJudge(self.judge_url, self.judge_model)
            # A request can outlast its timeout, so scoring runs in worker processes with a time limit.
            self.isolated, self.worker_needs = True, ("network",)
        for option in ("train", "held_out"):
            value = getattr(self, option)
            if not isinstance(value, str) or not (value or option == "held_out"):
                raise ValueError(f"{option} = {value!r}: expected a file of questions, JSON lines or parquet")

    def grade(self, question: Question, answer: str) -> float:
        if self.reward:
            return self._reward(question, answer)
        return super().grade(question, answer)

    def questions(self, split: str) -> Iterator[Question]:
        if self.held_out:
            yield from self._read(self.train if split == "seed" else self.held_out, split)
            return
        for question in self._read(self.train, split):
            place = stable_position(f"custom:{letters(question.prompt)}")
            if (place < self.seed_fraction) == (split == "seed"):
                yield question

    def _read(self, name: str, split: str) -> Iterator[Question]:
        on_hub = name.startswith(hub.SCHEME)
        here = pathlib.Path(self.data_dir, os.path.expanduser(name)).expanduser()
        path = hub.download(name) if on_hub else here
        return read(path, self.checker, split)

    def source(self, task: Task) -> str:
        """See `Benchmark.source`: questions that differ only in signs stay in the same split."""
        return letters(self.text(task)) or task.id

    def facts(self) -> dict[str, str]:
        facts = super().facts() | {"data": self.train, "checker": self.reward or self.checker}
        if self.judge:
            facts["judge"] = self.judge_model
        if self.held_out:
            return facts | {"held_out": self.held_out}
        return facts | {"held_out": f"{1 - self.seed_fraction:g} of it, by a hash of the prompt"}


def read(path: pathlib.Path, checker: str, prefix: str) -> Iterator[Question]:
    """The questions in a file, in order; see the module.

    Args:
      checker: the checker for records that name none.
      prefix: prefix of the ids made for records without one.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: a record is malformed; names it as file:line (parquet, JSON list: file:record), from 1.
    """
    for number, (where, record) in enumerate(_records(path), 1):
        if number > _MAX_RECORDS:
            raise ValueError(f"{where}: expected at most {_MAX_RECORDS:,} records in a file")
        if not isinstance(record, dict):
            raise ValueError(f"{where}: expected an object")
        yield _question(_plain(record), where, f"{prefix}:{number}", checker)


def _records(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """(place, record) for each record of a file."""
    if not path.is_file():
        fault = "is a directory" if path.is_dir() else "is missing"
        raise FileNotFoundError(f"{path} {fault}: expected a file of JSON lines or parquet")
    with path.open("rb") as file:
        data = file.read(_MAX_FILE + 1)
    try:
        if data.startswith(b"\x1f\x8b"):
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(_MAX_FILE + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: not a gzip file that can be read: {error}") from None
    if len(data) > _MAX_FILE:
        raise ValueError(f"{path} has {_TOO_LARGE}")
    if data.startswith(_LFS):
        raise ValueError(f"{path} is a Git LFS pointer: expected the file itself (git lfs pull)")
    if data.startswith(b"PAR1"):
        records = _parquet(data, path)
    elif data.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
        records = _strictly(data, str(path), _MAX_LIST)
    else:
        for number, line in enumerate(io.BytesIO(data), 1):
            if line.strip():
                where = f"{path}:{number}"
                yield where, _strictly(line, where, _MAX_LINE)
        return
    for number, record in enumerate(records, 1):
        yield f"{path}:{number}", record


def _strictly(data: bytes, where: str, max_chars: int) -> Any:
    """Parses strict JSON: repeated keys are an error, since it is unclear which one was meant."""
    try:
        text = data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not JSON: {error}") from None
    value = parse_json(text, max_chars)
    if isinstance(value, Rejection):
        detail = value.detail.replace("line 1 column", "column")
        raise ValueError(f"{where}: not JSON: {value.reason}: {detail}; {_EXPECTED}")
    return value


def _parquet(data: bytes, path: pathlib.Path) -> Iterator[dict[str, Any]]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        names = file.schema_arrow.names
        prompt = "prompt" if "prompt" in names else "question"
        known = {*_KEYS, _REWARD, "data_source", prompt}.intersection(names)
        largest = _largest_column(file.metadata, known, path)
        rows, size = min(max(1, _BATCH // max(1, largest)), 1024), 0
        for batch in file.iter_batches(rows, columns=sorted(known)):
            size += batch.nbytes
            if size > _MAX_FILE:
                raise ValueError(f"{path} has {_TOO_LARGE}")
            yield from _rows(pyarrow.Table.from_batches([batch]))
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: not a parquet file that can be read: {error}") from None


def _largest_column(metadata: Any, known: Collection[str], path: pathlib.Path) -> int:
    """Bytes of the largest of the known columns in a group of rows, which bound a value's size.

    Raises ValueError if a column has too many values.
    """
    values: collections.Counter[str] = collections.Counter()
    largest = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name = column.path_in_schema
            if name.partition(".")[0] in known:
                values[name] += column.num_values
                largest = max(largest, column.total_uncompressed_size)
    for name, count in values.items():
        if count > _MAX_VALUES:
            raise ValueError(f"{path}: {name} has {count:,} values: expected at most {_MAX_VALUES:,}")
    return largest


def _rows(table: Any) -> list[dict[str, Any]]:
    """The rows of a table; 0.1 is 0.1, not its nearest float32."""
    import pyarrow

    for index, field in enumerate(table.schema):
        if field.type == pyarrow.float32():
            digits = table[index].cast(pyarrow.string())
            table = table.set_column(index, field.name, digits.cast(pyarrow.float64()))
    return table.to_pylist()


def _plain(value: Any) -> Any:
    """A value of JSON or parquet as JSON has it, without the fields of objects that are null or NaN."""
    match value:
        case dict():
            kept = ((key, _plain(entry)) for key, entry in value.items())
            return {key: entry for key, entry in kept if entry is not None}
        case list():
            return list(map(_plain, value))
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value  # refused later, naming its field
        case decimal.Decimal():
            whole = value.is_finite() and value.as_tuple().exponent >= 0
            return int(value) if whole else _plain(float(value))
        case float() if math.isnan(value):
            return None
    return value


def _question(record: dict[str, Any], where: str, name: str, checker: str) -> Question:
    """Makes a question from a record; its answer is not parsed yet."""
    if "question" in record and "prompt" not in record:  # as in GSM8K
        record = {"prompt" if key == "question" else key: record[key] for key in record}
    of_verl = _REWARD in record and "answer" not in record
    if not of_verl and (unknown := sorted(record.keys() - set(_KEYS) - {"data_source"})):
        raise ValueError(f"{where}: unknown key {unknown[0]!r:.60}; expected some of {', '.join(_KEYS)}")
    for key in ("prompt",) if of_verl else ("prompt", "answer"):
        if key not in record:
            raise ValueError(f"{where}: no {key}; {_EXPECTED}")
    context, prompt = _conversation(record["prompt"], where)
    checker = record.get("checker", checker)
    answer = _truth(record[_REWARD], where) if of_verl else record["answer"]
    if checker == CALL and isinstance(answer, str):
        answer = _of_text(answer)
    return Question(
        prompt=prompt,
        answer=answer,
        id=_name(record.get("id", name)),
        category=_name(record.get("category", record.get("data_source", "all"))),
        checker=checker,
        context=context,
        tools=_tools(record.get("tools") or (), where),
        where=where,
    )


def _name(value: Any) -> Any:
    """A whole number as text; any other value as it is, to be checked later."""
    return str(value) if type(value) is int else value


def _of_text(text: str) -> Any:
    """The value of a JSON text, or a `Rejection`."""
    return _plain(parse_json(text, _MAX_LINE))


def _tools(tools: Any, where: str) -> Any:
    """The tools of a record, not checked yet."""
    read = _of_text(tools) if isinstance(tools, str) else tools
    if isinstance(read, Rejection):
        raise ValueError(f"{where}: tools: {read.reason}: {read.detail}; expected a list, or its JSON")
    return read


def _conversation(prompt: Any, where: str) -> tuple[tuple[Message, ...], str]:
    """The messages before the last one, and the last one's text."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if isinstance(prompt, str) and prompt.lstrip().startswith(("[", "{")):
        read = _of_text(prompt)
        if isinstance(read, Rejection):
            read = parse_literal(prompt, _MAX_LINE)  # as `str` writes messages
        read = read if isinstance(read, list) else [read]
        keys = [entry.keys() for entry in read if isinstance(entry, dict)]
        if any({"role", "content"} <= of or {"from", "value"} <= of for of in keys):
            messages = read
    try:
        *context, last = map(_message, messages)
        fault = "" if last["role"] == "user" and last["content"].strip() else "expected"
    except (TypeError, ValueError) as error:
        fault = f"{error}; expected" if isinstance(messages, list) and messages else "expected"
    if fault:
        raise ValueError(
            f"{where}: prompt {prompt!r:.60}: {fault} a text, or a list of messages "
            '{"role": system, user or assistant, "content": text}, ending with the user\'s'
        )
    return tuple(context), last["content"].strip()


def _message(entry: Any) -> Message:
    """A message in OpenAI's form, perhaps with a list of parts, or in ShareGPT's ("from" and "value")."""
    if not isinstance(entry, dict):
        raise ValueError(f"{entry!r:.60} is not a message")
    role = entry.get("role", entry.get("from"))
    role = _SHAREGPT.get(role, role) if isinstance(role, str) else role
    content = entry.get("content", entry.get("value"))
    parts = content if isinstance(content, list) else [content]
    keys = {"type", "text"}
    texts = [of["text"] if isinstance(of, dict) and of.keys() == keys else of for of in parts]
    if role not in _ROLES:
        raise ValueError(f"a message has the role {role!r:.40}")
    if entry.get("tool_calls") or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"a message has content other than text: {entry!r:.200}")
    return {"role": role, "content": "".join(texts)}


def _truth(reward: Any, where: str) -> Any:
    """The reference from a `reward_model` column."""
    if not isinstance(reward, dict) or "ground_truth" not in reward:
        raise ValueError(f'{where}: reward_model {reward!r:.60}: expected {{"ground_truth": ...}}')
    if reward.get("style", "rule") != "rule":
        raise ValueError(f"{where}: reward_model.style = {reward['style']!r:.60}: expected 'rule'")
    truth = reward["ground_truth"]
    read = _of_text(truth) if isinstance(truth, str) and truth.lstrip().startswith("{") else truth
    return read["answer"] if isinstance(read, dict) and "answer" in read else truth

"""A TensorFlow Datasets builder for each benchmark; its examples are `Task`s.

The tables in genenv_jax/benchmarks/sources list the files to download, their URLs and checksums.  The
benchmarks' own readers read the files.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.base import Task

_FIELDS = ("id", "benchmark", "category", "messages", "tools", "answer", "origin")
_JSON = ("messages", "tools", "answer")


class TaskBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """The base class of the builders.

    An example has the fields of `Task` as strings; "messages", "tools" and "answer" are JSON.  `to_task`
    turns an example into a task.
    """

    VERSION = tfds.core.Version("1.0.0")
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        "Either nothing, and the files are downloaded, or the files that genenv_jax/benchmarks/sources "
        "lists, under the paths there."
    )
    benchmark: ClassVar[str]
    homepage: ClassVar[str]
    citation: ClassVar[str]
    reader: ClassVar[str]  # the module whose `splits(directory)` reads the files
    optional: ClassVar[tuple[str, ...]] = ()  # optional files; without them there are fewer splits

    def __init__(self, **options: Any):
        super().__init__(**{"file_format": "array_record", **options})
        self._files_root = options.get("data_dir")

    @tfds.core.utils.classproperty
    @classmethod
    def url_infos(cls) -> dict[str, Any]:
        """Size and SHA-256 of each file, for TensorFlow Datasets to check downloads."""
        return {
            source.url: tfds.download.checksums.UrlInfo(
                size=source.size, checksum=source.sha256, filename=source.path.rsplit("/", 1)[-1]
            )
            for source in data_files.sources(cls.benchmark)
        }

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=type(self).__doc__,
            features=tfds.features.FeaturesDict({name: tfds.features.Text() for name in _FIELDS}),
            homepage=self.homepage,
            citation=self.citation,
            disable_shuffling=True,  # keep the order of the files
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> Mapping[str, Any]:
        directory = self._manual(dl_manager) or self._download(dl_manager)
        return {name: self._generate_examples(tasks) for name, tasks in self._splits(directory)}

    def _splits(self, directory: pathlib.Path) -> Iterator[tuple[str, list[Task]]]:
        found = self._read(directory)
        if not any(found.values()):
            raise ValueError(f"{directory}: no tasks of {self.benchmark}")
        return ((name, tasks) for name, tasks in found.items() if tasks)

    def _read(self, directory: pathlib.Path) -> Mapping[str, list[Task]]:
        return _reader(self.reader)(directory)

    def _manual(self, dl_manager: tfds.download.DownloadManager) -> pathlib.Path | None:
        """The directory of files that the user already has, checked against the published ones."""
        try:
            manual = pathlib.Path(dl_manager.manual_dir)
        except AssertionError:  # no manual directory was given
            return None
        directory = next((d for d in (manual / self.benchmark, manual) if d.is_dir()), manual)
        there = [
            path
            for path in self._paths()
            if path not in self.optional or (directory / path).is_file()
        ]
        data_files.verify(self.benchmark, directory, there)
        return directory

    def _paths(self) -> list[str]:
        """The files in the table that this builder reads."""
        return [source.path for source in data_files.sources(self.benchmark)]

    def _download(self, dl_manager: tfds.download.DownloadManager) -> pathlib.Path:
        """Downloads missing files and lays all files out as the benchmark expects them."""
        directory = data_files.prepared_directory(self._files_root) / self.benchmark
        wanted = set(self._paths())
        missing = [
            source
            for source in data_files.sources(self.benchmark)
            if source.path in wanted and not (directory / source.path).is_file()
        ]
        downloads = pathlib.Path(dl_manager.download_dir)
        others = set(downloads.rglob("*.tmp.*"))
        try:
            paths = dl_manager.download({source.path: source.url for source in missing})
        except NonMatchingChecksumError as error:
            raise ValueError(f"not what was published: {error}") from error
        finally:  # what came of a failed download would stay
            for left in set(downloads.rglob("*.tmp.*")) - others:
                shutil.rmtree(left, ignore_errors=True)
        for source in missing:
            target = directory / source.path
            target.parent.mkdir(parents=True, exist_ok=True)
            # Renamed in one step: an interrupted command leaves no partial file under the final name.
            partial = target.with_name(target.name + ".partial")
            shutil.copyfile(paths[source.path], partial)
            os.replace(partial, target)
        data_files.verify(self.benchmark, directory, wanted)
        return directory

    def _generate_examples(self, tasks: list[Task]) -> Iterator[tuple[int, dict[str, str]]]:
        for index, task in enumerate(tasks):
            yield index, from_task(task)


def _reader(module: str) -> Callable[[pathlib.Path], Mapping[str, list[Task]]]:
    return importlib.import_module(module).splits


def from_task(task: Task) -> dict[str, str]:
    """The example for a task."""
    record = task.to_json()
    return {
        name: json.dumps(record[name], ensure_ascii=False) if name in _JSON else record[name]
        for name in _FIELDS
    }


def to_task(example: Mapping[str, Any]) -> Task:
    """The task in an example, whose strings may be str or bytes; inverts `from_task`."""
    record = {
        name: example[name].decode() if isinstance(example[name], bytes) else str(example[name])
        for name in _FIELDS
    }
    return Task.from_json(record | {name: json.loads(record[name]) for name in _JSON})


class BFCLConfig(tfds.core.BuilderConfig):
    """Version of the leaderboard, v3 or v4."""


class GenenvBfcl(TaskBuilder):
    """Berkeley Function Calling Leaderboard: single calls, (ir)relevance, multi-turn conversations."""

    BUILDER_CONFIGS: ClassVar = [
        BFCLConfig(name=version, description=f"BFCL {version}") for version in ("v4", "v3")
    ]
    benchmark = "bfcl"
    homepage = "https://gorilla.cs.berkeley.edu/leaderboard.html"
    reader = "genenv_jax.benchmarks.bfcl.tasks"
    citation = """@inproceedings{patil2025bfcl,
  title={The Berkeley Function Calling Leaderboard (BFCL): From Tool Use to Agentic Evaluation of Large
    Language Models},
  author={Patil, Shishir G. and Mao, Huanzhi and Yan, Fanjia and Ji, Charlie Cheng-Jie and Suresh, Vishnu
    and Stoica, Ion and Gonzalez, Joseph E.},
  booktitle={ICML}, year={2025}}"""

    def _paths(self) -> list[str]:
        return [path for path in super()._paths() if path.startswith(self.builder_config.name)]

    def _read(self, directory: pathlib.Path) -> Mapping[str, list[Task]]:
        return _reader(self.reader)(directory, self.builder_config.name)


class GenenvApiBank(TaskBuilder):
    """API-Bank: dialogues in which an assistant calls APIs, on three levels."""

    benchmark = "api_bank"
    homepage = "https://github.com/AlibabaResearch/DAMO-ConvAI/tree/main/api-bank"
    reader = "genenv_jax.benchmarks.api_bank.tasks"
    citation = """@inproceedings{li2023apibank,
  title={API-Bank: A Comprehensive Benchmark for Tool-Augmented LLMs},
  author={Li, Minghao and Zhao, Yingxiu and Yu, Bowen and Song, Feifan and Li, Hangyu and Yu, Haiyang and
    Li, Zhoujun and Huang, Fei and Li, Yongbin},
  booktitle={EMNLP}, year={2023}}"""


class GenenvAlfworld(TaskBuilder):
    """ALFWorld: household chores in text, as games to be played and as an expert's single steps."""

    benchmark = "alfworld"
    homepage = "https://alfworld.github.io"
    reader = "genenv_jax.benchmarks.alfworld.tasks"
    citation = """@inproceedings{shridhar2021alfworld,
  title={ALFWorld: Aligning Text and Embodied Environments for Interactive Learning},
  author={Shridhar, Mohit and Yuan, Xingdi and C\\^ot\\'e, Marc-Alexandre and Bisk, Yonatan and Trischler,
    Adam and Hausknecht, Matthew},
  booktitle={ICLR}, year={2021}}"""


class GenenvBamboogle(TaskBuilder):
    """Bamboogle: 125 questions of two hops that no search engine answered at once."""

    benchmark = "bamboogle"
    homepage = "https://github.com/ofirpress/self-ask"
    reader = "genenv_jax.benchmarks.bamboogle.tasks"
    citation = """@inproceedings{press2023measuring,
  title={Measuring and Narrowing the Compositionality Gap in Language Models},
  author={Press, Ofir and Zhang, Muru and Min, Sewon and Schmidt, Ludwig and Smith, Noah A. and Lewis,
    Mike},
  booktitle={Findings of EMNLP}, year={2023}}"""


class GenenvTravelplanner(TaskBuilder):
    """TravelPlanner: trips of three to seven days under eight commonsense and five hard constraints."""

    benchmark = "travelplanner"
    homepage = "https://osu-nlp-group.github.io/TravelPlanner"
    reader = "genenv_jax.benchmarks.travelplanner.tasks"
    optional = ("HEAD/postprocess/example_evaluation.jsonl",)
    citation = """@inproceedings{xie2024travelplanner,
  title={TravelPlanner: A Benchmark for Real-World Planning with Language Agents},
  author={Xie, Jian and Zhang, Kai and Chen, Jiangjie and Zhu, Tinghui and Lou, Renze and Tian, Yuandong and
    Xiao, Yanghua and Su, Yu},
  booktitle={ICML}, year={2024}}"""


_BUILDERS = {
    cls.benchmark: cls
    for cls in (GenenvBfcl, GenenvApiBank, GenenvAlfworld, GenenvBamboogle, GenenvTravelplanner)
}


def names() -> list[str]:
    """The benchmarks that have a builder; BFCL is "bfcl" (v4), "bfcl/v3" or "bfcl/v4"."""
    return sorted(_BUILDERS)


def builder(name: str, data_dir: str | os.PathLike[str] | None = None) -> TaskBuilder:
    """The builder for a benchmark, prepared or not.

    Args:
      name: see `names`.
      data_dir: the TensorFlow Datasets directory; None uses $TFDS_DATA_DIR, by default
        ~/tensorflow_datasets.
    Raises:
      ValueError: the name is unknown.
    """
    benchmark, _, config = name.partition("/")
    cls = _BUILDERS.get(benchmark)
    known = [c.name for c in cls.BUILDER_CONFIGS] if cls else []
    if cls is None or (config and config not in known):
        raise ValueError(
            f"data set {name!r}: expected one of {', '.join(names())}, bfcl/v3, bfcl/v4"
        )
    root = data_dir or os.environ.get("TFDS_DATA_DIR")
    options: dict[str, Any] = {"data_dir": str(root)} if root else {}
    if known:
        options["config"] = config or known[0]
    return cls(**options)

"""A benchmark's tasks as a TensorFlow Dataset in array_record files; no TensorFlow is needed."""

import importlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow_datasets as tfds

from genenv_jax.benchmarks.base import Task

_TEXTS = ("id", "benchmark", "category", "origin")
_JSON = ("messages", "tools", "answer")


class Tasks(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """The data set `genenv_<name>`, with the splits of the benchmark's reader, in the order of its files.

    An example has the fields of `Task` as strings; "messages", "tools" and "answer" are JSON.
    """

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, name: str, version: str, directory: pathlib.Path, data_dir: str | None = None):
        """Builds the data set from the benchmark's files in `directory`.

        Args:
          version: the benchmark's, if its reader takes one, else "".
          data_dir: None uses $TFDS_DATA_DIR, by default ~/tensorflow_datasets.
        """
        self.name = f"genenv_{name}"
        self._directory = directory
        self._reader = importlib.import_module(f"genenv_jax.benchmarks.{name}.tasks")
        config = tfds.core.BuilderConfig(name=version) if version else None
        data_dir = data_dir or os.environ.get("TFDS_DATA_DIR")
        super().__init__(data_dir=data_dir, config=config, file_format="array_record")

    def _info(self) -> tfds.core.DatasetInfo:
        features = {name: tfds.features.Text() for name in (*_TEXTS, *_JSON)}
        return tfds.core.DatasetInfo(
            builder=self,
            description=self._reader.__doc__,
            features=tfds.features.FeaturesDict(features),
            disable_shuffling=True,  # keep the order of the files
        )

    def _split_generators(self, dl_manager: Any) -> Mapping[str, Any]:
        version = [self.builder_config.name] if self.builder_config else []
        splits = self._reader.splits(self._directory, *version)
        if not any(splits.values()):
            raise ValueError(f"{self._directory}: no tasks of {self.name.removeprefix('genenv_')}")
        return {name: self._generate_examples(tasks) for name, tasks in splits.items() if tasks}

    def _generate_examples(self, tasks: list[Task]) -> Iterator[tuple[int, dict[str, str]]]:
        for index, task in enumerate(tasks):
            record = task.to_json()
            texts = {name: json.dumps(record[name], ensure_ascii=False) for name in _JSON}
            yield index, texts | {name: record[name] for name in _TEXTS}

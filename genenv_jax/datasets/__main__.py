"""Downloads or checks the files of a benchmark, and exports its tasks as a TensorFlow Dataset.

genenv datasets --name=bfcl [--data_dir=DIR] [--manual_dir=DIR]
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from genenv_jax import cli
from genenv_jax.benchmarks import data_files
from genenv_jax.datasets import download

_VERSIONS = {"bfcl": ("v4", "v3")}  # the first is what the bare name means
# Optional files; without them there are fewer splits.
_OPTIONAL = ("HEAD/postprocess/example_evaluation.jsonl",)


def main(argv: Sequence[str] | None = None) -> None:
    """The command line; `argv` excludes the program name.  Exits with status 2 on a user error."""
    benchmarks = data_files.names()
    versioned = [f"{name}/{v}" for name in benchmarks for v in _VERSIONS.get(name, ())]
    latest = "".join(f"; {name} is {name}/{versions[0]}" for name, versions in _VERSIONS.items())
    names = f"one of {', '.join([*benchmarks, *versioned])}{latest}"
    parser = cli.Parser(
        prog="genenv datasets", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", help=names)
    parser.add_argument("--data_dir", help="default: $TFDS_DATA_DIR or ~/tensorflow_datasets")
    parser.add_argument("--manual_dir", help="directory with the published files; nothing is downloaded")
    arguments = parser.parse_args(argv)
    if arguments.name not in (*benchmarks, *versioned):
        given = f"--name={arguments.name}" if arguments.name else "--name is missing"
        parser.error(f"{given}: expected {names}")
    name, _, version = arguments.name.partition("/")
    version = version or _VERSIONS.get(name, ("",))[0]
    with cli.one_line_errors():
        directory = _files(name, version, arguments)
        # Imported here because it takes seconds, so that a wrong flag or file is reported at once.
        import tensorflow_datasets as tfds

        from genenv_jax.datasets import export

        if not sys.stderr.isatty():
            tfds.disable_progress_bar()
        builder = export.Tasks(name, version, directory, arguments.data_dir)
        renew = tfds.GenerateMode.REUSE_CACHE_IF_EXISTS  # the files may have changed
        builder.download_and_prepare(download_config=tfds.download.DownloadConfig(download_mode=renew))
    for split, info in builder.info.splits.items():
        print(f"{split:40} {info.num_examples:6}")
    print(f"data set: {builder.data_path}")
    print(f"files:    {directory}")


def _files(name: str, version: str, arguments: argparse.Namespace) -> pathlib.Path:
    """The directory of the benchmark's files, which are all there and as published."""
    paths = [s.path for s in data_files.sources(name) if s.path.startswith(version)]
    if not arguments.manual_dir:
        directory = data_files.prepared_directory(arguments.data_dir) / name
        download.download(name, paths, directory)
    else:
        manual = pathlib.Path(arguments.manual_dir)
        if not manual.is_dir():
            raise NotADirectoryError(f"--manual_dir: {manual} is not a directory")
        directory = manual / name if (manual / name).is_dir() else manual
        paths = [p for p in paths if p not in _OPTIONAL or (directory / p).is_file()]
    data_files.verify(name, directory, paths)
    return directory


if __name__ == "__main__":
    main()

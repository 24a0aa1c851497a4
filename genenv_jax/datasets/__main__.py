"""Downloads or checks the files of a benchmark, and prepares them as a TensorFlow Dataset.

genenv datasets --name=bfcl [--data_dir=DIR] [--manual_dir=DIR]
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import urllib.parse
from collections.abc import Sequence

from genenv_jax import cli
from genenv_jax.benchmarks import data_files


def main(argv: Sequence[str] | None = None) -> None:
    """The command line; `argv` excludes the program name.  Exits with status 2 on a user error."""
    from genenv_jax.datasets import builders

    parser = cli.Parser(
        prog="genenv datasets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = f"one of {', '.join(builders.names())}"
    parser.add_argument("--name", help=names)
    parser.add_argument("--data_dir", help="default: $TFDS_DATA_DIR or ~/tensorflow_datasets")
    parser.add_argument("--manual_dir", help="where the published files already are: no download")
    arguments = parser.parse_args(argv)
    if not arguments.name:
        parser.error(f"--name is missing: expected {names}")
    import requests
    import tensorflow_datasets as tfds

    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    manual = arguments.manual_dir
    if manual and not pathlib.Path(manual).is_dir():
        cli.fail(f"--manual_dir: {manual} is no directory")
    options = tfds.download.DownloadConfig(manual_dir=manual)
    with cli.one_line_errors():
        builder = builders.builder(arguments.name, arguments.data_dir)
        try:
            builder.download_and_prepare(download_config=options)
        except requests.ConnectionError as error:
            url = error.request.url if error.request else ""
            host = urllib.parse.urlsplit(url).hostname or "the server"
            cli.fail(f"{host} cannot be reached; --manual_dir takes files that you have")
    for name, split in builder.info.splits.items():
        print(f"{name:40} {split.num_examples:6}")
    print(f"data set: {builder.data_path}")
    if not arguments.manual_dir:
        files = data_files.prepared_directory(arguments.data_dir) / builder.benchmark
        print(f"files:    {files}")


if __name__ == "__main__":
    main()

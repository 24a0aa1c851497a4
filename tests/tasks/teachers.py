"""A teacher that asks a server of the tests."""

from unittest import mock

from genenv_jax.benchmarks.bamboogle import tasks
from genenv_jax.benchmarks.bamboogle.benchmark import Bamboogle
from genenv_jax.benchmarks.base import Rejection
from genenv_jax.scoring.scorer import ScoringConfig
from genenv_jax.scoring.verification import VerificationConfig, Verifier
from genenv_jax.tasks.teacher import Teacher, TeacherConfig

SEEDS = [
    tasks.make_task(f"seed-{i}", f"Where was {name} born?", ["Port Albert"], [])
    for i, name in enumerate(("Ann Miller", "Bo Lund", "Cy Young"))
]
HELD_OUT = [tasks.make_task("eval-0", "Where is the held out city?", ["Oslo"], [], origin="eval")]
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal", "Ida", "Jo", "Kim", "Lea")


def good(request):
    """A variation that is determined by the request's seed."""
    number = request["seed"]
    name = f"{NAMES[number % 12]} {NAMES[number // 12 % 12]} {number}"
    return f"New Task: In which town did {name} grow up?\nNew Answer: Lima{number}"


def hurried(concurrency=8, attempts=10):
    """A context in which no request is retried, with other bounds for the teacher."""
    bounds = {"CONCURRENCY": concurrency, "ATTEMPTS": attempts, "RETRIES": 0, "TIMEOUT": 10.0}
    return mock.patch.multiple("genenv_jax.tasks.teacher", **bounds)


def ask(workdir, url, count, benchmark=None, seeds=SEEDS, too_long=(), budget=0, **bounds):
    """The tasks that the teacher writes, in a workdir that may hold answers; `bounds` as in `hurried`."""
    benchmark = benchmark or Bamboogle()
    workdir.mkdir(exist_ok=True)
    held_out = HELD_OUT if benchmark.name == "bamboogle" else ()
    reject = lambda task: Rejection("too_long") if task.id in too_long else None  # noqa: E731
    verifier = Verifier(benchmark, seeds, held_out, VerificationConfig(near_duplicate=0.0), reject)
    with hurried(**bounds):
        teacher = Teacher(benchmark, TeacherConfig(url, "m-72b", budget=budget), workdir, 0)
        return teacher.write(count, seeds, verifier.decide, ScoringConfig())

"""A session without players: the records that its parts get when a run resumes."""

from genenv_jax.benchmarks.dial.chains import Dial
from genenv_jax.run.checkpoint import CheckpointConfig
from genenv_jax.run.session import Session
from genenv_jax.run.tracking import Trackers, TrackingConfig


class Reads:
    """A part that reads all tasks, twice."""

    def state(self):
        return "state"

    def restore(self, state, tasks):
        self.state_then, self.first, self.second = state, list(tasks), list(tasks)


def opened(workdir, part):
    session = Session(workdir, 0, 9, 0, 0, CheckpointConfig())
    session.register(part=part)
    session.open(Trackers(TrackingConfig(trackers=()), workdir, {}))
    return session


def test_every_part_reads_the_accepted_tasks_from_the_file(tmp_path):
    workdir, tasks = tmp_path / "run", list(Dial(num_seeds=4).tasks("seed"))
    session = opened(workdir, Reads())
    lines = [{"task": task.to_json()} for task in tasks]
    with session.running():
        session.files.tasks.append([lines[0], {"task": None}, *lines[1:]])
        session.finished = 1
        session.save()
        session.files.tasks.append([{"task": "of an epoch that was not finished"}])
    part = Reads()
    again = opened(workdir, part)
    with again.running():
        assert (again.finished, part.state_then) == (1, "state")
        assert part.first == part.second == tasks

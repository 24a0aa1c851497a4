"""The embedded default in turns: agents trained over whole episodes, from scratch on a laptop's CPU.

    genenv train --config=configs/dial_turns.py --workdir=runs/dial-turns

A 0.2 M parameter Qwen2 model is trained on noisy demonstrations (once, then cached) and becomes both the
agent and the simulator of Dial in turns.  The agent calls one tool at a time and reads the dial's new
position, on which some calls depend.  The simulator writes the programs and the calls that they make.

On two busy cores, the base model takes 6 minutes and the epochs 4.  With one random seed, held-out success at
temperature 1 rose from .26 to .54, on the deeper tasks from .03 to .29, and p̂ of the generated tasks rose
from .25 to .7 or more, too easy in the end.  A quarter of the first generations was valid, later about half.

    genenv train --config=configs/dial_turns.py:debug --workdir=runs/dial-turns-debug

is a one-minute smoke test on a CPU: two epochs on a dozen tasks, with a hardly trained model.
"""

from ml_collections import ConfigDict

from genenv_jax.configs import quickstart


def get_config(arg: str = ""):
    if arg not in ("", "debug"):
        raise ValueError(f"configs/dial_turns.py takes no argument or 'debug', got {arg!r}")
    config = quickstart.get_config()
    config.epochs = 25
    # Small enough that a model of this size writes valid programs after a few minutes of training: it must
    # compute every choice and every position in a program.
    config.benchmark = ConfigDict(
        {
            "name": "dial_turns",
            "positions": 4,
            "max_depth": 3,
            "deeper": (4,),
            "seed_depths": (0.2, 0.4, 0.4),
        }
    )
    config.limits.agent_prompt = 44
    config.limits.agent_response = 8
    config.limits.agent_episode = 104  # at depth 4 with two refused calls
    config.limits.simulator_prompt = 44
    config.limits.simulator_response = 48
    config.agent.groups = "all"
    config.agent.batch_size = config.agent.minibatch_size = 64
    config.simulator.mixture = 0.0
    config.simulator.coverage = 0.0
    config.simulator.update_epochs = 4
    if arg == "debug":
        config.epochs = 2
        config.warm_start.steps = 40
        config.model.make.num_layers = 1
        config.model.make.hidden_size = 32
        config.model.make.intermediate_size = 64
        config.benchmark.num_seeds = 12
        config.benchmark.eval_per_depth = 2
        config.curriculum.seeds_per_epoch = 4
        config.agent.group_size = 4
        config.agent.base_share = 0.5
        for part in (config.agent, config.simulator):
            part.batch_size = part.minibatch_size = 4
        config.evaluation.sampled = 1
    return config

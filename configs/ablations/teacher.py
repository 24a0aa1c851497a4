r"""Offline data of a stronger, fixed generator; `:1.8` or `:3.3` tasks for each seed.

    python -m genenv_jax.main --config=configs/ablations/teacher.py:3.3 --workdir=runs/teacher

The rest is configs/quickstart.py, whose benchmark draws tasks itself.  `,NAME` after that takes
configs/NAME.py instead.  Where a benchmark draws none, a model behind any OpenAI-compatible server writes
them, before anything is trained (`pip install 'genenv_jax[endpoint]'`; the key is $OPENAI_API_KEY):

    python -m genenv_jax.main --workdir=runs/teacher-bfcl --config='configs/ablations/teacher.py:3.3,bfcl;\
tasks.teacher.url=http://localhost:8000/v1;tasks.teacher.model=Qwen/Qwen2.5-72B-Instruct;\
tasks.teacher.budget=5000000'

The budget is of tokens, those of prompts included.  A command that was interrupted, or whose budget was too
small, goes on without paying for an answer twice; teacher.json in the workdir says what it cost.
"""

from genenv_jax import arms


def get_config(arg: str = ""):
    return arms.arm_config(__file__, arms.teacher, arg or "3.3")

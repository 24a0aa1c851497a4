"""The protocol: arms × seeds, then statistics, tables, figures and one page.

    python -m genenv_jax.experiment --config=configs/ablations/suite.py --workdir=runs/suite

Each run is a process of `genenv_jax.main` in WORKDIR/<arm>/seed-<s>.  An interrupted suite is continued by
the same command: finished runs are kept, a run that was broken off goes on.  A run that fails is reported
with the end of its log and does not stop the others; the exit code is then 1.  With --report_only nothing
is run, and the report is of the runs that are finished so far; it needs no --config.  It is written to
WORKDIR/report.
"""

from __future__ import annotations

import pathlib
import sys

from absl import flags
from ml_collections import config_flags

from genenv_jax import cli


def main() -> None:
    """Checks the suite, runs what is left of it and writes the report."""
    from genenv_jax.experiments.curves import load_results
    from genenv_jax.experiments.page import write_report
    from genenv_jax.experiments.stored import stored_plan
    from genenv_jax.experiments.suite import (
        Interrupted,
        Runner,
        compare_or_store,
        is_done,
        make_plan,
    )

    workdir, report_only = pathlib.Path(flags.FLAGS.workdir), flags.FLAGS.report_only
    complete = True
    with cli.one_line_errors():
        if CONFIG.value is not None:
            plan = make_plan(CONFIG.value)
        elif report_only:
            plan = stored_plan(workdir)
        else:
            raise ValueError("--config is missing: expected the configuration file of a suite")
        if not report_only:
            try:
                complete = Runner(plan, workdir).run()
            except Interrupted as error:
                print(f"interrupted by {error}; the same command continues", file=sys.stderr)
                sys.exit(128 + error.signum)
        elif CONFIG.value is not None:
            compare_or_store(plan, workdir, store=False)
        if not complete and not any(is_done(plan, workdir, *run) for run in plan.runs()):
            sys.exit(1)  # what failed is said, and there is nothing to report
        results = load_results(plan, workdir)
        files = write_report(results, workdir / "report")
    print(files.summary)
    print(f"\npage: {files.page}")
    if not complete:
        sys.exit(1)


if __name__ == "__main__":
    CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration file of the suite.")
    flags.DEFINE_string("workdir", None, "Directory of the runs and of the report.")
    flags.DEFINE_bool("report_only", False, "Write the report of the finished runs; run nothing.")
    flags.mark_flag_as_required("workdir")
    cli.run(main)

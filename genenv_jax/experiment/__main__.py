"""Runs the protocol: arms × seeds, then statistics, tables, figures and one page.

    genenv experiment --config=configs/ablations/suite.py --workdir=runs/suite

Each run is a process of `genenv_jax.main` in WORKDIR/<arm>/seed-<s>.  The same command continues an
interrupted suite: finished runs are kept, interrupted runs are continued.  A failed run is reported with the
end of its log and does not stop the others; the exit code is then 1.  With --report_only, nothing is run and
the report covers the runs finished so far; it needs no --config.  The report is written to WORKDIR/report.
"""

import pathlib
import sys

from absl import flags

from genenv_jax import cli
from genenv_jax.system.ownership import SUITE_REPORT, place, refuse_other


def main() -> None:
    """Checks the suite, runs what is left of it and writes the report."""
    from genenv_jax.experiment.plan import compare_or_store, make_plan, stored_plan
    from genenv_jax.experiment.runner import Runner
    from genenv_jax.results.pages import write_suite_page
    from genenv_jax.results.suites import load_results

    config, report_only = flags.FLAGS.config, flags.FLAGS.report_only
    workdir = pathlib.Path(flags.FLAGS.workdir)
    out = workdir / "report"
    complete = True
    with cli.one_line_errors():
        if config is not None:
            plan = make_plan(config)
        elif report_only:
            plan = stored_plan(workdir)
        else:
            raise ValueError("--config is missing: expected the configuration file of a suite")
        refuse_other(out, SUITE_REPORT, "the report's directory")
        if report_only:
            compare_or_store(plan, workdir, store=False)
        else:
            complete = Runner(plan, workdir).run()
        if not complete and not any(plan.is_done(workdir, *run) for run in plan.runs()):
            sys.exit(1)  # there is nothing to report
        results = load_results(plan, workdir)
        with place(out, SUITE_REPORT, "the report's directory"):
            page, summary = write_suite_page(results, out)
    print(f"{summary}\n\npage: {page}")
    if not complete:
        sys.exit(1)


if __name__ == "__main__":
    cli.define_config("Configuration file of the suite.")
    flags.DEFINE_string("workdir", None, "Directory of the runs and of the report.")
    flags.DEFINE_bool("report_only", False, "Write the report of the finished runs; run nothing.")
    flags.mark_flag_as_required("workdir")
    cli.run(main)

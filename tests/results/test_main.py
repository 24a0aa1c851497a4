from genenv_jax import report
from genenv_jax.results.tables import headline
from tests.commands import exit_code, printed
from tests.results.synthetic import append


def test_it_prints_the_table_and_the_paths(run, reported):
    out, said = reported
    assert said == f"{headline(run).markdown()}\npage:   {out / 'report.html'}\n"


def test_a_missing_workdir_is_named(tmp_path, capsys):
    assert exit_code(report.main, [str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'nowhere'}: no such directory\n"


def test_without_jax_on_an_ascii_terminal(tmp_path):
    append(tmp_path, "metrics", {"step": 0})
    code = (
        "import runpy, sys\n"
        "runpy.run_module('genenv_jax.report', run_name='__main__')\n"
        "print(sorted({'jax', 'clu', 'tensorflow', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    said = printed(code, tmp_path, "--out", tmp_path / "out", PYTHONIOENCODING="ascii")
    assert said.splitlines()[-1] == "[]"
    assert "p? of generated tasks" in said
    assert (tmp_path / "out" / "report.html").is_file()

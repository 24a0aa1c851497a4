"""Uploads to the hub, which is never contacted: `HfApi` is a stand-in."""

import json
from unittest import mock

import huggingface_hub
import pytest

from genenv_jax.publish.__main__ import main
from tests.commands import exit_code


@pytest.fixture
def exported(tmp_path):
    folder = tmp_path / "agent"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "README.md", "notes.txt"):
        (folder / name).write_text("{}")
    return folder


def client():
    """A stand-in for the hub's client; a repository that exists is private."""
    hub = mock.create_autospec(huggingface_hub.HfApi, instance=True)
    hub.repo_info.return_value.private = True
    hub.upload_folder.return_value.commit_url = "https://huggingface.co/me/model/commit/1"
    return hub


@pytest.fixture
def hub(monkeypatch):
    hub = client()
    monkeypatch.setattr(huggingface_hub, "HfApi", mock.Mock(return_value=hub))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    return hub


def test_an_export_is_uploaded_privately(exported, hub, capsys):
    assert exit_code(main, [str(exported), "me/model"]) == 0
    assert capsys.readouterr().out == "https://huggingface.co/me/model/commit/1\n"
    huggingface_hub.HfApi.assert_called_once_with(token="hf_secret")
    hub.create_repo.assert_called_once_with("me/model", private=True, exist_ok=True)
    options = hub.upload_folder.call_args.kwargs
    assert (options["repo_id"], options["folder_path"]) == ("me/model", exported)
    assert options["commit_message"] == "Upload of agent"
    template = "additional_chat_templates/tool_use.jinja"
    sent = huggingface_hub.utils.filter_repo_objects(
        [path.name for path in exported.iterdir()] + ["old/config.json", template],
        allow_patterns=options["allow_patterns"],
        ignore_patterns=options["ignore_patterns"],
    )
    assert sorted(sent) == ["README.md", template, "config.json", "model.safetensors"]


def test_public_is_asked_for(exported, hub, capsys):
    hub.repo_info.return_value.private = False
    assert exit_code(main, [str(exported), "me/model"]) == 2
    assert "me/model is public: expected --public" in capsys.readouterr().err
    assert not hub.upload_folder.called
    assert exit_code(main, [str(exported), "me/model", "--public"]) == 0
    assert hub.upload_folder.called and hub.create_repo.call_args.kwargs["private"] is False


@pytest.mark.parametrize("name", ["model", "a/b/c", "me/a--b", "me/.x", "/model", "me/"])
def test_a_bad_name_is_one_line(exported, hub, capsys, name):
    assert exit_code(main, [str(exported), name]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: repository {name!r}: expected OWNER/NAME")
    assert error.count("\n") == 1 and not hub.method_calls


def test_without_a_token_it_is_one_line(exported, hub, capsys, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert exit_code(main, [str(exported), "me/model"]) == 2
    assert "error: no token for the hub: expected one in HF_TOKEN" in capsys.readouterr().err
    assert not hub.method_calls


def test_what_the_hub_refuses_is_one_line(exported, hub, capsys):
    hub.create_repo.side_effect = ConnectionError("no route\nto host")
    assert exit_code(main, [str(exported), "me/model"]) == 2
    assert capsys.readouterr().err == "error: me/model could not be uploaded: no route to host\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda at: (at / "README.md").unlink(), "no README.md; expected an exported model"),
        (lambda at: (at / "config.json").unlink(), "no *config.json"),
        (lambda at: (at / "model.safetensors").unlink(), "no *.safetensors"),
        (lambda at: (at / "config.json").write_text("["), "not valid JSON"),
    ],
)
def test_what_is_no_export_is_named(exported, hub, capsys, change, message):
    change(exported)
    assert exit_code(main, [str(exported), "me/model"]) == 2
    assert message in capsys.readouterr().err and not hub.method_calls


@pytest.mark.parametrize("base", ["/home/me/base", "~/base", "../base", "here", 3])
def test_an_adapter_of_a_base_on_this_disk_is_refused(exported, hub, capsys, monkeypatch, base):
    monkeypatch.chdir(exported.parent)
    (exported.parent / "here").mkdir()
    adapter = exported / "adapter_config.json"
    adapter.write_text(json.dumps({"base_model_name_or_path": base}))
    assert exit_code(main, [str(exported), "me/model"]) == 2
    assert f"base_model_name_or_path = {base!r} is a path on this machine" in capsys.readouterr().err
    assert not hub.method_calls
    adapter.write_text(json.dumps({"base_model_name_or_path": "Qwen/Qwen2.5-7B-Instruct"}))
    assert exit_code(main, [str(exported), "me/model"]) == 0

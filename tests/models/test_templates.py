"""Chat templates that take too much."""

import pathlib

import pytest

from genenv_jax.models import templates
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.templates import check
from tests import tiny

# Most of the memory is allocated but never written, which takes no time.
GROWING = "{% set all = namespace(x='ab') %}{% for _ in range(9) %}{% set all.x = all.x * 64 %}{% endfor %}"
IN_LETTERS = "{% for m in messages %}IN{% endfor %}"
for name in "abc":
    loop = f"{{% for {name} in m.content %}}IN{{% endfor %}}"
    IN_LETTERS = IN_LETTERS.replace("IN", loop)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "2 s"),
        (IN_LETTERS, "2 s"),
        ("{% set x = 'a' * 10**10 %}", "2 GiB"),
        ("{% if messages | length > 9 %}{{ 'a' | center(10**10) }}{% endif %}", "2 GiB"),
        (GROWING, "2 GiB"),
        ("{{ 'abc' * 10**6 }}", "writes 3,000,000 characters"),
    ],
)
def test_a_template_that_takes_too_much_is_refused(bounded, template, message):
    with pytest.raises(ValueError, match=message):
        check(pathlib.Path("m"), template)


@pytest.mark.parametrize(
    "template",
    [
        tiny.CHAT_TEMPLATE,
        "{{ raise_exception('never') }}",
        "{% for %}",
        "{{ messages[0].content * 2 }}{% generation %}x{% endgeneration %}",
    ],
)
def test_other_templates_are_left_to_their_users(template):
    check(pathlib.Path("m"), template)


def test_a_model_directory_with_such_a_template(tmp_path, monkeypatch):
    """Also where it is one of several."""
    monkeypatch.setattr(templates, "check", check)
    tiny.write_model(tmp_path)
    LanguageModel.load(tmp_path)
    named = [{"name": "default", "template": "x"}, {"name": "tool_use", "template": "{{ 'a' * 10**10 }}"}]
    tiny.write_tokenizer(tmp_path, chat_template=named)
    with pytest.raises(ValueError, match=f"{tmp_path}: the chat template takes more than 2 GiB"):
        LanguageModel.load(tmp_path)

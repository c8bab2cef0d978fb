"""Tests that no template or pattern of a task file can take forever, fill memory or escape."""

from __future__ import annotations

import re
import time

import pytest

from lm_eval import regexes
from lm_eval.cli import main
from lm_eval.errors import ConfigError, DataError, EvalError
from lm_eval.filters.extraction import RegexFilter
from lm_eval.metrics.functions import exact_match
from lm_eval.prompts import template_limits
from lm_eval.prompts.plain_templates import is_plain
from lm_eval.prompts.template import apply_template, render_limit, renders_none, syntax_error
from lm_eval.prompts.template_limits import TooMuchWorkError, interrupted_after
from tests.conftest import Folder

DOC = {"q": "abc " * 10, "items": list(range(40)), "n": 2}

TOO_MUCH = {
    "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "loops with a filter": "{% for a in range(99999) if range(99999)|list %}{% endfor %}",
    "a long loop over text": "{% for a in range(99999) %}{{ q * 9999 }}{% endfor %}",
    "text in a long loop": f"{{% for a in range(99999) %}}{'x' * 999}{{% endfor %}}",
    "a recursive macro": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}"
    ),
    "a macro that doubles a list": (
        "{% macro f(a, n) %}{% if n %}{{ f([a, a], n - 1) }}{% else %}{{ a }}{% endif %}"
        "{% endmacro %}{{ f('xxxxxxxx', 40) }}"
    ),
    "a macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a multiplied text": "{{ 'x' * 10000000000 }}",
    "a multiplied list": "{{ [0] * 10000000000 }}",
    "a text multiplied by a column": "{{ q * (n ** 60) }}",
    "a power": "{{ 9 ** 999999999 }}",
    "a product of powers": "{{ (2 ** 4000) * (2 ** 4000) }}",
    "a width of a format": "{{ '%9999999999d' % 1 }}",
    "a width that is an argument": "{{ '%*d' % (9999999999, 1) }}",
    "a width of str.format": "{{ '{:>9999999999}'.format(1) }}",
    "a nested width of str.format": "{{ '{:>{}}'.format(1, 9999999999) }}",
    "a width of the format filter": "{{ '%9999999999d'|format(1) }}",
    "a doubled text": "{% set a = q %}" + "{% set a = a ~ a %}" * 40 + "{{ a }}",
    "a doubled text with plus": "{% set a = q %}" + "{% set a = a + a %}" * 40 + "{{ a }}",
    "a doubled list": "{% set a = [q] %}" + "{% set a = [a, a] %}" * 40 + "{{ a }}",
    "a text doubled in a loop": (
        "{% set ns = namespace(a=q) %}{% for i in items %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}"
    ),
    "replacements": "{{ q" + ".replace('a', 'aaaaaaaaaa')" * 12 + " }}",
    "a replacement of nothing": "{{ q" + "|replace('', 'xxxxxxxxxx')" * 12 + " }}",
    "padding": "{{ q.ljust(10000000000) }}",
    "centring": "{{ q|center(10000000000) }}",
    "centring by map": "{{ items|map('center', 10000000000)|list }}",
    "zeros": "{{ '1'.zfill(10000000000) }}",
    "tabs": "{{ ('\\t' * 9999).expandtabs(99999) }}",
    "indentation": "{{ ('\\n' * 9999)|indent(99999) }}",
    "bytes of a number": "{{ (1).to_bytes(9999999999, 'big') }}",
    "batches": "{{ items|batch(9999999999, 'x')|list }}",
    "indented JSON": "{{ items|tojson(99999) }}",
    "digits": "{{ 1.5|round(9999999999, 'ceil') }}",
    "joined texts": "{{ (q * 9999).join(q * 9999) }}",
    "joined by the filter": "{{ (q * 9999)|join(q * 9999) }}",
    "a table of translations": "{{ (q * 9999).translate({97: q * 9999}) }}",
    "a replacement by a pattern": "{{ (q * 9999)|regex_replace('', q * 9999) }}",
    "nested parentheses": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "nested lists": "{{ " + "[" * 5_000 + "1" + "]" * 5_000 + " }}",
    "thirty loops inside each other": "{% for a in items %}" * 30 + "x" + "{% endfor %}" * 30,
    "a million expressions": "{{q}}" * 1_000_000,
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_work_is_refused_quickly_with_the_template(name: str) -> None:
    started = time.monotonic()
    with pytest.raises(EvalError) as caught:
        apply_template(TOO_MUCH[name], DOC)
    assert "template" in str(caught.value)
    assert time.monotonic() - started < 8


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ items.append(1) }}",
        "{{ items.clear() }}",
        "{{ items.sort() }}",
        "{{ self.__init__.__globals__ }}",
        "{{ lipsum.__globals__ }}",
        "{{ lipsum(n=100000) }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ '{0.__class__}'.format(q) }}",
        "{{ (q|attr('__class__')).mro() }}",
    ],
)
def test_a_template_reaches_and_changes_nothing_outside(template: str) -> None:
    doc = {"q": "x", "items": [2, 1]}
    with pytest.raises(EvalError):
        apply_template(template, doc)
    assert doc["items"] == [2, 1]


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        ("{% for i in items[:3] %}{{ loop.index }}/{{ loop.length }}{{ i }} {% endfor %}",
         "1/30 2/31 3/32 "),
        ("{% for i in items[:2] %}{{ i }}{{ ', ' if not loop.last }}{% endfor %}", "0, 1"),
        ("{% for i in [] %}x{% else %}none{% endfor %}", "none"),
        ("{{ 'ab' * 3 }}{{ 2 ** 10 }}{{ 7 % 3 }}{{ '%03d' % 7 }}", "ababab10241007"),
        ("{{ 'a' ~ 1 ~ n }}{{ [1] + [2] }}{{ '{:>4}'.format(1) }}", "a12[1, 2]   1"),
        ("{% set ns = namespace(a='') %}{% for i in items[:3] %}{% set ns.a = ns.a ~ i %}"
         "{% endfor %}{{ ns.a }}", "012"),
        ("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(1) }}{{ f('b') }}", "<1><b>"),
        ("{{ q.strip().replace('abc', 'x.y')|truncate(9) }}", "x.y..."),
        ("{{ q|regex_replace('(a)(b)', '\\\\2\\\\1') }}", "bac " * 10),
        ("{{ items[:3]|map('string')|join('-') }}{{ ','.join(['a', 'b']) }}", "0-1-2a,b"),
        ("{{ {'b': 1}|tojson(2) }}{{ 'a\nb'|indent(2) }}{{ 1.25|round(1) }}",
         '{\n  "b": 1\n}a\n  b1.2'),
    ],
)  # fmt: skip
def test_usual_templates_render_as_before(template: str, rendered: str) -> None:
    assert apply_template(template, DOC) == rendered


def test_a_none_is_found_in_templates_with_loops() -> None:
    template = "{% for i in items %}{{ i }}{% endfor %}"
    assert renders_none(template, {"items": [1, None]})
    assert not renders_none(template, {"items": [1, 2]})


def test_the_templates_of_the_library_need_no_limits() -> None:
    for template in ("{{q}}", "Q: {{q.strip()}}\nA:", "{{ choices.text }}", "{{ a|join(', ') }}"):
        assert is_plain(_tree(template))
    for template in ("{% for a in b %}{% endfor %}", "{{ a * b }}", "{{ a.center(9) }}"):
        assert not is_plain(_tree(template))


def _tree(template: str) -> object:
    from lm_eval.prompts.template import env

    return env.parse(template)


def test_a_rendering_that_takes_too_long_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MOST_STEPS", 10**12)
    slow = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with render_limit(0.2), pytest.raises(ConfigError, match="takes too long"):
        apply_template(slow, DOC)
    with pytest.raises(TooMuchWorkError), interrupted_after(0.1):
        time.sleep(5)


def test_validate_and_show_end_with_a_message(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.rows("rows.jsonl", [{"q": "x", "a": "y"}])
    file = folder.write(
        "slow.yaml",
        "task: slow\ndataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\n"
        "test_split: test\ndoc_to_target: a\n"
        f'doc_to_text: "{TOO_MUCH["a multiplied text"]}"\n',
    )
    assert main(["show", str(file)]) == 2
    assert "produces more than 20000000 characters" in capsys.readouterr().err
    assert main(["validate", str(file)]) == 1
    assert "produces more than 20000000 characters" in capsys.readouterr().out


def test_a_template_that_cannot_be_parsed_is_a_problem_of_the_file() -> None:
    assert "nested too deeply" in str(syntax_error(TOO_MUCH["nested parentheses"]))
    assert "too long" in str(syntax_error(TOO_MUCH["a million expressions"]))


# -- regular expressions ----------------------------------------------------------------------

CATASTROPHIC = {
    r"(a+)+$": "a" * 40 + "b",
    r"(a|a)*b": "a" * 40,
    r"(\w+\s?)*:": "word " * 40,
    r"(x+x+)+y": "x" * 40,
    r"(.*a){20}z": "a" * 60,
    r".*.*.*.*=": "a" * 3_000,
    r"^(\d+,?)+x": "1" * 50,
}


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_a_pattern_that_backtracks_forever_is_refused(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regexes, "SECONDS", 0.3)
    text = CATASTROPHIC[pattern]
    with pytest.raises(DataError, match=r"takes more than 0\.3 seconds"):
        RegexFilter(pattern).apply([[text]], [{}])
    with pytest.raises(DataError, match=r"takes more than 0\.3 seconds"):
        apply_template("{{ q|regex_replace(p, 'x') }}", {"q": text, "p": pattern})
    with pytest.raises(DataError, match=r"takes more than 0\.3 seconds"):
        exact_match(predictions=[text], references=["x"], regexes_to_ignore=[pattern])


@pytest.mark.parametrize(
    "pattern",
    [
        r"(\w+ )*x",
        r"((\w+ )*x)",
        r"(?i)(A|B)+",
        r"(?:\d+,?)+",
        r"#### (\-?[0-9\.\,]+)",
        "",
        r"(é)*",
    ],
)
def test_patterns_in_the_second_process_find_the_same(pattern: str) -> None:
    text = "ab cd 1,234 x #### 12.5 AB abé\ud800 ü\n" * 3
    compiled = re.compile(pattern)
    assert regexes.findall(compiled, text) == compiled.findall(text)
    assert regexes.sub(compiled, r"<\g<0>>", text, 2) == compiled.sub(r"<\g<0>>", text, count=2)
    with pytest.raises(re.error):
        regexes.sub(re.compile(r"(\w+ )*x"), r"\9", text)


@pytest.mark.parametrize(
    "pattern", [r"(-?[$0-9.,]{2,})|(-?[0-9]+)", r"#### (\-?[0-9\.\,]+)", r"answer is (.*)\."]
)
def test_usual_patterns_start_no_process(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regexes._worker, "ask", None)
    text = "The answer is 42. #### 42 " * 30
    assert regexes.findall(re.compile(pattern), text) == re.findall(pattern, text)

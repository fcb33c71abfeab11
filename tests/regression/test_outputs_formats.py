"""Every form of a comparison is valid, small enough, and does nothing that a name in a trace asks for."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.regression.documents import piped, report
from tests.regression.xsd import faults
from tracekit.compare import Rules, compare, snapshot, without_baseline
from tracekit.compare.budgets import budget
from tracekit.compare.reread import checked
from tracekit.report.regression import github, gitlab, is_news, junit, markdown, text

SCHEMA = Path(__file__).with_name("junit.xsd")
RULES = Rules(resamples=50, budgets=(budget("bubble_ratio <= 0.15"), budget("tokens_per_second >= 1")))
NASTY = (
    "@octocat #12 org/repo#3 GH-4 !5 [x](http://evil.example) ![i](https://evil.example/i.png) <img src=x onerror=alert(1)> <!-- x --> --> "
    "`code` **b** |cell| www.evil.example me@evil.example </details> ::error::boo ##[add-mask]x $(touch x) &#64;you &lt;b&gt; "
    "\n::error::x\r\n# h\n- l \x1b[31m \ud800 \ufffe"
)


@pytest.fixture(scope="module")
def document():
    """Regressed in every way: a broken and an unknown limit, a fact, times, a layer, and a history that creeps."""
    base = [snapshot(piped(report(step_ms=100 * (1 + n / 1000))), f"base/{n}") for n in range(8)]
    head = [snapshot(piped(report(step_ms=111 * (1 + n / 1000), transfer_ms={2: 4.5, 3: 4.5}, count={1: 2})), f"head/{n}") for n in range(8)]
    history = [(f"c{n}", [snapshot(piped(report(step_ms=100 * 1.01**n)))]) for n in range(10)]
    return compare(base, head, RULES, history=history, scenario="tp2").to_dict()


@pytest.fixture(scope="module")
def nothing():
    return without_baseline([snapshot(report(), "head")], Rules(), "tp2")


def named(document, name):
    """The same document with another name wherever a name can stand."""

    def row(r):
        return {**r, "where": dict.fromkeys(r["where"], name) | ({name: name} if r["where"] else {}), "title": name, "id": f"{name}{r['id']}", "reason": name}

    drift = [{**row(d), "sentence": name, "points": [name], "commits": [name] * len(d["commits"])} for d in document["drift"]]
    budgets = [{**b, "budget": name, "reason": name} for b in document["budgets"]]
    differs = [{"name": name, "base": name, "head": [name], "text": name}]
    parts = [{**p, "part": name, "axis": name} for p in document["attribution"]["parts"]]
    head = [{**h, "source": name, "git_commit": name} for h in document["head"]]
    return {
        **document, "sentence": name, "scenario": name, "notes": [name], "metrics": [row(r) for r in document["metrics"]], "drift": drift, "budgets": budgets,
        "fingerprint": {**document["fingerprint"], "differs": differs, "forced": True}, "attribution": {"parts": parts, "layers": []}, "head": head,
    }  # fmt: skip


@pytest.fixture(scope="module")
def many(document):
    """The same document with ten thousand changed numbers."""
    rows = [r for r in document["metrics"] if r["verdict"] == "regressed"]
    made = [{**rows[n % len(rows)], "id": f"{n} {NASTY}", "where": {"rank": str(n), "layer": "layers.1" if n % 10 else NASTY}} for n in range(10_000)]
    return {**document, "metrics": made, "budgets": document["budgets"] * 200, "notes": [NASTY * 5] * 100}


class Seen(HTMLParser):
    """What a browser would make of HTML."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text, self.comments = [], set(), [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {a for a, _ in attrs}

    def handle_data(self, data):
        self.text.append(data)

    def handle_comment(self, data):
        self.comments.append(data)


def harmless(source):
    """Markdown as a forge renders it: only our own markup, and no text that a forge would make a mention or a link of."""
    seen = Seen(MarkdownIt("commonmark").enable("table").render(source))
    assert set(seen.tags) <= {"p", "details", "summary", "sub", "table", "thead", "tbody", "tr", "th", "td", "strong", "ul", "li", "h3"}
    assert seen.attributes <= {"open", "style"}
    assert seen.tags.count("details") == source.count("</details>")
    assert len(seen.comments) == 1 and source.rstrip("\n").endswith(f"<!--{seen.comments[0]}-->")
    linked = re.search(r"@\w|#\d|GH-\d|!\d|://\S|www\.|mailto:", "".join(seen.text).replace("://\u200b", ""))
    assert linked is None, linked
    return seen


def test_markdown_answers_in_its_first_line_and_can_be_found_again(document):
    made = markdown.render(document)
    lines = made.splitlines()
    assert lines[0].startswith("❌ **Regressed**: limit bubble\\_ratio &lt;= 0.15 is broken and 1 more;")
    assert lines[-1] == "<!-- tracekit: tp2 -->"
    seen = harmless(made)
    assert seen.tags.count("table") == seen.tags.count("details") >= 4
    assert "all-reduce of layer 1 (tp, forward): calls per step 1 → 2" in "".join(seen.text)


def test_markdown_of_names_that_ask_for_more(document):
    harmless(markdown.render(named(document, NASTY)))
    assert markdown.tag(NASTY).count("-->") == 1


@pytest.mark.parametrize(("made", "limit"), [(markdown.render, 60_000), (github.summary, 1 << 20)])
def test_ten_thousand_findings_are_cut_between_rows_and_counted(many, made, limit):
    wide = [{**r, "title": "@a#1<é" * 20, "where": {"layer": "@a#1<é" * 20}} for r in many["metrics"]]
    source = made({**many, "metrics": wide})
    assert 0.95 * limit < len(source.encode()) < limit
    told = source if limit > 60_000 else "".join(harmless(source).text)
    shown = len(re.findall(r"^\| (?!metric|fact|limit)", source, re.MULTILINE))
    assert source.count("</details>") == source.count("<details")
    left_out = int(re.search(r"([\d,]+) rows are left out here", told)[1].replace(",", ""))
    assert shown > 20 and shown + left_out > 9_000
    assert re.search(r"of [\d,]+ shown; the JSON document holds all", told) and "more notes are in the JSON document" in told


def test_silent_where_nothing_changed(document, nothing):
    same = compare([snapshot(report())], [snapshot(report())], Rules(resamples=10)).to_dict()
    assert (same["verdict"], is_news(same), github.commands(same)) == ("unchanged", False, [])
    assert not is_news(nothing) and is_news(document)
    few = compare([snapshot(report())], [snapshot(report(step_ms=100.1))], Rules(resamples=10)).to_dict()
    assert few["verdict"] == "inconclusive" and is_news(few) and not is_news({**few, "exit_code": 0})


def test_five_annotations_at_most_each_one_command(document, many):
    for made in (document, named(document, NASTY), many):
        lines = github.commands(made)
        assert len(lines) == github.MOST_ANNOTATIONS
        assert all(re.fullmatch(r"::(error|warning|notice) title=[^:,\r\n]*::[^\r\n]*", line) for line in lines)
    assert github.command("error", "a:b,c%", "50 %\r\nx::y") == "::error title=a%3Ab%2Cc%25::50 %25%0D%0Ax::y"
    assert github.commands(document)[0].startswith("::error title=tracekit%3A regressed::limit bubble_ratio <= 0.15")


def read_outputs(lines):
    """What the runner makes of a GITHUB_OUTPUT file."""
    found, rest = {}, lines.split("\n")
    while rest and rest[0]:
        name, _, end = rest[0].partition("<<")
        at = rest.index(end, 1)
        found[name], rest = "\n".join(rest[1:at]), rest[at + 1 :]
    return found


def test_outputs_hold_three_values_whatever_is_in_them(document, nothing):
    assert read_outputs(github.outputs(document)) == {"verdict": "regressed", "sentence": document["sentence"], "exit_code": "1"}
    assert read_outputs(github.outputs({**document, "sentence": "a\nverdict<<EOF\nunchanged\nEOF\n"})).keys() == {"verdict", "sentence", "exit_code"}
    assert read_outputs(github.outputs(nothing))["verdict"] == "no_baseline"


def test_junit_meets_its_schema_and_counts_what_it_holds(document):
    made = junit.render(document)
    assert faults(made, SCHEMA) == []
    suite = ElementTree.fromstring(made.encode())[0]
    cases = {(c.get("classname"), c.get("name")): c for c in suite}
    assert len(cases) == len(suite) == int(suite.get("tests"))
    assert cases["tracekit", "comparison"].find("failure").get("message").startswith("regressed: limit bubble_ratio <= 0.15 is broken")
    assert cases["tracekit.limits", "bubble_ratio <= 0.15"].find("failure") is not None
    assert "no run of the head has this number" in cases["tracekit.limits", "tokens_per_second >= 1"].find("skipped").get("message")
    assert cases["tracekit.facts", "collective_count[axis=tp kind=all_reduce direction=forward layer=layers.1]"].find("failure") is not None
    assert cases["tracekit.parts", "forward_ns"].find("failure") is None
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) > 5
    warned = {**document, "metrics": [{**r, "severity": "warn"} for r in document["metrics"]]}
    assert ElementTree.fromstring(junit.render(warned).encode()).findall(".//testcase[@classname='tracekit.facts']/failure") == []


def test_the_schema_reader_of_these_tests_finds_faults():
    assert faults('<testsuites><testsuite tests="-1"><testcase name="a"/>x</testsuite></testsuites>', SCHEMA) == [
        "testsuite: attribute tests='-1'", "testsuite lacks name", "testcase lacks classname",
    ]  # fmt: skip
    assert faults("<testsuites><failure/></testsuites>", SCHEMA)


def test_ten_thousand_findings_as_tests_and_as_code_quality(many):
    made = junit.render(many)
    suite = ElementTree.fromstring(made.encode())[0]
    assert len(suite) == junit.MOST_CASES and len(made.encode()) < 16 << 20
    assert re.search(r"[\d,]+ more are in the JSON document", suite[0].find("system-out").text)
    found = json.loads(gitlab.render(many))
    assert len(found) == gitlab.MOST_FINDINGS + 1 and "more findings" in found[-1]["description"]


def test_code_quality_names_the_same_thing_the_same_way(document):
    found = json.loads(gitlab.render(document))
    assert all(f.keys() == {"description", "check_name", "fingerprint", "severity", "location"} for f in found)
    assert all(f["location"] == {"path": "head/0", "lines": {"begin": 1}} for f in found)
    assert {f["severity"] for f in found} <= {"info", "minor", "major", "critical", "blocker"}
    marks = [f["fingerprint"] for f in found]
    assert len(set(marks)) == len(marks) and all(re.fullmatch(r"[0-9a-f]{64}", m) for m in marks)
    worse = {**document, "metrics": [{**r, "head": None, "shift": None} for r in document["metrics"]]}
    assert [f["fingerprint"] for f in json.loads(gitlab.render(worse))] == marks
    same = {**document, "verdict": "unchanged", "metrics": [], "budgets": [], "drift": []}
    assert json.loads(gitlab.render(same)) == []


def numbers(lines):
    """Names and values of OpenMetrics text; every line is one of its three kinds."""
    found = []
    body, end = lines.split("\n")[:-1], "# EOF"
    assert body[-1] == end
    for line in body[:-1]:
        if not re.fullmatch(r"# TYPE [a-zA-Z_:][\w:]* gauge", line, re.ASCII):
            pattern = r'([a-zA-Z_:][\w:]*)(?:\{([a-zA-Z_]\w*="(?:[^"\\\n]|\\.)*",?)+\})? (-?\d\S*)'
            name, _, value = re.fullmatch(pattern, line).groups()
            found.append((name, float(value)))
    return found


def test_the_metrics_report_holds_the_heads_numbers(document):
    found = numbers(gitlab.metrics(document))
    assert ("tracekit_step_time_ns", 111388500.0) in found and ("tracekit_bubble_ratio", 0.3) in found


def test_every_form_says_that_there_is_no_baseline(nothing):
    assert text(nothing).startswith("NO BASELINE: no baseline yet of scenario tp2")
    assert "**No baseline**: no baseline yet" in harmless_source(markdown.render(nothing))
    assert "no baseline yet" in github.summary(nothing)
    made = junit.render(nothing)
    assert faults(made, SCHEMA) == []
    assert "no baseline yet" in ElementTree.fromstring(made.encode())[0][0].find("skipped").get("message")
    (found,) = json.loads(gitlab.render(nothing))
    assert "no baseline yet" in found["description"] and found["severity"] == "info"
    assert numbers(gitlab.metrics(nothing)) == []


def harmless_source(source):
    harmless(source)
    return source


def test_limits_are_held_where_there_is_no_baseline():
    made = without_baseline([snapshot(piped(report()))], RULES, "tp2")
    assert (made["verdict"], made["exit_code"]) == ("regressed", 1)
    assert made["sentence"].startswith("limit bubble_ratio <= 0.15 is broken; no baseline yet")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(st.characters(), max_size=40) | st.text("<>@#|`[]()!:/\\%,\n\r-\"'&;=*_~$ aw.1", max_size=40))
def test_any_name_leaves_every_form_readable(document, name):
    small = {**document, "metrics": document["metrics"][:6] + document["metrics"][-3:]}
    made = checked(named(small, name))
    harmless(markdown.render(made))
    assert faults(junit.render(made), SCHEMA) == []
    assert all(isinstance(f["description"], str) for f in json.loads(gitlab.render(made)))
    assert numbers(gitlab.metrics(made))
    assert all(re.fullmatch(r"::\w+ title=[^:,\r\n]*::[^\r\n]*", line) for line in github.commands(made))
    assert read_outputs(github.outputs(made)).keys() == {"verdict", "sentence", "exit_code"}
    out = text(made)
    assert "##[" not in out and not any(line.lstrip().startswith("::") for line in out.splitlines())

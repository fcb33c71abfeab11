"""What does a CI system show as tests? One test case per judged number: a failure where it regressed, skipped where it cannot be told."""

from __future__ import annotations

import re
from xml.etree import ElementTree as xml

from tracekit import wording as fmt
from tracekit.report.regression.words import Document, Judged, judged, sentence, verdict

#: Test cases of one file; what is worst is kept, the first one tells how many are left out.
MOST_CASES = 5_000
_UNTOLD = ("inconclusive", "incomparable")
#: What XML 1.0 cannot hold (section 2.2, Char).
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WORST = {"regressed": 0, "incomparable": 1, "inconclusive": 2}


def render(document: Document) -> str:
    """The comparison in the form that Jenkins, GitLab and others read: one suite, its first case the verdict of all.

    A case's name and class stay the same from run to run. A regression that only warns is a case that passes, with a
    line that says so.
    """
    found = judged(document)
    kept = set(sorted(range(len(found)), key=lambda i: (_WORST.get(found[i].verdict, 3), i))[: MOST_CASES - 1])
    scenario = fmt.clean(document["scenario"] or "")
    name = f"tracekit: {scenario}" if scenario else "tracekit"
    suite = xml.Element("testsuite", name=_legal(name), tests="0", failures="0", errors="0", skipped="0", time="0")
    whole = _case(suite, "tracekit", "comparison")
    said = document["verdict"]
    if said == "regressed":
        _told(whole, "failure", said, sentence(document))
    elif said is None or said in _UNTOLD:
        _told(whole, "skipped", verdict(document), sentence(document))
    lines = [sentence(document), *([f"{len(found) - len(kept):,} more are in the JSON document"] if len(found) > len(kept) else [])]
    xml.SubElement(whole, "system-out").text = _legal("\n".join(lines))
    for i, one in enumerate(found):
        if i in kept:
            _add(suite, one)
    for attribute, tag in (("tests", "testcase"), ("failures", "testcase/failure"), ("skipped", "testcase/skipped")):
        suite.set(attribute, str(len(suite.findall(tag))))
    root = xml.Element("testsuites", {k: v for k, v in suite.attrib.items() if k != "skipped"})
    root.append(suite)
    xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


def _add(suite: xml.Element, one: Judged) -> None:
    case = _case(suite, f"tracekit.{one.sort}", one.id)
    if one.verdict == "regressed" and one.severity == "fail":
        _told(case, "failure", one.verdict, f"{one.name}: {one.message}")
    elif one.verdict in _UNTOLD:
        _told(case, "skipped", one.verdict, f"{one.name}: {one.message}")
    else:
        warned = "warning: " if one.regressed else ""
        xml.SubElement(case, "system-out").text = _legal(f"{warned}{one.verdict}: {one.name}: {one.message}")


def _case(suite: xml.Element, of: str, name: str) -> xml.Element:
    return xml.SubElement(suite, "testcase", classname=of, name=_legal(name), time="0")


def _told(case: xml.Element, tag: str, kind: str, message: str) -> None:
    found = xml.SubElement(case, tag, {"type": kind, "message": _legal(f"{kind}: {message}")})
    found.text = _legal(message) if tag == "failure" else None


def _legal(text: str) -> str:
    """Text that XML can hold."""
    return _ILLEGAL.sub("\ufffd", text)

"""A reader of the few words of XML Schema that ``junit.xsd`` uses: sequences of elements, attributes, three simple types."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

XS = "{http://www.w3.org/2001/XMLSchema}"
_TYPES = {"xs:string": r"(?s).*", "xs:nonNegativeInteger": r"\d+", "xs:decimal": r"-?\d+(\.\d+)?"}


def faults(text: str, schema: Path) -> list[str]:
    """Where a document is not as the schema says."""
    declared = {e.get("name"): e for e in ElementTree.parse(schema).getroot()}
    return list(_faults(ElementTree.fromstring(text.encode()), declared))


def _faults(node, declared):
    model = declared.get(node.tag)
    if model is None:
        yield f"{node.tag} is not declared"
        return
    if model.get("type"):
        yield from ([f"{node.tag} holds more than text"] if len(node) or node.attrib else [])
        return
    attributes = {a.get("name"): a for a in model.iter(f"{XS}attribute")}
    for name, value in node.attrib.items():
        if name not in attributes or not re.fullmatch(_TYPES[attributes[name].get("type")], value):
            yield f"{node.tag}: attribute {name}={value!r}"
    yield from (f"{node.tag} lacks {n}" for n, a in attributes.items() if a.get("use") == "required" and n not in node.attrib)
    if model.find(f"{XS}complexType").get("mixed") != "true" and (node.text or "").strip():
        yield f"{node.tag} holds text"
    children = [c.tag for c in node]
    pattern = "".join(
        f"({e.get('ref')} ){{{e.get('minOccurs', '1')},{e.get('maxOccurs', '1').replace('unbounded', '')}}}" for e in model.iter(f"{XS}element") if e.get("ref")
    )
    if not re.fullmatch(pattern, "".join(f"{c} " for c in children)):
        yield f"{node.tag} holds {children[:5]}"
    for child in node:
        yield from _faults(child, declared)

"""The public JSON schema of reports (``schema.json`` beside this file), and its checker.

The schema uses ``type``, ``enum``, ``pattern``, ``properties``, ``required``,
``additionalProperties`` and ``items`` of JSON Schema 2020-12; this checker knows these and no
others.
"""

from __future__ import annotations

import functools
import json
import re
from importlib.resources import files
from typing import Any

_KNOWN = {
    "$schema",
    "title",
    "description",
    "type",
    "enum",
    "pattern",
    "properties",
    "required",
    "additionalProperties",
    "items",
}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
}


@functools.cache
def schema() -> dict[str, Any]:
    """The schema of reports."""
    found: dict[str, Any] = json.loads(
        files(__package__).joinpath("schema.json").read_text(encoding="utf-8")
    )
    return found


def violations(value: Any, rule: dict[str, Any], place: str = "report") -> list[str]:
    """The places in a value that break the rules of a schema; empty where none does."""
    unknown = set(rule) - _KNOWN
    if unknown:
        raise ValueError(f"this checker does not know {', '.join(sorted(unknown))} of JSON Schema")
    kind = rule.get("type")
    if kind is not None and (
        not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")
    ):
        return [f"{place} must be of type {kind}, not {value!r:.80}"]
    if "enum" in rule and value not in rule["enum"]:
        return [f"{place} must be one of {', '.join(map(str, rule['enum']))}, not {value!r:.80}"]
    if "pattern" in rule and not re.search(
        re.sub(r"\$$", r"\\Z", rule["pattern"]), value
    ):  # "$" would let a line feed follow
        return [f"{place} must match {rule['pattern']}, not be {value!r:.80}"]
    found = []
    if isinstance(value, dict):
        own = rule.get("properties", {})
        found += [f"{place} lacks {name}" for name in rule.get("required", ()) if name not in value]
        further = rule.get("additionalProperties", True)
        for name, item in value.items():
            if name in own:
                found += violations(item, own[name], f"{place}.{name}")
            elif further is False:
                found.append(f"{place} has {name!r}, which is none of its fields")
            elif isinstance(further, dict):
                found += violations(item, further, f"{place}.{name}")
    if isinstance(value, list) and "items" in rule:
        for index, item in enumerate(value):
            found += violations(item, rule["items"], f"{place}[{index}]")
    return found

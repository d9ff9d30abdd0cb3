"""A badge of a report: a small SVG picture of backend, version, device and claimed profiles."""

from __future__ import annotations

from html import escape

from tilewright_conformance.suite.report.document import BAD, Document

_GREEN, _YELLOW, _RED, _GREY = "#3a7d34", "#9a6b00", "#b3261e", "#5f6368"
#: Width of a letter of 11 pixels of the badge's font, and of what stands around a text.
_LETTER, _AROUND = 6.6, 12
#: Letters of a device's name that are shown.
_DEVICE = 32


def badge(document: Document) -> str:
    """Draw the badge of a report.

    It is green where every profile that was run is claimed, yellow where some are, red where cases
    went wrong, grey for quick runs.
    """
    held = [claim["profile"] for claim in document["claims"] if claim["holds"]]
    bad = sum(result["verdict"] in BAD for result in document["results"])
    if document["run"]["quick"]:
        text, colour = "quick run", _GREY
    elif bad:
        text, colour = f"{bad} of {len(document['results'])} wrong", _RED
    elif held:
        text, colour = ", ".join(held), _GREEN if len(held) == len(document["claims"]) else _YELLOW
    else:
        text, colour = "no profile", _YELLOW
    device = document["device"]["name"]
    label = (
        f"tilewright · {document['backend']['name']} {document['backend']['version']} · "
        f"{device if len(device) <= _DEVICE else device[: _DEVICE - 1] + '…'}"
    )
    return _picture(
        label,
        text,
        colour,
        f"{document['backend']['name']} {document['backend']['version']} on {device}, suite "
        f"{document['suite']['version']}: {text}",
    )


def _picture(label: str, text: str, colour: str, title: str) -> str:
    left, right = (round(len(part) * _LETTER + _AROUND) for part in (label, text))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title><rect width="{left}" '
        f'height="20" fill="#3c4043"/><rect x="{left}" width="{right}" height="20" '
        f'fill="{colour}"/><g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" '
        f'font-size="11" text-anchor="middle"><text x="{left / 2:g}" '
        f'y="14">{escape(label)}</text><text x="{left + right / 2:g}" '
        f'y="14">{escape(text)}</text></g></svg>\n'
    )

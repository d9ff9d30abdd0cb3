"""Pages at addresses that the site had before, which lead to where their contents are.

``tests/test_built_site.py`` demands an entry for each page that the repository's history has under
another name.
"""

from __future__ import annotations

import os.path

#: Address that the site had -> the address of today.
REDIRECTS: dict[str, str] = {}

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="{address}">
<meta name="robots" content="noindex">
<script>location.replace("{address}" + location.hash)</script>
<meta http-equiv="refresh" content="0; url={address}">
</head>
<body><p>This page has moved: <a href="{address}">{address}</a></p></body>
</html>
"""


def files(redirects: dict[str, str] = REDIRECTS) -> dict[str, str]:
    """Path on the site -> content."""
    return {
        f"{old}index.html": PAGE.format(address=os.path.relpath(new, old) + "/")
        for old, new in redirects.items()
    }

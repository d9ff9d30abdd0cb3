"""Measure the processor time that each tutorial takes on a CPU, with empty caches.

    page_seconds.py                   prints a line for each page
    page_seconds.py --json FILE       writes the figures, too

A page's program runs in a process of its own. Its time is that of all its threads, so that other
programs of the machine change it little; a page with threads that wait takes less by the clock.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from page_kernels import TUTORIALS

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "kernels")]
from results import processor_name

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def seconds_of(page: Path) -> float:
    """Return the processor time of a page's program."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.py"
        file.write_text("\n".join(_BLOCK.findall(page.read_text())))
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": f"{folder}/cache"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, str(file)], check=True, env=environment, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    found = {}
    for page in sorted(TUTORIALS.glob("*.md")):
        found[page.stem] = seconds_of(page)
        print(f"{page.stem:20} {found[page.stem]:6.1f} s", flush=True)
    if options.json:
        facts = {"machine": processor_name(), "date": datetime.date.today().isoformat()}
        options.json.write_text(json.dumps({**facts, "seconds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()

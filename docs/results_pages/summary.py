"""The picture of the home page: how fast the kernel library is, a bar for each family."""

from __future__ import annotations

import json
import math
import statistics

from drawings.charts import ratio_chart
from drawings.svg import Drawing

from results_pages import results

#: What index.md has in place of the picture and its caption.
PLACE = "<!-- figures -->"
PATH = "figures.svg"


def means() -> tuple[dict[str, float], list[str], list[str]]:
    """Return family -> geometric mean of the fastest rival's time by ours; machines; dates."""
    ratios: dict[str, list[float]] = {}
    machines, dates = set(), set()
    for path in sorted(results.FOLDER.glob("*.json")):
        facts = json.loads(path.read_text())
        for family, rows in results.families(path):
            found = results.ratios_of(rows).values()
            if found:
                ratios.setdefault(results.TITLES[family], []).extend(found)
                machines.add(facts["machine"])
                dates.add(facts["date"])
    logarithms = {name: map(math.log, each) for name, each in ratios.items()}
    found = {
        f"{name} ({len(ratios[name])})": math.exp(statistics.fmean(each))
        for name, each in logarithms.items()
    }
    return found, sorted(machines), sorted(dates)


def chart() -> Drawing:
    """Draw a bar for each family."""
    title = "Geometric mean of the fastest rival's time divided by ours"
    return ratio_chart(means()[0], title, names_above=True)


def figure() -> str:
    """Return the Markdown of the picture and of its caption."""
    ratios, machines, dates = means()
    cases = "; ".join(f"{name}: {ratio:.2f}" for name, ratio in ratios.items())
    return (
        f"![The fastest rival's time divided by ours. {cases}]({PATH})\n\n"
        "*Each bar stands for one family of kernels, and the number of measured cases is in "
        "parentheses. The bar shows the geometric mean, over these cases, of the time of the "
        f"fastest rival divided by Tilewright's time on an {', '.join(machines)} "
        f"({' and '.join(dates)}). A value above 1 means that Tilewright is faster. "
        "The rivals are PyTorch (with cuBLAS, cuDNN and FlashAttention), Liger, vLLM and SGLang. "
        "[Results](results.md) has "
        "every case.*"
    )

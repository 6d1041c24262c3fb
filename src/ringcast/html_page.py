"""HTML pages that commands write: text, tables and plots in one file that needs no
network and no server."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringcast.errors import RingcastError

if TYPE_CHECKING:
    import plotly.graph_objects as go

STYLE = """body{font-family:system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;
color:#222}
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
td,th{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}
td:nth-child(2):last-child,th:nth-child(2):last-child{text-align:left}
.verdict{font-size:1.2rem;font-weight:600}"""


def check() -> None:
    """Raise RingcastError if no page can be written. Call it before the work whose
    result the page shows."""
    try:
        import plotly  # noqa: F401
    except ImportError as error:
        raise RingcastError('Reports need plotly: run pip install "ringcast[spark]".') from error


def write(path: Path, title: str, verdict: str, parts: "Sequence[str | go.Figure]") -> None:
    """Write a page: its title, the verdict in one sentence, then the parts, each of
    them HTML or a plot."""
    pieces, with_library = [], True
    for part in parts:
        if isinstance(part, str):
            pieces.append(part)
        else:
            pieces.append(part.to_html(full_html=False, include_plotlyjs=with_library))
            with_library = False        # the page has the library once
    body = "\n".join(pieces)
    title = html.escape(title)
    path.write_text(f"""<!doctype html><html lang="en"><meta charset="utf-8">
<title>{title}</title><style>{STYLE}</style>
<h1>{title}</h1><p class="verdict">{html.escape(verdict)}</p>
{body}</html>""", encoding="utf-8")


def text(sentence: str) -> str:
    """Return a paragraph."""
    return f"<p>{html.escape(sentence)}</p>"


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table of text; the caller formats its numbers."""
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
                   for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"

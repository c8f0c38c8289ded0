"""How objects show themselves in a notebook: their text, escaped, under a short title."""

from __future__ import annotations

LONGEST = 20_000  # characters: a notebook keeps what it shows


def preformatted(title: str, text: str) -> str:
    """A title and a text of fixed width, as HTML.

    Example:
        >>> preformatted("a < b", "1")
        '<div><b>a &lt; b</b><pre style="line-height: 1.2">1</pre></div>'
    """
    import html  # it loads a table of names, and most processes show nothing

    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n... {len(text) - LONGEST} characters more"
    return (
        f'<div><b>{html.escape(title)}</b><pre style="line-height: 1.2">{html.escape(text)}'
        "</pre></div>"
    )

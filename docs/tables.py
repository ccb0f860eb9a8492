"""Writes the tables in the docs that come from code; ``python docs/tables.py`` rewrites them in place."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from pydantic import AliasChoices
from pydantic_core import PydanticUndefined

from shared.protocol.rules import Rule
from shared.runs.lifecycle import TRANSITIONS, is_terminal
from shared.runs.outcome import SENTENCES, FailureCode
from shared.settings import Settings

DOCS = Path(__file__).parent


def lifecycle() -> str:
    """The state diagram, from the transition table."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for step, edges in TRANSITIONS.items():
        for old, after in edges:
            start = str(old) if old else "[*]"
            lines += [f"    {start} --> {new}: {step}" for new in sorted(after)]
    reached = {new for edges in TRANSITIONS.values() for _, after in edges for new in after}
    ends = sorted(filter(is_terminal, reached))
    lines += [f"    {end} --> [*]" for end in ends]
    return "\n".join([*lines, "```"])


def failures() -> str:
    """Codes and what a client reads."""
    rows = [f"| `{code}` | {SENTENCES[code]} |" for code in FailureCode]
    return "\n".join(["| code | what the client reads |", "|---|---|", *rows])


def rules() -> str:
    """The verifier's rules."""
    rows = [f"| `{rule}` | {rule.describe()} |" for rule in Rule]
    return "\n".join(["| rule | what it forbids |", "|---|---|", *rows])


def settings() -> str:
    """Every setting with its variable, default and meaning."""
    rows = []
    for name, field in Settings.model_fields.items():
        alias = field.validation_alias
        names = list(alias.choices) if isinstance(alias, AliasChoices) else [f"OUTLAST_{name.upper()}"]
        variables = " or ".join(f"`{variable}`" for variable in names)
        rows.append(f"| {variables} | {_default(field)} | {field.description} |")
    return "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows])


def _default(field: Any) -> str:
    if field.default_factory is not None:
        return "`redis://127.0.0.1:6379/0`"
    if field.default is None or field.default is PydanticUndefined or field.default == ():
        return "none"
    value = field.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def routes() -> str:
    """Every route with its methods and summary."""
    from web import create_app

    document = create_app(Settings(auth="none")).test_client().get("/openapi.json").get_json()
    rows = [
        f"| `{method.upper()} {path}` | {operation['summary']} |"
        for path, operations in sorted(document["paths"].items())
        if not path.startswith("/ops/") or path.startswith("/ops/api")
        for method, operation in operations.items()
        if method in {"get", "post", "put", "delete"}
    ]
    return "\n".join(["| route | does |", "|---|---|", *rows])


def problems() -> str:
    """Codes of refusals."""
    from web.problems import KINDS

    rows = [
        f"| {kind.status} | `{code}` | {kind.title}{'; `Retry-After` is set' if kind.retry_after else ''} |"
        for code, kind in sorted(KINDS.items(), key=lambda item: (item[1].status, item[0]))
    ]
    return "\n".join(["| status | code | meaning |", "|---|---|---|", *rows])


def metrics() -> str:
    """Every metric with its labels."""
    from web.ops.metric import METRICS

    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels) or 'none'} "
        f"| {metric.help} |"
        for metric in METRICS.values()
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])


TABLES = {
    "http-api.md": {"routes": routes, "problems": problems},
    "lifecycle.md": {"lifecycle": lifecycle},
    "failures.md": {"failures": failures},
    "protocol.md": {"rules": rules},
    "configuration.md": {"settings": settings},
    "observability.md": {"metrics": metrics},
}


def rendered(page: str) -> str:
    """The page as it should be."""
    text = (DOCS / page).read_text()
    for name, make in TABLES[page].items():
        block = f"<!-- begin {name} -->\n{make()}\n<!-- end {name} -->"
        place = re.compile(rf"<!-- begin {name} -->.*?<!-- end {name} -->", re.DOTALL)
        text, count = place.subn(block.replace("\\", r"\\"), text)
        if count != 1:
            raise SystemExit(f"{page} has no place for the table {name}")
    return text


if __name__ == "__main__":
    for page in TABLES:
        (DOCS / page).write_text(rendered(page))

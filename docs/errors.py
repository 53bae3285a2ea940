"""Write the page of error codes: ``python docs/errors.py > docs/reference/errors.md``."""

import sys
from pathlib import Path
from typing import Any

import yaml

SOURCE = Path(__file__).with_name("errors.yaml")
HEADER = """<!-- Written by: python docs/errors.py > docs/reference/errors.md -->

# Errors

An error is one line on stderr, `graftseg: WHERE: FINDING; REMEDY. [CODE]`, and the exit code is 2. In Python it is a
`graftseg.UserError` with the attributes `code`, `where`, `finding` and `remedy`. Codes are stable, sentences are not.

With `--json`, which every verb has, each line of stderr is one JSON object and no progress is shown:

- an error has the fields `code`, `where`, `finding` and `remedy`, and is the last line;
- a warning has the field `warning`.

Results stay on stdout. `check`, `info` and `doctor` print them as JSON, too, and `bench --json FILE` writes the timings
to FILE. A bug in graftseg is a Python traceback instead.
"""


def entries() -> dict[str, dict[str, Any]]:
    """Return cause, fix and example by code."""
    content: dict[str, dict[str, Any]] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return content


def page() -> str:
    """Return the page in Markdown, sorted by code."""
    parts = [HEADER]
    for code, entry in sorted(entries().items()):
        example = f"\n```bash\n{entry['example']}\n```\n" if "example" in entry else ""
        parts.append(f"## {code}\n\n{entry['cause']}\n\nFix: {entry['fix']}\n{example}")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())

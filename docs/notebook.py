"""Run a notebook without Jupyter, store what its cells show, and turn it into a page of the site.

    python docs/notebook.py examples/first_steps.ipynb      # after a change: runs its cells and stores what they show
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(path: Path) -> dict[str, Any]:
    """A notebook of format 4; one of another is refused."""
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4, f"{path} is a notebook of format {notebook['nbformat']}"
    assert all(cell["cell_type"] in ("markdown", "code") for cell in notebook["cells"])
    return notebook


def run(notebook: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """Run the cells from top to bottom in one namespace, as a kernel would; what each of them shows."""
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("agg")
    pyplot.close("all")  # those of others
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_run_cell("".join(cell["source"]), names) if cell["cell_type"] == "code" else []
            for cell in notebook["cells"]]


def _run_cell(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """What the cell prints, the value of its last line, and the figures it leaves open."""
    from matplotlib import pyplot

    body, value, printed = ast.parse(source), None, io.StringIO()
    last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(body, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        shown = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            shown["text/html"] = value._repr_html_()
        outputs.append({"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": shown})
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        pyplot.figure(number).savefig(picture, format="png", dpi=80)
        pyplot.close(number)
        outputs.append({"output_type": "display_data", "metadata": {}, "data": {
            "image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": "<Figure>"}})
    return outputs


def store(path: Path) -> None:
    """Run a notebook and write it again, with what its cells show."""
    notebook = read(path)
    for number, (cell, outputs) in enumerate(zip(notebook["cells"], run(notebook), strict=True), 1):
        cell.setdefault("id", f"cell-{number}")
        if cell["cell_type"] == "code":
            cell |= {"outputs": outputs, "execution_count": None, "metadata": {}}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def page(notebook: Mapping[str, Any]) -> str:
    """The notebook as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [_shown(output) for output in cell.get("outputs", ())]
    return "\n\n".join(parts) + "\n"


def _shown(output: Mapping[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="the figure of the cell above" src="data:image/png;base64,{data["image/png"]}">'
    if "text/html" in data:
        return f'<div class="output">\n{data["text/html"]}\n</div>'
    return f"```text\n{''.join(output.get('text') or data.get('text/plain', ''))}\n```"


if __name__ == "__main__":
    store(Path(sys.argv[1]))

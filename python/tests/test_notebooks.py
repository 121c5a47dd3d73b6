"""The notebooks run, and their outputs are those that they store, except for numbers and pictures."""

import pathlib
import re

import pytest

nbformat = pytest.importorskip("nbformat")
preprocessors = pytest.importorskip("nbconvert.preprocessors")
pytest.importorskip("ipykernel")

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def outputs(notebook):
    """Returns the outputs of each cell: texts without numbers and bars, the kinds of other data."""
    texts = []
    for cell in notebook.cells:
        text = ""
        for output in cell.get("outputs", []):
            text += output.get("text", "") + " ".join(sorted(output.get("data", {})))
        texts.append(re.sub(r"(Pitch|Velocity|Duration|TimeShift)_\S+", "TOKEN", text))
    return [re.sub(r"[-+e\d.,#\s]+", " ", text) for text in texts]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_notebook(path, tmp_path):
    notebook = nbformat.read(path, 4)
    stored = outputs(notebook)
    assert any(stored)
    preprocessors.ExecutePreprocessor(timeout=300, kernel_name="python3").preprocess(
        notebook, {"metadata": {"path": str(tmp_path)}}
    )
    assert outputs(notebook) == stored

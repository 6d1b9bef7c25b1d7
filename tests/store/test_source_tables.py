"""Text in the inputs that is not valid Unicode does not stop an analysis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from events import document, step, x

from perftool import analyze


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ds_config.json", {"train_batch_size": 1, "optimizer": {"type": "x\ud800"}}),
        ("gaudi_config.json", {"use_fused_adam": True, "name\udfff": "x\ud800"}),
    ],
)
def test_lone_surrogates_are_escaped(tmp_path: Path, name: str, content: object) -> None:
    (tmp_path / "trace.json").write_bytes(document([step(1, 0, 100), x("op", 10, 5)]))
    (tmp_path / name).write_text(json.dumps(content))
    assert analyze([str(tmp_path)], []).inputs

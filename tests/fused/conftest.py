"""What the tests of fused ops share."""

from __future__ import annotations

import pytest

from perftool.fused.optimizers import native


@pytest.fixture(scope="session")
def native_kernels():
    """The native kernels, built once and kept for later sessions; without a compiler the test is skipped."""
    if (obstacle := native.obstacle()) is not None:
        pytest.skip(obstacle)

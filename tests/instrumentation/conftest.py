"""Runs that several tests look at: trained once, in one launch, because starting torch takes longer than training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the reference runs need torch")

from instrumentation.config import RunConfig
from instrumentation.launch import launch
from tests.instrumentation.cases import CASES, config_of


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, RunConfig]:
    """Every case, trained in real processes: name -> configuration, whose ``out`` holds what it left."""
    folder = tmp_path_factory.mktemp("runs")
    configs: dict[str, RunConfig] = {name: config_of(name, Path(folder)) for name in CASES}
    launch(list(configs.values()))
    return configs

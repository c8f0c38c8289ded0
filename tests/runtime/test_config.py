"""Settings are typed, come from CUBEPY_* variables, and are refused when they make no sense."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cubepy.config import KNOBS, config, table
from cubepy.errors import ConfigError


def test_a_value_that_is_not_allowed_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"cubepy\.config\.mode cannot be 'fast'") as info:
        config.mode = "fast"
    assert "checked, validate, unchecked" in str(info.value)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match="no setting 'colour'"):
        config.colour = 1  # type: ignore[attr-defined]


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be from 0 to 7, not 9"):
        config.debug = 9


def test_override_restores_what_was() -> None:
    before = config.mode
    with config.override(mode="validate"):
        assert config.mode == "validate"
    assert config.mode == before


def test_a_bad_variable_names_itself() -> None:
    environment = {**os.environ, "CUBEPY_MODE": "quick"}
    done = subprocess.run(
        [sys.executable, "-c", "import cubepy"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "the variable CUBEPY_MODE cannot be 'quick'" in done.stderr


def test_there_are_few_settings_and_all_are_in_the_table() -> None:
    assert len(KNOBS) <= 15
    assert all(k.variable in table() for k in KNOBS)

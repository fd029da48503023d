"""The interface of a finished run: a run folder, or a line in a file of runs."""

from pathlib import Path
from typing import Any, Protocol

from fastweights.core.errors import require
from fastweights.training.run_folder.result import Result

PARTS = ("config", "task", "environment")


class FinishedRun(Protocol):
    """Settings, curve and result of a run."""

    @property
    def path(self) -> Path:
        """Run folder."""

    def config(self) -> dict[str, Any]:
        """Recipe, and objects of its config, its task and its environment."""

    def metrics(self) -> list[dict[str, Any]]:
        """One object per evaluation."""

    def result(self) -> Result | None:
        """Result of the run; None if training has not ended."""

    def copy_to(self, folder: Path) -> None:
        """Copies the curve, the result and, where a run folder has them, the weights into another run folder."""


def require_config(content: dict[str, Any], parameter: str, got: object) -> None:
    """Raises `InputError` unless `content` has a recipe, its config, its task and its environment."""
    whole = isinstance(content.get("recipe"), str) and all(isinstance(content.get(part), dict) for part in PARTS)
    require(whole, parameter, "an object with recipe, config, task and environment", got)

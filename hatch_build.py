"""Build hook of the wheel: build the front end of the viewer. An editable installation does not need it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent / "tools"))
import web


class FrontEndHook(BuildHookInterface[Any]):
    """Builds the front end into the wheel."""

    def dependencies(self) -> list[str]:
        """Return the package that provides Node if this machine has none."""
        return [] if web.node_folder() else [web.NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the front end. Without a network, the wheel is built without it, unless GRAFTSEG_WEB is required."""
        if version == "editable" or self.target_name != "wheel":
            return
        try:
            web.build()
        except (OSError, subprocess.CalledProcessError, SystemExit) as error:
            if os.environ.get("GRAFTSEG_WEB") == "required":
                raise
            self.app.display_warning(f"The viewer is left out, because its front end cannot be built: {error}")

"""Optional packages: import them, or say how to install them."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from graftseg.core.errors import Code, UserError


def import_optional(
    module: str,
    use: str,
    *,
    package: str = "",
    extra: str = "",
    remedy: str = "",
    load: Callable[[str], Any] = import_module,
) -> Any:
    """Return ``load(module)``, by default the module. If it is not installed, raise a UserError with the remedy.

    use: what needs the package
    package: name of the package that contains the module, by default the module
    extra: extra of graftseg that installs the package; without it, the package is installed by its name
    """
    try:
        return load(module)
    except ImportError:
        name = package or module.partition(".")[0]
        command = install_extra(extra) if extra else f"run pip install {name}"
        finding = f"the package is not installed, but needed for {use}"
        raise UserError(Code.PACKAGE_MISSING, name, finding, remedy or command) from None


def install_extra(extra: str) -> str:
    """Return the remedy of an error: how to install the packages of an extra of graftseg."""
    return f"run pip install '.[{extra}]' in the folder of graftseg"

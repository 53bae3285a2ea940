"""The table of methods. To add one: its file, a line here, a recipe, a page in the docs."""

from graftseg.errors import UserError
from graftseg.methods.base import Method, NetworkFactory
from graftseg.methods.bcp import Bcp
from graftseg.methods.bcp_pretrain import BcpPretrain
from graftseg.methods.supervised import Supervised

METHODS: dict[str, type[Method]] = {
    "supervised": Supervised,
    "bcp-pretrain": BcpPretrain,
    "bcp": Bcp,
}


def method_class(name: str) -> type[Method]:
    """The class of a method, or an error that lists the choices."""
    if name not in METHODS:
        raise UserError(f"method {name!r}", "unknown", f"choose one of {', '.join(METHODS)}")
    return METHODS[name]


__all__ = ["METHODS", "Method", "NetworkFactory", "method_class"]

"""The table of methods. To add one: its file, a line here, a recipe, a page in the docs."""

from graftseg.methods.base import Method
from graftseg.methods.bcp import Bcp
from graftseg.methods.bcp_pretrain import BcpPretrain
from graftseg.methods.supervised import Supervised

METHODS: dict[str, type[Method]] = {
    "supervised": Supervised,
    "bcp-pretrain": BcpPretrain,
    "bcp": Bcp,
}


__all__ = ["METHODS", "Method"]

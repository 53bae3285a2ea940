"""Table of all methods by name."""

from graftseg.methods.advent import Advent, AdventAdversarial
from graftseg.methods.base import Method
from graftseg.methods.bcp import Bcp
from graftseg.methods.bcp_pretrain import BcpPretrain
from graftseg.methods.coranet import CoraNet
from graftseg.methods.coranet_pretrain import CoraNetPretrain
from graftseg.methods.dan import Dan
from graftseg.methods.dtc import Dtc
from graftseg.methods.fg_cutmix import FgCutmix
from graftseg.methods.graft import Graft
from graftseg.methods.mc_net import McNet
from graftseg.methods.mean_teacher import MeanTeacher
from graftseg.methods.mixup import Mixup
from graftseg.methods.sassnet import SassNet
from graftseg.methods.ss_net import SsNet
from graftseg.methods.supervised import Supervised
from graftseg.methods.ua_mt import UaMt
from graftseg.methods.urpc import Urpc

METHODS: dict[str, type[Method]] = {
    "supervised": Supervised,
    "mean-teacher": MeanTeacher,
    "ua-mt": UaMt,
    "sassnet": SassNet,
    "dtc": Dtc,
    "urpc": Urpc,
    "mc-net": McNet,
    "dan": Dan,
    "advent": Advent,
    "advent-adversarial": AdventAdversarial,
    "mixup": Mixup,
    "fg-cutmix": FgCutmix,
    "ss-net": SsNet,
    "coranet-pretrain": CoraNetPretrain,
    "coranet": CoraNet,
    "bcp-pretrain": BcpPretrain,
    "bcp": Bcp,
    "graft": Graft,
}

__all__ = ["METHODS", "Method"]

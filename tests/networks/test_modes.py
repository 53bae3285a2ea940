"""Eval mode ends with its block."""

import pytest
from torch import nn

from graftseg.networks.layers import eval_mode


@pytest.mark.parametrize("training", [True, False])
def test_eval_mode_restores_every_mode(training: bool) -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(1)).train(training)
    module[1].train(not training)
    with pytest.raises(RuntimeError, match="in between"), eval_mode(module):
        assert not any(part.training for part in module.modules())
        raise RuntimeError("in between")
    assert [part.training for part in module.modules()] == [training, training, not training]

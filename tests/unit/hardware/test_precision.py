"""The precision of large products, chosen by what the hardware multiplies fast."""

import pytest
import torch

from multihead.hardware.device import pick_precision


@pytest.mark.parametrize("ability", ["avx512_bf16", "amx_bf16"])
def test_precision_is_chosen_by_the_hardware(ability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    for has_it, precision in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has_it=has_it: {ability: has_it}, raising=False)
        assert pick_precision("auto", cpu) == precision
        assert pick_precision("bfloat16", cpu) == torch.bfloat16
        assert pick_precision("float32", cpu) == torch.float32


def test_a_torch_that_does_not_say_what_a_cpu_can_do_trains_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert pick_precision("auto", torch.device("cpu")) == torch.float32

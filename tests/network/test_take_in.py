"""Taking in a model as it is; every refusal with its message."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pmeta
from pmeta.base.conv_shape import ConvShape
from pmeta.network.backbones import MLPPolicy, initialise
from pmeta.network.take_in import replace_batch_norm, take_in
from tests.helpers.nets import Residual, Separable, Signal


def test_layers_in_the_order_they_run() -> None:
    net = take_in(Residual(), torch.zeros(1, 2, 6, 6))
    rows = [(layer.name, layer.kind, layer.c_in, layer.c_out, layer.params) for layer in net.layers]
    assert rows == [
        ("conv1", "conv", 2, 4, ("conv1.weight", "conv1.bias")),
        ("norm1", "norm", 4, 4, ("norm1.weight", "norm1.bias")),
        ("conv2", "conv", 4, 6, ("conv2.weight",)),
        ("norm2", "norm", 6, 6, ("norm2.weight", "norm2.bias")),
        ("skip", "conv", 4, 6, ("skip.weight", "skip.bias")),
        ("fc", "fc", 54, 5, ("fc.weight", "fc.bias")),
        ("head", "fc", 5, 3, ("head.weight", "head.bias")),
    ]
    assert net.head.name == "head"


def test_made_in_one_order_and_run_in_another() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.first = nn.Linear(3, 2), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x))

    assert [layer.name for layer in take_in(Backwards(), torch.zeros(1, 4)).layers] == [
        "first",
        "last",
    ]


def test_convs_of_all_kinds() -> None:
    convs = {
        layer.name: layer.conv for layer in take_in(Separable(), torch.zeros(1, 2, 8, 8)).layers
    }
    assert convs["stem.0"] == ConvShape((2, 2), (1, 1), (1, 1), 1)
    assert convs["depthwise"] == ConvShape((1, 1), (1, 1), (1, 1), 4)
    assert convs["dilated"] == ConvShape((1, 1), (2, 2), (2, 2), 2)
    assert convs["classifier"] is None
    signal = {layer.name: layer.conv for layer in take_in(Signal(), torch.zeros(1, 2, 9)).layers}
    assert signal["conv2"] == ConvShape((1,), (2,), (2,), 2)  # padding="same"


def test_padding_by_word() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 1, (3, 5), padding="same"), nn.Conv2d(1, 1, 2, padding="valid")
    )
    pads = [
        layer.conv.padding for layer in take_in(model, torch.zeros(1, 1, 6, 6)).layers if layer.conv
    ]
    assert pads == [(1, 2), (0, 0)]


def test_a_model_that_is_one_layer() -> None:
    net = take_in(nn.Linear(4, 2), torch.zeros(1, 4))
    assert [(layer.name, layer.params) for layer in net.layers] == [("", ("weight", "bias"))]


def test_parameters_that_stand_alone_come_last() -> None:
    net = take_in(MLPPolicy(3, 2, (4,)), torch.zeros(1, 3), extra=("log_std",))
    alone = net.layers[-1]
    assert (alone.name, alone.kind, alone.c_in, alone.c_out, alone.params) == (
        "log_std",
        "param",
        2,
        2,
        ("log_std",),
    )
    assert net.head.name == "fc2"


def test_norms_without_weights_are_no_layers() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 1), nn.GroupNorm(2, 4, affine=False), nn.InstanceNorm2d(4)
    )
    assert [layer.name for layer in take_in(model, torch.zeros(1, 1, 3, 3)).layers] == ["0"]


# Refusals


def refused(
    model: nn.Module, shape: tuple[int, ...], message: str, **kwargs: tuple[str, ...] | bool
) -> None:
    with pytest.raises(ValueError, match=message):
        take_in(model, torch.zeros(1, *shape), **kwargs)  # type: ignore[arg-type]


class Fc(nn.Module):
    """fc1, then `forward` as given by a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 4), nn.Linear(4, 4)


def test_a_layer_that_runs_twice() -> None:
    class Twice(Fc):
        def forward(self, x: Tensor) -> Tensor:
            return self.fc2(self.fc1(self.fc1(x)))

    refused(
        Twice(),
        (4,),
        "a layer runs once in a forward pass, 'fc1' runs twice: give each place its own layer",
    )


def test_a_layer_that_never_runs() -> None:
    class Never(Fc):
        def forward(self, x: Tensor) -> Tensor:
            return self.fc2(x)

    refused(
        Never(),
        (4,),
        "every layer must run in a forward pass, fc1 did not: remove it from the model",
    )


def test_a_weight_used_outside_its_layer() -> None:
    class Borrowed(Fc):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(self.fc2(self.fc1(x)), self.fc1.weight.T)

    refused(
        Borrowed(),
        (4,),
        r"a weight works in its layer alone, but 'fc1\.weight' is also used outside it.*call",
    )


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False)])
def test_batch_norm(norm: nn.Module) -> None:
    message = r"single samples.*\(Sec. 3.5.2\), got '1': call pmeta.replace_batch_norm\(model\)"
    refused(nn.Sequential(nn.Conv2d(1, 4, 1), norm), (1, 3, 3), message)
    assert pmeta.replace_batch_norm is replace_batch_norm


def test_batch_norm_with_running_statistics() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4))
    refused(
        model,
        (1, 3, 3),
        "without running statistics.*'1' has them: make it with track_running_stats=False",
        batch_norm=True,
    )


def test_batch_norm_on_request() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4, track_running_stats=False))
    net = take_in(model, torch.zeros(1, 1, 3, 3), batch_norm=True)
    assert [(layer.kind, layer.c_out) for layer in net.layers] == [("conv", 4), ("norm", 4)]
    assert net.mixes_samples
    assert not take_in(Residual(), torch.zeros(1, 2, 6, 6)).mixes_samples


IN_PLACE = (
    "an in-place operation writes over the input or output of layer '{}'.*"
    "use inplace=False .and y = y . x, not y .= x."
)


@pytest.mark.parametrize(
    "act", [nn.ReLU(inplace=True), nn.LeakyReLU(0.1, inplace=True), nn.ReLU6(inplace=True)]
)
def test_an_in_place_activation_after_a_layer(act: nn.Module) -> None:
    refused(nn.Sequential(nn.Linear(4, 4), act, nn.Linear(4, 2)), (4,), IN_PLACE.format("0"))


def test_an_in_place_sum_on_an_output() -> None:
    class Sum(Fc):
        def forward(self, x: Tensor) -> Tensor:
            y = self.fc1(x)
            y += x
            return self.fc2(y)

    refused(Sum(), (4,), IN_PLACE.format("fc1"))


def test_an_in_place_sum_on_an_input() -> None:
    class Sum(Fc):
        def forward(self, x: Tensor) -> Tensor:
            x = torch.tanh(x)
            y = self.fc1(x)
            x += y
            return self.fc2(x)

    refused(Sum(), (4,), IN_PLACE.format("fc1"))


def test_an_in_place_operation_on_a_view_of_an_output() -> None:
    class View(Fc):
        def forward(self, x: Tensor) -> Tensor:
            y = self.fc1(x)
            y[:, :2].zero_()
            return self.fc2(y)

    refused(View(), (4,), IN_PLACE.format("fc1"))


def test_samples_folded_into_the_batch_axis() -> None:
    """Its scores would be those of rows, not of samples."""

    class Folded(Fc):
        def forward(self, x: Tensor) -> Tensor:
            return self.fc2(self.fc1(x.flatten(0, 1)))

    refused(
        Folded(),
        (5, 4),
        r"first axis of a layer's input is the batch, .* reaches 'fc1' as \(5, 4\): keep",
    )


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (nn.PReLU(), "PReLU"),
        (nn.Embedding(3, 4), "Embedding"),
        (nn.ConvTranspose2d(1, 1, 1), "ConvTranspose2d"),
    ],
)
def test_parameters_that_belong_to_no_layer(module: nn.Module, name: str) -> None:
    message = (
        "made of Conv1d, Conv2d, Linear, GroupNorm and LayerNorm layers, but 1.weight.* belongs to "
        f"{name}: replace that module, or give"
    )
    refused(nn.Sequential(nn.Linear(4, 4), module), (4,), message)


def test_a_layer_of_ones_own_kind() -> None:
    class MyLinear(nn.Linear):
        pass

    refused(nn.Sequential(MyLinear(4, 4)), (4,), r"belongs to MyLinear.*extra=\('0.weight',\)")


def test_log_std_without_a_step_size() -> None:
    refused(
        MLPPolicy(3, 2),
        (3,),
        r"but log_std belongs to MLPPolicy.*a step size of its own with extra=\('log_std',\)",
    )


@pytest.mark.parametrize("extra", ["logstd", "fc1.weight"])
def test_extra_that_is_none(extra: str) -> None:
    message = (
        f"extra names parameters that belong to no layer, got '{extra}': the model has log_std"
    )
    refused(MLPPolicy(3, 2), (3,), message, extra=("log_std", extra))
    refused(nn.Linear(3, 2), (3,), "got 'weight': the model has none", extra=("weight",))


def test_shared_parameters() -> None:
    class Shared(Fc):
        def __init__(self) -> None:
            super().__init__()
            self.fc2.weight = self.fc1.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.fc2(self.fc1(x))

    message = (
        r"each parameter belongs to one layer, but fc1\.weight and fc2\.weight are the same "
        "tensor: give each its own"
    )
    refused(Shared(), (4,), message)


def test_a_shared_module() -> None:
    fc = nn.Linear(4, 4)
    refused(nn.Sequential(fc, nn.Tanh(), fc), (4,), r"0\.weight and 2\.weight are the same tensor")


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"),
    ],
)
def test_padding_that_is_not_zero(conv: nn.Module) -> None:
    message = (
        r"padded with zeros, the same on both sides, but '0' has padding=\(1, 1\) and "
        "padding_mode='(reflect|circular)': pad"
    )
    refused(nn.Sequential(conv), (1, 4, 4), message)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_padding_that_is_uneven() -> None:
    refused(
        nn.Sequential(nn.Conv2d(1, 1, 2, padding="same")),
        (1, 4, 4),
        "but '0' has padding='same'.*pad with a module of its own",
    )


def test_a_model_without_layers() -> None:
    refused(
        nn.Flatten(),
        (4,),
        "at least one Conv1d, Conv2d, Linear or GroupNorm layer, Flatten has none",
    )


def test_no_example() -> None:
    with pytest.raises(
        ValueError, match="example is a batch of at least one input, got none: a zero tensor"
    ):
        take_in(nn.Linear(4, 2), torch.zeros(0, 4))


def test_an_unknown_layer_name() -> None:
    net = take_in(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), torch.zeros(1, 4))
    assert net.index("1") == 1
    with pytest.raises(
        ValueError, match="layers are named as in the model, got 'fc': the names are 0, 1"
    ):
        net.index("fc")


# Batch norm replaced


def test_replace_batch_norm() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 12, 1),
        nn.BatchNorm2d(12, eps=1e-3),
        nn.Sequential(nn.BatchNorm1d(5, affine=False)),
    )
    bn = model[1]
    assert isinstance(bn, nn.BatchNorm2d)
    bn.weight.data.uniform_(1, 2, generator=torch.Generator().manual_seed(0))
    bn.bias.data.fill_(3)
    assert replace_batch_norm(model, groups=8) is model
    gn, inner = model[1], model[2]
    assert isinstance(gn, nn.GroupNorm)
    assert isinstance(inner, nn.Sequential)
    assert isinstance(inner[0], nn.GroupNorm)
    assert (gn.num_groups, gn.eps) == (6, 1e-3)  # the most, up to 8, that divide 12
    assert torch.equal(gn.weight, bn.weight)
    assert torch.equal(gn.bias, bn.bias)
    assert (inner[0].num_groups, inner[0].affine) == (1, False)


@pytest.mark.parametrize(
    ("channels", "groups"), [(1, 1), (2, 1), (6, 3), (7, 1), (8, 4), (16, 8), (20, 5), (32, 8)]
)
def test_groups_have_at_least_two_channels(channels: int, groups: int) -> None:
    norm = replace_batch_norm(nn.Sequential(nn.BatchNorm2d(channels)))[0]  # type: ignore[index]
    assert isinstance(norm, nn.GroupNorm)
    assert norm.num_groups == groups


class Squeezed(nn.Module):
    """A view without any axis of size 1, also that of the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.squeeze()


class Mixes(nn.Module):
    """Batch statistics without a batch norm."""

    def __init__(self, how: str):
        super().__init__()
        self.fc1, self.fc2, self.how = nn.Linear(4, 6), nn.Linear(6, 3), how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.fc1(x)
        if self.how == "mean":
            h = h - h.mean(0)
        if self.how == "attention":
            h = (h @ h.T).softmax(1) @ h
        if self.how == "order":
            h = h.cumsum(0).flip(0)
        y = self.fc2(h)
        return y.view(1, -1) if self.how == "one row" else y


@pytest.mark.parametrize("how", ["mean", "attention", "order", "one row"])
def test_a_model_that_mixes_samples_is_refused(how: str) -> None:
    model = initialise(Mixes(how), torch.Generator().manual_seed(0)).train()
    with pytest.raises(
        ValueError, match=r"must not depend on the others of its batch, but Mixes gives it another"
    ):
        take_in(model, torch.zeros(1, 4))
    assert model.training
    assert take_in(Mixes("none"), torch.zeros(1, 4)).layers


class Chooses(nn.Module):
    """A forward pass whose path depends on values."""

    def __init__(self, how: str):
        super().__init__()
        self.fc1, self.fc2, self.how = nn.Linear(4, 6), nn.Linear(6, 3), how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc1(x)
        on = {
            "if": lambda: x.sum() > 0,
            "of a layer": lambda: y.max() > y.mean(),
            "item": lambda: x.abs().max().item() > 1,
            "equal": lambda: torch.equal(x, x.abs()),
            "all close": lambda: torch.allclose(x, y[:, :4]),
            "numpy": lambda: x.detach().numpy().sum() > 0,
            "shape": lambda: x.shape[1] > 3,
        }[self.how]()
        return self.fc2(2 * y if on else y)


@pytest.mark.parametrize("how", ["if", "of a layer", "item", "equal", "all close"])
def test_a_path_that_depends_on_values_is_refused(how: str) -> None:
    with pytest.raises(ValueError, match=r"takes the same path for all samples, .* torch.where\.$"):
        take_in(Chooses(how), torch.zeros(1, 4))


def test_a_path_that_numpy_chooses_is_refused() -> None:
    with pytest.raises(ValueError, match=r"but Chooses gives it another"):
        take_in(Chooses("numpy"), torch.zeros(1, 4))


def test_a_path_that_every_sample_takes_is_none_of_that() -> None:
    assert take_in(Chooses("shape"), torch.zeros(1, 4)).layers


def test_a_squeezed_output_is_no_mixture() -> None:
    """A sample alone has a row where two have a matrix; an export refuses that, with its reason."""
    model = nn.Sequential(nn.Conv2d(3, 5, 4), Squeezed())
    assert take_in(model, torch.zeros(1, 3, 4, 4)).layers


def test_dropout_does_not_mix_samples() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3))
    take_in(model, torch.zeros(1, 4, dtype=torch.float32))
    assert model[1].training


def compiled_inside() -> nn.Module:
    part: Any = torch.compile(nn.Linear(6, 3), backend="eager")
    return nn.Sequential(nn.Linear(4, 6), part)


def compiled_in_place() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.compile(nn.Linear(4, 3), backend="eager"),
        compiled_inside,
        compiled_in_place,
        lambda: torch.jit.trace(nn.Linear(4, 3), torch.zeros(1, 4)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_compiled_models_are_refused(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(ValueError, match=r"taken in as Python runs it.*give the module that was"):
        take_in(make(), torch.zeros(1, 4))

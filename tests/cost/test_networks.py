"""The paper's backbones as lists of operations: weights, names and inputs."""

from pmeta.cost.networks import four_conv, mlp, resnet12
from pmeta.cost.ops import input_words, layer_names, weight_words


def test_weights_of_table_1() -> None:
    assert weight_words(four_conv()) == 32_773  # 0.13 MB
    assert weight_words(resnet12()) == 7_999_365  # 32.0 MB
    assert weight_words(mlp(20, 6)) == 12_806  # 0.05 MB
    assert weight_words(four_conv(), ["fc"]) == 4_005


def test_names_and_own_inputs_of_the_backbones() -> None:
    assert list(input_words(mlp(20, 6)).items()) == [("fc1", 4000), ("fc2", 20000), ("fc3", 20000)]
    assert input_words(four_conv())["conv2"] == 32 * 42 * 42
    assert input_words(four_conv())["fc"] == 800
    words = input_words(resnet12())
    assert words["block2.conv1"] == words["block2.shortcut"] == 64 * 42 * 42
    assert words["block1.shortcut_norm"] == 64 * 84 * 84
    assert layer_names(resnet12())[-2:] == ["block4.shortcut_norm", "fc"]
    assert four_conv(n_way=7, image=(1, 28, 28), channels=16)[-1].y == (7,)

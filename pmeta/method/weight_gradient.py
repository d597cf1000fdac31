"""The sparse weight gradient gamma * g(w_l), from x_{l-1} and g(y_l) (Sec. 3.3, Eqs. 12 and 13)."""

from torch import Tensor

from pmeta.fast.affine import ChannelSums
from pmeta.fast.second_order import ConvWeightGrad
from pmeta.network.layers import Layer


def channel_means(layer: Layer, tensor: Tensor) -> Tensor:
    """v[b, c], the mean over space; fc and layer norm: over the rows of the sample, if it has rows.
    (B, C)"""
    if tensor.dim() == 2:
        return tensor
    places = _places(layer, tensor)
    return places.sum(2) / places.shape[2]  # a mean's gradient would be divided at every place


def scale(layer: Layer, tensor: Tensor, gamma: Tensor | None) -> Tensor:
    """gamma * tensor, a factor for each channel.

    gamma is (1, C), or (B, C) with a row for each sample; None is 1."""
    if gamma is None:
        return tensor
    ones = [1] * (tensor.dim() - 2)
    shape = (*gamma.shape, *ones)
    if layer.reads_rows:
        shape = (len(gamma), *ones, gamma.shape[1])
    return tensor * gamma.reshape(shape)


def weight_gradients(
    layer: Layer, x: Tensor, g_y: Tensor, gamma_fw: Tensor | None, gamma_bw: Tensor | None
) -> list[Tensor]:
    """gamma * g(w_l) and, if there is a bias, gamma_bw * g(b_l) (Eqs. 12 and 13).

    Scores (1, C) that all samples share multiply the weight gradient. With a row for each sample,
    (B, C), they multiply x and g(y): the ordinary weight gradient of those is the sum over samples
    of gamma_bw[f] gamma_fw[c] g(w)[f, c]. None is 1."""
    if layer.kind == "norm":
        if x.dim() == 4 and not layer.reads_rows:
            products, sums = ChannelSums.apply(g_y, x)
        else:
            products, sums = _sum_space(layer, g_y * x), _sum_space(layer, g_y)
        g_w = scale(layer, scale(layer, products, gamma_fw), gamma_bw).sum(0)  # of (B, C)
        g_b = scale(layer, sums, gamma_bw).sum(0)
        return [g_w, g_b][: len(layer.params)]
    shared = all(gamma is None or len(gamma) == 1 for gamma in (gamma_fw, gamma_bw))
    if not shared:
        x, g_y = scale(layer, x, gamma_fw), scale(layer, g_y, gamma_bw)
    if layer.kind == "fc":
        rows = g_y.flatten(0, -2)  # (B * rows, C_out)
        g_w, g_b = rows.T @ x.flatten(0, -2), rows.sum(0)
    else:
        size = layer.module.weight.detach().to(x)  # only its size is used
        g_w, g_b = ConvWeightGrad.apply(g_y, x, size, layer.conv), _sum_space(layer, g_y).sum(0)
    if shared:
        g_w = _scale_weights(layer, g_w, gamma_fw, gamma_bw)
        g_b = scale(layer, g_b[None], gamma_bw)[0]
    return [g_w, g_b][: len(layer.params)]


def _scale_weights(
    layer: Layer, g_w: Tensor, gamma_fw: Tensor | None, gamma_bw: Tensor | None
) -> Tensor:
    """gamma_bw[f] * gamma_fw[c] * g(w)[f, c, ...]; of a grouped conv, c counts within the group of
    f."""
    ones = [1] * (g_w.dim() - 2)
    if gamma_fw is not None:
        groups = layer.conv.groups if layer.conv else 1
        by_group = gamma_fw.reshape(groups, -1)  # (groups, C_in / groups)
        fw = by_group.repeat_interleave(layer.c_out // groups, 0)  # (C_out or 1, C_in / groups)
        g_w = g_w * fw.reshape(*fw.shape, *ones)
    return g_w if gamma_bw is None else g_w * gamma_bw.reshape(-1, 1, *ones)


def _places(layer: Layer, t: Tensor) -> Tensor:
    """A tensor by sample, channel and place. (B, C, places)"""
    return t.flatten(1, -2).transpose(1, 2) if layer.reads_rows else t.flatten(2)


def _sum_space(layer: Layer, t: Tensor) -> Tensor:
    """Over everything but sample and channel. (B, C)"""
    return _places(layer, t).sum(2) if t.dim() > 2 else t

"""Operations inside a cell: lines of code of a vector `v` [V] and a matrix `W` [V, K], with V = 3 and K = 4."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fastweights import Cell
from fastweights.compiler.frontend.lower import lower
from fastweights.compiler.frontend.trace import trace
from fastweights.compiler.ir.interpret import Interpreter
from fastweights.compiler.ir.verify import verify_step

COMPILED: dict[str, str] = {
    "activations": """
        F.relu(v); F.relu6(9 * v); F.leaky_relu(v, 0.1); F.elu(v, 0.5); F.selu(v); F.celu(v, 0.7); F.gelu(v)
        F.gelu(v, approximate="tanh"); F.silu(v); F.mish(v); F.softplus(v); F.softplus(v, 2.0, 1.0); F.softsign(v)
        F.hardtanh(v, -0.2, 0.3); F.hardswish(9 * v); F.logsigmoid(v); F.tanhshrink(v); F.softshrink(v, 0.1)
        F.hardshrink(v, 0.1); F.threshold(v, 0.1, 0.3); F.prelu(v, W[0, :1]); F.glu(W); F.dropout(v, training=False)
        v.tanh(); v.sigmoid(); F.softmin(W, 0); F.softmax(W, 1); F.log_softmax(W, 0); F.log_softmax(W, 1)
    """,
    "functions": """
        v.abs(); v.neg(); v.sign() * v; v.sgn() * v; v.square(); v.exp(); v.exp2(); v.expm1(); v.abs().log1p()
        v.sigmoid().log(); v.sigmoid().log2(); v.sigmoid().log10(); v.sigmoid().logit(); v.sigmoid().sqrt()
        v.sigmoid().rsqrt(); v.exp().reciprocal(); torch.erf(v); torch.erfc(v); torch.special.ndtr(v); torch.sinc(v)
        v.sin(); v.cos(); v.tan(); v.sinh(); v.cosh(); v.asinh(); (v.exp() + 1).acosh(); (v.tanh() / 2).atanh()
        (v.tanh() / 2).asin(); (v.tanh() / 2).acos(); v.atan(); torch.xlogy(v, v.sigmoid()); v.nan_to_num()
        torch.special.entr(v.sigmoid()); torch.special.expit(v); v.deg2rad(); v.frac(); v.floor() * v; v.ceil() * v
        v.round() * v; v.trunc() * v
    """,
    "arithmetic": """
        v**2; v**3; v**4; v.sigmoid() ** 2.5; v.sigmoid() ** v; 2.0**v; v**0; torch.float_power(v.sigmoid(), 2)
        1 / v.exp(); 2 - v; v / v.exp(); torch.rsub(v, 2.0); torch.add(v, v.exp(), alpha=0.5); v % 0.3; v.fmod(0.3)
        v.sub(v.exp(), alpha=2); v.remainder(v.exp()); v.fmod(v.exp()); v.div(0.3, rounding_mode="floor") * v
        v.div(v.exp(), rounding_mode="trunc") * v; torch.atan2(v, 1 + v**2); torch.hypot(v, v + 1)
        torch.lerp(v, v.exp(), 0.3); torch.lerp(v, v.exp(), v.sigmoid()); torch.addcmul(v, v, v.exp(), value=0.5)
        torch.addcdiv(v, v, v.exp(), value=0.5); torch.logaddexp(v, v.exp()); torch.logaddexp2(v, v.exp())
        torch.maximum(v, v.flip(0)); torch.minimum(v, v.flip(0)); torch.fmax(v, v.flip(0)); torch.fmin(v, v.flip(0))
        v.clamp(-0.1, 0.1); v.clamp(min=0.1); v.clamp(max=0.1); v.clamp(-v.exp(), v / 2); v.copysign(v.flip(0))
        torch.max(v, v.flip(0))
    """,
    "conditions": """
        torch.where(v > 0, v, -2 * v); torch.where(v > 0, v, 1.0); torch.where(v > 0, 0.5, v); v.masked_fill(v > 0, 0.3)
        (v > 0) * v; (v >= 0.1).to(v.dtype) * v; v * (v > 0).sum(); ((v > 0) & (v < 1)) * v; ((v > 0) | (v < -1)) * v
        ((v > 0) ^ (v < 1)) * v; ~(v > 0) * v; torch.logical_xor(v > 0, v < 1) * v; v * (v > 0).any()
        v * (W > 0).all(0).any(); torch.isfinite(v) * v; torch.isnan(v) * v; torch.isclose(v, v) * v; (v != 0) * v
        v * (W > 0).reshape(-1)[:3]; set_where_positive(v); v * (W > 0).transpose(0, 1)[0]
        v * torch.tensor([True, False, True]); torch.where(torch.tensor([True, False, True]), v, 0.0)
    """,
    "sums": """
        W.sum(); W.sum(-1); W.mean(); W.mean((0, 1), keepdim=True); W.var(); W.var(1, unbiased=False); W.std(0)
        torch.var_mean(W, 1); torch.std_mean(W, 1); W.norm(); W.norm(dim=0); W.norm(p=1, dim=1); W.norm(p=3)
        W.norm(p=float("inf"), dim=1); W.norm("fro"); torch.linalg.vector_norm(W, dim=1); torch.linalg.norm(v)
        torch.linalg.matrix_norm(W); W.logsumexp(0); W.logsumexp((0, 1)); W.prod(0); v.prod(); v.cumprod(0)
        v.cumsum(0); W.cumsum(1); W.amax(); W.amax(0); W.amin(1, keepdim=True); W.aminmax(); W.max(); W.max(1).values
        W.min(0, keepdim=True).values; v.argmax() * v; (torch.arange(3) == v.argmin()) * v; v.diff(); W.trace()
        v.take_along_dim(v.argmax()[None], 0); v * (W.argmax(1) == 1); torch.trapezoid(v); (W - W.mean()).sum(1)
        (W - W.sum()).mean(); (W - W.mean()).sum((0, 1)) + v; (W[None] - W.mean()).mean(0)
    """,
    "losses": """
        F.normalize(W, dim=0); F.normalize(v, dim=0); F.normalize(W, p=1, dim=1); F.layer_norm(v, v.shape)
        F.layer_norm(W, W.shape[-1:], W[0], W[1]); F.rms_norm(v, v.shape); F.rms_norm(W, W.shape[-1:], W[0])
        F.group_norm(v[None], 1); F.cosine_similarity(v, v.exp(), dim=0); F.cosine_similarity(W, W[:1], dim=1)
        F.mse_loss(v, v.exp()); F.l1_loss(v, v.exp()); F.smooth_l1_loss(v, v.exp()); F.huber_loss(v, v.exp())
        F.binary_cross_entropy_with_logits(v, v.sigmoid()); F.cross_entropy(v, W[:, 0].softmax(0))
        F.kl_div(v.log_softmax(0), W[:, 0].softmax(0), reduction="sum"); torch.dist(v, v.exp())
        F.scaled_dot_product_attention(W[None], W[None], W[None])
    """,
    "products": """
        torch.outer(v, W[0]); torch.einsum("ij,j->i", W, W[0]); torch.einsum("i,j", v, W[0]); W @ W.T @ v; v @ W
        torch.einsum("ii->i", W @ W.T); torch.einsum("...j,kj->...k", W, W); W.mv(W[0]); W.mm(W.T); v.dot(v)
        torch.bmm(W[None], W.T[None]); v.inner(v); torch.vdot(v, v); torch.addmm(W @ W.T, W, W.T, beta=0.5, alpha=2)
        torch.baddbmm(W[None] @ W.T[None], W[None], W.T[None]); torch.addmv(v, W, W[0]); torch.addr(W, v, W[0])
        torch.linalg.multi_dot([W, W.T, W]); torch.kron(v, W[0]); torch.tensordot(W, W, dims=([1], [1]))
        torch.matrix_power(W @ W.T, 3); torch.linalg.cross(W[:, 0], v); F.linear(v, W.T); F.linear(W, W, v)
        F.bilinear(v, v, torch.stack([W @ W.T] * 2)); torch.func.vmap(lambda r: r * v.sum())(W)
    """,
    "views": """
        torch.cat([v, W[0]]); torch.stack([v, v.exp()]); torch.hstack([v, W[0]]); W.split(2, 0); W.split([1, 2], 0)
        W.chunk(2, 1); torch.tensor_split(W, 2, 1); v.roll(1); W.roll((1, 1), (0, 1)); W.roll(3); W.flipud(); W.rot90()
        W.triu(); W.tril(-1); W.diag(); v.diag(); torch.diag_embed(v); W.diagonal(1); W.diagonal(-1)
        torch.diagonal_scatter(W, v[:2], -1); torch.diagonal_scatter(W[None], W[:1, :3], 1, 1, 2); W[:1].diagonal()
        torch.diagonal_scatter(torch.stack([W, W.exp()]), W[:, :2], 0, 2, 0); W[:, :1].diagonal(); W.diagonal(5)
        torch.block_diag(W, W); W.T; W.permute(1, 0); W.movedim(0, 1); W.reshape(-1); W.flatten().unflatten(0, W.shape)
        W.unsqueeze(1).squeeze(1); v.expand(2, -1); v.repeat(2); W.repeat(2, 1, 2); v.tile(2); v.repeat_interleave(2)
        v[None]; v[-1]; v[::2]; W[1:, :2]; W[..., 0]; v.narrow(0, 1, 2); v.unbind(0); W.unfold(1, 2, 1); v[1:1]
        F.pad(v, (1, 2)); F.pad(W, (1, 0, -1, 1), value=0.5); F.pad(v[None], (1, 1), mode="circular")
        F.pad(v[None], (1, 1), mode="reflect"); torch.meshgrid(v, W[0], indexing="ij"); torch.cartesian_prod(v, v)
    """,
    "places": """
        v[[0, 2]]; v[[1, 1]]; W[[0, 1], [1, 0]]; W[:, [0, -2]]; W[[2, 0, 2]]; W[torch.tensor([[0, 1], [2, 2]])]
        v[torch.tensor([True, False, True])]; v.index_select(0, torch.tensor([0, 0])); v.gather(0, torch.tensor([2, 2]))
        v.index_add(0, torch.tensor([0, 0]), W[0, :2]); v.scatter(0, torch.tensor([0, 2]), W[0, :2])
        v.scatter_add(0, torch.tensor([2, 2]), W[0, :2]); v.clone().index_fill(0, torch.tensor([1]), 0.0)
        F.one_hot(torch.tensor(1), 3) * v; F.one_hot(v.argmax(), 3) * v; set_places(v, W); set_column(v, W)
        v.clone().mul_(2.0).relu_(); v.clone().fill_(0.3) * v
        v.new_zeros(3) + v; torch.full_like(v, 0.3) * v; torch.arange(3) * v; v.detach() * v
    """,
}
"""Operations that compile with their first and second derivatives, by family."""

ONCE = [
    "torch.cdist(W, W[:1].exp())",
    "F.scaled_dot_product_attention(W[None, None], W[None, None], W[None, None])",
    "F.scaled_dot_product_attention(W[None, None], W[None, None], W[None, None], W[:, :3] > 0.5, scale=0.3)",
]
"""Operations that compile, and for which PyTorch has no second derivative."""

REFUSED: dict[str, str] = {
    "v.sort().values": "aten.sort",
    "v.topk(2).values": "aten.topk",
    "v.median()": "aten.median",
    "v.logcumsumexp(0)": "aten.logcumsumexp",
    "W.cummax(0).values": "aten.cummax",
    "v[(v.argmax() + 1) % 3]": "a value taken out of a tensor",
    "v.gather(0, v.argmax()[None] + 1)": "an index that is computed",
    "torch.linalg.inv(torch.eye(3, dtype=v.dtype) + W @ W.T)": "aten.linalg_inv",
    "torch.linalg.matrix_exp(W @ W.T)": "aten.linalg_matrix_exp",
    "F.conv1d(v[None, None], W[:1, None, :2])": "aten.convolution",
    "F.max_pool1d(v[None], 2)": "aten.max_pool2d",
    "torch.lgamma(v.exp())": "aten.lgamma",
    "torch.erfinv(v.tanh() / 2)": "aten.erfinv",
    "torch.bucketize(v, torch.tensor([0.0, 1.0], dtype=v.dtype)) * v": "aten.bucketize",
    "v.round(decimals=1)": "aten.round.decimals",
    "((v > 0).sum() & 1) * v": "aten.bitwise_and",
    "F.rrelu(v, training=True)": "random numbers by aten.rrelu_with_noise",
    "torch.complex(v, v).abs()": "numbers of torch.complex128",
    "v.float()": "numbers of torch.float32",
    "v[v > 0].sum()": "cannot be run|is not one that compiles|an index that is computed",
}
"""Operations that do not compile, by design, and part of the error message."""


def set_where_positive(v: Tensor) -> Tensor:
    """A copy that is written in place where a condition holds."""
    a = v.clone()
    a[v > 0] = 0.5
    return a * v


def set_places(v: Tensor, W: Tensor) -> Tensor:
    """A copy that is written in place, element by element."""
    a = v.clone()
    a[0] = 0.5
    a[1:] = a[1:].clone() * W[0, 0]
    return a


def set_column(v: Tensor, W: Tensor) -> Tensor:
    """A copy of a matrix with another column."""
    a = W.clone()
    a[:, 0] = v
    a[1, 1:3] += 1
    return a


def lines(family: str) -> list[str]:
    """The lines of a family of `COMPILED`."""
    return [line.strip() for line in COMPILED[family].replace("\n", ";").split(";") if line.strip()]


def operation(line: str) -> Callable[[Tensor, Tensor], Any]:
    """The function of v and W that a line computes."""
    namespace = {"torch": torch, "F": F} | {f.__name__: f for f in (set_where_positive, set_places, set_column)}
    function: Callable[[Tensor, Tensor], Any] = eval(f"lambda v, W: {line}", namespace)
    return function


def folded(result: Any) -> Tensor:
    """A weighted sum of all numbers of a result, with a different weight per number."""
    parts = result if isinstance(result, tuple | list) else [result]
    return sum((p * torch.arange(1, p.numel() + 1, dtype=p.dtype).reshape(p.shape).cos()).sum() for p in parts)


def interpreted(
    cell: Cell, sizes: Mapping[str, int], records: Sequence[Any], gradients: Sequence[Tensor]
) -> list[Tensor]:
    """The new state, y, and the gradients of state, inputs and params, for gradients of state and y."""
    step = lower(trace(cell, sizes, torch.float64))
    verify_step(step)
    tensors = [x.double() for record in records for x in record]
    interpreter = Interpreter(dict(zip(step.placeholders, [*tensors, *gradients], strict=True)))
    return [interpreter.value(value) for value in step.results]


def expected(cell: Cell, records: Sequence[Any], gradients: Sequence[Tensor]) -> list[Tensor]:
    """The results of `interpreted`, by autograd."""
    leaves = [type(record)(*(x.double().requires_grad_() for x in record)) for record in records]
    state, y = cell.step(*leaves)
    flat = [x for record in leaves for x in record]
    return [*state, y, *torch.autograd.grad([*state, y], flat, gradients, materialize_grads=True)]

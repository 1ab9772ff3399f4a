# SPDX-License-Identifier: Apache-2.0
"""A circuit behaves as other objects of PyTorch do: copies, shapes, derivatives, modes and devices."""

from __future__ import annotations

import copy
import io
import math
import pickle
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import picirc as pc
from cases import CASES
from processes import CONTEXT
from table_circuits import COLUMNS, TABLES, columns_data

RULE = pc.gauss_legendre(6)
TREE = pc.LatentTree((-1, 0, 0), ((), (0, 1), (2, 3)))


def make_pic(tree: pc.LatentTree = TREE, **options: object) -> pc.PIC:
    families = [pc.Gaussian(), pc.Gaussian(), pc.Categorical(3), pc.Bernoulli()]
    return pc.PIC(tree, families, width=8, generator=torch.Generator().manual_seed(0), **options)  # type: ignore[arg-type]


MODELS = {
    "pic": make_pic,
    "correlated": lambda: make_pic(correlated=True),
    "hclt": lambda: TABLES["quad_graph"].model(),
    "ensemble": lambda: pc.Ensemble([make_pic(), make_pic()]),
    "trees": lambda: pc.Ensemble([make_pic(), make_pic(pc.star(4))], weights=[1, 2]),
    "star": lambda: pc.PIC(pc.star(3), pc.Gaussian(), width=8, dims=2),
    "tree_mixture": lambda: pc.TreeMixture(pc.chain(3), pc.Bernoulli(), width=8, dims=2),
}
VECTORS = pc.sobol(16, dims=2)
each_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def circuit_of(model: nn.Module) -> pc.QPC:
    if isinstance(model, pc.HCLT):
        return model()
    return model(VECTORS if getattr(model, "dims", 1) == 2 else RULE)


def through_file(value: object) -> object:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {"pickle": lambda v: pickle.loads(pickle.dumps(v)), "torch": through_file, "deepcopy": copy.deepcopy}
each_copy = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)


@each_model
@each_copy
def test_models_and_their_circuits_can_be_copied(make, copied):
    model = make()
    qpc = circuit_of(model)
    x = qpc.sample(5, generator=torch.Generator().manual_seed(0))
    expected = qpc.log_prob(x).detach()
    again = copied(model)
    assert_close(circuit_of(again).log_prob(x).detach(), expected, rtol=0, atol=0)
    other = copied(qpc)
    assert_close(other.log_prob(x), expected, rtol=0, atol=0)
    assert not other.parameters.like.requires_grad
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    assert_close(other.log_prob(x), expected, rtol=0, atol=0)
    circuit_of(again).log_prob(x).sum().backward()


@pytest.mark.parametrize("name", ["lg_tree", "lg_dag", "shared_by_sums", "tucker"])
@each_copy
def test_integral_circuits_can_be_copied(name, copied):
    case = CASES[name]
    qpc, x = case.integrate(RULE), case.data()
    other = copied(qpc)
    assert_close(other.log_prob(x), qpc.log_prob(x), rtol=0, atol=0)
    assert_close(other.error(x), qpc.error(x), rtol=0, atol=0)
    again = copied(case.circuit)
    assert str(again) == str(case.circuit)
    assert again.variables == case.circuit.variables


def known_chain() -> pc.SequenceModel:
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    net.observed("x", pc.LinearGaussian({"z": 1.0}, std=0.5))
    model = pc.state_space(net, {"z": pc.LinearGaussian({"z": 0.9}, std=0.4)})
    model.log_prob({"x": [0.1, 0.2]})  # the chain on its grid is kept from now on
    return model


VALUES = [
    *(pc.simpson(5), pc.gauss_hermite(4), pc.shifted(4), pc.shifted(VECTORS), pc.tensor_grid(pc.gauss_hermite(3), 2)),
    *(pc.trapezoidal(4).on(0, 1), pc.whole_line(4), pc.chain(3), pc.quad_graph(2, 2)),
    *(pc.Binomial(3), pc.StudentT(), pc.Discrete(3), pc.MultivariateNormal(dims=2), pc.Cosine()),
    *(pc.between(1, 2), pc.one_of(["a"]), pc.missing, pc.PICDensity(), pc.PICClassifier(), pc.PICImputer()),
    *(TABLES["tree"].qpc().mean, TABLES["tree"].qpc().support, CASES["lg_tree"].circuit.exact(), known_chain()),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
@each_copy
def test_values_can_be_copied(value, copied):
    other = copied(value)
    if isinstance(value, pc.SequenceModel):
        other, value = (model.log_prob({"x": [0.1, 0.2]}) for model in (other, value))
    assert str(other) == str(value)


def test_deep_circuits_can_be_copied():
    depth = sys.getrecursionlimit() + 100
    model = pc.HCLT(pc.chain(depth), pc.Bernoulli(), 2)
    assert len(pickle.loads(pickle.dumps(model)).plan.circuit.units) == len(model.plan.circuit.units)
    units = pc.from_tree(pc.chain(depth), lambda i, p: pc.LinearGaussian({p: 0.5} if p else None), _observed)
    assert len(pickle.loads(pickle.dumps(units)).units) == len(units.units)


def _observed(column: int, parent: str | None) -> pc.LinearGaussian:
    return pc.LinearGaussian({str(parent): 1.0})


class Score:
    """What a worker does with a batch."""

    def __init__(self, qpc: pc.QPC) -> None:
        self.qpc = qpc

    def __call__(self, rows: list[tuple[torch.Tensor]]) -> torch.Tensor:
        return self.qpc.log_prob(torch.stack([row for (row,) in rows]))


SCORER = TABLES["tree"].qpc()


def test_workers_of_a_data_loader_get_a_circuit():
    x = TABLES["tree"].joint().x[:8]
    # A worker of the fork server gets everything through pickle, as a spawned one does.
    loader = DataLoader(TensorDataset(x), 4, num_workers=1, collate_fn=Score(SCORER), multiprocessing_context=CONTEXT)
    assert_close(torch.cat(list(loader)), SCORER.log_prob(x), rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (2, 0, 3), (1, 2, 1, 2)])
def test_batches_of_any_shape(shape):
    qpc = COLUMNS["tree_of_columns"].qpc()
    size = math.prod(shape)
    x = columns_data(max(size, 1))[:size].view(*shape, 5)
    found = qpc.log_prob(x)
    assert found.shape == shape
    flat = x.reshape(-1, 5)
    if size:
        assert_close(found.flatten(), qpc.log_prob(flat))
        assert_close(qpc.log_prob(x, given=x.masked_fill(x > 0, math.nan)).shape, torch.Size(shape))
    mask = x > 0.5
    assert_close(qpc.log_prob(x, mask=mask), qpc.log_prob(x.masked_fill(mask, math.nan)))
    assert qpc.cdf(x).shape == shape
    given = torch.full((5,), math.nan)
    assert qpc.log_prob(x, given=given).shape == shape


def test_samples_fit_the_log_likelihood():
    qpc = SCORER
    assert qpc.log_prob(qpc.sample()).shape == ()
    assert qpc.log_prob(qpc.sample((2, 3))).shape == (2, 3)


CONTINUOUS = [
    "lg_tree",
    "lg_dag",
    "lg_chain",
    "paper_ltm",
    "bimodal",
    "mixed_columns",
    "bounded_input",
    "sums",
    "tucker",
]


@pytest.mark.parametrize("name", CONTINUOUS)
def test_gradients_to_the_data(name):
    case = CASES[name]
    qpc, x = case.integrate(RULE), case.data()
    real = torch.tensor([not family.discrete for family in qpc.families])

    def log_prob(free: torch.Tensor) -> torch.Tensor:
        return qpc.log_prob(torch.where(real & ~x.isnan(), free, x))

    start = x.nan_to_num(0.0).requires_grad_()
    assert torch.autograd.gradcheck(log_prob, start)
    (found,) = torch.autograd.grad(qpc.log_prob(x.clone().requires_grad_()).sum(), start, allow_unused=True)
    assert found is None
    leaf = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(qpc.log_prob(leaf).sum(), leaf)
    assert not found[x.isnan()].any()
    assert not found[:, ~real].any()


def test_gradients_to_correlated_data_and_to_the_model_at_once():
    model = make_pic(correlated=True).double()
    qpc = model(RULE)
    x = qpc.sample(4, generator=torch.Generator().manual_seed(1))
    x[0, 1] = math.nan

    def log_prob(free: torch.Tensor) -> torch.Tensor:
        return qpc.log_prob(torch.cat([torch.where(x[:, :2].isnan(), x[:, :2], free), x[:, 2:]], 1))

    assert torch.autograd.gradcheck(log_prob, x[:, :2].nan_to_num(0.0).requires_grad_())
    leaf = x.clone().requires_grad_()
    model(RULE).log_prob(leaf).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_gradients_to_the_data_given_evidence():
    case = CASES["lg_tree"]
    qpc, x = case.integrate(RULE), case.complete(3)
    given = torch.full_like(x, math.nan)
    given[:, 0] = x[:, 0]
    asked = x.clone()
    asked[:, 0] = math.nan
    real = ~asked.isnan()
    assert torch.autograd.gradcheck(
        lambda a, e: qpc.log_prob(torch.where(real, a, math.nan), given=torch.where(real, math.nan, e)),
        (x.clone().requires_grad_(), x.clone().requires_grad_()),
    )


def test_second_derivatives_are_refused():
    """They would come out as zero: autograd does not see the levels."""
    qpc = CASES["lg_tree"].integrate(RULE)
    parameters = [t.clone().requires_grad_() for t in qpc.parameters.tensors]
    free = pc.QPC(
        qpc.compiled, type(qpc.parameters).of(parameters, qpc.parameters.counts), qpc.variables, qpc.families, (),
        qpc.properties,
    )  # fmt: skip
    x = CASES["lg_tree"].complete(3).requires_grad_()
    for leaf in (parameters[0], parameters[-1], x):
        value = free.log_prob(x).sum()
        (first,) = torch.autograd.grad(value, leaf, create_graph=True)
        assert first.requires_grad
        with pytest.raises(NotImplementedError, match="first derivatives only"):
            torch.autograd.grad(first.sum(), leaf, allow_unused=True)


@each_model
def test_second_derivatives_of_models_are_refused(make):
    model = make()
    qpc = circuit_of(model)
    x = qpc.sample(3, generator=torch.Generator().manual_seed(0))
    x[0, 0] = math.nan
    found = torch.autograd.grad(qpc.log_prob(x).sum(), list(model.parameters()), create_graph=True)
    for first in found:
        with pytest.raises(NotImplementedError, match="first derivatives only"):
            torch.autograd.grad(first.sum(), list(model.parameters()), allow_unused=True, retain_graph=True)


def test_second_derivatives_of_complete_rows_of_a_tree_mixture_are_right():
    """One matrix product computes these rows, and autograd knows it."""
    model = MODELS["tree_mixture"]().double()
    x, parameters = circuit_of(model).sample(4), list(model.parameters())

    def gradient(**options: bool) -> torch.Tensor:
        found = torch.autograd.grad(circuit_of(model).log_prob(x).sum(), parameters, **options)
        return sum(g.sum() for g in found)

    second = torch.autograd.grad(gradient(create_graph=True), parameters)
    for parameter, found in zip(parameters, second, strict=True):
        ends = []
        for step in (1e-5, -2e-5):
            with torch.no_grad():
                parameter += step
            ends.append(gradient())
        with torch.no_grad():
            parameter += 1e-5
        assert_close(found.sum(), (ends[0] - ends[1]) / 2e-5, rtol=1e-4, atol=1e-5)


def test_inference_mode_leaves_nothing_behind():
    model = make_pic()
    x = model(RULE).sample(4, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = model(RULE).log_prob(x)
        model(RULE).sample(3)
        model(RULE).marginals(x)
        model(RULE).mpe(x)
    values = model(RULE).log_prob(x)
    values.sum().backward()
    assert_close(values.detach(), expected, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which the compiler reads of every tensor
def test_a_compiled_function_may_call_a_model():
    """The compiler traces what is around the model and its query, and nothing inside."""
    model = make_pic()
    x = model(RULE).sample(4, generator=torch.Generator().manual_seed(0))
    expected = 2 * model(RULE).log_prob(x) + 1
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append([node.name for node in graph.graph.nodes if node.op.startswith("call")])
        return graph.forward

    torch._dynamo.reset()
    found = torch.compile(lambda rows: 2 * model(RULE).log_prob(rows) + 1, backend=backend)(x)
    assert_close(found, expected)
    assert graphs == [["mul", "add"]]


def test_transforms_of_functions_say_what_to_do():
    qpc = CASES["lg_tree"].integrate(RULE)
    x = CASES["lg_tree"].complete(3)
    with pytest.raises(NotImplementedError, match=r"torch\.func"):
        torch.func.grad(lambda rows: qpc.log_prob(rows).sum())(x)
    for query in (qpc.log_prob, qpc.marginals, qpc.mpe):
        with pytest.raises(NotImplementedError, match=r"torch\.func"):
            torch.func.vmap(query)(x)


@pytest.mark.parametrize("name", ["tree", "quad_graph", "hand_made_tucker"])
def test_no_place_assumes_a_device(name):
    """On the device ``meta`` there are shapes and no numbers; what reaches main memory on the way would fail."""
    model = TABLES[name].model().to("meta")
    x = TABLES[name].joint().x[:4].to("meta")
    values = model().log_prob(x)
    assert (values.device.type, values.shape) == ("meta", (4,))
    values.sum().backward()
    assert all(p.grad is not None and p.grad.device.type == "meta" for p in model.parameters())


@pytest.mark.parametrize("options", [{}, {"correlated": True}, {"sharing": "none", "input_sharing": "none"}])
def test_a_neural_model_has_no_place_either(options):
    model = make_pic(**options).to("meta")
    values = model(RULE).log_prob(torch.zeros(4, 4, device="meta"))
    values.sum().backward()
    assert values.device.type == "meta"


def test_tensors_without_numbers_do_not_reach_compiled_loops():
    model = TABLES["quad_graph"].model().float()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = copy.deepcopy(model)
        for parameter in fake.parameters():
            parameter.data = mode.from_tensor(parameter.data)
        x = mode.from_tensor(TABLES["quad_graph"].joint().x[:4].float())
        values = fake().log_prob(x)
    assert values.shape == (4,)


@pytest.mark.parametrize("shape", [0, (0,), (2, 0), np.int64(2)])
def test_samples_of_any_number(shape):
    qpc, given = SCORER, torch.full((3, SCORER.event_shape[0]), math.nan)
    expected = (shape,) if isinstance(shape, int | np.integer) else shape
    drawn = qpc.sample(shape)
    assert drawn.shape == (*expected, *qpc.event_shape)
    assert qpc.log_prob(drawn).shape == expected
    assert qpc.sample(shape, given=given).shape == (*expected, 3, *qpc.event_shape)


def test_models_are_made_with_a_type():
    double = {"dtype": torch.float64}
    mixture = pc.TreeMixture(pc.chain(3), pc.Bernoulli(), width=8, dims=2, **double)
    for model in (make_pic(**double), pc.HCLT(pc.chain(2), pc.Gaussian(), 2, **double), mixture):
        assert {p.dtype for p in model.parameters()} == {torch.float64}
        assert circuit_of(model).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@each_model
def test_models_in_half_precision(make, dtype):
    model = make()
    x = circuit_of(model).sample(4, generator=torch.Generator().manual_seed(0))
    expected = circuit_of(model).log_prob(x).detach()
    found = circuit_of(model.to(dtype)).log_prob(x)
    assert found.dtype == dtype
    assert_close(found.detach().to(expected.dtype), expected, rtol=0.1, atol=0.2)

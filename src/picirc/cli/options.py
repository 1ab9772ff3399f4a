"""The options of the commands, by subject; their names are the flags and the keys of a configuration file."""

from __future__ import annotations

import shlex
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Rule = Literal["shifted", "midpoint", "trapezoidal", "simpson", "gauss-legendre", "clenshaw-curtis"]
Sharing = Literal["none", "composite", "full"]


@Parameter(name="*", group="Data")
@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Which data.

    Attributes:
        data: The name of a data set, such as mnist, or a table in a file (csv, parquet, npy, npz), of which a tenth is
            held out for testing and a tenth of the rest for validation.
        data_dir: The folder of the data sets; by default PICIRC_DATA, then the cache.
        categorical: The columns of a csv or parquet file that hold categories.
    """

    data: str
    data_dir: Path | None = None
    categorical: tuple[str, ...] = ()


@Parameter(name="*", group="Model")
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model.

    Attributes:
        model: A probabilistic integral circuit, or tables with as many states as points.
        structure: The dependencies: a tree learned from the data, or a fixed structure.
        product: How a region graph combines the parts of a region.
        points: Quadrature points of each latent of a pic, or states of each latent of an hclt.
        rule: The quadrature rule of the training.
        width: The width of the neural nets.
        sharing: What the nets of integral units share.
        input_sharing: What the nets of input units share; by default full for images whose pixels are of one finite
            family, else composite.
        inputs: The distribution of each variable; auto: bernoulli for zeros and ones, categorical for data sets and for
            columns of few whole numbers, else gaussian.
    """

    model: Literal["pic", "hclt"] = "pic"
    structure: Literal["hclt-tree", "chain", "quad-tree", "quad-graph", "random", "random-regions"] = "hclt-tree"
    product: Literal["cp", "tucker"] = "cp"
    points: Annotated[int, Parameter(name=("--points", "--states"))] = 64
    rule: Rule = "shifted"
    width: int = 64
    sharing: Sharing = "composite"
    input_sharing: Sharing | None = None
    inputs: Literal["auto", "categorical", "binomial", "bernoulli", "gaussian"] = "auto"


@Parameter(name="*", group="Training")
@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How it is trained.

    Attributes:
        steps: The largest number of steps.
        batch: Rows of a batch.
        lr: The largest step size.
        lr_min: The smallest step size, reached by cosine annealing.
        restart: Steps after which the annealing starts again; by default never, with em every 500.
        optimizer: The optimizer of gradient training.
        weight_decay: Of the optimizer.
        clip: The largest norm of a gradient.
        em: Train an hclt by expectation-maximisation.
        smoothing: Pseudo-observations added to each distribution by em.
        seed: Decides the initial parameters, the order of the data and the random points.
        patience: Steps without improvement on the validation data after which training stops; 0 for never.
        validate_every: Steps between validations.
        threads: Threads of torch.
    """

    steps: int = 5000
    batch: int = 256
    lr: float = 1e-2
    lr_min: float = 1e-4
    restart: int | None = None
    optimizer: Literal["adam", "adamw"] = "adam"
    weight_decay: float = 0.0
    clip: float | None = None
    em: bool = False
    smoothing: float = 0.01
    seed: int = 0
    patience: int = 1250
    validate_every: int = 250
    threads: int | None = None


@Parameter(name="*", group="Output")
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where the results go.

    Attributes:
        out: The folder for the model, the metrics, the summary and the checkpoint.
        checkpoint_every: Steps between checkpoints.
        resume: Continue from the checkpoint in the folder.
        overwrite: Start anew in a folder with results.
        tensorboard: Also write the metrics for TensorBoard.
    """

    out: Path
    checkpoint_every: int = 1000
    resume: bool = False
    overwrite: bool = False
    tensorboard: bool = False


@Parameter(name="*", group="Quadrature of a pic")
@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """How a PIC is integrated when it is used.

    Attributes:
        points: The number of points; by default what the model was validated with.
        rule: The rule; the shifted one stands for its middle draw.
    """

    points: int | None = None
    rule: Rule | None = None


def command_line(name: str, *options: object) -> str:
    """The command with all options that differ from their defaults, whether flags or a file set them.

    Example:
        >>> command_line("fit", DataOptions(data="my table.csv"), TrainingOptions(em=True, lr=0.1))
        "picirc fit --data 'my table.csv' --lr 0.1 --em"
    """
    words = ["picirc", name]
    for part in options:
        for field in fields(part):  # type: ignore[arg-type]  # options are dataclasses
            value = getattr(part, field.name)
            if field.default is not MISSING and value == field.default:
                continue
            flag = f"--{field.name.replace('_', '-')}"
            for one in value if isinstance(value, tuple) else (value,):
                words += [flag] if one is True else [flag, str(one)]
    return shlex.join(words)

# SPDX-License-Identifier: Apache-2.0
"""Use an installed package as a new user would, without the repository and without optional dependencies.

``make package`` runs this with the Python of an environment that holds the wheel (or the sdist) and nothing else.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path


def model_of_a_table(folder: Path) -> None:
    """Fit, save, load, sample."""
    import numpy as np

    import picirc as pc

    rng = np.random.default_rng(0)
    height = rng.normal(170, 10, 100)
    table = {"height": height, "size": np.where(height > 170, "L", "S")}
    model = pc.fit_table(table, steps=20)
    model.save(folder / "model")
    same = pc.TableModel.load(folder / "model")
    assert np.array_equal(same.log_density(table), model.log_density(table))
    drawn = same.sample(10, seed=0)
    assert set(drawn["size"]) <= {"L", "S"}
    assert len(drawn["height"]) == 10


def circuit_by_hand() -> None:
    """A closed form agrees with quadrature."""
    import torch

    import picirc as pc

    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    net.observed("x", pc.LinearGaussian({"z": 2.0}, std=0.5))
    circuit = pc.from_bayesnet(net)
    x = torch.tensor([[0.5], [float("nan")]], dtype=torch.float64)
    torch.testing.assert_close(circuit.integrate(pc.trapezoidal(64)).log_prob(x), circuit.exact().log_prob(x))


def files_of_the_package() -> None:
    """The package contains its data files: the type marker, the C source, the pages, the digits."""
    import picirc as pc

    here = Path(pc.__file__).parent
    assert here.is_relative_to(sys.prefix), f"picirc was imported from {here}, not from the environment"
    files = (
        "py.typed",
        "native/kernels.c",
        "report/style.css",
        "explorer/static/index.html",
        "data/embedded/digits.npz",
    )
    for name in files:
        assert (here / name).is_file(), f"{name} is missing in the package"
    assert pc.data.load("digits").test.shape == (300, 64)
    assert importlib.metadata.version("picirc") == pc.__version__


def command_line(folder: Path) -> None:
    """The command is installed, and uses the model that Python saved."""
    import picirc as pc

    command = str(Path(sys.executable).parent / "picirc")
    shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == pc.__version__
    subprocess.run([command, "sample", "model", "-n", "5", "-o", "new.csv"], cwd=folder, check=True)
    assert len((folder / "new.csv").read_text(encoding="utf-8").splitlines()) == 6


def main() -> None:
    """Run all of it in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        files_of_the_package()
        model_of_a_table(Path(folder))
        circuit_by_hand()
        command_line(Path(folder))
    print(f"picirc {importlib.metadata.version('picirc')} works in {sys.prefix}")


if __name__ == "__main__":
    main()

# Two commands are all a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PEERS := .venv-peers/bin

.PHONY: demo test check format sanity bench bench-training bench-peers clean

demo: .venv/ready
	$(BIN)/python examples/demo.py

test: check
	$(BIN)/python -m pytest -n 2

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The paper's Figure 3 and more; some minutes.
sanity: .venv/ready
	$(BIN)/python experiments/sanity_check/run.py

# Time and memory against the bare matrix products; a quarter of an hour, or a minute with ARGS=--quick.
bench: .venv/ready
	$(BIN)/python benchmarks/bench.py $(ARGS)

# A training step against the bare matrix products and against tables; ten minutes.
bench-training: .venv/ready
	$(BIN)/python benchmarks/training.py $(ARGS)

# The same circuits in other libraries, which live in an environment of their own; half an hour.
bench-peers: .venv-peers/ready
	$(PEERS)/python -m pytest tests/peers
	$(PEERS)/python benchmarks/peers.py $(ARGS)

.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

.venv-peers/ready: pyproject.toml constraints.txt benchmarks/peers-requirements.txt
	test -x $(PEERS)/python || $(PYTHON) -m venv .venv-peers
	$(PEERS)/python -m pip install --quiet -c constraints.txt -r benchmarks/peers-requirements.txt -e .
	touch $@

clean:
	rm -rf .venv .venv-peers .pytest_cache .mypy_cache .ruff_cache dist build

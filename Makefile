# Two commands are all a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PEERS := .venv-peers/bin
TABLES := .venv-tables/bin
PACKAGE := .venv-package/bin

# The tests start many processes; without compiled modules each of them would compile the library anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test pytest test-pages test-browser test-engines check format package sanity bench bench-training bench-tables \
	bench-sequences bench-peers bench-scale hammer hammer-scale docs docs-serve clean

demo: .venv/ready
	$(BIN)/python examples/demo.py

# The checks run beside the tests: both cores are busy until the end.
test: .venv/ready
	$(MAKE) --jobs=2 check pytest

pytest: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The code on the pages with models of the default size; `make test` makes those of tables smaller. Three minutes.
test-pages: .venv/ready
	FULL_PAGES=1 $(BIN)/python -m pytest -n 2 tests/test_docs.py

# The pages of the explorer and the report in a real browser. `make test` runs these too where Chromium is installed.
test-browser: .venv/ready
	command -v chromium || (apt-get update && apt-get install -y chromium)
	$(BIN)/python -m pytest tests/explorer/test_explorer_browser.py tests/report/test_browser.py

# A model mapped over a table by Dask, Ray, Spark and polars, each in two processes; some minutes.
test-engines: .venv/ready
	command -v java || (apt-get update && apt-get install -y default-jre-headless) || true
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[scale]"
	$(BIN)/python -m pytest -m engines tests/engines

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Build the sdist, and the wheel from it; install each into an empty environment and use it there. Two minutes.
package: .venv/ready
	rm -rf dist .venv-package
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv .venv-package
	$(PACKAGE)/python -m pip install --quiet -c constraints.txt dist/*.whl
	$(PACKAGE)/python -I tests/smoke.py
	$(PACKAGE)/python -m pip install --quiet --no-deps --force-reinstall dist/*.tar.gz
	$(PACKAGE)/python -I tests/smoke.py

# The paper's Figure 3 and more; some minutes.
sanity: .venv/ready
	$(BIN)/python experiments/sanity_check/run.py

# A figure or table of the paper, such as reproduce-images; MINUTES=30 stops after that, and the next run goes on.
reproduce-%: .venv/ready
	$(BIN)/python experiments/reproduce.py $* $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)
	$(BIN)/python experiments/table.py

# Time and memory against the bare matrix products; a quarter of an hour, or a minute with ARGS=--quick.
bench: .venv/ready
	$(BIN)/python benchmarks/bench.py $(ARGS)

# A training step against the bare matrix products and against tables; ten minutes.
bench-training: .venv/ready
	$(BIN)/python benchmarks/training.py $(ARGS)

# Models of public tables against the usual methods, some of which need an older pandas and so an environment of their own;
# hours. ARGS="--minutes 30" stops after that, and the next run goes on.
bench-tables: .venv-tables/ready
	$(TABLES)/python benchmarks/tables.py $(ARGS)

# Models of sequences against hidden Markov models, linear state spaces and particle filters; a quarter of an hour.
bench-sequences: .venv/ready
	$(BIN)/python -m pip install --quiet -c constraints.txt -r benchmarks/sequences-requirements.txt
	$(BIN)/python benchmarks/sequences.py $(ARGS)

# Scoring, imputing and sampling by one and two processes, and learning from Parquet files of up to ten million rows; half an
# hour, or a minute with ARGS="--sizes 1e4,1e5 --map-rows 2e4 --steps 50".
bench-scale: .venv/ready
	nice -n 5 $(BIN)/python benchmarks/scale.py $(ARGS)

# The same circuits in other libraries, which live in an environment of their own; half an hour.
bench-peers: .venv-peers/ready
	$(PEERS)/python -m pytest tests/peers
	$(PEERS)/python benchmarks/peers.py $(ARGS)

.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

.venv-tables/ready: pyproject.toml constraints.txt benchmarks/tables-requirements.txt
	test -x $(TABLES)/python || $(PYTHON) -m venv .venv-tables
	$(TABLES)/python -m pip install --quiet -c constraints.txt -r benchmarks/tables-requirements.txt -e ".[data]"
	touch $@

.venv-peers/ready: pyproject.toml constraints.txt benchmarks/peers-requirements.txt
	test -x $(PEERS)/python || $(PYTHON) -m venv .venv-peers
	$(PEERS)/python -m pip install --quiet -c constraints.txt -r benchmarks/peers-requirements.txt -e .
	touch $@

# Attacks on files, processes, kernels and reports at random, with a seed; ten minutes, and every line must read zero.
hammer: .venv/ready
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; } || true
	nice -n 5 $(BIN)/python hammer/run.py $(ARGS)

# Two processes that score a folder are killed at twenty random moments, two that train under torchrun at three; minutes.
hammer-scale: .venv/ready
	nice -n 5 $(BIN)/python hammer/run.py --only "scoring a folder" $(ARGS)
	nice -n 5 $(BIN)/python hammer/run.py --only "killed ranks" $(ARGS)

# The documentation as a site of HTML pages in site/; a link that leads nowhere is an error.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The same at http://127.0.0.1:8000, made anew whenever a page changes.
docs-serve: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

clean:
	rm -rf .venv .venv-peers .venv-tables .venv-package .pytest_cache .mypy_cache .ruff_cache dist build site

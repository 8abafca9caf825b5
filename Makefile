# make demo: see it balance a pole. make test: everything that is checked before a commit.
# make docs: the site, in docs/_build/html. make dist: wheel and sdist, checked.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
DIST := .venv-dist
WORKERS ?= 2
MINUTES ?= 30
OUT ?= runs/chaos

.PHONY: demo test lint docs dist bench race chaos clean

demo: $(VENV)/.installed
	$(BIN)/bridgerl train --env InvertedPendulum-v5 --eval.stop-at 1000
	$(BIN)/bridgerl evaluate runs/InvertedPendulum-v5/sac-dbc-lite/seed0

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

docs: $(VENV)/.installed-dev
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

# The wheel is installed and asked for its version where nothing else is.
dist:
	rm -rf dist $(DIST)
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/pip install --quiet --disable-pip-version-check build twine
	$(DIST)/bin/python -m build --outdir dist
	$(DIST)/bin/twine check --strict dist/*
	$(DIST)/bin/pip install --quiet --disable-pip-version-check --no-deps dist/*.whl
	cd dist && ../$(DIST)/bin/bridgerl --version

bench: $(VENV)/.installed-dev $(PEERS)/.installed
	$(BIN)/bridgerl bench --threads 1 2 --peers $(PEERS)/bin/python

race: $(VENV)/.installed-dev $(PEERS)/.installed
	$(BIN)/bridgerl race --envs HalfCheetah-v5 Hopper-v5 --seeds 0 1 2 --peers $(PEERS)/bin/python

# Kill, damage, forge for so many minutes; stopped, the same command goes on.
chaos: $(VENV)/.installed-dev
	PYTHONPATH=$(CURDIR)/src:$(CURDIR)/tests $(BIN)/python -m chaos --minutes $(MINUTES) --workers $(WORKERS) --out $(OUT)

clean:
	rm -rf $(VENV) $(PEERS) $(DIST)

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[tb,plot,report]"
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@ $(VENV)/.installed

# Other libraries bring JAX along: they live in an environment of their own.
$(PEERS)/.installed: constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
		stable-baselines3 sb3-contrib sbx-rl "gymnasium[mujoco]"
	touch $@

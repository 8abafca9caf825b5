# make demo: see it balance a pole. make test: everything that is checked before a commit.
# make docs: the site, in docs/_build/html. make dist: wheel and sdist, checked.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
DIST := .venv-dist
TOOLS := .venv-tools
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
WORKERS ?= 2
MINUTES ?= 30
OUT ?= runs/chaos

.PHONY: demo test lint docs dist bench race chaos lock audit clean

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
	$(BIN)/python -m sphinx -E -q -W --keep-going -b html docs docs/_build/html

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

# What LOCKED=1 installs, with checksums of the package index. torch apart: see docs/trust.md.
COMPILE := $(TOOLS)/bin/uv pip compile --quiet --generate-hashes --no-annotate --no-strip-extras \
	--custom-compile-command "make lock" -c constraints.txt \
	--python-version 3.11.5 --python-platform x86_64-manylinux_2_28
lock: $(TOOLS)/.installed
	$(COMPILE) locks/torch.in -o locks/torch.txt
	$(COMPILE) pyproject.toml locks/build.in --override locks/without-torch.in \
		--extra tb --extra plot --extra report -o locks/demo.txt
	$(COMPILE) pyproject.toml locks/build.in --override locks/without-torch.in \
		--extra dev -o locks/dev.txt

# Known holes of what is locked. Asks a database over the network.
audit: $(TOOLS)/.installed
	$(TOOLS)/bin/python tests/audit.py $(TOOLS)/bin/pip-audit locks/torch.txt locks/demo.txt locks/dev.txt

clean:
	rm -rf $(VENV) $(PEERS) $(DIST) $(TOOLS)

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
ifdef LOCKED
	$(PIP) --require-hashes -r locks/torch.txt -r locks/demo.txt
	$(PIP) --no-deps --no-build-isolation -e .
else
	$(PIP) -c constraints.txt -e ".[tb,plot,report]"
endif
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
ifdef LOCKED
	$(PIP) --require-hashes -r locks/torch.txt -r locks/dev.txt
	$(PIP) --no-deps --no-build-isolation -e .
else
	$(PIP) -c constraints.txt -e ".[dev]"
endif
	touch $@ $(VENV)/.installed

$(TOOLS)/.installed: Makefile
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --disable-pip-version-check uv pip-audit
	touch $@

# Other libraries bring JAX along: they live in an environment of their own.
$(PEERS)/.installed: constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
		stable-baselines3 sb3-contrib sbx-rl "gymnasium[mujoco]"
	touch $@

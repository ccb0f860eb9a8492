# make run      everything on this machine: embedded Redis, one worker, one web server
# make test     the tests
# make check    what CI does: format, lint, types, import contracts, tests
# make install  only the virtual environment, from the lock files
# make lock     pin again after a change in pyproject.toml (UPGRADE=--upgrade for newer versions)

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-from-lock
TEST_STAMP := $(VENV)/.installed-for-tests
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Most tests wait for processes, so three at a time keep two cores busy; a file stays in one process.
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist loadfile
COMPILE := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --no-header \
	--no-emit-index-url --no-emit-find-links --no-annotate $(UPGRADE)

# The first Python from 3.11 to 3.13; failing that, the first that is newer.
FIND_PYTHON = for below in 14 99; do for p in $(PYTHON) python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, $$below))" >/dev/null 2>&1 \
	&& echo "$$p" && exit; done; done

.PHONY: install run test check lock clean
.DEFAULT_GOAL := run

install: $(STAMP)

$(STAMP): requirements-dev.lock pyproject.toml
	@python="$$($(FIND_PYTHON))"; \
	if [ -z "$$python" ]; then \
		echo "Outlast needs Python 3.11 or newer, and none is on the PATH. Name one: make PYTHON=/path/to/python3"; exit 1; \
	fi; \
	if [ ! -x $(BIN)/python ]; then \
		echo "[1/3] making $(VENV) with $$("$$python" --version)"; \
		"$$python" -m venv $(VENV) || { rm -rf $(VENV); \
			echo "The venv module did not work; on Debian and Ubuntu install python3-venv, then try again."; exit 1; }; \
	else echo "[1/3] using $(VENV) with $$($(BIN)/python --version)"; fi
	@echo "[2/3] installing $$(grep -c == requirements-dev.lock) pinned packages (the first time takes a minute)"
	@$(PIP) install -r requirements-dev.lock
	@echo "[3/3] putting the project's root on the path"
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

run: $(STAMP)
	@exec $(BIN)/python -m shared.local

$(TEST_STAMP): $(STAMP) requirements-test.lock
	@echo "[test] installing what only the tests need, $$(grep -c == requirements-test.lock) packages in all"
	@$(PIP) install -r requirements-test.lock
	@touch $@

test: $(TEST_STAMP)
	$(PYTEST) $(ARGS)

check: $(TEST_STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) $(ARGS)

lock: $(STAMP)
	@test -x $(BIN)/uv || $(PIP) install uv
	$(COMPILE) --output-file requirements.lock
	$(COMPILE) --extra embedded --extra dev --constraint requirements.lock --output-file requirements-dev.lock
	$(COMPILE) --all-extras --constraint requirements-dev.lock \
		--output-file requirements-test.lock

clean:
	rm -rf $(VENV) dist

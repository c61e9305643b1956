# Ebb: `make demo` shows it at work, `make test` checks everything. Both set themselves up: Python >= 3.11 and make are enough.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

# The tests start hundreds of processes. Where Python may not keep what it compiled, each of them compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo serve test test-training test-long check fmt lint types imports proto proto-check migrations-check tests compiled-tests bench bench-pair bench-gpu gpu-report clean lock
.DEFAULT_GOAL := help

help:
	@echo "make demo   a trial preempts training jobs, and they resume (about a minute)"
	@echo "make demo SHOW=allox   jobs matched to two kinds of device, under three policies (two minutes)"
	@echo "make demo SHOW=gandiva   jobs take turns, are packed by what is measured, move, grow and shrink (two minutes)"
	@echo "make test   lint, types, import rules, proto, migrations, tests (some minutes)"
	@echo "make check  what has changed since the last commit, and the tests beside it (seconds); or PATHS=\"file folder\"; make fmt: format"
	@echo "make test-training  tests of training code, with PyTorch and the frameworks, which it installs"
	@echo "make test-long  the tests that take long, and many more examples of the others (an hour)"
	@echo "make serve  a scheduler with two simulated nodes on this machine, until Ctrl-C"
	@echo "make bench  every benchmark, or one: make bench ONLY=step_cost"
	@echo "make bench-pair BASE=commit ONLY=step_cost  the same in alternation with an earlier commit, as ratios"
	@echo "make bench-gpu  what Ebb does with a GPU, measured; PYTHON= names a Python that has PyTorch"
	@echo "make gpu-report  what NVML says and costs, on a machine with GPUs"
	@echo "make reproduce  the tables of the papers' evaluations again, or some: make reproduce ONLY=gandiva/slicing TRACES=folder"
	@echo "make proto  generate code from proto/; make lock: bring requirements.lock up to date; make clean"

# The environment is made anew whenever the lock or the project's own metadata changes.
$(VENV)/.ready: requirements.lock pyproject.toml scripts/setup
	@PYTHON=$(PYTHON) scripts/setup $(VENV)

$(VENV)/.training: $(VENV)/.ready pyproject.toml scripts/setup-training
	@scripts/setup-training $(VENV)

demo: $(VENV)/.ready
	@$(PY) -m examples.demo $(if $(SHOW),--show $(SHOW)) $(ARGS)

serve: $(VENV)/.ready
	@$(PY) -m examples.serve $(ARGS)

# Compiling all tests with their assertions takes as long as mypy does. It is done next to that, once, and not by each worker.
test: $(VENV)/.ready
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target types lint imports proto-check compiled-tests
	@$(MAKE) --no-print-directory tests

compiled-tests: $(VENV)/.ready
	@said=$$($(PY) -m pytest --collect-only -qq 2>&1) || { echo "$$said"; exit 1; }

check: $(VENV)/.ready
	@$(PY) scripts/check.py $(PATHS)

fmt: $(VENV)/.ready
	$(VENV)/bin/ruff check --fix --quiet .
	$(VENV)/bin/ruff format .

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(PY) scripts/check_words.py

types: $(VENV)/.ready
	$(VENV)/bin/mypy

imports: $(VENV)/.ready
	$(VENV)/bin/lint-imports

proto: $(VENV)/.ready
	$(PY) scripts/generate.py

proto-check: $(VENV)/.ready
	$(VENV)/bin/buf lint
	$(PY) scripts/generate.py --check

migrations-check: $(VENV)/.ready
	$(PY) -m pytest tests/store/test_migrations.py

tests: $(VENV)/.ready
	$(PY) -m pytest -n 4 --dist worksteal $(ARGS)

# The tests of training code, with PyTorch and the frameworks.
test-training: $(VENV)/.training
	$(PY) -m pytest -n 3 --dist worksteal -m "training and not long" $(ARGS)

# The tests that take long, and of all others many more examples, which are others each time. An hour or so.
test-long: $(VENV)/.training
	EBB_EXAMPLES=$${EBB_EXAMPLES:-40} $(PY) -m pytest -n 2 --dist worksteal -m "" --timeout 3600 $(ARGS)

bench: $(VENV)/.training
	$(PY) -m benchmarks $(ONLY)

# Benches of a base commit and of this checkout in alternation: make bench-pair BASE=c32fe036 ONLY="cells step_cost"
bench-pair: $(VENV)/.training
	@$(PY) -m benchmarks.compare $(BASE) $(ONLY)

# make bench-gpu PYTHON=/path/to/a/python/with/torch; most parts need Ebb's environment there, too. Status 3: there is no GPU.
bench-gpu:
	@$(PYTHON) -m benchmarks.gpu $(ARGS)

gpu-report: $(VENV)/.ready
	@$(PY) scripts/gpu_report.py $(ARGS)

# make reproduce ONLY="gandiva/slicing scores" TRACES=folder; ARGS=--list names the parts, ARGS=--small makes what test-long compares.
reproduce: $(VENV)/.ready
	@$(PY) -m scripts.reproduce $(if $(TRACES),--traces $(TRACES)) $(ARGS) $(ONLY)

lock: $(VENV)/.ready
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command "make lock" --extra client --extra scheduler --extra sim --extra agent --group dev pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

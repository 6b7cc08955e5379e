# `make help` lists the targets.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo chart krew manifests test test-integration test-unit test-long check fuzz bench docs reference lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.requirements: requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Name another with: make PYTHON=/path/to/python3.11")'
	@echo "setting up $(VENV) (locked requirements, about half a minute)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.txt
	@touch $@

$(VENV)/.ready: $(VENV)/.requirements pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(VENV)/.ready ## create .venv with the locked requirements

demo: setup ## run the demo on a real API server (ARGS="--help" lists its options)
	@$(BIN)/python -m localup demo $(ARGS)

chart: setup ## package the chart as build/chart/*.tgz, for `helm push FILE oci://REGISTRY`
	@$(BIN)/python -m localup helm package charts/volcano-global --destination build/chart

krew: setup ## package the kubectl plugin as build/krew (ARGS="--uri https://…")
	@$(BIN)/python -m localup krew $(ARGS)

manifests: setup ## write build/manifests for `kubectl apply -k` (ARGS="--set image.repository=…")
	@rm -rf build/manifests && mkdir -p build/manifests/uninstall
	@$(BIN)/python -m localup helm template volcano-global charts/volcano-global --namespace karmada-system --no-hooks $(ARGS) > build/manifests/volcano-global.yaml
	@$(BIN)/python -m localup helm template volcano-global charts/volcano-global --namespace karmada-system --show-only templates/check.yaml $(ARGS) > build/manifests/check.yaml
	@$(BIN)/python -m localup helm template volcano-global charts/volcano-global --namespace karmada-system --show-only templates/uninstall.yaml $(ARGS) > build/manifests/uninstall/uninstall.yaml
	@printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: karmada-system\nresources: [volcano-global.yaml]\n' > build/manifests/kustomization.yaml
	@echo build/manifests

check: setup ## format, lint, types, import contracts, documentation
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@PYTHONPATH=. $(BIN)/python docs/generate_crds.py --check
	@PYTHONPATH=. $(BIN)/python docs/generate_dashboard.py --check
	@PYTHONPATH=. $(BIN)/python docs/generate_schema.py --check
	@PYTHONPATH=. $(BIN)/python docs/generate.py --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test: check ## checks, unit tests and smoke tests with a real API server
	@$(BIN)/python -m localup binaries
	@$(BIN)/pytest --quiet --numprocesses 2 --dist loadgroup -m "not long and not integration" $(ARGS)

test-integration: setup ## all other tests: real API servers, processes, the chart (builds Helm once)
	@$(BIN)/python -m localup binaries
	@$(BIN)/pytest --quiet --numprocesses 2 --dist loadfile -m "integration and not long" $(ARGS) || \
		{ echo "running failed tests once more, sequentially: the servers share two cores"; \
		$(BIN)/pytest --quiet --last-failed --last-failed-no-failures none -m "integration and not long" $(ARGS); }

test-unit: setup ## tests without a server
	@$(BIN)/pytest --quiet --numprocesses 2 -m "not long and not real and not process" $(ARGS)

test-long: setup ## enumerations, long runs and more examples of each property test: several hours
	@$(BIN)/python -m localup binaries
	@DRAWS=1 $(BIN)/pytest -m long $(ARGS)
	@DRAWS=20 $(BIN)/pytest -m "hypothesis and not long and not real and not process" $(ARGS)
	@$(BIN)/python -m tests.deterministic --seed 1000 --hours 25 --runs 41 --keep-going --least 1000

fuzz: setup ## fuzz the webhook with generated bodies until interrupted (ARGS="--seed N --count N")
	@$(BIN)/python -m tests.webhook.fuzz $(ARGS)

bench: setup ## run the benchmarks and write build/bench.json
	@$(BIN)/python -m tests.benchmarks $(ARGS)

docs: setup ## build the documentation site into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo build/site/index.html

reference: setup ## generate the reference tables, the CRDs, the dashboard and the schemas from the code
	@PYTHONPATH=. $(BIN)/python docs/generate_crds.py
	@PYTHONPATH=. $(BIN)/python docs/generate_dashboard.py
	@PYTHONPATH=. $(BIN)/python docs/generate_schema.py
	@$(BIN)/python -m tests.chart.schema
	@PYTHONPATH=. $(BIN)/python docs/generate.py

lock: setup ## update the locked requirements
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --universal --python-version 3.11 --no-header pyproject.toml --output-file requirements.txt
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --universal --python-version 3.11 --no-header --extra dev --constraint requirements.txt pyproject.toml --output-file requirements-dev.txt
	@echo hatchling | $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --universal --python-version 3.11 --no-header --no-annotate --constraint requirements-dev.txt --output-file requirements-build.txt -

clean: ## remove .venv, build and the caches of this checkout
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis

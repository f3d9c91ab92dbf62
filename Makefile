# Every target makes or refreshes .venv by itself: nothing has to be installed by hand.
# Paths are relative, so that the folder may have any name.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-kafka bench format soak install clean FORCE

# The first of these that is new enough and can make a virtual environment; or say make PYTHON=...
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$python" && break; done)

BIN := .venv/bin
RUN := $(BIN)/python -m
# Progress for people, silence for pipes.
SAY = [ ! -t 2 ] || echo >&2
# Python compiles what it imports anyway: compiling all of it at once doubles the time of the install.
PIP = --no-compile --disable-pip-version-check $$([ -t 2 ] || echo --quiet)

# A virtual environment holds absolute paths: after the folder has moved it is made anew.
ifneq "$(shell cat .venv/here 2>/dev/null)" "$(CURDIR)"
MOVED := FORCE
endif
FORCE:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: .venv/warm .venv/spark ## the whole system for a minute: brokers, a market, Spark
	@$(BIN)/tidings demo $(ARGS)

test: .venv/warm .venv/spark ## format, lint, types and tests (ARGS="-k name" goes to pytest)
	@$(RUN) ruff format --check --quiet . || { echo "run: make format" >&2; exit 1; }
	@$(RUN) ruff check --quiet .
	@$(RUN) mypy
	@$(RUN) pytest $(ARGS)

# Apart from `make test`, because of what it downloads: a real broker and Spark's connector.
KAFKA_VERSION := 3.9.1
KAFKA_JARS := org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0 \
	org.apache.kafka:kafka-clients:$(KAFKA_VERSION) org.apache.commons:commons-pool2:2.12.1
test-kafka: .venv/warm .venv/spark build/kafka/here ## Spark's pipeline against a real Kafka broker (needs mvn and java)
	@TIDINGS_KAFKA_JARS=build/kafka $(RUN) pytest tests/kafka/kafka.py $(ARGS)

build/kafka/here: tests/kafka/broker.xml
	@command -v mvn >/dev/null || { echo "make test-kafka needs Maven (mvn) to fetch the broker" >&2; exit 1; }
	@$(SAY) "Fetching Kafka"
	@mvn -q -B -f tests/kafka/broker.xml dependency:copy-dependencies -DoutputDirectory='$(CURDIR)/build/kafka/broker'
	@for jar in $(KAFKA_JARS); do \
		mvn -q -B dependency:copy -Dartifact=$$jar -DoutputDirectory='$(CURDIR)/build/kafka/connector' || exit 1; done
	@touch $@

soak: .venv/warm .venv/spark ## the tests again, with many more and always new examples
	@TIDINGS_SOAK=1 $(RUN) pytest $(ARGS)

bench: .venv/warm .venv/spark ## every benchmark
	@$(RUN) pip install $(PIP) -c constraints.txt --no-build-isolation -e '.[dev,spark,bench]'
	@set -e; for bench in benchmarks/bench_*.py; do \
		[ -e "$$bench" ] || continue; \
		$(SAY) "$$bench"; $(BIN)/python "$$bench" $(ARGS); done

format: .venv/installed ## format the code and repair what can be repaired
	@$(RUN) ruff format --quiet .
	@$(RUN) ruff check --quiet --fix .

install: .venv/warm ## only make .venv
	@:

clean: ## remove .venv and all caches
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Build isolation is off so that the build backend is pinned as well, and fetched once.
.venv/installed: pyproject.toml constraints.txt $(MOVED)
	@[ -n '$(PYTHON)' ] && '$(PYTHON)' -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Tidings needs Python 3.11 or newer, with venv and ensurepip. Name one: make PYTHON=/path/to/python3" >&2; \
		exit 1; }
	@if [ "$$(cat .venv/here 2>/dev/null)" != "$$(pwd -P)" ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		$(SAY) "Creating .venv"; rm -rf .venv && '$(PYTHON)' -m venv .venv; fi
	@$(SAY) "Installing the packages of constraints.txt"
	@$(RUN) pip install $(PIP) -c constraints.txt hatchling editables
	@$(RUN) pip install $(PIP) -c constraints.txt --no-build-isolation -e '.[dev]'
	@pwd -P > .venv/here
	@touch $@

# Spark is large and comes as a source package: after everything else, and only for what needs it.
.venv/spark: .venv/installed
	@$(SAY) "Installing Spark (450 MB)"
	@$(RUN) pip install $(PIP) -c constraints.txt setuptools
	@$(RUN) pip install $(PIP) -c constraints.txt --no-build-isolation -e '.[dev,spark]'
	@touch $@

# Compiles the kernels into their cache once, not in the middle of the first match.
.venv/warm: .venv/installed $(shell find src/tidings/matching src/tidings/scheduling src/tidings/compiled.py -name "*.py" 2>/dev/null)
	@if $(BIN)/tidings warm --help >/dev/null 2>&1; then \
		$(SAY) "Compiling the kernels"; $(BIN)/tidings warm >/dev/null; fi
	@touch $@

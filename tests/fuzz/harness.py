"""The process that is fuzzed: python harness.py TARGET [arguments of libFuzzer]; fuzz.py starts it with the right build."""

import sys

import atheris

with atheris.instrument_imports(include=["ringcast", "targets"]):
    from targets import TARGETS

if __name__ == "__main__":
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()

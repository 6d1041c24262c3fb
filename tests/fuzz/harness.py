"""The process that is fuzzed: python harness.py TARGET COMMAND [arguments of libFuzzer]. fuzz.py starts it with the right build;
COMMAND is what starts it again."""

import sys

import atheris

with atheris.instrument_imports(include=["ringcast", "targets"]):
    from targets import TARGETS

if __name__ == "__main__":
    _, target, *words = sys.argv
    atheris.Setup(words, TARGETS[target])
    atheris.Fuzz()

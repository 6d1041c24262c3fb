"""Simulated runs: draw a plan from a seed, perform it, measure."""

"""Simulated runs: what a seed draws, carries out, measures."""

"""Checks for the tests of a workload of your own: `check_variants` and `check_levers`."""

from workloads.own.checks import check_levers, check_variants

__all__ = ["check_levers", "check_variants"]

"""Tests of collectives: calls of one rank, matching over ranks, and the metric."""

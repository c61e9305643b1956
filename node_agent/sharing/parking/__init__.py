"""Suspends runs in place, and resumes them (ADR 46)."""

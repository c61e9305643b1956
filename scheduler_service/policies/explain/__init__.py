"""Why a job waits, found by the stages that decide it."""

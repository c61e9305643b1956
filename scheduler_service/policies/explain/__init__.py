"""Why a job waits, told from the stages that decide it."""

"""Sweeps: many jobs that search for one thing together, such as the best learning rate.

    from client_sdk import Client
    from client_sdk.sweep import Sweep
    from client_sdk.sweep.optuna import OptunaSearch

    study = optuna.create_study(direction="minimize", pruner=optuna.pruners.HyperbandPruner())
    search = OptunaSearch(study, lambda trial: {"rate": trial.suggest_float("rate", 1e-4, 1, log=True)}, configurations=100)
    with Client() as ebb, Sweep(ebb, ["python", "train.py"], name="rates", slots=4, exclusive=2, devices=1) as sweep:
        sweep.run(search)

A training script reads its parameters by `training.parameters()` and reports by `training.report(loss)`.
"""

from client_sdk.sweep._members import Member, Report
from client_sdk.sweep._sweep import Search, Sweep

__all__ = ["Member", "Report", "Search", "Sweep"]

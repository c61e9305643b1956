"""The tables of the first version."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = ("pre",)
depends_on = None


def upgrade() -> None:
    op.get_bind().exec_driver_sql(Path(__file__).with_suffix(".sql").read_text("utf-8"))


def downgrade() -> None:
    for table in (
        "job_event",
        "operation",
        "device",
        "run",
        "job",
        "idle_cells",
        "exchange_surplus",
        "exchange_ledger",
        "exchange",
        "exchange_order",
        "cell_binding",
        "virtual_cluster",
        "node",
        "leader",
        "cluster",
    ):
        op.drop_table(table)

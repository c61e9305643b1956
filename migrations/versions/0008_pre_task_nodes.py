"""Rename the nodes of a gang among the sparse fields of a job."""

from pathlib import Path

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

HERE = Path(__file__)


def upgrade() -> None:
    op.get_bind().exec_driver_sql(HERE.with_suffix(".sql").read_text("utf-8"))


def downgrade() -> None:
    op.get_bind().exec_driver_sql(HERE.with_name(HERE.stem + "_down.sql").read_text("utf-8"))

"""Stories tell who is spared when a job waits and may have others preempted."""

from pathlib import Path

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

HERE = Path(__file__)


def upgrade() -> None:
    op.get_bind().exec_driver_sql(HERE.with_suffix(".sql").read_text("utf-8"))


def downgrade() -> None:
    op.get_bind().exec_driver_sql(HERE.with_name(HERE.stem + "_down.sql").read_text("utf-8"))

"""Nodes know for which jobs they have strikes."""

from pathlib import Path

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

HERE = Path(__file__)


def upgrade() -> None:
    op.get_bind().exec_driver_sql(HERE.with_suffix(".sql").read_text("utf-8"))


def downgrade() -> None:
    op.get_bind().exec_driver_sql(HERE.with_name(HERE.stem + "_down.sql").read_text("utf-8"))

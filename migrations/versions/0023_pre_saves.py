"""Runs say whether what they had done was saved, and stories tell of saves that fail."""

from pathlib import Path

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

HERE = Path(__file__)


def upgrade() -> None:
    op.get_bind().exec_driver_sql(HERE.with_suffix(".sql").read_text("utf-8"))


def downgrade() -> None:
    op.get_bind().exec_driver_sql(HERE.with_name(HERE.stem + "_down.sql").read_text("utf-8"))

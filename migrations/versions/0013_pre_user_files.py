"""Snapshots and results of jobs are kept for their users."""

from pathlib import Path

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

HERE = Path(__file__)


def upgrade() -> None:
    op.get_bind().exec_driver_sql(HERE.with_suffix(".sql").read_text("utf-8"))


def downgrade() -> None:
    op.drop_table("user_file_piece")
    op.drop_table("user_file")

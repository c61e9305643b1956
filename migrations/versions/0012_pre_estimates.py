"""Past runs of scripts are kept, and runs are stopped because they were samples."""

from pathlib import Path

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

HERE = Path(__file__)


def upgrade() -> None:
    op.get_bind().exec_driver_sql(HERE.with_suffix(".sql").read_text("utf-8"))


def downgrade() -> None:
    op.get_bind().exec_driver_sql(HERE.with_name(HERE.stem + "_down.sql").read_text("utf-8"))

"""Nodes have labels, and an earmark says for which of its job's configurations it is."""

from pathlib import Path

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.get_bind().exec_driver_sql(Path(__file__).with_suffix(".sql").read_text("utf-8"))


def downgrade() -> None:
    op.drop_column("earmark", "configuration")
    op.drop_column("node", "labels")

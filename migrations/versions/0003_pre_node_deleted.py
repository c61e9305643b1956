"""Nodes can be deleted."""

from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.get_bind().exec_driver_sql(Path(__file__).with_suffix(".sql").read_text("utf-8"))


def downgrade() -> None:
    """A deleted node is one again that was not heard for long."""
    op.execute("UPDATE node SET state = 2 WHERE state = 3")
    op.execute("ALTER TABLE node DROP CONSTRAINT node_state_known, ADD CONSTRAINT node_state_known CHECK (state IN (1, 2))")
    op.execute("COMMENT ON COLUMN node.state IS 'Whether its agent is heard: 1 UP, 2 SILENT'")

"""An exit with 0 after a stop signal does not mean that the work is done."""

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.get_bind().exec_driver_sql(Path(__file__).with_suffix(".sql").read_text("utf-8"))


def downgrade() -> None:
    """Scheduler and database are of one version; jobs whose spec says what an exit with 0 means lose that word."""
    op.execute("UPDATE job SET spec_more = spec_more - 'exit_0_after_stop' WHERE spec_more ? 'exit_0_after_stop'")
    op.drop_column("run", "done")

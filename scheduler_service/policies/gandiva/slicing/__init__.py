"""The stage for a job that has no room: it takes turns with runs that hold devices already (Gandiva, section 4.2.1)."""

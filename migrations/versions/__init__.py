"""The revisions, in files named NNNN_pre_WHAT.py (additive) or NNNN_post_WHAT.py (contracting)."""

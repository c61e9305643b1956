"""The state of the cluster: tables of rows under a journal, and the indices that follow from them."""

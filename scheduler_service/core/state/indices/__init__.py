"""Index functions, one for each table, called at every put and every undo with the state, the previous row and the current row.
The indices themselves, dictionaries and lists, are attributes of the state.
"""

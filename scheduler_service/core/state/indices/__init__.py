"""What follows from the rows of the state, kept up at every put and every undo: one function for each table, called with the
state, the row that was there and the row that is. The dictionaries and lists themselves are the state's.
"""

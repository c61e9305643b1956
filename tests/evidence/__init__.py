"""Evidence that a change of structure changes no behaviour: digests of what the engine does with inputs that are kept."""

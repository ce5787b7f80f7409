"""Names that groups of clients and kinds of examples cannot have."""

# The words that begin names of numbers in a run's history, or could be taken for them.
TAKEN = ("train", "test", "validation", "new_train", "new_test", "federated", "central", "inference", "server",
         "clients", "rule", "online")

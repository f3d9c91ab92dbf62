"""The broker: the path of an event in order, its outboxes, its ledger, and the catalog of all interchangeable parts."""

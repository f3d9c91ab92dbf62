"""Matching engines: which subscriptions want this event? One contract, one file per engine."""

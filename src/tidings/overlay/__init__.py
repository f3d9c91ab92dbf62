"""Overlays: how subscriptions and events travel between brokers. One contract, one file per overlay."""

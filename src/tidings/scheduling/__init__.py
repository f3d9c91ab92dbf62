"""Delivery schedulers: which of the waiting events goes over the link next? One contract, one file per scheduler."""

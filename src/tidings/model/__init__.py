"""The vocabulary: events, filters, subscriptions, messages, and the inputs and effects of the broker."""

"""The simulator: the same brokers that run live, driven through simulated time. One seed, one trace."""

"""`tidings demo`: live brokers, a market and Spark, from the first quote to the last account."""

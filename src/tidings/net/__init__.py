"""The live driver: brokers and clients over real sockets. It carries out effects and feeds inputs, and decides nothing."""

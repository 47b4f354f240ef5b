"""For people who extend txlog: store contract, strategies, oracle."""
